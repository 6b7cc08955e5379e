"""Which start failures are remembered, and which clusters a workload avoids because of them (R1)."""

from dataclasses import replace

import msgspec
import pytest

from controller.api.bindings import Suspension
from controller.cache.assumed_writes import AssumedEviction, AssumedRepair
from controller.cache.objects import ClusterProgress, WorkloadPhase
from controller.cache.record import AdmissionRecord
from controller.cache.start_failures import StartFailures, cluster_fingerprint, recorded_exclusions, startup_backoff
from controller.cache.store import Store
from controller.engine.reasons import Reason
from controller.engine.state.clusters import Assignment, Cluster, ClusterName, Taint
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Admission, SchedulingRequirements, Workload, WorkloadState, WorkloadUid
from tests.cache.objects import binding as raw_binding

M1 = ClusterName("m1")
UID = WorkloadUid("rb-j1")
HOUR = 3_600_000
CLUSTER = Cluster(M1, allocatable={"cpu": 5}, used={"cpu": 1})


def facts(*phases: tuple[WorkloadPhase, bool], record: AdmissionRecord | None = None):
    store = Store()
    decoded = store.bindings.decode(raw_binding("j1", paused=False, clusters=["m1"]))
    told = tuple(ClusterProgress(M1, phase, ran) for phase, ran in phases)
    return msgspec.structs.replace(decoded, progress=told, record=record)


def workload(state: WorkloadState) -> Workload:
    admission = Admission({"cpu": 1}, (), admitted_at=1000)
    return Workload(UID, "ml", "j1", "Job", QueueName("a"), SchedulingRequirements(), state=state, admission=admission)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param((WorkloadPhase.RUNNING, False), id="runs"),
        pytest.param((WorkloadPhase.WAITING, True), id="tells-that-it-ran"),
        pytest.param((WorkloadPhase.FINISHED, False), id="is-over"),
    ],
)
@pytest.mark.parametrize("ends_by", ["suspension", "move"])
def test_has_run_is_remembered_until_suspension_or_move(told, ends_by):
    starts, waiting = StartFailures(), facts((WorkloadPhase.WAITING, False))
    assert not starts.has_run(waiting)
    starts.update(facts(told), workload(WorkloadState.ADMITTED))
    assert starts.has_run(waiting)
    moved = msgspec.structs.replace(facts((WorkloadPhase.RUNNING, True)), clusters=(Assignment(ClusterName("m2")),))
    assert not starts.has_run(moved)
    if ends_by == "move":
        starts.update(moved, workload(WorkloadState.ADMITTED))
    else:
        starts.update(waiting, workload(WorkloadState.PENDING))
        assert starts.has_run(waiting), "its eviction is being written, and may be refused"
        suspended = msgspec.structs.replace(waiting, suspension=Suspension(scheduling=True))
        starts.update(suspended, workload(WorkloadState.PENDING))
    assert not starts.has_run(waiting)


def test_run_is_remembered_while_karmada_has_no_cluster():
    """It did not fail to start in the cluster that it lost; placed there again, it has to start anew."""
    starts, admitted = StartFailures(), workload(WorkloadState.ADMITTED)
    runs, waiting = facts((WorkloadPhase.RUNNING, False)), facts((WorkloadPhase.WAITING, False))
    unplaced = msgspec.structs.replace(waiting, clusters=(), progress=())
    starts.update(waiting, admitted)
    assert not starts.has_run_before(unplaced)
    starts.update(runs, admitted)
    for _ in range(2):
        assert (starts.has_run(unplaced), starts.has_run_before(unplaced)) == (False, True)
        starts.update(unplaced, admitted)
    assert (starts.has_run(waiting), starts.has_run_before(waiting)) == (False, False)
    starts.update(waiting, admitted)
    assert not starts.has_run_before(unplaced)


