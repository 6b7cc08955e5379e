"""Reservations end the starvation of wide workloads without blocking other clusters (O6)."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from controller.engine.engine import Engine
from controller.engine.plan import Admit, Plan, RecordUpdate
from controller.engine.policy import HeadReservationPolicy, Policy
from controller.engine.reasons import Reason
from controller.engine.state.clusters import ClusterName, Placement, Spread
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import (
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)
from tests.engine.objects import cluster, workload
from tests.scenario import Scenario
from tests.workloads import changed

STEP = 10_000
LONGEST = 20 * STEP
AFTER = 30 * STEP
NEVER = HeadReservationPolicy(after_ms=10**12)


class Stream:
    """Clusters kept full by small jobs, and a wide workload that needs more than they ever free at once."""

    def __init__(self, seed: int, reservation: HeadReservationPolicy, wide: str = "one") -> None:
        self.dice = Random(seed)
        self.now = 1_000_000_000
        self.number = 0
        self.running: dict[WorkloadUid, tuple[int, ClusterName]] = {}
        """End and cluster of each running job."""
        self.started: dict[str, int] = {}
        """Start times of the wide workloads."""
        self.engine = Engine(Policy(head_reservation=reservation))
        self.engine.queue_changed(Queue(QueueName("q")))
        fewest = 1 if wide == "one" else 2
        self.names = [ClusterName(f"m{number}") for number in range(self.dice.randint(fewest, fewest + 2))]
        for name in self.names:
            self.engine.cluster_changed(cluster(name, cpu=12), self.now)
        self.arrive()
        self.plan()
        self.wide = [replace(large, created_at=0) for large in self.widely(wide)]
        for large in self.wide:
            self.engine.workload_changed(large, self.now)

    def widely(self, kind: str) -> list[Workload]:
        """Return a workload that needs a whole cluster or several at once, or such parts of a HyperJob."""
        cpu = self.dice.randint(9, 12)
        match kind:
            case "copies":
                placement = Placement(spread=(Spread("cluster", 1, 2),))
                return [workload("wide", SchedulingRequirements({"cpu": cpu}, {"cpu": cpu}, placement))]
            case "divided":
                whole = {"cpu": 2 * cpu}
                divided = SchedulingRequirements(whole, whole, Placement(divided=True), replicas=2 * cpu)
                return [workload("wide", divided)]
            case "group":
                parts = self.dice.randint(2, len(self.names))
                group = HyperJobGang("hyper/1", parts, self.dice.randint(2, parts))
                cpus = (cpu, *[9] * (parts - 1))
                return [workload(f"wide-{n}", {"cpu": amount}, gang=group) for n, amount in enumerate(cpus)]
        return [workload("wide", {"cpu": cpu})]

    @property
    def started_at(self) -> int | None:
        """Return when the wide workload, or enough of its parts, started."""
        group = self.wide[0].gang
        times = sorted(self.started.values())
        least = group.minimum if group else 1
        return times[least - 1] if len(times) >= least else None

    def arrive(self) -> None:
        """Submit so many small jobs that some are always pending."""
        while len(self.engine.pending) < 12:
            self.number += 1
            small = workload(f"small-{self.number}", {"cpu": self.dice.randint(1, 4)}, created_at=self.now)
            self.engine.workload_changed(small, self.now)

    def step(self) -> Plan:
        self.now += STEP
        for uid in [uid for uid, (ends_at, _) in self.running.items() if ends_at <= self.now]:
            del self.running[uid]
            over = replace(self.engine.workloads[uid], state=WorkloadState.FINISHED, admission=None)
            self.engine.workload_changed(over, self.now)
        self.arrive()
        return self.plan()

    def plan(self) -> Plan:
        plan = self.engine.plan(self.now)
        for decision in plan.decisions:
            assert isinstance(decision, Admit)
            ends_at = self.now + self.dice.randint(1, LONGEST // STEP) * STEP
            self.running[decision.workload.uid] = ends_at, decision.clusters[0].name
            if decision.workload.name.startswith("wide"):
                self.started[decision.workload.name] = self.now
        return plan


def reserved_clusters(note: RecordUpdate) -> set[ClusterName]:
    """Return the clusters on which capacity is reserved."""
    return {booking.cluster for booking in note.reservation.cluster_charges} if note.reservation else set()


WIDE = ["one", "copies", "divided", "group"]


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("seed", range(8))
def test_reserved_head_starts_within_the_longest_running_time(seed, wide):
    stream = Stream(seed, HeadReservationPolicy(after_ms=AFTER), wide)
    ends_at = None
    while stream.started_at is None:
        plan = stream.step()
        for note in plan.record_updates:
            assert note.reservation is not None
            assert note.reservation.cluster_charges
            on_it = [end for end, cluster in stream.running.values() if cluster in reserved_clusters(note)]
            ends_at = max(ends_at or stream.now, *on_it, stream.now)
        assert ends_at is None or stream.now <= ends_at
    assert ends_at is None or stream.started_at <= ends_at


@pytest.mark.parametrize("wide", WIDE)
def test_wide_workload_starves_without_a_reservation(wide):
    streams = [Stream(seed, NEVER, wide) for seed in range(8)]
    for stream in streams:
        for _ in range(2 * (AFTER + LONGEST) // STEP):
            stream.step()
    starved = [stream for stream in streams if stream.started_at is None]
    assert len(starved) >= 6


def test_reservation_blocks_only_its_cluster_and_says_so():
    streams = (Stream(seed, HeadReservationPolicy(after_ms=AFTER)) for seed in range(9))
    stream = next(stream for stream in streams if len(stream.names) > 1)
    reserved, elsewhere, reasons = None, set(), set()
    while stream.started_at is None:
        plan = stream.step()
        reasons |= {wait.refusal.reason for wait in plan.waits}
        if reserved is not None:
            elsewhere |= {decision.clusters[0].name for decision in plan.decisions} - {reserved}
        reserved = next((name for note in plan.record_updates for name in reserved_clusters(note)), reserved)
    assert elsewhere
    assert Reason.BLOCKED_BY_RESERVATION in reasons


def test_pauses_between_reservations_grow_without_a_delay():
    policy = Policy(head_reservation=HeadReservationPolicy(after_ms=0, max_idle_permille=0))
    engine = blocked_by_small(policy)
    pauses = [later - earlier for earlier, later in pairwise(granted_at(engine, 1_000_000, count=5))]
    assert [round(pause / 1000) for pause in pauses] == [2, 4, 8, 16]


def test_pauses_between_reservations_restart_after_a_run():
    policy = Policy(head_reservation=HeadReservationPolicy(after_ms=0, max_idle_permille=0))
    engine = blocked_by_small(policy)
    now = granted_at(engine, 1_000_000, count=4)[-1] + 1
    engine.workload_changed(changed(workload("wide", {"cpu": 4}, on="m", admitted_at=now), has_run=True), now)
    engine.workload_changed(workload("wide", {"cpu": 4}), now)
    again = granted_at(engine, now, count=3)
    assert [round((at - now) / 1000) for at in again] == [0, 2, 6]


def test_refused_reservation_without_delay_is_tried_again():
    engine, now = blocked_by_small(Policy(head_reservation=HeadReservationPolicy(after_ms=0, max_ms=1000))), 1_000_000
    engine.workload_changed(changed(engine.workloads[WorkloadUid("small")], run_time_ms=60_000), now)
    engine.workload_changed(workload("wide", {"cpu": 4}, created_at=now), now)
    while not (plan := engine.plan(now)).record_updates and plan.wake_at is not None:
        now = plan.wake_at
    assert plan.record_updates
    assert round((now - 1_000_000) / 1000) == 30, "as long as it still has to wait (O8)"


def test_refused_reservation_leaves_cluster_to_next_queue():
    engine, now = Engine(Policy(head_reservation=HeadReservationPolicy(after_ms=50, max_ms=1000))), 1_000_000
    engine.queue_changed(Queue(QueueName("parent"), capability={"gpu": 2}))
    engine.queue_changed(Queue(QueueName("a"), parent=QueueName("parent"), priority=1))
    engine.queue_changed(Queue(QueueName("b")))
    engine.cluster_changed(cluster("m", cpu=4, gpu=2), now)
    engine.cluster_changed(cluster("n", cpu=1, gpu=2), now)
    engine.workload_changed(workload("small", {"cpu": 1}, queue="b", on="m", admitted_at=now), now)
    engine.workload_changed(workload("long", {"gpu": 2}, queue="a", on="n", admitted_at=1), now)
    engine.workload_changed(workload("without-prospects", {"cpu": 4, "gpu": 1}, queue="a"), now)
    engine.workload_changed(workload("wide", {"cpu": 4}, queue="b"), now)
    engine.plan(now)
    assert [note.workload.name for note in engine.plan(now + 50).record_updates] == ["wide"]


def blocked_by_small(policy: Policy) -> Engine:
    """Return an engine in which a small workload keeps a wide one from its only cluster."""
    engine, now = Engine(policy), 1_000_000
    engine.queue_changed(Queue(QueueName("q")))
    engine.cluster_changed(cluster("m", cpu=4), now)
    engine.workload_changed(workload("small", {"cpu": 1}, on="m", admitted_at=now), now)
    engine.workload_changed(workload("wide", {"cpu": 4}), now)
    return engine


def granted_at(engine: Engine, now: int, *, count: int) -> list[int]:
    """Return when the next *count* reservations are granted."""
    granted = list[int]()
    while len(granted) < count:
        plan = engine.plan(now)
        granted += [now for note in plan.record_updates if note.reservation is not None]
        now = max(plan.wake_at or 0, now + 1)
    return granted


def test_workload_preempts_in_the_plan_after_a_new_reservation():
    """Until then it waited for an eviction in progress, whose capacity is reserved now."""
    scenario = Scenario(
        {
            "policy": {"preemption": {"minRuntime": 0}},
            "clusters": [{"name": "m", "has": {"u": 8}}, {"name": "n", "has": {"u": 4}}],
            "queues": [{"name": "A", "deserved": {"u": 12}}, {"name": "B"}],
            "jobs": [
                {"name": "a", "queue": "A", "asks": {"u": 4}, "on": "m"},
                {"name": "leaving", "queue": "B", "asks": {"u": 4}, "on": "m", "priority": 9},
                {"name": "low", "queue": "B", "asks": {"u": 4}, "on": "n"},
                {"name": "wide", "queue": "A", "asks": {"u": 8}},
            ],
        }
    )
    scenario.play({"leave": ["leaving"]})
    high = {"name": "high", "queue": "B", "asks": {"u": 4}, "priority": 5}
    assert scenario.play({"after": 599, "jobs": [high]}).evicted == []
    reserved = scenario.play({"after": 1})
    assert (reserved.reserved, reserved.evicted, reserved.wake_after) == ({"wide": "m"}, [], 0)

    again = scenario.play({})
    assert (again.evicted, again.left_for) == (["low"], {"low": "high"})
