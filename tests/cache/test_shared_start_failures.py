"""Workloads with equal requests in a namespace skip clusters where one of them did not start (R1)."""

import pytest

from controller.cache.start_failures import cluster_fingerprint
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.state.workloads import WorkloadUid
from controller.reporting.messages import pending_message
from tests.cache.objects import admission_record, binding, cluster, job, queue

SIZE = {"cpu": "8", "pods": "110"}


class Stage:
    """A store that feeds a World, with one cluster and one job that did not start there."""

    def __init__(self) -> None:
        self.store, self.state, self.version = Store(), Engine(), 1000
        self.store.queues.replace([self.store.queues.decode(queue("a"))])
        self.store.priority_classes.replace([])
        self.store.cluster_bindings.replace([])
        self.store.clusters.replace([self.store.clusters.decode(cluster("m1", **SIZE))])
        self.store.jobs.replace([])
        self.store.bindings.replace([])
        mark = cluster_fingerprint(self.store.clusters.decode(cluster("m1", **SIZE)).cluster)
        self.failed = admission_record(uid="rb-failed", queue="a", excluded_clusters={"m1": mark}, attempts=1)
        self.add("failed", record=self.failed)

    def add(self, name: str, *, cpu: str = "2", namespace: str = "ml", **more) -> None:
        template = job(name, namespace=namespace, uid=f"job-{name}", requests={"cpu": cpu})
        self.store.jobs.upsert(self.store.jobs.decode(template))
        self.store.bindings.upsert(self.store.bindings.decode(binding(name, namespace=namespace, **more)))

    def excluded_clusters(self, name: str) -> set[str]:
        self.store.sync_to(self.state, 0)
        return set(self.state.workloads[WorkloadUid(f"rb-{name}")].requirements.excluded_clusters)


def test_equal_workload_of_the_namespace_skips_failed_cluster():
    stage = Stage()
    stage.add("equal")
    stage.add("larger", cpu="3")
    stage.add("elsewhere", namespace="other")
    assert [stage.excluded_clusters(name) for name in ("failed", "equal", "larger", "elsewhere")] == [
        {"m1"},
        {"m1"},
        set(),
        set(),
    ]


def test_pending_workloads_skip_a_newly_failed_cluster():
    stage = Stage()
    stage.add("failed", record=None)
    stage.add("equal")
    assert stage.excluded_clusters("equal") == set()
    stage.add("failed", record=stage.failed)
    assert stage.excluded_clusters("equal") == {"m1"}


def test_pending_reason_names_the_excluded_cluster():
    stage = Stage()
    stage.add("equal")
    stage.store.sync_to(stage.state, 0)
    stage.state.plan(0)
    refusal = stage.state.refusal(WorkloadUid("rb-equal"))
    assert pending_message(refusal) == "it or an equal workload did not start on m1, which has not changed since"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"cpu": "9", "pods": "110"}, id="more-nodes"),
        pytest.param({"cpu": "8", "pods": "220"}, id="other-nodes"),
    ],
)
def test_changed_cluster_is_tried_again(changes):
    stage = Stage()
    stage.add("equal")
    assert stage.excluded_clusters("equal") == {"m1"}
    stage.store.clusters.upsert(stage.store.clusters.decode(cluster("m1", **changes)))
    assert [stage.excluded_clusters(name) for name in ("equal", "failed")] == [set(), set()]


def test_cluster_usage_does_not_end_an_exclusion():
    stage = Stage()
    stage.add("equal")
    stage.store.clusters.upsert(stage.store.clusters.decode(cluster("m1", used={"cpu": "4"}, **SIZE)))
    assert stage.excluded_clusters("equal") == {"m1"}


@pytest.mark.parametrize("deleted", [False, True])
def test_finished_workload_lets_equal_workloads_retry_there(deleted):
    stage = Stage()
    running = {"paused": False, "clusters": ["m1"]}
    stage.add("runs", **running, phases={"m1": "Running"})
    stage.add("equal")
    assert stage.excluded_clusters("equal") == {"m1"}
    if deleted:
        stage.store.bindings.remove(stage.store.bindings.decode(binding("runs")))
    else:
        stage.add("runs", **running, phases={"m1": "Completed"})
    assert stage.excluded_clusters("equal") == set()
    assert stage.excluded_clusters("failed") == {"m1"}


def test_exclusion_ends_when_failed_workload_is_deleted():
    stage = Stage()
    stage.add("equal")
    assert stage.excluded_clusters("equal") == {"m1"}
    stage.store.bindings.remove(stage.store.bindings.decode(binding("failed")))
    assert stage.excluded_clusters("equal") == set()
    assert not stage.store.start_failures.shared


def test_exclusion_stays_while_failed_workload_runs_elsewhere():
    stage = Stage()
    stage.add("failed", record=stage.failed, paused=False, clusters=["m2"], phases={"m2": "Running"})
    stage.add("equal")
    assert stage.excluded_clusters("equal") == {"m1"}


def test_exclusions_are_restored_from_records():
    stage = Stage()
    stage.add("equal")
    again = Stage()
    again.add("equal")
    assert again.excluded_clusters("equal") == stage.excluded_clusters("equal") == {"m1"}
