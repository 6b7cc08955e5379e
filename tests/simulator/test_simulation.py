from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.engine import Engine
from controller.engine.plan import Evict, Plan
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.state.workloads import WorkloadState
from controller.simulator.jobs import JobStage
from controller.simulator.simulation import Simulation
from controller.simulator.trace import SimulationSettings
from tests.draws import draws
from tests.simulator.traces import START, cluster, events_of, job, queue, trace

SHORT_GRACE = Policy(reclaim=EvictionPolicy(grace_ms=2000))


def play(workload_trace, **settings):
    return Simulation(workload_trace, SimulationSettings(**settings)).run()


class EvictingEngine(Engine):
    """State that evicts a workload at a given time, as reclaim would."""

    def __init__(self, name, at, reason=EvictionReason.RECLAIMED):
        super().__init__()
        self.name, self.at, self.reason = name, START + at * 1000, reason

    def plan(self, now):
        plan = super().plan(now)
        if now < self.at or self.name is None:
            return replace(plan, wake_at=self.at if self.name else plan.wake_at)
        victim = next(workload for workload in self.workloads.values() if workload.name == self.name)
        self.name = None
        return Plan((*plan.decisions, Evict(victim, self.reason)), plan.waits, wake_at=plan.wake_at)


def evicting(workload_trace, name, at, **settings):
    simulation = Simulation(workload_trace, SimulationSettings(**settings))
    simulation._engine = EvictingEngine(name, at)
    return simulation.run()


def test_jobs_that_do_not_fit_together_run_in_sequence():
    result = play(trace(job("a", 6), job("b", 6, at=3)))
    assert events_of(result) == [
        (0, "Submit", "a"),
        (0, "Admit", "a"),
        (3, "Submit", "b"),
        (10, "Finish", "a"),
        (10, "Admit", "b"),
        (20, "Finish", "b"),
    ]
    [wait] = [entry for entry in result.log if entry.action == "Wait"]
    assert (wait.at, wait.workload.name, wait.cause.reason) == (3000, "b", Reason.INSUFFICIENT_CAPACITY)
    assert [simulated.waited for simulated in result.jobs] == [0, 7000]
    assert result.ended_at == 20_000


def test_events_of_one_time_are_planned_in_one_cycle():
    # a ends when c with a higher priority is submitted: c is admitted before b.
    result = play(trace(job("a", 8), job("b", 8, at=1), job("c", 8, at=10, priority=5)))
    assert [entry for entry in events_of(result) if entry[1] == "Admit"] == [
        (0, "Admit", "a"),
        (10, "Admit", "c"),
        (20, "Admit", "b"),
    ]


def test_job_without_run_time_finishes_at_once():
    result = play(trace(job("a", 8, runs=0), job("b", 8, runs=0)))
    assert events_of(result)[-1] == (0, "Finish", "b")


def test_admission_takes_effect_after_its_write():
    result = play(trace(job("a", 4), job("b", 4), job("c", 4)), writes_per_second=3)
    assert [entry for entry in events_of(result) if entry[1] == "Admit"] == [
        (0.334, "Admit", "a"),
        (0.667, "Admit", "b"),
        (10.668, "Admit", "c"),
    ]


def test_simulation_stops_at_the_time_limit():
    result = play(trace(job("a", 8), job("b", 8), job("late", at=60)), until=15_000)
    assert result.ended_at == 15_000
    assert [(simulated.workload.name, simulated.stage) for simulated in result.jobs] == [
        ("a", JobStage.FINISHED),
        ("b", JobStage.RUNNING),
    ]
    assert [simulated.served_until(15_000)["cpu"] for simulated in result.jobs] == [8000 * 10_000, 8000 * 5000]


def test_simulation_ends_with_an_inadmissible_job():
    result = play(trace(job("a"), job("giant", 9)))
    assert [simulated.stage for simulated in result.jobs] == [JobStage.FINISHED, JobStage.WAITING]
    assert result.ended_at == 10_000


def test_initially_running_job_uses_capacity_until_it_ends():
    running = job("old", 6, runs=4, on="m")
    result = play(trace(running, job("a", 6), clusters=[cluster(used=6)]))
    assert events_of(result) == [(0, "Submit", "a"), (4, "Finish", "old"), (4, "Admit", "a"), (14, "Finish", "a")]


def test_initially_running_job_of_an_unknown_cluster_ends():
    result = play(trace(job("old", 6, runs=4, on="gone"), job("a", 6)))
    assert [entry for entry in events_of(result) if entry[1] == "Finish"] == [(4, "Finish", "old"), (10, "Finish", "a")]


def test_victim_is_pending_again_with_its_original_age():
    workload_trace = trace(job("a", 8, runs=20), job("b", 8, at=1), policy=SHORT_GRACE)
    result = evicting(workload_trace, "a", 5)
    assert [entry for entry in events_of(result) if entry[1] != "Submit"] == [
        (0, "Admit", "a"),
        (5, "Evict", "a"),
        (7, "Admit", "a"),  # it is older than b, and this state does not know the reason of the eviction
        (27, "Finish", "a"),
        (27, "Admit", "b"),
        (37, "Finish", "b"),
    ]
    simulated = next(iter(result.jobs))
    assert (simulated.evictions, simulated.runs, simulated.waited) == (1, 2, 0)
    assert simulated.served["cpu"] == 8000 * (7000 + 20_000)


