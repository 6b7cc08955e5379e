"""Bindings of jobs in files, as Karmada creates them: the selected policy, its placement and the defaults."""

import pytest

from tests.cli.manifests import (
    ONE,
    VOLCANO_JOB,
    binding,
    cluster,
    cluster_policy,
    configuration,
    job,
    pod,
    policy,
    queue,
    units,
)

CPU = {"cpu": 1}
EAST = {"clusterAffinity": {"clusterNames": ["east"]}}
WEST = {"clusterAffinity": {"clusterNames": ["west"]}}
CLUSTERS = cluster("east", units(8)), cluster("west", units(8))
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}


def selecting(**more):
    return {"apiVersion": VOLCANO_JOB, "kind": "Job", **more}


LABELED = selecting(labelSelector={"matchLabels": {"team": "x"}})
UNLABELED = selecting(labelSelector={"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]})


NAMED = selecting(name="j")
OF_LAB = policy("a", WEST) | {"metadata": {"name": "a", "namespace": "lab"}}
DELETED = {"name": "a", "namespace": "ml", "deletionTimestamp": "2026-03-01T09:00:00Z"}
PREFERRED_EAST = {
    "name-before-all": [policy("p", EAST, NAMED), policy("a", WEST)],
    "name-before-labels": [policy("p", EAST, NAMED), policy("a", WEST, LABELED)],
    "labels-before-all": [policy("p", EAST, LABELED), policy("a", WEST)],
    "labels-that-do-not-match": [policy("p", EAST), policy("a", WEST, UNLABELED)],
    "name-of-the-policy": [policy("a", EAST), policy("b", WEST)],
    "explicit-priority": [policy("z", EAST, priority=1), policy("a", WEST, NAMED)],
    "namespace-first": [policy("z", EAST), cluster_policy("a", WEST, NAMED, priority=9)],
    "cluster-policy": [cluster_policy("z", EAST), policy("a", WEST, selecting(name="other"))],
    "selector-namespace": [cluster_policy("z", EAST), cluster_policy("a", WEST, selecting(namespace="lab"))],
    "other-group": [policy("z", EAST), policy("a", WEST, {"apiVersion": "batch/v1", "kind": "Job"})],
    "other-namespace": [policy("z", EAST), OF_LAB],
    "being-deleted": [policy("z", EAST), policy("a", WEST) | {"metadata": DELETED}],
    "binding-before-policy": [binding("j", suspended=True, placement=ONE | EAST), policy("p", WEST)],
    "no-policy-uses-any-one-cluster": [],
}


@pytest.mark.parametrize("policies", PREFERRED_EAST.values(), ids=PREFERRED_EAST)
def test_placement_is_that_of_karmadas_preferred_policy(plan, policies):
    ended = plan(*CLUSTERS, queue("a"), job("j", CPU, queue="a", labels={"team": "x"}), *policies)
    assert ended.clusters() == {"j": ["east"]}


CLUSTER_POLICY_LABEL = {"clusterpropagationpolicy.karmada.io/permanent-id": "x"}


@pytest.mark.parametrize(
    ("documents", "reasons"),
    [
        pytest.param([binding("j", suspended=True, labels=None)], {"j": "NoMatchingPolicy"}, id="no-label"),
        pytest.param([binding("j", suspended=True, labels=None), policy("p", ONE)], {}, id="label-of-the-policy"),
        pytest.param([binding("j", suspended=True, labels=CLUSTER_POLICY_LABEL)], {}, id="cluster-policy-label"),
    ],
)
def test_binding_needs_a_policy_label_or_a_matching_policy(plan, documents, reasons):
    ended = plan(*CLUSTERS, queue("a"), job("j", CPU, queue="a"), *documents)
    assert (ended.reasons(), len(ended.answer["decisions"])) == (reasons, 1)


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([job("j", CPU, queue="a"), binding("j", suspended=False)], id="binding-not-suspended"),
        pytest.param([job("j", CPU, queue="a", deletionTimestamp="2026-03-01T09:00:00Z")], id="terminating-job"),
    ],
)
def test_job_that_is_not_pending_has_no_decision(plan, documents):
    assert plan(*CLUSTERS, queue("a"), *documents).answer["decisions"] == []


