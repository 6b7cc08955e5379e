"""Tests what a tenant with Karmada's role `edit` may write besides bindings, on a real API server."""

import json

import pytest

from localup.api import ApiError
from localup.apply import apply, apply_files, wait_until
from tests.policies.conftest import POLICIES, TEAM, _refuses, active
from tests.webhook.installation import send

QUOTA_POLICIES = POLICIES.parent / "quota-policies.yaml"
POLICY = "/apis/policy.karmada.io/v1alpha1"
OVERRIDES = f"{POLICY}/namespaces/{TEAM}/overridepolicies"
PROPAGATION = f"{POLICY}/namespaces/{TEAM}/propagationpolicies"
COMMANDS = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{TEAM}/commands"

JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
JOB_V1 = {"apiVersion": "batch.volcano.sh/v1", "kind": "Job"}
CLAIM_TEMPLATE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
COUNT = "/spec/spec/devices/requests/0/exactly/count"
COMMAND_LINE = {"containerName": "main", "operator": "add", "value": ["x"]}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}
COMMAND = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
CONTAINER = "/spec/tasks/0/template/spec/containers/0"


@pytest.fixture(scope="module")
def guarded(plane, tenant):
    """Return the plane once the policies are active."""
    apply_files(plane.admin, QUOTA_POLICIES)
    preserved = propagation(JOB, preserveResourcesOnDeletion=True)
    active(tenant, OVERRIDES, override(plaintext("/spec/queue")), "volcano-global-overrides")
    active(tenant, PROPAGATION, preserved, "volcano-global-propagation")
    active(tenant, COMMANDS, command("CloseQueue", "Queue", "default"), "volcano-global-commands")
    return plane


def denied(api, path, body, word):
    with pytest.raises(ApiError, match=word) as refused:
        api.create(path, body)
    assert refused.value.status == 403


def override(*overriders, selectors=(JOB,), rules=True):
    """Return an OverridePolicy with each of *overriders* in a rule, or one in its deprecated field."""
    spec = {"resourceSelectors": list(selectors)} if selectors is not None else {}
    if rules:
        spec["overrideRules"] = [{"overriders": overrider} for overrider in overriders]
    else:
        (spec["overriders"],) = overriders
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {"generateName": "mine-"},
        "spec": spec,
    }


def plaintext(path, operator="replace", value="x"):
    return {"plaintext": [{"path": path, "operator": operator, "value": value}]}


def image(path=None):
    predicate = {} if path is None else {"predicate": {"path": path}}
    return {"imageOverrider": [{"component": "Repository", "operator": "replace", "value": "x", **predicate}]}


def field(path):
    return {"fieldOverrider": [{"fieldPath": path, "yaml": [{"subPath": "/x", "operator": "add", "value": "1"}]}]}


def labels(key, kind="labels"):
    return {f"{kind}Overrider": [{"operator": "add", "value": {key: "other"}}]}


def propagation(*selectors, kind="PropagationPolicy", **spec):
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": kind,
        "metadata": {"generateName": "mine-"},
        "spec": {"resourceSelectors": list(selectors), **spec},
    }


def command(action, kind, name):
    group = "scheduling.volcano.sh/v1beta1" if kind == "Queue" else "batch.volcano.sh/v1alpha1"
    return {
        **COMMAND,
        "metadata": {"generateName": "mine-"},
        "action": action,
        "target": {"apiVersion": group, "kind": kind, "name": name, "uid": "u"},
    }


CHARGED = [
    pytest.param(plaintext("/spec/tasks/0/replicas", value=100), id="replicas"),
    pytest.param(plaintext(f"{CONTAINER}/resources/requests/cpu", value="100"), id="requests"),
    pytest.param(plaintext(f"{CONTAINER}/resources", operator="remove"), id="requests-removed"),
    pytest.param(plaintext(f"{CONTAINER[:-1]}-", operator="add", value={}), id="one-container-more"),
    pytest.param(plaintext("/spec/queue"), id="queue"),
    pytest.param(plaintext("/spec/priorityClassName"), id="priority-class"),
    pytest.param(plaintext("/spec/ttlSecondsAfterFinished", value=0), id="time-to-live"),
    pytest.param(plaintext("/spec", value={}), id="spec"),
    pytest.param(plaintext("", value={}), id="whole-object"),
    pytest.param(plaintext("x/spec/queue"), id="path-without-leading-slash"),
    pytest.param(plaintext(f"/spec/queue\n{CONTAINER}/image"), id="path-of-two-lines"),
    pytest.param(plaintext("/metadata/annotations/scheduling.volcano.sh~1queue-name"), id="queue-annotation-by-path"),
    pytest.param(plaintext("/metadata/labels", value={}), id="all-labels"),
    pytest.param(image("/spec/queue"), id="queue-as-image"),
    pytest.param(field("/spec/queue"), id="queue-as-field"),
    pytest.param(labels("scheduling.volcano.sh/queue-name"), id="queue-label"),
    pytest.param(labels("scheduling.volcano.sh~1queue-name"), id="queue-label-escaped"),
    pytest.param(labels("volcano.sh/queue-name", "annotations"), id="queue-annotation"),
    pytest.param(labels("propagationpolicy.karmada.io/permanent-id"), id="claim"),
]


