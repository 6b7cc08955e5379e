"""Cluster selection of the scheduler."""

import json

import pytest

from localup.karmada.objects import APPLIED_PLACEMENT
from localup.karmada.scheduler import Reason, format_applied_placement, place

JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "namespace": "team-a"}
ONE = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]


def cluster(name, *, cpu="100", used=None, labels=None, taints=None, apis=True, **spec):
    summary = {"allocatable": {"cpu": cpu, "pods": "110"}} | ({"allocated": {"cpu": used}} if used else {})
    enabled = [{"groupVersion": JOB["apiVersion"], "resources": [{"kind": "Job", "name": "jobs"}]}]
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": taints or [], **spec},
        "status": {"apiEnablements": enabled if apis else [], "resourceSummary": summary},
    }


def binding(*, clusters=(), spread=ONE, observed="", tasks=(), size=None, **placement):
    spec = {"resource": JOB, "placement": {"spreadConstraints": spread, **placement}, **(size or {})}
    spec |= {"clusters": [{"name": name} for name in clusters]} if clusters else {}
    spec |= {"gracefulEvictionTasks": [{"fromCluster": name} for name in tasks]} if tasks else {}
    return {"metadata": {"name": "b"}, "spec": spec, "status": {"schedulerObservingAffinityName": observed}}


TAINT = {"key": "gpu", "effect": "NoSchedule"}
THREE = [cluster("m2"), cluster("m1"), cluster("m3")]


@pytest.mark.parametrize(
    ("wanted", "clusters", "chosen"),
    [
        pytest.param(binding(), THREE, ["m1"], id="first-by-name"),
        pytest.param(binding(clusters=["m3"]), THREE, ["m3"], id="feasible-preset-is-kept"),
        pytest.param(
            binding(clusters=["m3"], clusterAffinity={"clusterNames": ["m1", "m2"]}),
            THREE,
            ["m1"],
            id="infeasible-preset-is-replaced",
        ),
        pytest.param(binding(spread=[]), THREE, ["m1", "m2", "m3"], id="all-without-a-constraint"),
        pytest.param(
            binding(spread=[{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}]),
            THREE,
            ["m1", "m2"],
            id="two",
        ),
        pytest.param(binding(), [cluster("m1", apis=False), cluster("m2")], ["m2"], id="cluster-has-the-kind"),
        pytest.param(binding(), [cluster("m1", taints=[TAINT]), cluster("m2")], ["m2"], id="taint"),
        pytest.param(
            binding(clusterTolerations=[{"key": "gpu", "operator": "Exists"}]),
            [cluster("m1", taints=[TAINT])],
            ["m1"],
            id="tolerated-taint",
        ),
        pytest.param(binding(clusters=["m1"]), [cluster("m1", taints=[TAINT])], ["m1"], id="taint-of-a-preset-cluster"),
        pytest.param(binding(tasks=["m1"]), THREE, ["m2"], id="cluster-of-an-eviction-task"),
        pytest.param(
            binding(clusterAffinity={"labelSelector": {"matchLabels": {"tier": "gpu"}}}),
            [cluster("m1"), cluster("m2", labels={"tier": "gpu"})],
            ["m2"],
            id="by-label",
        ),
        pytest.param(
            binding(
                clusterAffinity={
                    "fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
                }
            ),
            [cluster("m1", zones=["a"]), cluster("m2", zones=["a", "b"])],
            ["m2"],
            id="any-zone",
        ),
        pytest.param(binding(clusterAffinity={"exclude": ["m1"]}), THREE, ["m2"], id="excluded-cluster"),
    ],
)
def test_indivisible_workload_is_placed(wanted, clusters, chosen):
    outcome = place(wanted, clusters)
    assert (outcome.reason, [target["name"] for target in outcome.targets]) == (Reason.SUCCESS, chosen)


