"""The configuration: every key, and the errors of invalid values."""

from datetime import timedelta

import pytest

from controller.api.configuration import (
    ConfigurationError,
    Tenant,
    VolcanoGlobalConfiguration,
    configuration_revision,
    load_configuration,
    published_data,
    read_published,
)
from controller.cache.translate.policy import translate_policy
from controller.engine.policy import Policy
from controller.engine.state.clusters import Affinity, NodeShape, Requirement


def test_an_empty_mapping_is_the_default():
    assert load_configuration("{}") == VolcanoGlobalConfiguration()


def test_every_key_is_read():
    configuration = load_configuration(
        """
        apiVersion: config.volcano-global.io/v1alpha1
        kind: VolcanoGlobalConfiguration
        defaultQueue: research
        queueOrder: FairShareFirst
        tenantFairness: Namespace
        resize: {action: Report, gracePeriod: 1m}
        headReservation: {after: 0s, max: 1h}
        backfill: {enabled: false, confidence: 0.95, onOverrun: Evict}
        ageing: {after: 10m, step: 5, max: 100}
        advanceReservations:
        - {name: upgrade, clusters: [m], from: 2030-01-31T08:00:00Z, until: "2030-01-31T12:00:00+01:00", drain: 1h}
        - {name: launch, clusters: [n], from: 2030-01-31T08:00:00Z, until: 2030-02-01T08:00:00Z, workload: ml/train,
           amounts: {nvidia.com/gpu: 16, memory: 1Ti}}
        clusterStatusSettlePeriod: 45s
        startupTimeout: 2h
        reclaim: {enabled: true, minRuntime: 1m, maxEvictions: 1, gracePeriod: 0s}
        preemption: {enabled: true, minRuntime: 2m, maxEvictions: 2, gracePeriod: 10s}
        tenants:
        - {namespaces: [team-a-*], queues: [a], priorityClasses: [normal, high]}
        unmatchedTenants: Deny
        resourceClaimTemplates: [{name: one-gpu, requests: {nvidia.com/gpu: 1}}]
        nodeShapes:
        - {clusters: [member1], nodes: [{count: 4, allocatable: {nvidia.com/gpu: 8, cpu: 95500m}}]}
        - clusters: {matchLabels: {tier: cpu}, matchExpressions: [{key: old, operator: DoesNotExist}]}
          nodes: [{count: 2, allocatable: {cpu: 64, memory: 256Gi}}]
        integrations:
        - apiVersion: apps/v1
          kind: Deployment
        - apiVersion: ray.io/v1
          kind: RayJob
          queue: spec.queue
          priorityClass: spec.priority
          podTemplate: spec.head.template
          finished: {path: jobStatus, values: [SUCCEEDED], conditions: [Done]}
        maxHyperJobParts: 100
        nodeEstimates: Estimator
        dataSources: {onMove: Requeue, static: [{system: lake, name: images/*, clusters: [member1]}]}
        queueValidation: Deny
        queueCommandNamespaces: [operators]
        exemptNamespaces: [kube-system]
        repair: {webhookConfiguration: true, ungatedBindings: true}
        status: {pendingJobs: false, queues: false}
        patches: {inFlight: 16, perSecond: 100, burst: 20}
        """
    )
    unchanged = {
        name
        for name in VolcanoGlobalConfiguration.model_fields
        if getattr(configuration, name) == getattr(VolcanoGlobalConfiguration(), name)
    }
    assert unchanged == {"api_version", "kind"}, "write another value than the default for each new key"
    policy = translate_policy(configuration, can_estimate=True)
    assert [name for name in Policy.__slots__ if getattr(policy, name) == getattr(Policy(), name)] == []
    assert configuration.startup_timeout == timedelta(hours=2)
    assert configuration.tenants == (
        Tenant(namespaces=("team-a-*",), queues=("a",), priority_classes=("normal", "high")),
    )
    assert [rule.group for rule in configuration.integrations] == ["apps", "ray.io"]
    by_name, by_label = policy.node_shapes
    assert by_name.clusters == Affinity(names=("member1",))
    assert by_name.nodes == (NodeShape(4, (("cpu", 95_500), ("nvidia.com/gpu", 8_000))),)
    labels = (Requirement("tier", "In", ("cpu",)), Requirement("old", "DoesNotExist"))
    assert by_label.clusters == Affinity(labels=labels)
    assert by_label.nodes == (NodeShape(2, (("cpu", 64_000), ("memory", 256 * 2**30))),)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            "reclaim: {minRuntim: 5m}", "reclaim.minRuntim: unknown key; did you mean 'minRuntime'?", id="typo"
        ),
        pytest.param(
            "clusterStatusSettlePeriod: 30",
            "clusterStatusSettlePeriod: 30 is not a duration; write a whole number and s, m or h",
            id="unit",
        ),
        pytest.param("startupTimeout:", "startupTimeout: null is not a duration; write a whole", id="no-value"),
        pytest.param("startupTimeout: 0s", "startupTimeout: each workload would be evicted", id="no-time-to-start"),
        pytest.param("tenants: [{queues: [a]}]", "tenants[0].namespaces: field required", id="missing"),
        pytest.param(
            "queueOrder: Random", "queueOrder: input should be 'PriorityFirst' or 'FairShareFirst'", id="word"
        ),
        pytest.param("tenants: {a: b}", "tenants: input should be a list", id="no-list"),
        pytest.param("reclaim: [5m]", "reclaim: input should be a mapping", id="no-mapping"),
        pytest.param("exemptNamespaces: a", "exemptNamespaces: input should be a list", id="no-set"),
        pytest.param("reclaim: {enabled: maybe}", "reclaim.enabled: input should be a valid boolean", id="no-boolean"),
        pytest.param(
            "reclaim: {maxEvictions: -1}", "reclaim.maxEvictions: input should be greater than", id="below-zero"
        ),
        pytest.param("ageing: {after: 10m}", "ageing: after, step and max belong together", id="part-of-ageing"),
        pytest.param("ageing: {after: 9s, step: 1, max: 1}", "ageing: the order would be updated", id="short-ageing"),
        pytest.param("ageing: {after: 10m, step: 2, max: 1}", "ageing: step is 2 and max 1", id="step-above-max"),
        pytest.param(
            "advanceReservations: [{name: a, clusters: [m], from: 2030-01-01T00:00:00Z, until: 2030-01-01T00:00:00Z}]",
            "advanceReservations[0]: it ends before it begins",
            id="reservation-without-time",
        ),
        pytest.param(
            "advanceReservations: [{name: a, clusters: [m], from: 1900000000, until: 2030-01-01T00:00:00Z}]",
            "advanceReservations[0].from: 1900000000 is not a time",
            id="reservation-from-a-number",
        ),
        pytest.param(
            "advanceReservations: [{name: a, clusters: [m], from: 2030-01-01T00:00:00, until: 2030-01-02T00:00:00Z}]",
            "advanceReservations[0].from: input should have timezone info",
            id="reservation-without-time-zone",
        ),
        *(
            pytest.param(
                f"advanceReservations: [{{name: a, clusters: [m], amounts: {amounts}, "
                "from: 2030-01-01T00:00:00Z, until: 2030-01-02T00:00:00Z}]",
                f"advanceReservations[0].amounts: {expected}",
                id=f"reservation-of-{kind}",
            )
            for kind, amounts, expected in (
                ("no-amount", "{cpu: 0}", "cpu is 0; write more than zero, or leave it out"),
                ("a-negative-amount", "{cpu: 2, nvidia.com/gpu: -1}", "nvidia.com/gpu is -1; write more than zero"),
                ("no-quantity", "{memory: lots}", "memory: 'lots' is not a quantity"),
            )
        ),
        pytest.param("defaultQueue: ''", "defaultQueue: string should have at least 1 character", id="no-queue"),
        pytest.param(
            "nodeShapes: [{clusters: [m], nodes: [{count: 1, allocatable: {cpu: lots}}]}]",
            "nodeShapes[0].nodes[0].allocatable: cpu: 'lots' is not a quantity",
            id="node-without-a-quantity",
        ),
        pytest.param(
            "nodeShapes: [{clusters: {}, nodes: [{count: 1, allocatable: {cpu: 1}}]}]",
            "it selects every cluster; write matchLabels or matchExpressions",
            id="every-cluster",
        ),
        pytest.param("kind: Queue", "kind: input should be 'VolcanoGlobalConfiguration'", id="other-kind"),
        pytest.param(
            "integrations: [{apiVersion: batch/v1, kind: Job}, {apiVersion: batch/v2, kind: Job}]",
            "integrations names Job of group 'batch' twice; keep one entry",
            id="kind-twice",
        ),
        pytest.param(
            "integrations: [{apiVersion: batch/v1, kind: Job, finished: {path: a}}]",
            "integrations[0].finished: path and values belong together",
            id="half-an-ending",
        ),
        pytest.param(
            "integrations: [{apiVersion: batch/v1, kind: Job, finished: {}}]",
            "integrations[0].finished: no workload would ever be finished",
            id="no-ending",
        ),
        pytest.param(
            "integrations: [{apiVersion: batch/v1, kind: Job, queue: metadata.name}]",
            "integrations[0].queue:",
            id="path",
        ),
        pytest.param(
            "queueValidation: Warn\nqueueValidation: Deny", "key 'queueValidation' is repeated", id="key-twice"
        ),
        pytest.param("admission: {}", "admission: unknown key; it is a key of the Helm values", id="helm-values"),
        pytest.param("a: b\na: c", "line 2, column 1: key 'a' is repeated", id="line"),
        pytest.param("a: [", "is not valid YAML: line 1, column 5: expected the node content", id="no-yaml"),
        pytest.param("a: !!bool x", "is not valid YAML: line 1, column 4: the value does not have", id="no-bool"),
        pytest.param("a: !!int ''", "is not valid YAML: line 1, column 4: the value does not have", id="no-int"),
        pytest.param("a: !!timestamp x", "is not valid YAML: line 1, column 4: the value does not have", id="no-time"),
        pytest.param("!!python/object/apply:os.system [ls]", "is not valid YAML", id="code"),
        pytest.param("- a", "is a mapping that begins with apiVersion", id="a-list"),
    ],
)
def test_invalid_configuration_names_the_key_and_a_fix(text, sentence):
    with pytest.raises(ConfigurationError) as refusal:
        load_configuration(text)
    assert sentence in str(refusal.value)


