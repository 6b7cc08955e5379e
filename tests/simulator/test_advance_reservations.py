from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engine.policy import AdvanceReservation, Policy
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.simulator.jobs import JobAction
from controller.simulator.simulation import Simulation, SimulationResult
from controller.simulator.summary import summarise
from controller.simulator.trace import SimulationSettings, Submission
from tests.simulator.traces import START, cluster, job, queue, trace

HOUR = 3600
DAY = 24 * HOUR


def reservation(since: int = DAY, until: int = DAY + 2 * HOUR, **more: object) -> AdvanceReservation:
    begin, end = START + since * 1000, START + until * 1000
    return AdvanceReservation("upgrade", (ClusterName("m"),), begin, end, **more)


def play(*jobs: Submission, kept: AdvanceReservation, **more: object) -> SimulationResult:
    policy = Policy(advance_reservations=(kept,))
    clusters = (cluster("m"), cluster("n", 2))
    found = trace(*jobs, clusters=clusters, queues=(queue("q"), queue("own")), policy=policy)
    return Simulation(found, SimulationSettings(**more)).run()


def runs_on(result: SimulationResult, name: str) -> list[tuple[int, int]]:
    """Return begin and end, in seconds, of all runs on a cluster."""
    ends = {entry.workload.uid: entry.at for entry in result.log if entry.action is JobAction.FINISH}
    return [
        (entry.at // 1000, ends[entry.workload.uid] // 1000)
        for entry in result.log
        if entry.action is JobAction.ADMIT and name in {each.name for each in entry.clusters}
    ]


def jobs() -> st.SearchStrategy[list[Submission]]:
    each = st.tuples(st.integers(1, 8), st.integers(0, DAY + 3 * HOUR), st.integers(1, DAY), st.sampled_from([0, 5]))
    return st.lists(each, min_size=1, max_size=20).map(
        lambda drawn: [
            job(f"job-{number}", cpu, at=at, runs=runs, priority=priority)
            for number, (cpu, at, runs, priority) in enumerate(drawn)
        ]
    )


@settings(max_examples=60, deadline=None)
@given(submitted=jobs())
def test_no_job_runs_when_a_window_announced_a_day_ahead_begins(submitted):
    result = play(*submitted, kept=reservation())
    assert all(end <= DAY or begin >= DAY + 2 * HOUR for begin, end in runs_on(result, "m"))
    assert all(each.finished_at is not None for each in result.jobs)


@settings(max_examples=20, deadline=None)
@given(submitted=jobs())
def test_job_of_unknown_run_time_is_admitted_before_the_drain_only(submitted):
    result = play(*submitted, kept=reservation(drain_ms=HOUR * 1000), knows_run_times=False)
    assert all(begin < DAY - HOUR or begin >= DAY + 2 * HOUR for begin, _ in runs_on(result, "m"))


def test_job_that_ends_when_the_window_begins_is_admitted():
    result = play(job("a", 8, runs=DAY), job("b", 8, at=1, runs=DAY), kept=reservation())
    assert runs_on(result, "m") == [(0, DAY), (DAY + 2 * HOUR, 2 * DAY + 2 * HOUR)]


def test_job_that_would_overlap_runs_on_another_cluster():
    result = play(job("a", 2, at=HOUR, runs=DAY), kept=reservation())
    assert (runs_on(result, "m"), runs_on(result, "n")) == ([], [(HOUR, DAY + HOUR)])


def test_queue_of_the_reservation_uses_its_clusters():
    kept = reservation(queue=QueueName("own"))
    others, own = job("a", 8, at=DAY, runs=HOUR), job("b", 8, at=DAY + HOUR, runs=HOUR, queue="own")
    assert runs_on(play(others, own, kept=kept), "m") == [
        (DAY + HOUR, DAY + 2 * HOUR),
        (DAY + 2 * HOUR, DAY + 3 * HOUR),
    ]


@pytest.mark.parametrize(("evicts", "evictions"), [(False, 0), (True, 1)])
def test_job_that_runs_longer_is_evicted_only_on_request(evicts, evictions):
    running = replace(job("a", 8, runs=2 * DAY, on="m"))
    assert summarise(play(running, kept=reservation(evicts=evicts))).evictions == evictions


def test_idle_hours_of_a_window_are_reported():
    # It is kept free for its two hours, and for one hour before it, because a job of two hours waits.
    result = play(job("a", 8, at=DAY - HOUR, runs=2 * HOUR), kept=reservation())
    assert summarise(result).idle_hours == {"upgrade": {"cpu": 24}}
