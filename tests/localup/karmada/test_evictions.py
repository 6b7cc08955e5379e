"""Eviction tasks and taints of the stand-in."""

import pytest

from localup.karmada.clusters import NOT_READY, UNREACHABLE, tainted
from localup.karmada.evictions import evicted_by_taint, unfinished_tasks
from localup.karmada.failover import unhealthy_clusters

NOON = 1_800_000_000.0
TASK = {"fromCluster": "m1", "purgeMode": "Gracefully", "creationTimestamp": "2027-01-15T08:00:00Z"}


def binding(*, clusters=("m2",), tasks=(), health=None, generation=1):
    return {
        "metadata": {"name": "train-job", "namespace": "ml", "generation": generation},
        "spec": {"clusters": [{"name": name} for name in clusters], "gracefulEvictionTasks": list(tasks)},
        "status": {
            "schedulerObservedGeneration": 1,
            "aggregatedStatus": [{"clusterName": "m2", "health": health}] if health else [],
        },
    }


@pytest.mark.parametrize(
    ("task", "fields", "after", "stays"),
    [
        pytest.param({}, {}, 599, True, id="no-health-yet"),
        pytest.param({}, {}, 601, False, id="timeout"),
        pytest.param({"gracePeriodSeconds": 5}, {}, 6, False, id="own-grace"),
        pytest.param({}, {"health": "Unhealthy"}, 1, True, id="not-healthy-elsewhere"),
        pytest.param({}, {"health": "Healthy"}, 1, False, id="healthy-elsewhere"),
        pytest.param({}, {"health": "Healthy", "generation": 2}, 1, True, id="health-of-an-older-generation"),
        pytest.param({"suppressDeletion": True}, {"health": "Healthy"}, 9999, True, id="suppressed"),
        pytest.param({"suppressDeletion": False}, {}, 1, False, id="confirmed"),
    ],
)
def test_eviction_task_stays_until_it_is_finished(task, fields, after, stays):
    judged = binding(tasks=[TASK | task], **fields)
    assert bool(unfinished_tasks(judged, timeout=600, now=NOON + after)) is stays


@pytest.mark.parametrize(
    ("ready", "has", "wanted"),
    [
        pytest.param(None, [], [NOT_READY], id="new"),
        pytest.param("False", [], [NOT_READY], id="not-ready"),
        pytest.param("Unknown", [NOT_READY], [UNREACHABLE], id="unreachable"),
        pytest.param("True", [NOT_READY], [], id="ready"),
    ],
)
def test_cluster_is_tainted_by_readiness(ready, has, wanted):
    own = {"key": "repair", "effect": "NoSchedule"}
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    cluster = {"metadata": {"name": "m1"}, "spec": {"taints": [own, *has]}, "status": {"conditions": conditions}}
    changed = tainted(cluster)
    assert changed["spec"]["taints"] == [own, *wanted]
    assert tainted(changed) is changed


def test_eviction_adds_one_task():
    spec = evicted_by_taint(binding(clusters=["m1", "m2"]), "m1")["spec"]
    task = {"fromCluster": "m1", "producer": "TaintManager", "purgeMode": "Gracefully", "reason": "TaintUntolerated"}
    assert (spec["clusters"], spec["gracefulEvictionTasks"]) == ([{"name": "m2"}], [task])
    assert evicted_by_taint(binding(clusters=["m1"], tasks=[TASK]), "m1")["spec"]["gracefulEvictionTasks"] == [TASK]


def test_policy_chooses_how_a_taint_evicts():
    direct = binding(clusters=["m1"])
    direct["spec"]["failover"] = {"cluster": {"purgeMode": "Directly"}}
    assert evicted_by_taint(direct, "m1")["spec"]["gracefulEvictionTasks"][0]["purgeMode"] == "Directly"


def test_unhealthy_workload_fails_over_once():
    failing = binding(clusters=["m2"], health="Unhealthy")
    assert unhealthy_clusters(failing) == ["m2"]
    assert unhealthy_clusters(evicted_by_taint(failing, "m2")) == []
    assert unhealthy_clusters(binding(health="Healthy")) == []
