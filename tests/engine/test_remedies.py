"""Applies every remedy to the state it was found for, and checks that it admits the workload or is incomplete."""

from dataclasses import replace
from random import Random

import pytest

from controller.engine.engine import Engine
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import ABOUT_CAPACITY, Reason
from controller.engine.remedies import Change, Remedy, find_remedy, plan_until_stable
from controller.engine.shortfalls import shortfalls
from controller.engine.state.clusters import Affinity, Cluster, ClusterName, Placement, Spread
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadState, WorkloadUid
from tests.engine.objects import cluster, workload

NOW = 1_000_000_000
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
CLUSTERS = [ClusterName(f"m{number}") for number in range(3)]
QUEUES = [QueueName(f"q{number}") for number in range(6)]
ONE = (Spread("cluster", 1, 1),)


class Case:
    """A random state, as the list of its objects."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.policy = Policy(
            queue_order=self.dice.choice(["PriorityFirst", "FairShareFirst"]),
            tenant_fairness=self.dice.choice(["None", "Namespace"]),
            reclaim=EvictionPolicy(enabled=self.dice.random() < 0.2, min_runtime_ms=0),
            preemption=EvictionPolicy(enabled=self.dice.random() < 0.1),
        )
        self.clusters = {name: self.cluster(name) for name in CLUSTERS}
        self.queues = {name: self.queue(number, name) for number, name in enumerate(QUEUES)}
        shapes = [self.shape() for _ in range(4)]
        self.workloads = [self.workload(number, shapes) for number in range(self.dice.randint(2, 14))]

    def amounts(self, most: int) -> dict[str, int]:
        return {name: self.dice.randint(0, most) for name in RESOURCES if self.dice.random() < 0.7}

    def maybe(self, part: float, most: int) -> dict[str, int]:
        return self.amounts(most) if self.dice.random() < part else {}

    def cluster(self, name: ClusterName) -> Cluster:
        ready = self.dice.random() < 0.9
        return replace(cluster(name, pods=10_000, **self.amounts(30)), ready=ready, used=self.maybe(0.3, 5))

    def queue(self, number: int, name: QueueName) -> Queue:
        return Queue(
            name,
            parent=self.dice.choice([ROOT, ROOT, *QUEUES[:number]][: 2 + number]),
            weight=self.dice.randint(1, 3),
            priority=self.dice.choice([0, 0, 5]),
            capability=self.maybe(0.5, 20),
            deserved=self.maybe(0.4, 10),
            guarantee=self.maybe(0.4, 8),
            fifo=self.dice.random() < 0.2,
        )

    def shape(self) -> SchedulingRequirements:
        demand = {"pods": 1000, **self.amounts(12)}
        gang = {name: amount * self.dice.choice([4, 4, 2]) // 4 for name, amount in demand.items()}
        names = tuple(self.dice.sample(CLUSTERS, self.dice.choice([0, 0, 1, 2])))
        affinity = Affinity(names=names) if names else None
        return SchedulingRequirements(
            demand, gang, Placement(affinity=affinity, spread=self.dice.choice([ONE, ONE, ONE, ()]))
        )

    def workload(self, number: int, shapes: list[SchedulingRequirements]) -> Workload:
        made = workload(
            f"job-{number}",
            self.dice.choice(shapes),
            on=self.dice.choice([None, None, None, *CLUSTERS]),
            admitted_at=1,
            namespace=self.dice.choice(["one", "two"]),
            queue=self.dice.choice(QUEUES),
            priority=self.dice.choice([0, 0, 10]),
            created_at=self.dice.randint(0, 5) * 1000,
        )
        return replace(made, admission=made.admission and replace(made.admission, reported=True))

    def carry_out(self, changes: tuple[Change, ...]) -> None:
        """Change the objects as an operator would who follows the printed remedy."""
        for change in changes:
            if change.kind == "cluster":
                small = self.clusters[ClusterName(change.name)]
                assert (small.allocatable or {}).get(change.resource, 0) == change.before
                enlarged = {**(small.allocatable or {}), change.resource: change.after}
                self.clusters[small.name] = replace(small, allocatable=enlarged)
            else:
                queue = self.queues[QueueName(change.name)]
                assert queue.capability[change.resource] == change.before
                self.queues[queue.name] = replace(queue, capability={**queue.capability, change.resource: change.after})

    def state(self) -> Engine:
        state = Engine(self.policy)
        for queue in self.queues.values():
            state.queue_changed(queue)
        for each in self.workloads:
            state.workload_changed(each, NOW)
        for each in self.clusters.values():
            state.cluster_changed(each, NOW)
        return state


def pending(state: Engine) -> list[WorkloadUid]:
    """Return the workloads that are pending for capacity."""
    refusals = {uid: state.refusal(uid) for uid in state.workloads}
    capacity_reasons = ABOUT_CAPACITY | {
        Reason.EXCEEDS_QUEUE_LIMIT,
        Reason.EXCEEDS_TOTAL_CAPACITY,
        Reason.EXCEEDS_EVERY_CLUSTER,
    }
    return sorted(uid for uid, why in refusals.items() if why is not None and why.reason in capacity_reasons)


def check(seed: int) -> tuple[int, int, int]:
    """Apply each remedy of one state; return the number of pending workloads, remedies and complete remedies."""
    state = Case(seed).state()
    plan = state.plan(NOW)
    waiting = pending(state)
    remedies = {uid: find_remedy(state, uid, NOW, plan) for uid in waiting}
    for uid, remedy in remedies.items():
        check_shortfalls(state, uid)
        if remedy is not None:
            carry_out(seed, uid, remedy)
    remedies_found = [remedy for remedy in remedies.values() if remedy is not None]
    return len(waiting), len(remedies_found), sum(remedy.is_complete for remedy in remedies_found)


def check_shortfalls(state: Engine, uid: WorkloadUid) -> None:
    missing, reason = shortfalls(state, uid), state.refusal(uid)
    assert reason is not None
    assert missing[0].reason is reason.reason
    keys = [(shortfall.reason, shortfall.resource, shortfall.queue, shortfall.cluster) for shortfall in missing]
    assert len(keys) == len(set(keys))
    assert all(shortfall.lacks is None or shortfall.lacks > 0 for shortfall in missing), (uid, missing)


def carry_out(seed: int, uid: WorkloadUid, remedy: Remedy) -> None:
    case = Case(seed)
    case.carry_out(remedy.changes)
    state = case.state()
    plan_until_stable(state, NOW)
    is_admitted = state.workloads[uid].state is WorkloadState.ADMITTED
    assert is_admitted == remedy.is_complete, (seed, uid, remedy)
    if not is_admitted:
        left = state.refusal(uid)
        assert left is not None
        assert remedy.refusal == left, (seed, uid)


def survey(seeds: range) -> tuple[int, int, int]:
    counts = [check(seed) for seed in seeds]
    return sum(each[0] for each in counts), sum(each[1] for each in counts), sum(each[2] for each in counts)


def test_remedy_admits_the_workload_or_names_what_precedes_it():
    check(1649)  # evicts for another workload first, and has room in the plan that follows at once
    waiting, with_remedy, complete = survey(range(40))
    assert waiting > 70
    assert with_remedy > 0.7 * waiting
    assert complete > 0.4 * waiting


@pytest.mark.long
def test_remedies_are_correct_for_two_thousand_states():
    waiting, with_remedy, complete = survey(range(1000, 3000))
    print(f"{waiting} waiting, {with_remedy} with a remedy, {complete} complete")  # noqa: T201 - the figure of the long run
    assert with_remedy > 0.7 * waiting
