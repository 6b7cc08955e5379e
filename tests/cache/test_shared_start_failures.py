"""Equal workloads of a namespace do not each try a cluster on which one of them did not start (R1)."""

import pytest

from controller.api.record import Record
from controller.cache.start_failures import cluster_fingerprint
from controller.cache.store import Store
from controller.engine.state import State
from controller.engine.workloads import WorkloadUid
from controller.messages import pending_message
from tests.cache.objects import binding, cluster, job, queue

SIZE = {"cpu": "8", "pods": "110"}


class Stage:
    """A store that feeds a World, with one cluster and one job that did not start there."""

    def __init__(self) -> None:
        self.store, self.state, self.version = Store(), State(), 1000
        self.store.queues.replace([self.store.queues.decode(queue("a"))])
        self.store.priority_classes.replace([])
        self.store.cluster_bindings.replace([])
        self.store.clusters.replace([self.store.clusters.decode(cluster("m1", **SIZE))])
        self.store.jobs.replace([])
        self.store.bindings.replace([])
        mark = cluster_fingerprint(self.store.clusters.decode(cluster("m1", **SIZE)).cluster)
        self.failed = Record(uid="rb-failed", queue="a", excluded_clusters={"m1": mark}, attempts=1)
        self.add("failed", record=self.failed)

    def add(self, name: str, *, cpu: str = "2", namespace: str = "ml", **more) -> None:
        template = job(name, namespace=namespace, uid=f"job-{name}", requests={"cpu": cpu})
        self.store.jobs.upsert(self.store.jobs.decode(template))
        self.store.bindings.upsert(self.store.bindings.decode(binding(name, namespace=namespace, **more)))

    def excluded_clusters(self, name: str) -> set[str]:
        self.store.feed(self.state, 0)
        return set(self.state.workloads[WorkloadUid(f"rb-{name}")].shape.excluded_clusters)


def test_equal_workload_of_the_namespace_is_not_tried_there():
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


def test_workloads_that_waited_before_learn_of_it():
    stage = Stage()
    stage.add("failed", record=None)
    stage.add("equal")
    assert stage.excluded_clusters("equal") == set()
    stage.add("failed", record=stage.failed)
    assert stage.excluded_clusters("equal") == {"m1"}


def test_reason_says_where_it_is_not_tried():
    stage = Stage()
    stage.add("equal")
    stage.store.feed(stage.state, 0)
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
def test_changed_nodes_let_all_try_again(changes):
    stage = Stage()
    stage.add("equal")
    assert stage.excluded_clusters("equal") == {"m1"}
    stage.store.clusters.upsert(stage.store.clusters.decode(cluster("m1", **changes)))
    assert [stage.excluded_clusters(name) for name in ("equal", "failed")] == [set(), set()]


def test_what_is_used_on_the_cluster_changes_nothing():
    stage = Stage()
    stage.add("equal")
    stage.store.clusters.upsert(stage.store.clusters.decode(cluster("m1", used={"cpu": "4"}, **SIZE)))
    assert stage.excluded_clusters("equal") == {"m1"}


@pytest.mark.parametrize("deleted", [False, True])
def test_end_of_a_workload_that_ran_there_lets_equals_try_again(deleted):
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


def test_deleted_failure_is_forgotten():
    stage = Stage()
    stage.add("equal")
    assert stage.excluded_clusters("equal") == {"m1"}
    stage.store.bindings.remove(stage.store.bindings.decode(binding("failed")))
    assert stage.excluded_clusters("equal") == set()
    assert not stage.store._failed_starts


def test_one_that_runs_elsewhere_still_tells_where_it_did_not_start():
    stage = Stage()
    stage.add("failed", record=stage.failed, paused=False, clusters=["m2"], phases={"m2": "Running"})
    stage.add("equal")
    assert stage.excluded_clusters("equal") == {"m1"}


def test_after_a_restart_the_records_say_it_again():
    stage = Stage()
    stage.add("equal")
    again = Stage()
    again.add("equal")
    assert again.excluded_clusters("equal") == stage.excluded_clusters("equal") == {"m1"}