def test_no_feasible_cluster_clears_the_targets():
    wanted = binding(clusters=["m1"], clusterAffinity={"clusterNames": ["m1"]})
    outcome = place(wanted, [cluster("m2"), cluster("m3", apis=False)])
    assert (outcome.reason, outcome.targets) == (Reason.NO_CLUSTER_FIT, ())
    assert outcome.message == (
        "0/2 clusters are available: 1 cluster(s) did not have the API resource, "
        "1 cluster(s) did not match the placement cluster affinity constraint."
    )


@pytest.mark.parametrize(
    "groups",
    [pytest.param({"minGroups": 4, "maxGroups": 4}, id="too-few"), pytest.param({"minGroups": 1}, id="no-max")],
)
def test_unmet_spread_leaves_the_targets_unchanged(groups):
    outcome = place(binding(spread=[{"spreadByField": "cluster", **groups}]), THREE)
    assert (outcome.reason, outcome.targets) == (Reason.SCHEDULER_ERROR, None)


def test_single_target_gets_the_components():
    size = {"components": [{"name": "ps", "replicas": 1}, {"name": "worker", "replicas": 2}]}
    assert place(binding(size=size), THREE).targets == ({"name": "m1", **size},)


REQUEST = {"replicaRequirements": {"resourceRequest": {"cpu": "1"}}}


def divided(replicas, preference, *, clusters=(), spread=(), **weight):
    strategy = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": preference}
    strategy |= {"weightPreference": weight} if weight else {}
    wanted = binding(spread=list(spread), size={"replicas": replicas, **REQUEST}, replicaScheduling=strategy)
    wanted["spec"]["clusters"] = [{"name": name, "replicas": count} for name, count in clusters]
    return wanted


def weight(name, value):
    return {"targetCluster": {"clusterNames": [name]}, "weight": value}


SIZES = [cluster("m1", cpu="20", used="8"), cluster("m2", cpu="6")]


@pytest.mark.parametrize(
    ("wanted", "shares"),
    [
        pytest.param(
            divided(6, "Weighted", dynamicWeight="AvailableReplicas"), {"m1": 4, "m2": 2}, id="by-free-capacity"
        ),
        pytest.param(divided(3, "Weighted"), {"m1": 2, "m2": 1}, id="equal-static-weights"),
        pytest.param(
            divided(5, "Weighted", staticWeightList=[weight("m1", 5), weight("m2", 1)]), {"m1": 4, "m2": 1}, id="static"
        ),
        pytest.param(divided(6, "Aggregated"), {"m1": 6}, id="few-clusters"),
        pytest.param(divided(15, "Aggregated"), {"m1": 10, "m2": 5}, id="more-clusters"),
        pytest.param(divided(3, "Aggregated", clusters=[("m2", 3)]), {"m2": 3}, id="placed-replicas-stay"),
        pytest.param(divided(13, "Aggregated", spread=ONE), None, id="one-cluster-too-small"),
        pytest.param(divided(19, "Aggregated"), None, id="all-too-small"),
    ],
)
def test_replicas_are_divided(wanted, shares):
    targets = place(wanted, SIZES).targets
    assert ({target["name"]: target["replicas"] for target in targets} if targets else None) == shares


def test_placement_and_targets_equal_those_of_a_real_karmada(captured_objects):
    for real in captured_objects("rb-gate*"):
        applied = json.loads(real["metadata"]["annotations"][APPLIED_PLACEMENT])
        assert json.loads(format_applied_placement(real["spec"]["placement"])) == applied
        kind = real["spec"]["resource"]
        members = [cluster("member1", cpu="100"), cluster("member2", cpu="50"), cluster("member3", cpu="25")]
        for member in members:
            resources = [{"kind": kind["kind"], "name": "x"}]
            member["status"]["apiEnablements"] = [{"groupVersion": kind["apiVersion"], "resources": resources}]
            member["status"]["resourceSummary"]["allocatable"] |= {"memory": "400Gi", "pods": "1100"}
        fresh = real | {"spec": {k: v for k, v in real["spec"].items() if k != "clusters"}}
        assert list(place(fresh, members).targets) == real["spec"]["clusters"]