def test_all_errors_are_reported_together():
    with pytest.raises(ConfigurationError, match=r"clusterStatusSettlePeriod: .*reclaim\.enabled: .*queueValidation: "):
        load_configuration("{clusterStatusSettlePeriod: x, reclaim: {enabled: x}, queueValidation: x}")


def test_revision_depends_only_on_contents():
    one = load_configuration("exemptNamespaces: [a, b, c]\nqueueOrder: PriorityFirst")
    same = load_configuration("exemptNamespaces: [c, b, a]")
    other = load_configuration("exemptNamespaces: [a, b]")
    assert configuration_revision(one) == configuration_revision(same) != configuration_revision(other)


@pytest.mark.parametrize("duration", ["0s", "90s", "90m", "999999999s", "999999999m", "999999999h"])
def test_published_duration_is_read_again(duration):
    configuration = load_configuration(f"clusterStatusSettlePeriod: {duration}")
    assert read_published(published_data(configuration))[0] == configuration


def test_published_reservations_are_read_again():
    configuration = load_configuration(
        "advanceReservations: [{name: a, clusters: [m], from: 2030-01-01T00:00:00Z, until: 2030-01-02T00:00:00+02:00}]"
    )
    read, revision = read_published(published_data(configuration))
    assert (read, revision) == (configuration, configuration_revision(configuration))
    [kept] = translate_policy(read).advance_reservations
    assert (kept.since, kept.until) == (1_893_456_000_000, 1_893_535_200_000)