@pytest.mark.parametrize("overriders", CHARGED)
def test_tenant_cannot_override_what_is_charged(guarded, tenant, overriders):
    denied(tenant, OVERRIDES, override(overriders), "volcano-global-overrides")


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(override(plaintext("/spec/queue"), selectors=None), id="no-selectors"),
        pytest.param(override(plaintext("/spec/queue"), selectors=[]), id="empty-selectors"),
        pytest.param(override(plaintext("/spec/queue"), selectors=[CONFIG_MAP, JOB]), id="one-of-two-selectors"),
        pytest.param(override(plaintext("/spec/queue"), selectors=[JOB_V1]), id="version"),
        pytest.param(override(image(), plaintext("/spec/queue")), id="second-rule"),
        pytest.param(override(plaintext("/spec/queue"), rules=False), id="deprecated-overriders"),
        pytest.param(override(plaintext("/target/kind"), selectors=[COMMAND]), id="target-of-a-command"),
        pytest.param(override(plaintext(COUNT, value=8), selectors=[CLAIM_TEMPLATE]), id="count-of-a-claim-template"),
        pytest.param(override(plaintext("/kind", value="Job"), selectors=[CONFIG_MAP]), id="other-kind-made-a-job"),
        pytest.param(override(plaintext("", value={}), selectors=[CONFIG_MAP]), id="other-object-replaced"),
        pytest.param(override(plaintext("x/kind", value="Job"), selectors=[CONFIG_MAP]), id="other-kind-without-slash"),
        pytest.param(override(plaintext("/metadata", value={}), selectors=[CONFIG_MAP]), id="other-metadata"),
        pytest.param(override(plaintext("/metadata/namespace"), selectors=[DEPLOYMENT]), id="other-namespace"),
        pytest.param(override(image("/metadata/namespace"), selectors=[DEPLOYMENT]), id="other-namespace-as-image"),
        pytest.param(override(field("/kind"), selectors=[CONFIG_MAP]), id="other-kind-as-field"),
    ],
)
def test_tenant_cannot_reach_workloads_by_other_selectors(guarded, tenant, policy):
    denied(tenant, OVERRIDES, policy, "volcano-global-overrides")


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(override(image()), id="image"),
        pytest.param(override(image(f"{CONTAINER}/image")), id="image-of-one-container"),
        pytest.param(override(plaintext(f"{CONTAINER}/image")), id="image-by-path"),
        pytest.param(override(plaintext(f"{CONTAINER}/env/-", operator="add", value={"name": "A"})), id="environment"),
        pytest.param(override(plaintext("/spec/tasks/0/template/spec/nodeSelector/zone", operator="add")), id="node"),
        pytest.param(override({"commandOverrider": [COMMAND_LINE]}), id="command"),
        pytest.param(override(labels("team.example/site")), id="label"),
        pytest.param(override(labels("team.example/site", "annotations"), rules=False), id="annotation"),
        pytest.param(override(plaintext("/data/x"), field("/data/x"), selectors=[CONFIG_MAP]), id="other-kind"),
    ],
)
def test_tenant_can_override_what_is_not_charged(guarded, tenant, policy):
    tenant.create(OVERRIDES, policy)


def test_tenant_cannot_edit_a_harmless_override_into_another(guarded, tenant):
    made = tenant.create(OVERRIDES, override(image()))["metadata"]["name"]
    with pytest.raises(ApiError, match="volcano-global-overrides"):
        tenant.merge(f"{OVERRIDES}/{made}", {"spec": override(plaintext("/spec/queue"))["spec"]})


def test_stored_override_can_be_labelled(guarded, tenant):
    """Karmada, the garbage collector and the tenant still write its metadata."""
    made = guarded.admin.create(OVERRIDES, override(plaintext("/spec/queue")))["metadata"]["name"]
    tenant.merge(f"{OVERRIDES}/{made}", {"metadata": {"labels": {"a": "b"}}})


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(propagation(JOB, preserveResourcesOnDeletion=True), id="preserved"),
        pytest.param(propagation(CONFIG_MAP, JOB, preserveResourcesOnDeletion=True), id="preserved-with-another"),
        pytest.param(propagation(JOB_V1, preserveResourcesOnDeletion=True), id="preserved-in-another-version"),
        pytest.param(propagation({"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow"}), id="job-flow"),
        pytest.param(propagation({"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobTemplate"}), id="job-template"),
        pytest.param(propagation({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob"}), id="cron-job"),
        pytest.param(propagation({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}), id="pod-group"),
    ],
)
def test_tenant_cannot_propagate_what_escapes_its_charge(guarded, tenant, policy):
    denied(tenant, PROPAGATION, policy, "volcano-global-propagation")


def test_tenant_cannot_preserve_resources_later(guarded, tenant):
    made = tenant.create(PROPAGATION, propagation(JOB))["metadata"]["name"]
    with pytest.raises(ApiError, match="volcano-global-propagation"):
        tenant.merge(f"{PROPAGATION}/{made}", {"spec": {"preserveResourcesOnDeletion": True}})


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(propagation(JOB), id="jobs"),
        pytest.param(propagation(JOB, preserveResourcesOnDeletion=False), id="not-preserved"),
        pytest.param(propagation(JOB, conflictResolution="Overwrite"), id="overwrite"),
        pytest.param(propagation(CONFIG_MAP, preserveResourcesOnDeletion=True), id="other-kind-preserved"),
        pytest.param(propagation({"apiVersion": "batch/v1", "kind": "CronJob"}), id="cron-job-of-kubernetes"),
    ],
)
def test_tenant_can_write_propagation_policies(guarded, tenant, policy):
    tenant.create(PROPAGATION, policy)


