"""Compares a state after many events with a state rebuilt from its objects: both plan the same."""

import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from controller.engine.engine import Engine
from controller.engine.plan import Plan
from controller.engine.policy import AdvanceReservation, Ageing, EvictionPolicy, HeadReservation, Policy, Resize, Tenant
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Affinity, Cluster, ClusterName, Placement, Spread, StaticWeight
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, QueueState
from controller.engine.state.resources import scale
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
    WorkloadUid,
)
from controller.engine.steps import advance
from tests.workloads import changed

QUEUES = [QueueName(f"q{number}") for number in range(7)]
RESOURCES = ["cpu", "memory", "nvidia.com/gpu"]
CLUSTERS = [ClusterName(f"m{number}") for number in range(4)]
EVENTS = 200
ONE = (Spread("cluster", 1, 1),)


class Life:
    """One state and a seeded stream of events.

    With *exchanges* some events are evictions; with *groups* some workloads are
    HyperJob parts, and some are divided among clusters.
    """

    def __init__(self, seed: int, *, exchanges: bool = False, groups: bool = False) -> None:
        self.dice = Random(seed)
        self.groups = groups
        self.now = 1_000_000_000
        self.exchanges = exchanges
        order = self.dice.choice(["PriorityFirst", "FairShareFirst"])
        fairness = self.dice.choice(["None", "None", "Namespace"])
        patience = self.dice.choice([HeadReservation(), HeadReservation(after_ms=50, max_ms=600)])
        ageing = Random(f"ageing {seed}").choice([Ageing(), Ageing(20_000, 5, 20)])
        self.state = Engine(
            Policy(queue_order=order, tenant_fairness=fairness, head_reservation=patience, ageing=ageing)
        )
        if exchanges:
            self.state.policy_changed(replace(self.state.policy, **self.rules()))
        self.homes = (
            [QueueName(name) for name in ("q2", "q3", "q4", "q4", "q6", "q6", "q6", "q1")] if exchanges else QUEUES
        )
        self.shapes = [self.shape() for _ in range(6)]
        self.number = 0
        if exchanges:
            self.settle_down()

    def settle_down(self) -> None:
        """Start with a valid queue tree and usable clusters."""
        for name in QUEUES:
            self.state.queue_changed(self.sane_queue(name))
        for name in CLUSTERS:
            self.state.cluster_changed(self.sane_cluster(name), self.now)
        for _ in range(8):
            self.fill()

    def sane_queue(self, name: QueueName) -> Queue:
        parents = {"q2": "q0", "q3": "q0", "q5": "q1", "q6": "q5"}
        few = {"cpu": self.dice.randint(0, 6), "memory": self.dice.randint(0, 6)}
        return Queue(
            name=name,
            parent=QueueName(parents.get(name, ROOT)),
            weight=self.dice.randint(1, 3),
            priority=self.dice.choice([0, 0, 3]),
            capability=self.dice.choice([{}, {}, {}, {"cpu": 15}]),
            deserved=self.dice.choice([{}, few]),
            guarantee=self.dice.choice([{}, {}, {"cpu": 2}]),
            fifo=self.dice.random() < 0.2,
            reclaimable=self.dice.random() < 0.9,
        )

    def sane_cluster(self, name: ClusterName) -> Cluster:
        return Cluster(
            name=name,
            enablements=frozenset({VOLCANO_JOB}),
            ready=self.dice.random() < 0.95,
            allocatable={"pods": 1_000_000, **{each: self.dice.randint(8, 16) for each in RESOURCES}},
            used={"cpu": self.dice.choice([0, 0, 2])},
        )

    def rules(self) -> dict[str, object]:
        def rule(chance: float) -> EvictionPolicy:
            return EvictionPolicy(
                self.dice.random() < chance, self.dice.choice([0, 300, 5_000]), self.dice.choice([1, 3, 9])
            )

        return {
            "ageing": self.dice.choice([Ageing(), Ageing(20_000, 5, 20), Ageing(2_000, 3, 5)]),
            "advance_reservations": tuple(
                self.advance_reservation(name) for name in self.dice.choice([[], ["r", "s"]])
            ),
            "reclaim": rule(0.75),
            "preemption": rule(0.5),
            "resize": Resize(self.dice.random() < 0.8, self.dice.choice([0, 100, 5_000])),
            "head_reservation": HeadReservation(max_ms=self.dice.choice([500, 100_000])),
            "startup_timeout_ms": self.dice.choice([None, 300, 2_000]),
        }

    def advance_reservation(self, name: str) -> AdvanceReservation:
        since = self.now + self.dice.choice([-1_000, 0, 5_000, 500_000])
        return AdvanceReservation(
            name,
            clusters=(self.dice.choice(CLUSTERS),),
            amounts=Random(f"amounts {name} {since}").choice([{}, {"cpu": 4}, {"cpu": 2, "memory": 6}]),
            since=since,
            until=since + self.dice.choice([2_000, 100_000]),
            queue=self.dice.choice([None, None, *QUEUES]),
            evicts=self.dice.random() < 0.5,
            drain_ms=self.dice.choice([0, 4_000]),
        )

    def amounts(self, most: int) -> dict[str, int]:
        names = self.dice.sample(RESOURCES, self.dice.randint(1, 3))
        return {name: self.dice.randint(0, most) for name in names}

    def shape(self) -> SchedulingRequirements:
        demand = {"pods": 1000, **self.amounts(5 if self.exchanges else 9)}
        part = self.dice.choice([4, 4, 2])
        names = self.dice.sample(CLUSTERS, self.dice.randint(0, 2))
        if self.groups and self.dice.random() < 0.2:
            return self.divisible(names)
        where = Placement(Affinity(names=tuple(names)) if names else None, spread=self.dice.choice([ONE, ONE, ONE, ()]))
        return SchedulingRequirements(demand, {name: amount * part // 4 for name, amount in demand.items()}, where)

    def divisible(self, names: list[ClusterName]) -> SchedulingRequirements:
        replicas = self.dice.randint(2, 6)
        each = {"pods": 1000, "cpu": self.dice.randint(1, 3), "memory": self.dice.randint(0, 2)}
        weights = tuple(StaticWeight(Affinity(names=(name,)), self.dice.randint(1, 2)) for name in CLUSTERS[:2])
        spread = self.dice.choice([(), (), (Spread("cluster", 1, 2),)])
        affinity = Affinity(names=tuple(names)) if names else None
        where = Placement(affinity, spread=spread, divided=True, weights=self.dice.choice([(), (), weights]))
        return SchedulingRequirements(scale(each, replicas), scale(each, replicas), where, replicas=replicas)

    def happen(self) -> None:
        """Apply one random event."""
        kinds = [self.arrive] * 9 + [self.finish] * 6 + [self.leave, self.queue, self.queue, self.cluster, self.cluster]
        rare = [self.drop_queue, self.drop_cluster, self.rule, self.evict, self.raise_priority, self.rest]
        kinds += [self.arrive_together] if self.groups else []
        if self.exchanges:
            kinds += [self.be_gone] * 6 + [self.fill] * 4
            rare += [self.rest, self.rest, self.stay, self.let_go, self.abort, self.grow, self.begin, self.change_rules]
        self.dice.choice([*kinds, *rare])()

    def some(self, state: WorkloadState) -> Workload | None:
        found = [each for each in self.state.workloads.values() if each.state is state]
        return self.dice.choice(found) if found else None

    def tell(self, workload: Workload | None, **changes: object) -> None:
        if workload is not None:
            self.state.workload_changed(changed(workload, **changes), self.now)

    def arrive(self) -> None:
        self.number += 1
        hold = self.dice.choice([None] * 9 + [Refusal(Reason.STARTUP_BACKOFF, until=self.now + 3_000)])
        self.state.workload_changed(
            Workload(
                uid=WorkloadUid(f"uid-{self.number}"),
                namespace=self.dice.choice(["one", "two"]),
                name=f"job-{self.number}",
                kind="Job",
                queue=self.dice.choice(self.homes),
                requirements=self.dice.choice(self.shapes),
                priority=self.dice.choice([0, 0, 0, 10]),
                created_at=self.now + self.dice.randint(-2, 2) * 1000,
                hold=hold,
                details=WorkloadDetails(
                    run_time_ms=self.dice.choice([None, None, 1_000, 50_000]) if self.exchanges else None,
                    preserved=self.exchanges and self.dice.random() < 0.1,
                    preempts=self.dice.random() < 0.9 or not self.exchanges,
                ),
            ),
            self.now,
        )

    def arrive_together(self) -> None:
        """Submit a HyperJob, possibly without some of its parts."""
        parts = self.dice.randint(2, 4)
        group = HyperJobGang(f"hyper-{self.number}/1", parts, self.dice.randint(1, parts))
        queue = self.dice.choice(self.homes)
        for _ in range(self.dice.choice([parts, parts, parts, parts - 1])):
            self.arrive()
            newest = self.state.workloads[WorkloadUid(f"uid-{self.number}")]
            self.tell(newest, gang=group, queue=queue if self.dice.random() < 0.9 else newest.queue)

    def finish(self) -> None:
        self.tell(self.some(WorkloadState.ADMITTED), state=WorkloadState.FINISHED, admission=None)

    def leave(self) -> None:
        workload = self.some(self.dice.choice(list(WorkloadState)))
        if workload is not None:
            self.state.workload_removed(workload.uid, self.now)

    def evict(self) -> None:
        self.tell(self.some(WorkloadState.ADMITTED), state=WorkloadState.PENDING, admission=None)

    def be_gone(self) -> None:
        leaving = [each for each in self.state.workloads.values() if each.is_leaving]
        self.tell(self.dice.choice(leaving) if leaving else None, admission=None)

    def stay(self) -> None:
        leaving = [each for each in self.state.workloads.values() if each.is_leaving]
        self.tell(self.dice.choice(leaving) if leaving else None, state=WorkloadState.ADMITTED, hold=None)

    def let_go(self) -> None:
        held = [each for each in self.state.workloads.values() if each.nomination]
        self.tell(self.dice.choice(held) if held else None, nomination=None)

    def abort(self) -> None:
        self.tell(self.some(WorkloadState.ADMITTED), hold=Refusal(Reason.ABORTED))

    def grow(self) -> None:
        workload = self.some(WorkloadState.ADMITTED)
        if workload is not None:
            self.tell(workload, admission=replace(workload.admission, resized=True))

    def begin(self) -> None:
        self.tell(self.some(WorkloadState.ADMITTED), has_run=True)

    def change_rules(self) -> None:
        self.state.policy_changed(replace(self.state.policy, **self.rules()))

    def fill(self) -> None:
        """Submit many workloads of one queue, so that its capacity is exhausted."""
        queue, priority = self.dice.choice(self.homes), self.dice.choice([0, 5])
        for _ in range(5):
            self.arrive()
            newest = self.state.workloads[WorkloadUid(f"uid-{self.number}")]
            self.tell(newest, queue=queue, priority=priority)

    def raise_priority(self) -> None:
        self.tell(self.some(WorkloadState.PENDING), priority=self.dice.choice([0, 5, 20]))

    def queue(self) -> None:
        name = self.dice.choice(QUEUES)
        if self.exchanges and self.dice.random() < 0.9:
            self.state.queue_changed(self.sane_queue(name))
            return
        self.state.queue_changed(
            Queue(
                name=name,
                parent=self.dice.choice([ROOT, ROOT, *QUEUES]),
                weight=self.dice.randint(1, 4),
                priority=self.dice.choice([0, 0, 3]),
                capability=self.amounts(25) if self.dice.random() < 0.4 else {},
                deserved=self.amounts(12) if self.dice.random() < 0.4 else {},
                guarantee=self.amounts(6) if self.dice.random() < 0.4 else {},
                fifo=self.dice.random() < 0.3,
                reclaimable=self.dice.random() < 0.9 or not self.exchanges,
                state=self.dice.choice([QueueState.OPEN] * 6 + [QueueState.CLOSED]),
            )
        )

    def drop_queue(self) -> None:
        if self.exchanges and self.dice.random() < 0.9:
            return
        self.state.queue_removed(self.dice.choice(QUEUES))

    def cluster(self) -> None:
        name = self.dice.choice(CLUSTERS)
        if self.exchanges:
            self.state.cluster_changed(self.sane_cluster(name), self.now)
            return
        self.state.cluster_changed(
            Cluster(
                name=name,
                enablements=frozenset({VOLCANO_JOB}),
                ready=self.dice.random() < 0.85,
                allocatable={"pods": 1_000_000, **self.amounts(30)} if self.dice.random() < 0.9 else None,
                used=self.amounts(12) if self.dice.random() < 0.5 else {},
            ),
            self.now,
        )

    def drop_cluster(self) -> None:
        if self.exchanges and self.dice.random() < 0.7:
            return
        self.state.cluster_removed(self.dice.choice(CLUSTERS))

    def rule(self) -> None:
        tenants = (Tenant(("one",), queues=tuple(self.dice.sample(QUEUES, 4))),) if self.dice.random() < 0.5 else ()
        self.state.policy_changed(replace(self.state.policy, tenants=tenants))

    def rest(self) -> None:
        self.now += self.dice.choice([1, 1_000, 400_000 if self.exchanges else 40_000])


def fresh(state: Engine, now: int) -> Engine:
    """Return a state built from the objects of *state* and the observed usage of its clusters."""
    built = Engine(state.policy)
    for workload in state.workloads.values():
        built.workload_changed(workload, now)
    for queue in state.queues.values():
        built.queue_changed(queue)
    built.cluster_usage._states = deepcopy(state.cluster_usage._states)
    for site in state.cluster_usage:
        built.context.usage_tracker.restore_orphans(site.orphans)
    built.cluster_usage._touched = {site.name for site in state.cluster_usage}
    built.cluster_usage._root_limit = None
    built.cluster_usage.usability_changed_at = state.cluster_usage.usability_changed_at
    built.cluster_usage._has_usability_changed = state.cluster_usage._has_usability_changed
    built.cluster_usage._has_begun = state.cluster_usage._has_begun
    competed = state.cycle.starvation_timers.heads.items()
    heads = {queue: each for queue, each in competed if queue in built.pending.queues}
    built.cycle.starvation_timers.restore(heads, state.cycle.starvation_timers.expirations)
    built.cycle.idle_reservations.by_owner = {**state.cycle.idle_reservations.by_owner}
    built.cycle.startup.requeued = {**state.cycle.startup.requeued}
    built.cycle.startup.incomplete_gangs = {**state.cycle.startup.incomplete_gangs}
    built.cycle.startup.reschedule_all(built.workloads.values(), built.policy.startup_timeout_ms)
    not_fitting = state.cycle.resize.not_fitting_since.items()
    built.cycle.resize.not_fitting_since = {uid: since for uid, since in not_fitting if uid in built.index.resized}
    built.cycle.resize.spent_grace = {**state.cycle.resize.spent_grace}
    return built


def reasons(state: Engine) -> Iterator[tuple[WorkloadUid, Refusal | None]]:
    for uid in sorted(state.workloads):
        yield uid, state.refusal(uid)


def entitled(state: Engine) -> dict[QueueName, dict[str, Fraction]]:
    """Return the fair shares that are not zero; for the root, the part of its children."""
    due = state.queue_shares.fair_shares
    return {name: {key: amount for key, amount in due[name].items() if amount} for name in due if name != ROOT}


def compare(seed: int, *, exchanges: bool = False, prepares: bool = False, in_parts: bool = False) -> None:
    """Compare each plan with that of a rebuilt state.

    With *prepares*, workloads are evaluated before the plan, in parts of any size, and partly before an event;
    with *in_parts*, the plan itself is made in parts of a few steps, with reads in between.
    """
    life = Life(seed, exchanges=exchanges, groups=seed % 3 > 0)
    for number in range(EVENTS):
        if prepares:
            prepare(life.state, life.dice)
        life.happen()
        other = fresh(life.state, life.now)
        if prepares:
            prepare(other, life.dice)
        expected = other.plan(life.now)
        plan = plan_in_parts(life) if in_parts else life.state.plan(life.now)
        found, due = ((each.decisions, each.record_updates, each.reschedules) for each in (plan, expected))
        assert found == due, f"seed {seed}, event {number}"
        assert dict(reasons(life.state)) == dict(reasons(other)), f"seed {seed}, event {number}"
        assert entitled(life.state) == entitled(other), f"seed {seed}, event {number}"
        check_reservations(life.state)
        life.now += 10


def prepare(state: Engine, dice: Random) -> None:
    steps = dice.choice([1, 2, 3, 7, 50])
    for _ in range(dice.choice([0, 1, 2, 1000])):
        if state.prepare(steps):
            return


def plan_in_parts(life: Life) -> Plan:
    work, steps = life.state.plan_in_steps(life.now), life.dice.choice([1, 2, 3, 7, 50])
    while (made := advance(work, steps)) is None:
        for queue in life.state.queues_with_pending():
            for each in life.state.pending_workloads(queue)[:1]:
                life.state.position(each)
    return made[0]


def compare_continued(seed: int) -> None:
    """Compare plans that continue cut ones, with and without events in between, with those of a rebuilt state."""
    life = Life(seed, groups=seed % 3 > 0)
    for number in range(EVENTS):
        for _ in range(life.dice.choice([0, 0, 1, 5])):
            life.happen()
        other = fresh(life.state, life.now)
        other.context.admitted_so_far = life.state.context.admitted_so_far
        most = life.dice.choice([1, 2, 3])
        expected, plan = other.plan(life.now, most=most), life.state.plan(life.now, most=most)
        assert plan.decisions == expected.decisions, f"seed {seed}, event {number}"
        life.now += life.dice.choice([0, 10])


def check_reservations(state: Engine) -> None:
    """Check that each cluster has one reservation at most, and a HyperJob a complete one or none (O6, G1)."""
    owners: dict[ClusterName, set[object]] = {}
    for each in state.with_reservation.values():
        for booking in each.reservation.cluster_charges:
            owners.setdefault(booking.cluster, set()).add(each.gang or each.uid)
    assert all(len(of) == 1 for of in owners.values())
    for group in {each.gang for each in state.with_reservation.values()} - {None}:
        covered = [each for each in state.with_reservation.values() if each.gang == group]
        assert len(covered) >= state.index.gangs.missing(group) or state.index.gangs.missing(group) <= 1


@pytest.mark.parametrize("seed", [*range(6), 1138])
def test_incremental_plan_equals_plan_of_a_rebuilt_state(seed):
    compare(seed)


@pytest.mark.parametrize("seed", [*range(500, 512), 1250])
def test_plan_during_evictions_equals_plan_of_a_rebuilt_state(seed):
    compare(seed, exchanges=True)


@pytest.mark.parametrize("seed", range(20, 26))
def test_plan_after_a_cut_one_equals_plan_of_a_rebuilt_state(seed):
    compare_continued(seed)


@pytest.mark.parametrize(("seed", "exchanges"), [(1, False), (2, False), (502, True), (503, True)])
def test_preparing_in_parts_changes_no_plan(seed, exchanges):
    compare(seed, exchanges=exchanges, prepares=True)


@pytest.mark.parametrize(("seed", "exchanges"), [(1, False), (5, False), (502, True), (506, True)])
def test_plan_in_parts_equals_plan_at_once(seed, exchanges):
    compare(seed, exchanges=exchanges, in_parts=True)


@pytest.mark.long
@pytest.mark.parametrize("exchanges", [False, True])
@pytest.mark.parametrize("how", [{}, {"prepares": True}, {"in_parts": True}], ids=["at-once", "prepared", "in-parts"])
def test_plans_of_300_lives_equal_those_of_rebuilt_states(how, exchanges):
    for seed in range(1000, 1000 + int(os.environ.get("LIVES", "300"))):
        compare(seed, exchanges=exchanges, **how)


def test_every_pending_workload_has_a_published_reason():
    life = Life(77)
    for _ in range(EVENTS):
        life.happen()
        life.state.plan(life.now)
    waiting = {uid for uid, each in life.state.workloads.items() if each.state is WorkloadState.PENDING}
    assert set(life.state.last_reasons) == waiting
