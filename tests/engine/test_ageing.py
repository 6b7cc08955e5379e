"""Job priority that rises with waiting (O10); ``tests/reference`` compares the order, with evictions too."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.engine.engine import Engine
from controller.engine.plan import Admit
from controller.engine.policy import Ageing, EvictionPolicy, Policy
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadState, WorkloadUid
from tests.engine.objects import ONE_CLUSTER, cluster, workload

MINUTE = 60_000
NOW = 1_000_000 * MINUTE
ONE_CPU = SchedulingRequirements({"cpu": 1}, {"cpu": 1}, ONE_CLUSTER)
QUEUE = QueueName("q")


def engine_with(ageing: Ageing, *, cpus: int = 1) -> Engine:
    engine = Engine(Policy(ageing=ageing))
    engine.queue_changed(Queue(QUEUE))
    engine.cluster_changed(cluster(cpu=cpus), NOW)
    return engine


def job(name: str, priority: int, created_at: int = NOW) -> Workload:
    return workload(name, ONE_CPU, priority=priority, created_at=created_at)


def admitted(engine: Engine, now: int) -> list[str]:
    return [decision.workload.name for decision in engine.plan(now).decisions if isinstance(decision, Admit)]


@pytest.mark.parametrize(
    ("waited", "raised", "next_raise"),
    [
        pytest.param(-5, 0, 10, id="created-later"),
        pytest.param(9, 0, 10, id="before-the-first-step"),
        pytest.param(10, 4, 20, id="first-step"),
        pytest.param(30, 10, None, id="at-most-max"),
    ],
)
def test_priority_rises_by_steps_up_to_max(waited, raised, next_raise):
    ageing = Ageing(after_ms=10 * MINUTE, step=4, max_raise=10)
    assert ageing.raised_by(NOW, NOW + waited * MINUTE) == raised
    due = ageing.next_raise(NOW, NOW + waited * MINUTE)
    assert due == (None if next_raise is None else NOW + next_raise * MINUTE)


def test_steps_wait_for_the_common_period():
    ageing = Ageing(after_ms=10 * MINUTE, step=4, max_raise=10)
    created_at = NOW + 1
    assert ageing.next_raise(created_at, NOW + 1) == NOW + 11 * MINUTE
    assert ageing.raised_by(created_at, NOW + 11 * MINUTE - 1) == 0
    assert ageing.raised_by(created_at, NOW + 11 * MINUTE) == 4


@pytest.mark.parametrize(
    ("ageing", "priorities", "wakes"),
    [
        pytest.param(Ageing(), [90, 0, 50], [None], id="without-ageing"),
        pytest.param(Ageing(10 * MINUTE, 10, 20), [0, 0, 0], [None], id="in-a-queue-of-one-priority"),
        pytest.param(Ageing(10 * MINUTE, 10, 20), [90, 0, 50], [10, 20, None], id="once-all-are-raised-by-max"),
    ],
)
def test_no_update_is_due_that_changes_no_order(ageing, priorities, wakes):
    engine, now = engine_with(ageing), NOW
    for name, priority in zip(("running", "low", "high"), priorities, strict=True):
        engine.workload_changed(job(name, priority), NOW)
    for wake in wakes:
        engine.plan(now)
        now = engine.context.ageing.next_raise()
        assert now == (None if wake is None else NOW + wake * MINUTE)


def test_turning_ageing_off_restores_the_order():
    engine = engine_with(Ageing(10 * MINUTE, 10, 20))
    for submitted in (job("running", 90), job("low", 0, NOW - 10 * MINUTE), job("high", 5)):
        engine.workload_changed(submitted, NOW)
    engine.plan(NOW)
    low = engine.workloads[WorkloadUid("low")]
    assert (engine.position(low), engine.raised_priority(low)) == (1, 10)
    engine.policy_changed(Policy())
    engine.plan(NOW)
    assert [pending.name for pending in engine.pending_workloads(QUEUE)] == ["high", "low"]
    assert engine.raised_priority(low) is None


def test_order_after_an_admission_applies_without_an_event():
    engine = engine_with(Ageing(10 * MINUTE, 10, 20))
    for age, (name, priority) in enumerate([("high", 30), ("low", 0), ("between", 15)], start=60):
        engine.workload_changed(job(name, priority, NOW - age * MINUTE), NOW)
    assert admitted(engine, NOW) == ["between"]
    assert not engine.plan(NOW + 1).decisions
    assert [pending.name for pending in engine.pending_workloads(QUEUE)] == ["high", "low"]


def test_workload_may_leave_between_the_parts_of_a_plan():
    engine = engine_with(Ageing(after_ms=10 * MINUTE, step=1, max_raise=5))
    for submitted in (job("first", 1), job("second", 0)):
        engine.workload_changed(submitted, NOW)
    (admission,) = engine.plan(NOW, most=1).decisions
    assert admission.workload.name == "first"
    engine.workload_removed(WorkloadUid("first"), NOW)
    assert admitted(engine, NOW) == ["second"]


def stream(
    engine: Engine, bases: list[int], cpus: int, run_minutes: int, queues: tuple[QueueName, ...] = (QUEUE,)
) -> Iterator[tuple[int, list[str]]]:
    """Submit more jobs than fit to each queue, for ever, and end each job after its run; yield admissions by time."""
    ends: dict[str, int] = {}
    now = NOW
    for number in range(10_000):
        for queue in queues:
            for index in range(2 * cpus):
                name = f"high-{queue}-{number}-{index}"
                added = job(name, bases[(number + index) % len(bases)], now)
                engine.workload_changed(replace(added, queue=queue), now)
        for name in [name for name, end in ends.items() if end <= now]:
            over = replace(engine.workloads[WorkloadUid(name)], state=WorkloadState.FINISHED, admission=None)
            engine.workload_changed(over, now)
            del ends[name]
        names = admitted(engine, now)
        ends |= dict.fromkeys(names, now + run_minutes * MINUTE)
        yield now, names
        now += run_minutes * MINUTE


def excess_wait(
    base: int, ageing: Ageing, above: list[int], *, cpus: int, run_minutes: int, other: QueueName | None = None
) -> int:
    """Return for how long after its bound a job waits behind a stream; at most zero where the bound holds.

    With *other*, that queue has such a stream too, and half of the capacity as its fair share. After the bound the
    search ends, so that the result is positive at once.
    """
    queues = (QUEUE,) if other is None else (QUEUE, other)
    engine = engine_with(ageing, cpus=cpus * len(queues))
    for name in queues:
        engine.queue_changed(Queue(name))
    filling = stream(engine, [base + difference for difference in above], cpus, run_minutes, queues)
    next(filling)
    engine.workload_changed(job("low", base, NOW), NOW)
    steps = -(-ageing.max_raise // ageing.step)
    bound = NOW + steps * ageing.after_ms + ageing.period_ms + 2 * run_minutes * MINUTE
    return next(now for now, names in filling if "low" in names or now > bound) - bound


def test_workload_is_not_evicted_by_one_that_it_has_passed():
    """With the workload of priority 10 in between, the oldest one is raised above the youngest."""
    policy = Policy(ageing=Ageing(10 * MINUTE, 15, 15), preemption=EvictionPolicy(enabled=True, min_runtime_ms=0))
    jobs = [job("old", 0, NOW - 50 * MINUTE), job("middle", 10, NOW - 40 * MINUTE), job("young", 20)]
    engine = engine_with(policy.ageing)
    engine.policy_changed(policy)
    for submitted in jobs:
        engine.workload_changed(submitted, NOW)
    assert admitted(engine, NOW) == ["old"]
    assert engine.plan(NOW + 10).decisions == ()


@settings(max_examples=25, deadline=None)
@example(base=0, ageing=Ageing(10 * MINUTE, 10, 40), above=[39], cpus=1, run_minutes=1, other=None)
@example(base=0, ageing=Ageing(10 * MINUTE, 10, 40), above=[39], cpus=1, run_minutes=1, other=QueueName("other"))
@given(
    base=st.integers(-100, 100),
    ageing=st.builds(Ageing, st.integers(1, 30).map(lambda minutes: minutes * MINUTE), st.integers(5, 40), st.just(40)),
    above=st.lists(st.integers(-60, 39) | st.integers(20, 39), min_size=1, max_size=3),
    cpus=st.integers(1, 3),
    run_minutes=st.integers(1, 20),
    other=st.sampled_from([None, QueueName("other")]),
)
def test_endless_stream_delays_no_job_beyond_its_bound(**world):
    assert excess_wait(**world) <= 0


@pytest.mark.parametrize("other", [None, QueueName("other")])
@pytest.mark.parametrize("mistake", ["never-raised", "no-shared-highest-raise", "none"])
def test_bound_is_missed_only_with_a_mistake_in_ageing(monkeypatch, mistake, other):
    if mistake == "never-raised":
        monkeypatch.setattr(Ageing, "raised_by", lambda *_: 0)
        monkeypatch.setattr(Ageing, "next_raise", lambda *_: None)
    if mistake == "no-shared-highest-raise":
        raise_alone = lambda priorities, most: {priority: priority + most for priority in priorities}  # noqa: E731
        monkeypatch.setattr("controller.engine.fairness.ageing._ceilings", raise_alone)
    excess = excess_wait(0, Ageing(10 * MINUTE, 10, 40), [39], cpus=1, run_minutes=1, other=other)
    assert (excess > 0) == (mistake != "none")
