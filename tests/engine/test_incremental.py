"""A World that has lived through events decides as one that was built this moment."""

import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from controller.engine.clusters import Affinity, Cluster, ClusterName, Placement, Spread
from controller.engine.policy import Policy, Tenant
from controller.engine.queues import ROOT, Queue, QueueName, QueueState
from controller.engine.reasons import Reason, Refusal
from controller.engine.workloads import VOLCANO_JOB, Shape, State, Workload, WorkloadUid
from controller.engine.world import World

QUEUES = [QueueName(f"q{number}") for number in range(7)]
CLUSTERS = [ClusterName(f"m{number}") for number in range(4)]
EVENTS = 200
ONE = (Spread("cluster", 1, 1),)


class Life:
    """One World and a seeded stream of things that happen to it."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.now = 1_000_000_000
        order = self.dice.choice(["PriorityFirst", "EntitlementFirst"])
        fairness = self.dice.choice(["None", "None", "Namespace"])
        self.world = World(Policy(queue_order=order, tenant_fairness=fairness))
        self.shapes = [self.shape() for _ in range(6)]
        self.number = 0

    def amounts(self, most: int) -> dict[str, int]:
        names = self.dice.sample(["cpu", "memory", "nvidia.com/gpu"], self.dice.randint(1, 3))
        return {name: self.dice.randint(0, most) for name in names}

    def shape(self) -> Shape:
        demand = {"pods": 1000, **self.amounts(9)}
        part = self.dice.choice([4, 4, 2])
        names = self.dice.sample(CLUSTERS, self.dice.randint(0, 2))
        where = Placement(Affinity(names=tuple(names)) if names else None, spread=self.dice.choice([ONE, ONE, ONE, ()]))
        return Shape(demand, {name: amount * part // 4 for name, amount in demand.items()}, where)

    def happen(self) -> None:
        """Let one thing happen."""
        kinds = [self.arrive] * 9 + [self.finish] * 6 + [self.leave, self.queue, self.queue, self.cluster, self.cluster]
        rare = [self.drop_queue, self.drop_cluster, self.rule, self.evict, self.raise_priority, self.rest]
        self.dice.choice([*kinds, *rare])()

    def some(self, state: State) -> Workload | None:
        found = [each for each in self.world.workloads.values() if each.state is state]
        return self.dice.choice(found) if found else None

    def tell(self, workload: Workload | None, **changes: object) -> None:
        if workload is not None:
            self.world.workload_changed(replace(workload, **changes), self.now)

    def arrive(self) -> None:
        self.number += 1
        hold = self.dice.choice([None] * 9 + [Refusal(Reason.BACKING_OFF, until=self.now + 3_000)])
        self.world.workload_changed(
            Workload(
                uid=WorkloadUid(f"uid-{self.number}"),
                namespace=self.dice.choice(["one", "two"]),
                name=f"job-{self.number}",
                kind="Job",
                queue=self.dice.choice(QUEUES),
                shape=self.dice.choice(self.shapes),
                priority=self.dice.choice([0, 0, 0, 10]),
                since=self.now + self.dice.randint(-2, 2) * 1000,
                hold=hold,
            ),
            self.now,
        )

    def finish(self) -> None:
        self.tell(self.some(State.ADMITTED), state=State.FINISHED, admission=None)

    def leave(self) -> None:
        workload = self.some(self.dice.choice(list(State)))
        if workload is not None:
            self.world.workload_removed(workload.uid, self.now)

    def evict(self) -> None:
        self.tell(self.some(State.ADMITTED), state=State.PENDING, admission=None)

    def raise_priority(self) -> None:
        self.tell(self.some(State.PENDING), priority=self.dice.choice([0, 5, 20]))

    def queue(self) -> None:
        self.world.queue_changed(
            Queue(
                name=self.dice.choice(QUEUES),
                parent=self.dice.choice([ROOT, ROOT, *QUEUES]),
                weight=self.dice.randint(1, 4),
                priority=self.dice.choice([0, 0, 3]),
                capability=self.amounts(25) if self.dice.random() < 0.4 else {},
                deserved=self.amounts(12) if self.dice.random() < 0.4 else {},
                guarantee=self.amounts(6) if self.dice.random() < 0.4 else {},
                fifo=self.dice.random() < 0.3,
                state=self.dice.choice([QueueState.OPEN] * 6 + [QueueState.CLOSED]),
            )
        )

    def drop_queue(self) -> None:
        self.world.queue_removed(self.dice.choice(QUEUES))

    def cluster(self) -> None:
        self.world.cluster_changed(
            Cluster(
                name=self.dice.choice(CLUSTERS),
                enablements=frozenset({VOLCANO_JOB}),
                ready=self.dice.random() < 0.85,
                allocatable={"pods": 1_000_000, **self.amounts(30)} if self.dice.random() < 0.9 else None,
                used=self.amounts(12) if self.dice.random() < 0.5 else {},
            ),
            self.now,
        )

    def drop_cluster(self) -> None:
        self.world.cluster_removed(self.dice.choice(CLUSTERS))

    def rule(self) -> None:
        tenants = (Tenant(("one",), queues=tuple(self.dice.sample(QUEUES, 4))),) if self.dice.random() < 0.5 else ()
        self.world.policy_changed(replace(self.world.policy, tenants=tenants))

    def rest(self) -> None:
        self.now += self.dice.choice([1, 1_000, 40_000])


def fresh(world: World, now: int) -> World:
    """Return a World that is told what is true of *world*, and what its clusters were seen to use."""
    built = World(world.policy)
    for workload in world.workloads.values():
        built.workload_changed(workload, now)
    for queue in world.queues.values():
        built.queue_changed(queue)
    built.ledger._sites = deepcopy(world.ledger._sites)
    built.ledger._restless = {site.name for site in world.ledger}
    built.ledger._pool = None
    return built


def reasons(world: World) -> Iterator[tuple[WorkloadUid, Refusal | None]]:
    for uid in sorted(world.workloads):
        yield uid, world.refusal(uid)


def entitled(world: World) -> dict[QueueName, dict[str, Fraction]]:
    """The entitlements that are not zero; of the root's, what its children get."""
    due = world.standing.entitlements
    return {name: {key: amount for key, amount in due[name].items() if amount} for name in due if name != ROOT}


def compare(seed: int) -> None:
    life = Life(seed)
    for number in range(EVENTS):
        life.happen()
        other = fresh(life.world, life.now)
        expected = other.plan(life.now)
        plan = life.world.plan(life.now)
        assert plan.decisions == expected.decisions, f"seed {seed}, event {number}"
        assert dict(reasons(life.world)) == dict(reasons(other)), f"seed {seed}, event {number}"
        assert entitled(life.world) == entitled(other), f"seed {seed}, event {number}"
        life.now += 10


@pytest.mark.parametrize("seed", range(6))
def test_after_any_events_it_decides_as_a_world_built_afresh(seed):
    compare(seed)


@pytest.mark.long
def test_after_very_many_events_it_decides_as_a_world_built_afresh():
    for seed in range(1000, 1000 + int(os.environ.get("LIVES", "300"))):
        compare(seed)


def test_everyone_who_waits_has_been_told_a_reason():
    life = Life(77)
    for _ in range(EVENTS):
        life.happen()
        life.world.plan(life.now)
    waiting = {uid for uid, each in life.world.workloads.items() if each.state is State.PENDING}
    assert set(life.world.told) == waiting