@pytest.mark.parametrize(
    ("action", "queue"), [("OpenQueue", "default"), ("CloseQueue", "default"), ("SyncQueue", "missing")]
)
def test_tenant_cannot_open_and_close_queues(guarded, tenant, action, queue):
    denied(tenant, COMMANDS, command(action, "Queue", queue), "needs the verb update")


def test_command_without_target_cannot_close_a_queue(guarded, tenant):
    body = command("CloseQueue", "Job", "x")
    denied(tenant, COMMANDS, {name: value for name, value in body.items() if name != "target"}, "needs the verb")


def test_tenant_commands_its_own_jobs(guarded, tenant):
    tenant.create(COMMANDS, command("AbortJob", "Job", "train"))


def test_owner_of_a_queue_opens_and_closes_that_queue_only(guarded, tenant):
    """The right to update one queue by its name is enough."""
    group = "rbac.authorization.k8s.io"
    queue = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": ["mine"]}
    named = {"apiVersion": f"{group}/v1", "metadata": {"name": "queue-mine"}}
    role = {"kind": "ClusterRole", "rules": [queue | {"verbs": ["update"]}]}
    binding = {
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "queue-mine"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "tenant"}],
    }
    apply(guarded.admin, [named | role, named | binding])
    mine = command("CloseQueue", "Queue", "mine")
    wait_until(lambda: not _refuses(tenant, COMMANDS, mine, "commands"), "right on a queue")
    tenant.create(COMMANDS, mine)
    denied(tenant, COMMANDS, command("CloseQueue", "Queue", "default"), "needs the verb update")


CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{TEAM}/resourceclaimtemplates"


def claim_template(name, count=8):
    exactly = {"deviceClassName": "gpu.example.com", "count": count}
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    return CLAIM_TEMPLATE | {"metadata": {"name": name}, "spec": spec}


def test_tenant_cannot_write_a_mapped_claim_template(plane, tenant):
    mapped = "resource-claim-template"
    apply_files(plane.admin, QUOTA_POLICIES.parent / "claim-policies.yaml")
    active(tenant, CLAIMS, claim_template(mapped), "volcano-global-claim-templates")
    denied(tenant, CLAIMS, claim_template(mapped), "only operators may write it")
    tenant.create(CLAIMS, claim_template("my-own"))
    plane.admin.create(CLAIMS, claim_template(mapped, count=1))
    with pytest.raises(ApiError):
        tenant.merge(f"{CLAIMS}/{mapped}", {"spec": claim_template(mapped)["spec"]})
    tenant.merge(f"{CLAIMS}/{mapped}", {"metadata": {"labels": {"a": "b"}}})


def test_trusted_users_are_not_restricted(guarded, karmada):
    made = guarded.admin.create(OVERRIDES, override(plaintext("/spec/queue")))
    guarded.admin.create(PROPAGATION, propagation(JOB, preserveResourcesOnDeletion=True))
    guarded.admin.create(COMMANDS, command("CloseQueue", "Queue", "default"))
    assert made["spec"]["overrideRules"]


@pytest.mark.parametrize(
    ("body", "warned"),
    [
        pytest.param(override(plaintext("/spec/queue")), "after their queue was charged", id="override"),
        pytest.param(override(image()), "", id="image"),
        pytest.param(override(plaintext("/spec/x"), selectors=[DEPLOYMENT]), "", id="other-kind"),
        pytest.param(propagation(JOB, preserveResourcesOnDeletion=True), "leaves workloads running", id="preserved"),
        pytest.param(propagation(JOB), "", id="propagation"),
    ],
)
def test_operators_are_warned(guarded, body, warned):
    path = {"OverridePolicy": "clusteroverridepolicies", "PropagationPolicy": "clusterpropagationpolicies"}[
        body["kind"]
    ]
    body = json.dumps(body | {"kind": f"Cluster{body['kind']}"}).encode()

    def is_as_expected():
        status, warnings, _ = send(guarded, "POST", f"{POLICY}/{path}?dryRun=All", body, identity="admin")
        assert status == 201
        return warned in str(warnings) if warned else warnings == []

    wait_until(is_as_expected, f"warning {warned!r}")
