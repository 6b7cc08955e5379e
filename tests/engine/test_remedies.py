"""Applies every remedy to the state it was found for, and checks that it admits the workload or is incomplete."""

from dataclasses import replace
from random import Random

import pytest

from controller.engine.engine import Engine
from controller.engine.reasons import ABOUT_CAPACITY, Reason
from controller.engine.remedies import Change, Remedy, find_remedy, plan_until_stable
from controller.engine.shortfalls import shortfalls
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import WorkloadState, WorkloadUid
from tests.engine.worlds import CLUSTERS, NOW, ONE, Objects, RandomObjects, leaves


def draw(seed: int) -> Objects:
    """Return the objects of a state with running workloads that need not fit together."""
    objects = RandomObjects(Random(seed))
    objects.spreads = (ONE, ONE, ONE, ())
    policy = objects.policy(reclaim=objects.eviction(40, [0]), preemption=objects.eviction(30, [0]))
    clusters, queues = [objects.cluster(name) for name in CLUSTERS], objects.hierarchy()
    workloads = objects.workloads(range(objects.random.randint(2, 14)), leaves(queues))
    return Objects(policy, tuple(queues), tuple(clusters), tuple(workloads))


def apply(objects: Objects, changes: tuple[Change, ...]) -> Objects:
    """Return the objects that an operator has changed as the printed remedy says."""
    clusters, queues = ({item.name: item for item in items} for items in (objects.clusters, objects.queues))
    for change in changes:
        if change.kind == "cluster":
            small = clusters[ClusterName(change.name)]
            assert (small.allocatable or {}).get(change.resource, 0) == change.before
            enlarged = {**(small.allocatable or {}), change.resource: change.after}
            clusters[small.name] = replace(small, allocatable=enlarged)
        else:
            queue = queues[QueueName(change.name)]
            assert queue.capability[change.resource] == change.before
            queues[queue.name] = replace(queue, capability={**queue.capability, change.resource: change.after})
    return replace(objects, clusters=tuple(clusters.values()), queues=tuple(queues.values()))


def pending(engine: Engine) -> list[WorkloadUid]:
    """Return the workloads that are pending for capacity."""
    refusals = {uid: engine.refusal(uid) for uid in engine.workloads}
    capacity_reasons = ABOUT_CAPACITY | {
        Reason.EXCEEDS_QUEUE_LIMIT,
        Reason.EXCEEDS_TOTAL_CAPACITY,
        Reason.EXCEEDS_EVERY_CLUSTER,
    }
    return sorted(uid for uid, why in refusals.items() if why is not None and why.reason in capacity_reasons)


def check(seed: int) -> tuple[int, int, int]:
    """Apply each remedy of one state; return the number of pending workloads, remedies and complete remedies."""
    engine = draw(seed).engine()
    plan = engine.plan(NOW)
    waiting = pending(engine)
    remedies = {uid: find_remedy(engine, uid, NOW, plan) for uid in waiting}
    for uid, remedy in remedies.items():
        check_shortfalls(engine, uid)
        if remedy is not None:
            carry_out(seed, uid, remedy)
    remedies_found = [remedy for remedy in remedies.values() if remedy is not None]
    return len(waiting), len(remedies_found), sum(remedy.is_complete for remedy in remedies_found)


def check_shortfalls(engine: Engine, uid: WorkloadUid) -> None:
    missing, reason = shortfalls(engine, uid), engine.refusal(uid)
    assert reason is not None
    assert missing[0].reason is reason.reason
    keys = [(shortfall.reason, shortfall.resource, shortfall.queue, shortfall.cluster) for shortfall in missing]
    assert len(keys) == len(set(keys))
    assert all(shortfall.lacks is None or shortfall.lacks > 0 for shortfall in missing), (uid, missing)


def carry_out(seed: int, uid: WorkloadUid, remedy: Remedy) -> None:
    engine = apply(draw(seed), remedy.changes).engine()
    plan_until_stable(engine, NOW)
    is_admitted = engine.workloads[uid].state is WorkloadState.ADMITTED
    assert is_admitted == remedy.is_complete, (seed, uid, remedy)
    if not is_admitted:
        left = engine.refusal(uid)
        assert left is not None
        assert remedy.refusal == left, (seed, uid)


def survey(seeds: range) -> tuple[int, int, int]:
    counts = [check(seed) for seed in seeds]
    return sum(count[0] for count in counts), sum(count[1] for count in counts), sum(count[2] for count in counts)


def test_remedy_admits_the_workload_or_names_what_precedes_it():
    check(2671)  # evicts for another workload first, and has room in the plan that follows at once
    waiting, with_remedy, complete = survey(range(60))
    assert waiting > 105
    assert with_remedy > 0.7 * waiting
    assert complete > 0.4 * waiting


@pytest.mark.long
def test_remedies_are_correct_for_two_thousand_states():
    waiting, with_remedy, complete = survey(range(1000, 3000))
    print(f"{waiting} waiting, {with_remedy} with a remedy, {complete} complete")  # noqa: T201 - the figure of the long run
    assert with_remedy > 0.7 * waiting