def test_policy_without_spread_constraint_charges_all_clusters(plan):
    ended = plan(*CLUSTERS, queue("a"), job("j", CPU, queue="a"), policy("p", {}))
    assert ended.clusters() == {"j": ["east", "west"]}
    assert ended.queue("a")["allocated"]["cpu"] == "2"


def test_namespaces_and_queue_have_defaults(plan):
    bound = binding("k", suspended=True)
    del bound["spec"]["resource"]["namespace"]
    ended = plan(*CLUSTERS, queue("default"), job("j", CPU, namespace=None, uid="u"), job("k", CPU), bound)
    decided = {(step["namespace"], step["name"], step["queue"], step["action"]) for step in ended.answer["decisions"]}
    assert decided == {("default", "j", "default", "Admit"), ("ml", "k", "default", "Admit")}


@pytest.mark.parametrize(
    ("record_uid", "uid", "charged"),
    [
        pytest.param("rb-old", "rb-old", "6", id="of-the-binding"),
        pytest.param("other", "rb-old", "2", id="of-another-binding"),
        pytest.param("whatever", None, "6", id="binding-without-uid"),
        pytest.param(None, "rb-old", "6", id="record-without-uid"),
    ],
)
def test_charge_is_that_of_the_record_of_the_same_uid(plan, record_uid, uid, charged):
    record = {"queue": "a", "charge": {"cpu": "6", "pods": "1"}, "clusters": ["east"]}
    record |= {"uid": record_uid} if record_uid else {}
    placed = binding("old", clusters=["east"], phase="Running", record=record, uid=uid)
    ended = plan(*CLUSTERS, queue("a"), placed, job("old", {"cpu": 2}, queue="a"))
    assert ended.queue("a")["allocated"]["cpu"] == charged


def test_jobs_of_one_name_in_two_api_groups_are_distinct(plan):
    rule = {"apiVersion": "batch/v1", "kind": "Job", "queue": "spec.queue"}
    plain = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ml"}}
    plain["spec"] = {"queue": "a", "parallelism": 2, "completions": 3, "template": pod(CPU)}
    served = cluster("m", {"cpu": 8}, kinds=((VOLCANO_JOB, "Job"), ("batch/v1", "Job")))
    ended = plan(served, queue("a"), job("j", CPU, queue="a"), plain, configuration(integrations=[rule]))
    assert len(ended.answer["decisions"]) == 2
    assert ended.queue("a")["allocated"] == {"cpu": "3"}


def deployment(replicas, *, queue_name="a"):
    labels = {"volcano.sh/queue-name": queue_name} if queue_name else {}
    metadata = {"name": "web", "namespace": "ml", "labels": labels}
    return {**DEPLOYMENT, "metadata": metadata, "spec": {"replicas": replicas, "template": pod(CPU)}}


SWITCHED_ON = configuration(integrations=[DEPLOYMENT])
SERVING = [cluster(name, {"cpu": 3}, kinds=(("apps/v1", "Deployment"),)) for name in ("east", "west")]


def test_integration_replicas_are_counted_and_divided(plan):
    placement = {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}
    ended = plan(*SERVING, queue("a"), deployment(5), policy("p", placement, DEPLOYMENT), SWITCHED_ON)
    step = ended.answer["decisions"][0]
    assert step["clusters"] == [{"name": "east", "replicas": 3}, {"name": "west", "replicas": 2}]
    assert ended.queue("a")["allocated"] == {"cpu": "5"}


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([deployment(5)], id="not-switched-on"),
        pytest.param([deployment(5, queue_name=""), SWITCHED_ON], id="without-a-queue"),
    ],
)
def test_kind_without_integration_is_not_managed(plan, documents):
    assert plan(*SERVING, queue("a"), *documents).answer["decisions"] == []
