from dataclasses import replace

import msgspec
import pytest

from controller.cache.facts import Phase, Progress
from controller.cache.starts import Starts, backoff_ms
from controller.cache.store import Store
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.queues import QueueName
from controller.engine.workloads import Admission, Shape, State, Workload, WorkloadUid
from tests.cache.objects import binding as raw_binding

M1 = ClusterName("m1")
UID = WorkloadUid("rb-j1")
HOUR = 3_600_000


def facts(*phases: tuple[Phase, bool], paused: bool = False):
    store = Store()
    found = store.bindings.decode(raw_binding("j1", paused=paused, clusters=["m1"]))
    told = tuple(Progress(M1, phase, ran) for phase, ran in phases)
    return msgspec.structs.replace(found, progress=told)


def admitted(at: int = 1000, *, adopted: bool = False) -> Workload:
    admission = Admission({"cpu": 1}, (), admitted_at=at, adopted=adopted)
    return Workload(UID, "ml", "j1", "Job", QueueName("a"), Shape(), state=State.ADMITTED, admission=admission)


def due(starts: Starts, now: int) -> list[bool]:
    return [each.is_last for each in starts.overdue(now, 100)]


def test_who_does_not_run_in_time_is_requeued_once_and_then_taken_back():
    starts = Starts()
    starts.see(facts((Phase.WAITING, False)), admitted())
    assert (due(starts, 1099), starts.wake_at(100)) == ([], 1100)
    assert due(starts, 1100) == [False]
    starts.requeue(UID)
    assert (due(starts, 1150), starts.wake_at(100)) == ([], 1200)
    assert due(starts, 1200) == [True]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param((Phase.RUNNING, False), id="runs"),
        pytest.param((Phase.WAITING, True), id="has-run-before"),
    ],
)
def test_who_runs_or_has_run_is_never_taken_back(told):
    starts = Starts()
    starts.see(facts(told), admitted())
    starts.see(facts((Phase.WAITING, False)), admitted())
    assert due(starts, HOUR) == []
    assert starts.wake_at(100) is None


def test_who_ran_before_we_came_or_is_no_workload_is_left_alone():
    starts = Starts()
    starts.see(facts(), admitted(adopted=True))
    starts.see(facts(), None)
    assert due(starts, HOUR) == []
    starts.see(facts(), admitted())
    starts.forget(UID)
    assert due(starts, HOUR) == []


def test_a_cluster_is_left_out_until_it_changes_and_its_use_is_no_change():
    starts, cluster = Starts(), Cluster(M1, allocatable={"cpu": 5}, used={"cpu": 1})
    starts.leave_out(UID, [cluster])
    assert starts.left_out(UID) == {M1}
    assert starts.changed(replace(cluster, used={"cpu": 4}), M1) == []
    assert starts.changed(replace(cluster, allocatable={"cpu": 6}), M1) == [UID]
    assert starts.left_out(UID) == frozenset()


def test_the_pause_grows_but_not_for_ever():
    assert [backoff_ms(attempts, 60_000) for attempts in range(4)] == [30_000, 60_000, 120_000, 240_000]
    assert backoff_ms(10**6, 60_000) == HOUR
    assert backoff_ms(5, 2 * HOUR) == 2 * HOUR