def test_victim_is_charged_and_waits_until_its_pods_terminate():
    # Until second 7 there is no capacity for b; a, which still runs, may not return when c comes.
    workload_trace = trace(job("a", 7, runs=20), job("b", 8, at=1, priority=1), job("c", at=6), policy=SHORT_GRACE)
    result = evicting(workload_trace, "a", 5)
    assert [entry for entry in events_of(result) if entry[1] == "Admit"] == [
        (0, "Admit", "a"),
        (6, "Admit", "c"),
        (7, "Admit", "a"),
        (27, "Admit", "b"),
    ]


def test_victim_does_not_finish_during_its_grace_period():
    result = evicting(trace(job("a", 8, runs=6), policy=SHORT_GRACE), "a", 5)
    assert [entry for entry in events_of(result) if entry[2] == "a"][1:] == [
        (0, "Admit", "a"),
        (5, "Evict", "a"),
        (7, "Admit", "a"),
        (13, "Finish", "a"),
    ]


def test_simulation_ends_despite_repeated_wake_ups():
    class AlwaysWakingEngine(Engine):
        def plan(self, now):
            return replace(super().plan(now), wake_at=now + 1000)

    simulation = Simulation(trace(job("a"), job("giant", 9)))
    simulation._engine = AlwaysWakingEngine()
    result = simulation.run()
    assert result.ended_at == 10_000
    assert result.cycles < 200


def test_eviction_takes_effect_after_its_write():
    workload_trace = trace(job("a", 8, runs=20), policy=SHORT_GRACE)
    result = evicting(workload_trace, "a", 5, writes_per_second=1)
    assert [entry for entry in events_of(result) if entry[1] != "Submit"][:3] == [
        (1, "Admit", "a"),
        (6, "Evict", "a"),
        (9, "Admit", "a"),
    ]


def test_run_that_ends_before_its_eviction_write_is_finished():
    result = evicting(trace(job("a", 8, runs=6)), "a", 6, writes_per_second=1)
    assert events_of(result)[-1] == (7, "Finish", "a")
    assert next(iter(result.jobs)).evictions == 0


def test_summary_is_delayed_and_updated_on_change_only():
    reported = []

    class RecordingEngine(Engine):
        def cluster_changed(self, cluster, now):
            reported.append(((now - START) // 1000, cluster.used.get("cpu", 0) // 1000))
            super().cluster_changed(cluster, now)

    simulation = Simulation(trace(job("a", 3, runs=12), job("b", 2, at=21, runs=2), job("c", at=45, runs=30)))
    simulation._engine = RecordingEngine()
    simulation.run()
    # b runs between the updates at 20 and 30; c is reported at 50.
    assert reported == [(0, 0), (10, 3), (20, 0), (50, 1)]


def test_started_job_is_reported_to_the_engine():
    simulation = Simulation(trace(job("a")), SimulationSettings(until=5000))
    simulation.run()
    [workload] = simulation._engine.workloads.values()
    assert (workload.state, workload.admission.reported) == (WorkloadState.ADMITTED, True)


jobs = st.lists(
    st.tuples(
        st.integers(1, 10), st.integers(0, 30), st.integers(0, 20), st.sampled_from(["q", "r"]), st.integers(0, 2)
    ),
    max_size=12,
)


@draws(60)
@given(jobs, st.sampled_from([0, 1, 3]), st.sampled_from([None, 20_000]))
def test_every_job_ends_in_one_stage(drawn, writes, until):
    submissions = [
        job(f"j{number}", cpu, at=at, runs=runs, queue=name, priority=priority)
        for number, (cpu, at, runs, name, priority) in enumerate(drawn)
    ]
    state = trace(*submissions, queues=[queue("q"), queue("r", weight=2)], clusters=[cluster("m", 8), cluster("n", 4)])
    result = play(state, writes_per_second=writes, until=until)
    stages = Counter(simulated.stage for simulated in result.jobs)
    came = [submission for submission in submissions if until is None or submission.at <= until]
    assert stages.total() == len(came)
    actions = Counter(action for _, action, _ in events_of(result))
    assert actions["Submit"] == len(came)
    assert actions["Finish"] == stages[JobStage.FINISHED]
    assert actions["Admit"] - actions["Finish"] == stages[JobStage.RUNNING]
    if until is None:
        assert stages[JobStage.RUNNING] == 0
        assert {simulated.workload.name for simulated in result.jobs if simulated.stage is JobStage.WAITING} == {
            submission.workload.name
            for submission in submissions
            if submission.workload.requirements.requests["cpu"] > 8000
        }


@pytest.mark.parametrize("writes", [0, 2])
def test_simulation_is_deterministic(writes):
    workload_trace = trace(*(job(f"j{n}", 1 + n % 5, at=n % 7, runs=3 + n % 4) for n in range(30)))
    first, second = (play(workload_trace, writes_per_second=writes) for _ in range(2))
    assert first.log == second.log
    assert first.cycles == second.cycles
