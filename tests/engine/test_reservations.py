"""A reservation ends starvation, whatever stream of smaller ones goes on, and freezes nobody (O6)."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from controller.engine.clusters import Cluster, ClusterName, Placement, Spread
from controller.engine.plan import Admit, Plan
from controller.engine.policy import Policy, Reservation
from controller.engine.queues import Queue, QueueName
from controller.engine.reasons import Reason
from controller.engine.workloads import VOLCANO_JOB, Shape, State, Workload, WorkloadUid
from controller.engine.world import World

STEP = 10_000
LONGEST = 20 * STEP
AFTER = 30 * STEP
ONE = Placement(spread=(Spread("cluster", 1, 1),))
NEVER = Reservation(after_ms=10**12)


@dataclass(frozen=True, slots=True)
class Run:
    """A small job that runs."""

    ends_at: int
    cluster: ClusterName


class Stream:
    """Clusters that small jobs keep full, and a wide one that waits for a whole cluster."""

    def __init__(self, seed: int, reservation: Reservation) -> None:
        self.dice = Random(seed)
        self.now = 1_000_000_000
        self.number = 0
        self.running: dict[WorkloadUid, Run] = {}
        self.started_at: int | None = None
        self.world = World(Policy(reservation=reservation))
        self.world.queue_changed(Queue(QueueName("q")))
        self.names = [ClusterName(f"m{number}") for number in range(self.dice.randint(1, 3))]
        for name in self.names:
            enabled = frozenset({VOLCANO_JOB})
            self.world.cluster_changed(Cluster(name, enablements=enabled, allocatable={"cpu": 12}), self.now)
        self.arrive()
        self.plan()
        self.wide = self.tell("wide", cpu=self.dice.randint(9, 12))

    def tell(self, name: str, *, cpu: int) -> WorkloadUid:
        uid, demand = WorkloadUid(name), {"cpu": cpu}
        shape = Shape(demand, demand, ONE)
        since = 0 if name == "wide" else self.now
        workload = Workload(uid, "ns", name, "Job", QueueName("q"), shape, since=since)
        self.world.workload_changed(workload, self.now)
        return uid

    def arrive(self) -> None:
        """Let smaller ones come, so many that some always wait."""
        while len(self.world.backlog) < 12:
            self.number += 1
            self.tell(f"small-{self.number}", cpu=self.dice.randint(1, 4))

    def step(self) -> Plan:
        self.now += STEP
        for uid in [uid for uid, run in self.running.items() if run.ends_at <= self.now]:
            del self.running[uid]
            over = replace(self.world.workloads[uid], state=State.FINISHED, admission=None)
            self.world.workload_changed(over, self.now)
        self.arrive()
        return self.plan()

    def plan(self) -> Plan:
        plan = self.world.plan(self.now)
        for decision in plan.decisions:
            assert isinstance(decision, Admit)
            ends_at = self.now + self.dice.randint(1, LONGEST // STEP) * STEP
            self.running[decision.workload.uid] = Run(ends_at, decision.clusters[0].name)
            if decision.workload.name == "wide":
                self.started_at = self.now
        return plan


@pytest.mark.parametrize("seed", range(8))
def test_who_has_a_reservation_starts_within_the_longest_run_time_on_its_cluster(seed):
    stream = Stream(seed, Reservation(after_ms=AFTER))
    ends_at = None
    while stream.started_at is None:
        plan = stream.step()
        for note in plan.notes:
            assert note.reserved is not None
            on_it = [run.ends_at for run in stream.running.values() if run.cluster == note.reserved.cluster]
            ends_at = max(on_it, default=stream.now)
        assert ends_at is None or stream.now <= ends_at
    assert ends_at is None or stream.started_at <= ends_at


def test_without_one_it_starves():
    streams = [Stream(seed, NEVER) for seed in range(8)]
    for stream in streams:
        for _ in range(2 * (AFTER + LONGEST) // STEP):
            stream.step()
    starved = [stream for stream in streams if stream.started_at is None]
    assert len(starved) >= 6


def test_others_go_on_elsewhere_while_room_is_kept():
    streams = (Stream(seed, Reservation(after_ms=AFTER)) for seed in range(9))
    stream = next(stream for stream in streams if len(stream.names) > 1)
    kept, elsewhere = None, set()
    while stream.started_at is None:
        plan = stream.step()
        if kept is not None:
            elsewhere |= {decision.clusters[0].name for decision in plan.decisions} - {kept}
        kept = next((note.reserved.cluster for note in plan.notes if note.reserved), kept)
    assert elsewhere


def test_who_waits_behind_one_is_told_so():
    stream = Stream(0, Reservation(after_ms=AFTER))
    told = set()
    while stream.started_at is None:
        told |= {str(wait.refusal.reason) for wait in stream.step().waits}
    assert Reason.BEHIND_RESERVATION in told