def test_changed_cluster_is_not_excluded_until_retried():
    starts = StartFailures()
    starts.cluster_changed(CLUSTER, M1)
    marks = starts.fingerprints([M1])
    starts.excluded_clusters(UID, marks)
    starts.cluster_changed(replace(CLUSTER, ready=False), M1)
    starts.excluded_clusters(UID, marks)
    starts.cluster_changed(CLUSTER, M1)
    assert starts.excluded_clusters(UID, marks) == frozenset()
    starts.retry(UID, [M1])
    assert starts.excluded_clusters(UID, marks) == {M1}


def test_deleted_cluster_is_not_excluded():
    starts = StartFailures()
    starts.cluster_changed(CLUSTER, M1)
    marks = starts.fingerprints([M1])
    assert starts.excluded_clusters(UID, marks) == {M1}
    assert starts.cluster_changed(None, M1) == [UID]
    assert starts.excluded_clusters(UID, marks) == frozenset()


@pytest.mark.parametrize(
    ("changes", "is_other"),
    [
        pytest.param({"used": {"cpu": 5}}, False, id="what-is-used"),
        pytest.param({"grades": ({"cpu": 1},)}, False, id="how-full-its-nodes-are"),
        pytest.param({"labels": {"zone": "b"}}, True, id="labels"),
        pytest.param({"taints": (Taint("k", "", "NoSchedule"),)}, True, id="taints"),
        pytest.param({"ready": False}, True, id="not-ready"),
        pytest.param({"allocatable": {"cpu": 6}}, True, id="more-nodes"),
        pytest.param({"allocatable": None}, True, id="no-summary"),
    ],
)
def test_fingerprint_changes_with_cluster_properties(changes, is_other):
    assert (cluster_fingerprint(replace(CLUSTER, **changes)) != cluster_fingerprint(CLUSTER)) == is_other


def test_fingerprints_are_stable_between_releases():
    two = replace(CLUSTER, labels={"a": "1", "b": "2"}, allocatable={"cpu": 1, "memory": 2})
    other_order = replace(CLUSTER, labels={"b": "2", "a": "1"}, allocatable={"memory": 2, "cpu": 1})
    assert cluster_fingerprint(two) == cluster_fingerprint(other_order)
    assert cluster_fingerprint(CLUSTER) == "d86fc845581c9980"


def test_exclusions_of_assumed_evictions_count():
    record = AdmissionRecord(QueueName("a"), excluded_clusters={M1: "x"})
    assert recorded_exclusions(facts(record=record), []) == {M1: "x"}
    assert recorded_exclusions(
        facts(record=record), [AssumedEviction(excluded_clusters={M1: "y"}), AssumedRepair()]
    ) == {M1: "y"}
    assert recorded_exclusions(facts(), [AssumedEviction()]) == {}


def test_startup_backoff_is_read_from_the_record():
    record = AdmissionRecord(QueueName("a"), startup_failed_at=1000, back_off_until=5000, excluded_clusters={M1: "x"})
    refusal = startup_backoff(record, 4999, HOUR)
    assert (refusal.reason, refusal.until) == (Reason.STARTUP_BACKOFF, 5000)
    assert refusal.subject == "it did not start on m1 in time"
    part = startup_backoff(msgspec.structs.replace(record, startup_failed_at=None), 4999, HOUR)
    assert part.subject == "a part that its HyperJob needs did not start in time"


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        pytest.param({}, 5000, id="it-is-over"),
        pytest.param({"back_off_until": None}, 0, id="it-never-failed"),
        pytest.param({"back_off_until": HOUR + 5000}, 4999, id="no-pause-is-so-long"),
        pytest.param({"charge": {"cpu": 1}}, 0, id="it-is-admitted"),
    ],
)
def test_ended_or_impossible_backoff_is_ignored(changes, now):
    record = AdmissionRecord(QueueName("a"), startup_failed_at=1000, back_off_until=5000)
    assert startup_backoff(msgspec.structs.replace(record, **changes), now, HOUR) is None
    assert startup_backoff(None, now, HOUR) is None
