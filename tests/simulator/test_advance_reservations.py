from collections.abc import Iterator
from random import Random

import pytest

from controller.engine.policy import AdvanceReservation, Ageing, Policy
from controller.engine.reservations import advance
from controller.engine.state.amounts_in_advance import AmountsInAdvance, ReservationBegin
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import CPU, EMPTY
from controller.simulator.jobs import JobAction
from controller.simulator.simulation import Simulation, SimulationResult
from controller.simulator.summary import summarise
from controller.simulator.trace import SimulationSettings, Submission
from tests.simulator.traces import START, cluster, cpus, job, queue, trace

HOUR = 3600
DAY = 24 * HOUR


def reservation(since: int = DAY, until: int = DAY + 2 * HOUR, **more: object) -> AdvanceReservation:
    begin, end = START + since * 1000, START + until * 1000
    return AdvanceReservation("upgrade", (ClusterName("m"),), begin, end, **more)


def play(*jobs: Submission, kept: AdvanceReservation, **more: object) -> SimulationResult:
    policy = Policy(advance_reservations=(kept,))
    clusters = (cluster("m"), cluster("n", 2))
    workload_trace = trace(*jobs, clusters=clusters, queues=(queue("q"), queue("own")), policy=policy)
    return Simulation(workload_trace, SimulationSettings(**more)).run()


def runs_on(result: SimulationResult, name: str) -> list[tuple[int, int]]:
    """Return begin and end, in seconds, of all runs on a cluster."""
    ends = {entry.workload.uid: entry.at for entry in result.log if entry.action is JobAction.FINISH}
    return [
        (entry.at // 1000, ends[entry.workload.uid] // 1000)
        for entry in result.log
        if entry.action is JobAction.ADMIT and name in {target.name for target in entry.clusters}
    ]


def used_by_others(result: SimulationResult) -> Iterator[tuple[int, int]]:
    """Yield the CPUs on m of the jobs that are not of queue ``own``, at each second at which they change."""
    used = dict[str, int]()
    for entry in result.log:
        if entry.workload.queue == "own":
            continue
        if entry.action is JobAction.ADMIT and "m" in {target.name for target in entry.clusters}:
            used[entry.workload.uid] = entry.workload.requirements.requests[CPU] // 1000
        elif entry.action in {JobAction.FINISH, JobAction.EVICT}:
            used.pop(entry.workload.uid, None)
        yield entry.at // 1000, sum(used.values())


def most_used_in_window(result: SimulationResult) -> int:
    """Return the most CPUs of others on m from the begin of the reservation until it ends."""
    before = [used for at, used in used_by_others(result) if at <= DAY]
    within = (used for at, used in used_by_others(result) if DAY < at < DAY + 2 * HOUR)
    return max([*before[-1:], *within], default=0)


def drawn_jobs(seed: int) -> list[Submission]:
    random = Random(seed)
    return [
        job(
            f"job-{number}",
            random.choice([1, 1, 2, 3, 5]),
            at=random.randrange(DAY + 3 * HOUR),
            runs=random.choice([random.randint(1, DAY), random.randint(1, 3 * HOUR)]),
            priority=random.choice([0, 5]),
            queue=random.choice(["q", "q", "own"]),
        )
        for number in range(random.randint(5, 25))
    ]


def running_at_begin(seed: int) -> int:
    result = play(*drawn_jobs(seed), kept=reservation())
    assert all(simulated.finished_at is not None for simulated in result.jobs)
    return sum(begin < DAY + 2 * HOUR and end > DAY for begin, end in runs_on(result, "m"))


def test_no_job_of_50_schedules_runs_in_a_window():
    assert sum(map(running_at_begin, range(50))) == 0


def test_schedules_detect_a_drain_that_ignores_run_times(monkeypatch):
    monkeypatch.setattr(advance, "_bound_from", lambda reservation, _: reservation.since)
    assert sum(map(running_at_begin, range(20))) > 20


def used_beyond_amounts(seed: int) -> bool:
    kept = reservation(amounts=cpus(3), queue=QueueName("own"))
    result = play(*drawn_jobs(seed), kept=kept)
    assert all(simulated.finished_at is not None for simulated in result.jobs)
    return most_used_in_window(result) > 5


def test_reserved_amounts_are_free_in_50_schedules():
    assert not any(map(used_beyond_amounts, range(50)))


@pytest.mark.parametrize("mistake", ["nothing-kept-free", "releases-after-the-begin"])
def test_schedules_detect_use_of_reserved_amounts(monkeypatch, mistake):
    if mistake == "nothing-kept-free":
        monkeypatch.setattr(AmountsInAdvance, "set_aside", lambda *_: EMPTY)
    else:
        monkeypatch.setattr(advance, "ReservationBegin", lambda in_force, _: ReservationBegin(in_force, cpus(2)))
    assert any(map(used_beyond_amounts, range(60)))


@pytest.mark.long
@pytest.mark.parametrize("fails", [used_beyond_amounts, running_at_begin])
def test_reservations_are_kept_in_5000_schedules(fails):
    assert not any(map(fails, range(50, 5000)))


def test_others_use_what_is_released_before_it_is_needed():
    # Eight CPUs: three are free again when the reservation of three begins, so that five may run on.
    short, long = job("short", 3, runs=DAY), job("long", 5, at=1, runs=2 * DAY)
    kept = reservation(amounts=cpus(3), queue=QueueName("own"))
    own = job("own", 3, at=DAY, runs=HOUR, queue="own")
    result = play(short, long, own, kept=kept)
    assert [entry.at // 1000 for entry in result.log if entry.action is JobAction.ADMIT] == [0, 1, DAY]


def test_job_of_unknown_run_time_starts_before_the_drain_only():
    for seed in range(20):
        result = play(*drawn_jobs(seed), kept=reservation(drain_ms=HOUR * 1000), knows_run_times=False)
        assert all(begin < DAY - HOUR or begin >= DAY + 2 * HOUR for begin, _ in runs_on(result, "m"))


def test_jobs_start_at_the_end_after_many_raises_of_priority():
    jobs = [job(f"job-{number}", 8, at=number, runs=HOUR, priority=number) for number in range(2)]
    # Priorities are raised every six minutes: 480 times until the reservation ends.
    policy = Policy(
        advance_reservations=(reservation(since=0, until=2 * DAY),),
        ageing=Ageing(after_ms=360_000, step=1, max_raise=10_000),
    )
    result = Simulation(trace(*jobs, policy=policy)).run()
    assert [end // HOUR for _, end in runs_on(result, "m")] == [49, 50]


def test_job_that_would_overlap_runs_on_another_cluster():
    result = play(job("a", 2, at=HOUR, runs=DAY), kept=reservation())
    assert (runs_on(result, "m"), runs_on(result, "n")) == ([], [(HOUR, DAY + HOUR)])


@pytest.mark.parametrize(
    ("more", "submitted", "idle"),
    [
        # It is kept free for its two hours, and for one hour before it, because a job of two hours waits.
        pytest.param({}, job("a", 8, at=DAY - HOUR, runs=2 * HOUR), 24, id="whole-cluster"),
        # Three of four CPUs are used by its own queue in the second hour.
        pytest.param(
            {"amounts": cpus(4), "queue": QueueName("own")},
            job("own", 3, at=DAY + HOUR, runs=HOUR, queue="own"),
            5,
            id="amounts",
        ),
    ],
)
def test_idle_hours_of_a_reservation_are_reported(more, submitted, idle):
    assert summarise(play(submitted, kept=reservation(**more))).idle_hours == {"upgrade": {"cpu": idle}}
