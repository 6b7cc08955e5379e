"""Workloads with equal requests in a namespace skip clusters where one of them did not start (R1).

`test_random_start_failures` compares which clusters they skip, after any events, with a model.
"""

from controller.cache.assumed_writes import AssumedEviction
from controller.cache.interning import InternPool
from controller.cache.objects import WorkloadRequests
from controller.cache.start_failures import SharedStartFailures, cluster_fingerprint
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import WorkloadUid
from controller.reporting.messages import pending_message
from tests.cache.fake_event_handler import remove, upsert
from tests.cache.objects import admission_record, binding, cluster, job, queue
from tests.work import work_of

SIZE = {"cpu": "8", "pods": "110"}
M1, M2 = ClusterName("m1"), ClusterName("m2")


class Stage:
    """A store that feeds an engine, with one cluster and one job that did not start there."""

    def __init__(self) -> None:
        self.store, self.engine = Store(), Engine()
        upsert(self.store, ("queues", queue("a")), ("clusters", cluster("m1", **SIZE)))
        mark = cluster_fingerprint(self.store.clusters.get("m1").cluster)
        self.failed = admission_record(uid="rb-failed", queue="a", excluded_clusters={"m1": mark}, attempts=1)
        self.add("failed", record=self.failed)

    def add(self, name: str, *, cpu: str = "2", namespace: str = "ml", **more) -> None:
        template = job(name, namespace=namespace, uid=f"job-{name}", requests={"cpu": cpu})
        upsert(self.store, ("jobs", template), ("bindings", binding(name, namespace=namespace, **more)))

    def excluded_clusters(self, name: str) -> set[str]:
        self.store.sync_to(self.engine, 0)
        return set(self.engine.workloads[WorkloadUid(f"rb-{name}")].requirements.excluded_clusters)

    def report(self, phase: str) -> None:
        """Store that a job on m1, ``runs``, has this phase."""
        self.add("runs", paused=False, clusters=["m1"], phases={"m1": phase})
        self.store.sync_to(self.engine, 0)

    def admitted(self) -> set[str]:
        self.store.sync_to(self.engine, 0)
        return {decision.workload.name for decision in self.engine.plan(0).decisions}


def test_equal_workload_of_the_namespace_skips_failed_cluster():
    stage = Stage()
    stage.add("equal")
    stage.add("larger", cpu="3")
    stage.add("elsewhere", namespace="other")
    excluded = {name: stage.excluded_clusters(name) for name in ("failed", "equal", "larger", "elsewhere")}
    assert excluded == {"failed": {"m1"}, "equal": {"m1"}, "larger": set(), "elsewhere": set()}
    remove(stage.store, "bindings", binding("failed"))
    assert stage.excluded_clusters("equal") == set()
    assert not stage.store.start_failures.shared


def test_resized_workload_excludes_no_cluster_for_others():
    """None of its new size was tried there; it fails once more before others skip the cluster."""
    stage = Stage()
    stage.add("equal")
    stage.add("smaller", cpu="1")
    assert [stage.excluded_clusters(name) for name in ("equal", "smaller")] == [{"m1"}, set()]
    stage.add("failed", cpu="1", record=stage.failed)
    excluded = {name: stage.excluded_clusters(name) for name in ("failed", "equal", "smaller")}
    assert excluded == {"failed": {"m1"}, "equal": set(), "smaller": set()}
    stage.store.assume(WorkloadUid("rb-failed"), AssumedEviction(failed_clusters=(M1,)))
    stage.store.roll_back(WorkloadUid("rb-failed"), None)
    stage.add("failed", cpu="1", record=stage.failed)
    assert [stage.excluded_clusters(name) for name in ("equal", "smaller")] == [set(), {"m1"}]


def test_workload_that_is_read_again_excludes_its_cluster(monkeypatch):
    """The pool of equal requests may have been cleared, so that they are another value now."""
    stage = Stage()
    stage.add("equal")
    assert stage.excluded_clusters("equal") == {"m1"}
    values = {}
    monkeypatch.setattr(InternPool, "get", lambda pool, key, make: values.setdefault((id(pool), key), make()))
    for name, record in (("failed", stage.failed), ("equal", None)):
        stage.add(name, record=record)
    assert stage.excluded_clusters("equal") == {"m1"}


def test_pending_reason_names_the_excluded_cluster():
    stage = Stage()
    stage.add("equal")
    stage.store.sync_to(stage.engine, 0)
    stage.engine.plan(0)
    refusal = stage.engine.refusal(WorkloadUid("rb-equal"))
    assert pending_message(refusal) == "it or an equal workload did not start on m1, which has not changed since"


def test_workload_without_another_cluster_retries_after_an_end():
    stage = Stage()
    stage.report("Running")
    stage.add("equal")
    assert stage.admitted() == set()
    stage.report("Completed")
    assert stage.admitted() == {"failed", "equal"}


def test_admitted_workload_excludes_own_failed_clusters_only():
    """The clusters that it excludes are recorded when it is evicted because Karmada has not placed it."""
    stage = Stage()
    admitted = {
        "record": admission_record(uid="rb-equal", queue="a", charge={"cpu": "2", "pods": "1"}, clusters=("m2",))
    }
    stage.add("equal", paused=False, **admitted)
    assert stage.excluded_clusters("equal") == set()


def test_work_after_an_end_is_that_of_the_concerned_requests():
    shared = SharedStartFailures()
    keys = [("hostile", WorkloadRequests({"cpu": number})) for number in range(2000)]
    for number, key in enumerate(keys):
        shared.update(WorkloadUid(f"rb-{number}"), key, [M1] if number else [M1, M2])
    assert work_of(lambda: (shared.expire(()), shared.expire({M2}))) < 1000
    assert [shared.clusters(key) for key in keys] == [{M1}] * 2000
    shared.expire({M1})
    assert not shared
