"""Relations between two runs of the engine: changes of its input that change no decision, or only names and times."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.policy import Ageing, Backfill, HeadReservationPolicy
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Cluster, ClusterName, Toleration
from controller.engine.state.hierarchy import Queue, QueueName, QueueState
from controller.engine.state.workloads import HyperJobGang, Workload, WorkloadState
from tests.draws import draws
from tests.engine.objects import workload
from tests.engine.worlds import NOW, Objects, RandomObjects, any_state, crowd

worlds = draws(25)
LONG = 100_000_000
DELAYS = 0, 50, 1_000, 5_000, 30_000, 60_000, 400_000, 400_050
AGEING_MS = 20_000
SHIFT = 1000 * AGEING_MS
NAME = re.compile(r"\b(q\d|m\d|one|two|job-\d+|h\d+-\d+|h\d+/1)\b")
TIMES = {"created_at", "admitted_at", "since", "until", "ends_at", "placed_at", "promised_start"}


def timed(objects: RandomObjects) -> Objects:
    """Return a state in which waiting and running change decisions, with policies of short times."""
    random = objects.random
    state = random.choice([any_state, crowd])(objects)
    policy = replace(
        state.policy,
        ageing=random.choice([Ageing(), Ageing(AGEING_MS, 5, 20)]),
        head_reservation=HeadReservationPolicy(random.choice([0, 50, 5_000]), random.choice([600, 100_000]), 1000),
        backfill=Backfill(enabled=random.choice([True, True, False])),
        reclaim=objects.eviction(60),
        preemption=objects.eviction(40),
    )
    made = [
        _evicted(running) if running.state is WorkloadState.ADMITTED and objects.chance(30) else running
        for running in state.workloads
    ]
    aged = [replace(workload, created_at=NOW - random.randrange(10 * AGEING_MS)) for workload in made]
    return replace(state, policy=policy, workloads=tuple(random.choice([made, aged])))


def _evicted(admitted: Workload) -> Workload:
    """Return a workload whose eviction is in progress."""
    return replace(admitted, state=WorkloadState.PENDING, hold=Refusal(Reason.PREEMPTION_IN_PROGRESS))


def states() -> st.SearchStrategy[Objects]:
    return st.integers(0, 2**32).map(lambda seed: timed(RandomObjects(Random(seed), is_valid=seed % 2 > 0)))


def runs(objects: Objects, start: int = NOW) -> Iterator[tuple[object, ...]]:
    """Yield decisions, updates of records and refusals of some plans; evictions end before every third one."""
    engine = objects.engine(start - LONG)
    engine.cycle.reason_updates.is_enabled = False
    for number, now in enumerate(start + delay for delay in DELAYS):
        if number % 3 == 2:
            for stopping in [workload for workload in engine.workloads.values() if workload.is_being_evicted]:
                engine.workload_changed(stopping.stopped(), now)
        plan = engine.plan(now)
        yield plan.decisions, plan.record_updates, {uid: engine.refusal(uid) for uid in engine.workloads}


def mapped(value: object, change: Callable[[str, object], object], field: str = "") -> object:
    """Return *value* with *change* applied to every name and number, with the field or resource that it belongs to."""
    if is_dataclass(value):
        names = [item.name for item in fields(value) if item.init]
        return type(value)(**{name: mapped(getattr(value, name), change, name) for name in names})
    if isinstance(value, Mapping):
        return {mapped(key, change): mapped(item, change, str(key)) for key, item in value.items()}
    if isinstance(value, tuple | frozenset | list):
        items = [mapped(item, change, field) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    is_leaf = isinstance(value, str | int) and not isinstance(value, Enum | bool)
    return change(field, value) if is_leaf else value


def renamed(_: str, value: object) -> object:
    return NAME.sub(r"other-\1", value) if isinstance(value, str) else value


def shifted(field: str, value: object) -> object:
    if field == "plan_id" and "@" in str(value):
        name, _, at = str(value).rpartition("@")
        return f"{name}@{int(at) + SHIFT}"
    is_time = field == "created_at" or (field in TIMES and value)
    return value + SHIFT if is_time else value


def scaled(field: str, value: object) -> object:
    factors = {"cpu": 1000, "memory": 2**20, "nvidia.com/gpu": 3}
    return value * factors.get(field, 1) if isinstance(value, int) else value


def decided(objects: Objects, *ignored: str) -> list[object]:
    """Return admissions with clusters, evictions, updates of records, and codes of refusals, without *ignored* ones."""
    result = []
    for decisions, updates, refusals in runs(objects):
        made = [(item.workload.uid, getattr(item, "clusters", item.workload.queue)) for item in decisions]
        noted = [(item.workload.uid, item.nomination is None, item.reservation is None) for item in updates]
        codes = {uid: refusal and refusal.reason for uid, refusal in refusals.items() if uid not in ignored}
        result.append((made, noted, codes))
    return result


@worlds
@given(states())
def test_renamed_objects_get_the_same_decisions(objects):
    assert [*runs(mapped(objects, renamed))] == mapped([*runs(objects)], renamed)


@worlds
@given(states())
def test_shifted_times_shift_all_decisions(objects):
    assert [*runs(mapped(objects, shifted), NOW + SHIFT)] == mapped([*runs(objects)], shifted)


@worlds
@given(states())
def test_units_of_resources_change_no_decision(objects):
    # Guarantees that exceed what their parent can give are rounded down to whole base units (Q3).
    objects = replace(objects, queues=tuple(replace(queue, guarantee={}) for queue in objects.queues))
    assert decided(mapped(objects, scaled)) == decided(objects)


@worlds
@given(states())
def test_redundant_tolerations_change_no_decision(objects):
    """Each workload becomes a class of its own."""
    made = []
    for number, plain in enumerate(objects.workloads):
        placement = plain.requirements.placement
        placement = replace(placement, tolerations=(*placement.tolerations, Toleration(f"none-{number}", "Exists")))
        made.append(replace(plain, requirements=replace(plain.requirements, placement=placement)))
    assert decided(replace(objects, workloads=tuple(made))) == decided(objects)


@worlds
@given(states(), st.sampled_from(list(range(3))))
def test_unrelated_objects_change_no_decision(objects, number):
    idle = Queue(QueueName(("a", "r", "z")[number]), weight=9, priority=5 * number, deserved={"cpu": 3})
    closed = Queue(QueueName("closed"), guarantee={"cpu": 9}, state=QueueState.CLOSED)
    unreachable = Cluster(ClusterName("a"), ready=False)
    shape = objects.workloads[0].requirements
    others = [
        workload("held", shape, queue=objects.workloads[0].queue, priority=99, hold=Refusal(Reason.SUSPENDED)),
        workload("without-queue", shape, queue="nowhere-else", priority=99),
        workload("lone", shape, queue=objects.workloads[0].queue, priority=99, gang=HyperJobGang("lone/1", 2, 2)),
        workload("finished", shape, queue=objects.workloads[0].queue, state=WorkloadState.FINISHED),
    ]
    more = Objects(
        objects.policy,
        (*objects.queues, idle, closed),
        (*objects.clusters, unreachable),
        (*objects.workloads, *others),
    )
    assert decided(more, *(other.uid for other in others)) == decided(objects)


@worlds
@given(states())
def test_only_child_equal_to_its_parent_changes_no_decision(objects):
    parents = {queue.parent for queue in objects.queues}
    split = [queue for queue in objects.queues if queue.name not in parents][:1]
    above = [replace(queue, name=QueueName(f"{queue.name}-above")) for queue in split]
    below = [replace(queue, parent=QueueName(f"{queue.name}-above")) for queue in split]
    queues = (*(queue for queue in objects.queues if queue not in split), *above, *below)

    assert decided(replace(objects, queues=queues)) == decided(objects)


@worlds
@given(states(), st.randoms(use_true_random=False))
def test_cycle_before_the_wake_up_decides_nothing(objects, random):
    engine, now = objects.engine(NOW - LONG), NOW
    for _ in range(6):
        plan = engine.plan(now)
        wake_at = plan.wake_at or now + 3_000_000
        is_complete = not plan.decisions and wake_at > now
        for at in sorted({random.randrange(now, wake_at), wake_at - 1}) if is_complete else ():
            engine._planned_changes = -1  # an event that changes nothing
            early = engine.plan(at)
            assert [*early.decisions, *early.record_updates, *early.reschedules] == [], (now, at, wake_at)
        now = wake_at


@worlds
@given(states())
def test_refused_decisions_leave_no_trace(objects):
    """The API server refuses all writes of each plan; the next one, at the same time, decides the same."""
    engine = objects.engine(NOW - LONG)
    engine.cycle.reason_updates.is_enabled = False
    for now in (NOW + delay for delay in DELAYS):
        before = dict(engine.workloads)
        plan = engine.plan(now)
        for item in (*plan.decisions, *plan.record_updates):
            engine.workload_changed(before[item.workload.uid], now)
        again = engine.plan(now)
        assert (plan.decisions, plan.record_updates) == (again.decisions, again.record_updates)
