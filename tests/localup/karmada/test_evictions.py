"""Eviction tasks and taints of the stand-in."""

import pytest

from localup.karmada.clusters import NOT_READY, UNREACHABLE, tainted
from localup.karmada.evictions import evicted, unfinished_tasks

NOON = 1_800_000_000.0
BEGUN = "2027-01-15T08:00:00Z"
TASK = {"fromCluster": "m1", "purgeMode": "Gracefully", "creationTimestamp": BEGUN}


def binding(*, clusters=(), tasks=(), health=None, generation=1, **spec):
    items = [{"clusterName": name, "health": said} for name, said in (health or {}).items()]
    return {
        "metadata": {"name": "train-job", "namespace": "ml", "generation": generation},
        "spec": {
            "clusters": [{"name": name} for name in clusters],
            "gracefulEvictionTasks": list(tasks),
            "placement": {},
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"},
            **spec,
        },
        "status": {"schedulerObservedGeneration": 1, "aggregatedStatus": items},
    }


def cluster(name="m1", *, ready="True", taints=()):
    enabled = [{"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"kind": "Job", "name": "jobs"}]}]
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    status = {"conditions": conditions, "apiEnablements": enabled}
    return {"metadata": {"name": name}, "spec": {"taints": list(taints)}, "status": status}


@pytest.mark.parametrize(
    ("more", "clusters", "health", "after", "stays"),
    [
        pytest.param({}, ["m2"], {}, 599, True, id="nothing-told-yet"),
        pytest.param({}, ["m2"], {}, 601, False, id="timeout"),
        pytest.param({"gracePeriodSeconds": 5}, ["m2"], {}, 6, False, id="own-grace"),
        pytest.param({}, ["m2"], {"m2": "Unhealthy"}, 1, True, id="not-healthy-there"),
        pytest.param({}, ["m2"], {"m2": "Healthy"}, 1, False, id="healthy-there"),
        pytest.param({"suppressDeletion": True}, ["m2"], {"m2": "Healthy"}, 9999, True, id="suppressed"),
        pytest.param({"suppressDeletion": False}, ["m2"], {}, 1, False, id="confirmed"),
    ],
)
def test_eviction_task_stays_until_it_is_finished(more, clusters, health, after, stays):
    judged = binding(clusters=clusters, tasks=[TASK | more], health=health)
    assert bool(unfinished_tasks(judged, timeout=600, now=NOON + after)) is stays


def test_health_counts_only_for_the_observed_generation():
    judged = binding(clusters=["m2"], tasks=[TASK], health={"m2": "Healthy"}, generation=2)
    assert unfinished_tasks(judged, timeout=600, now=NOON + 1) == [TASK]


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
    told = tainted(cluster(ready=ready, taints=[own, *has]))
    assert told["spec"]["taints"] == [own, *wanted]
    assert tainted(told) is told


def test_eviction_adds_one_task():
    left = evicted(binding(clusters=["m1", "m2"]), "m1")["spec"]
    task = {"fromCluster": "m1", "producer": "TaintManager", "purgeMode": "Gracefully", "reason": "TaintUntolerated"}
    assert (left["clusters"], left["gracefulEvictionTasks"]) == ([{"name": "m2"}], [task])
    assert evicted(binding(clusters=["m1"], tasks=[TASK]), "m1")["spec"]["gracefulEvictionTasks"] == [TASK]
