"""The bounds of limits hold for every order in which a controller may see changes."""

import json
from typing import Any

from tests.rig.history import Change, Key
from tests.rig.observed_usage import ObservedUsage

CLUSTER = {
    "metadata": {"name": "m"},
    "spec": {},
    "status": {
        "resourceSummary": {"allocatable": {"cpu": "8"}},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
CONTAINER = {"resources": {"requests": {"cpu": "4"}}}
JOB = {
    "metadata": {"name": "j", "namespace": "ns"},
    "spec": {"tasks": [{"replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}]},
}


def binding(cluster: str, **spec: Any) -> dict[str, Any]:
    record = {"uid": "u", "charge": {"cpu": "4", "pods": "1"}, "clusters": ["m1"]}
    return {
        "metadata": {"uid": "u", "annotations": {"volcano-global.io/admission": json.dumps(record)}},
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j"},
            "clusters": [{"name": cluster}] if cluster else [],
            **spec,
        },
    }


def test_workload_moved_by_karmada_counts_in_the_removed_cluster():
    usage = ObservedUsage(lag=1)

    def apply(kind: str, key: Key, before: dict[str, Any] | None, after: dict[str, Any] | None, at: float) -> None:
        usage.apply(Change(int(at * 10) + 1, kind, key, before, after, at))

    apply("clusters", ("", "m1"), None, CLUSTER, 0)
    apply("jobs", ("ns", "j"), None, JOB, 0.1)
    apply("resourcebindings", ("ns", "j-job"), None, binding("m1"), 0.2)
    apply("clusters", ("", "m1"), CLUSTER, None, 10)
    apply("clusters", ("", "m2"), None, CLUSTER, 20)
    apply("resourcebindings", ("ns", "j-job"), binding("m1"), binding("m2"), 20.1)
    assert usage.queue_limit("root", "cpu", 20.2) == 12


def test_evicted_workload_that_karmada_placed_counts_later():
    usage, suspended = ObservedUsage(lag=1), {"suspension": {"scheduling": True}}
    evicted, placed = binding("", **suspended), binding("m", **suspended)
    usage.apply(Change(1, "jobs", ("ns", "j"), None, JOB, 0))
    usage.apply(Change(2, "resourcebindings", ("ns", "j-job"), None, evicted, 0.1))
    usage.apply(Change(3, "resourcebindings", ("ns", "j-job"), evicted, placed, 0.2))
    assert "cpu" not in usage.held_in("root", 0.3)
    assert usage.held_in("root", 1.3)["cpu"] == 4


def test_usage_of_a_deleted_queue_counts_no_longer_in_its_parent():
    usage, parent = ObservedUsage(lag=1), {"metadata": {"name": "parent"}, "spec": {}}
    queue = {"metadata": {"name": "leaf"}, "spec": {"parent": "parent"}}
    job = {**JOB, "spec": {**JOB["spec"], "queue": "leaf"}}
    usage.apply(Change(1, "queues", ("", "parent"), None, parent, 0))
    usage.apply(Change(2, "queues", ("", "leaf"), None, queue, 0))
    usage.apply(Change(3, "jobs", ("ns", "j"), None, job, 0))
    usage.apply(Change(4, "resourcebindings", ("ns", "j-job"), None, binding("m"), 1))
    assert usage.held_in("parent", 9)["cpu"] == 4
    usage.apply(Change(5, "queues", ("", "leaf"), queue, None, 10))
    assert "cpu" not in usage.held_in("parent", 10.1)
    assert (usage.held_in("leaf", 10.1)["cpu"], usage.held_in("root", 10.1)["cpu"]) == (4, 4)


def test_workload_is_charged_with_its_requests_at_admission():
    larger = {**JOB, "spec": {"tasks": [{**JOB["spec"]["tasks"][0], "replicas": 2}]}}
    paused, admitted = binding("", suspension={"scheduling": True}), binding("m")
    for seconds, charged in ((1, 4), (5, 8)):
        usage = ObservedUsage(lag=2)
        usage.apply(Change(1, "jobs", ("ns", "j"), None, JOB, 0))
        usage.apply(Change(2, "resourcebindings", ("ns", "j-job"), None, paused, 0))
        usage.apply(Change(3, "jobs", ("ns", "j"), JOB, larger, 1))
        usage.apply(Change(4, "resourcebindings", ("ns", "j-job"), paused, admitted, 1 + seconds))
        assert usage.held_in("root", 10)["cpu"] == charged


def test_finished_workload_that_karmada_moved_counts_later():
    usage = ObservedUsage(lag=1)
    reported = [{"clusterName": "m1", "status": {"state": {"phase": "Completed"}}}]
    finished, moved = {**binding("m1"), "status": {"aggregatedStatus": reported}}, binding("m2")
    usage.apply(Change(1, "jobs", ("ns", "j"), None, JOB, 0))
    usage.apply(Change(2, "resourcebindings", ("ns", "j-job"), None, finished, 0.1))
    usage.apply(Change(3, "resourcebindings", ("ns", "j-job"), finished, moved, 0.2))
    assert "cpu" not in usage.held_in("root", 0.3)
    assert usage.held_in("root", 1.3)["cpu"] == 4
