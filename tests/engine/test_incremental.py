"""Compares a state after many events with a state rebuilt from its objects: both plan the same."""

import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given

from controller.engine.engine import Engine
from controller.engine.plan import Plan
from controller.engine.policy import (
    AdvanceReservation,
    Ageing,
    Backfill,
    HeadReservationPolicy,
    NodeShapes,
    Resize,
    Tenant,
)
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Affinity, ClusterName, NodeShape, Placement, Spread, StaticWeight
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.resources import scale
from controller.engine.state.workloads import (
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)
from controller.engine.steps import advance
from tests.engine import worlds
from tests.engine.worlds import CLUSTERS, LEAVES, NOW, ONE, PARENTS, QUEUES, RandomObjects
from tests.workloads import changed

EVENTS = 200
HOMES = [*LEAVES, QUEUES[4], QUEUES[6], QUEUES[6], QUEUES[1]]


class RandomRun:
    """One state and a seeded stream of events.

    With *exchanges* some events are evictions; with *groups* some workloads are
    HyperJob parts, and some are divided among clusters.
    """

    kind_of_objects = RandomObjects

    def __init__(self, seed: int, *, exchanges: bool = False, groups: bool = False) -> None:
        self.dice = Random(seed)
        self.objects = self.kind_of_objects(self.dice, most=5 if exchanges else 9, is_valid=exchanges)
        self.objects.spreads = (ONE, ONE, ONE, ())
        self.groups = groups
        self.now = NOW
        self.exchanges = exchanges
        reservation_policy = self.dice.choice([HeadReservationPolicy(), HeadReservationPolicy(after_ms=50, max_ms=600)])
        ageing = self.dice.choice([Ageing(), Ageing(20_000, 5, 20)])
        self.engine = Engine(self.objects.policy(head_reservation=reservation_policy, ageing=ageing))
        if exchanges:
            self.change_rules()
        self.homes = HOMES if exchanges else QUEUES
        self.shapes = [self.shape() for _ in range(6)]
        self.with_failed_starts: dict[tuple[object, ...], SchedulingRequirements] = {}
        """Those of the shapes for workloads that, or equals of which, did not start in some clusters (R1)."""
        self.number = 0
        if exchanges:
            self.settle_down()

    def settle_down(self) -> None:
        """Start with a valid queue tree and usable clusters."""
        for queue in self.objects.fixed_hierarchy():
            self.engine.queue_changed(queue)
        for name in CLUSTERS:
            self.engine.cluster_changed(self.objects.cluster(name), self.now)
        for _ in range(8):
            self.fill()

    def rules(self) -> dict[str, object]:
        runtimes = [0, 300, 5_000]
        return {
            "queue_order": self.dice.choice(["PriorityFirst", "FairShareFirst"]),
            "tenant_fairness": self.dice.choice(["None", "None", "Namespace", "NamespaceFirst"]),
            "backfill": Backfill(self.dice.random() < 0.7, self.dice.random() < 0.5),
            "settle_ms": self.dice.choice([0, 30, 30_000]),
            "node_shapes": tuple(self.node_shapes(name) for name in self.dice.choice([[], [], CLUSTERS[:2]])),
            "ageing": self.dice.choice([Ageing(), Ageing(20_000, 5, 20), Ageing(2_000, 3, 5)]),
            "advance_reservations": tuple(
                self.advance_reservation(name) for name in self.dice.choice([[], ["r", "s"]])
            ),
            "reclaim": self.objects.eviction(75, runtimes),
            "preemption": self.objects.eviction(50, runtimes),
            "resize": Resize(self.dice.random() < 0.8, self.dice.choice([0, 100, 5_000])),
            "head_reservation": HeadReservationPolicy(max_ms=self.dice.choice([500, 100_000])),
            "startup_timeout_ms": self.dice.choice([None, 300, 2_000]),
        }

    def node_shapes(self, name: ClusterName) -> NodeShapes:
        nodes = NodeShape(self.dice.randint(1, 4), (("cpu", self.dice.randint(1, 9)),))
        return NodeShapes(Affinity(names=(name,)), (nodes,))

    def advance_reservation(self, name: str) -> AdvanceReservation:
        since = self.now + self.dice.choice([-1_000, 0, 5_000, 500_000])
        return AdvanceReservation(
            name,
            clusters=(self.dice.choice(CLUSTERS),),
            amounts=self.dice.choice([{}, {"cpu": 4}, {"cpu": 2, "memory": 6}]),
            since=since,
            until=since + self.dice.choice([2_000, 100_000]),
            queue=self.dice.choice([None, None, *QUEUES]),
            evicts=self.dice.random() < 0.5,
            drain_ms=self.dice.choice([0, 4_000]),
        )

    def shape(self) -> SchedulingRequirements:
        return self.divisible() if self.groups and self.objects.chance(20) else self.objects.requirements()

    def divisible(self) -> SchedulingRequirements:
        replicas = self.dice.randint(2, 6)
        replica = {"pods": 1000, "cpu": self.dice.randint(1, 3), "memory": self.dice.randint(0, 2)}
        weights = tuple(StaticWeight(Affinity(names=(name,)), self.dice.randint(1, 2)) for name in CLUSTERS[:2])
        spread = self.dice.choice([(), (), (Spread("cluster", 1, 2),)])
        names = tuple(self.dice.sample(CLUSTERS, self.dice.randint(0, 2)))
        affinity = Affinity(names=names) if names else None
        where = Placement(affinity, spread=spread, divided=True, weights=self.dice.choice([(), (), weights]))
        return SchedulingRequirements(scale(replica, replicas), scale(replica, replicas), where, replicas=replicas)

    def apply_event(self) -> None:
        """Apply one random event."""
        kinds = [self.arrive] * 9 + [self.finish] * 6 + [self.leave, self.queue, self.queue, self.cluster, self.cluster]
        rare = [self.drop_queue, self.drop_cluster, self.rule, self.evict, self.raise_priority, self.rest]
        kinds += [self.arrive_together] if self.groups else []
        kinds += [self.fail_starts] * 2
        if self.exchanges:
            kinds += [self.finish_eviction] * 6 + [self.fill] * 4
            rare += [
                self.rest,
                self.rest,
                self.stay,
                self.drop_nomination,
                self.abort,
                self.grow,
                self.begin,
                self.change_rules,
            ]
        self.dice.choice([*kinds, *rare])()

    def some(self, state: WorkloadState) -> Workload | None:
        workloads = [workload for workload in self.engine.workloads.values() if workload.state is state]
        return self.dice.choice(workloads) if workloads else None

    def update(self, workload: Workload | None, **changes: object) -> None:
        if workload is not None:
            self.engine.workload_changed(changed(workload, **changes), self.now)

    def arrive(self) -> None:
        self.number += 1
        hold = self.dice.choice([None] * 9 + [Refusal(Reason.STARTUP_BACKOFF, until=self.now + 3_000)])
        since, queue = self.now + self.dice.randint(-2, 2) * 1000, self.dice.choice(self.homes)
        made = self.objects.workload(
            self.number, self.dice.choice(self.shapes), queue=queue, created_at=since, hold=hold
        )
        self.engine.workload_changed(made, self.now)

    def arrive_together(self) -> None:
        """Submit a HyperJob, possibly without some of its parts."""
        parts = self.dice.randint(2, 4)
        group = HyperJobGang(f"hyper-{self.number}/1", parts, self.dice.randint(1, parts))
        queue = self.dice.choice(self.homes)
        for _ in range(self.dice.choice([parts, parts, parts, parts - 1])):
            self.arrive()
            newest = self.engine.workloads[WorkloadUid(f"job-{self.number}")]
            self.update(newest, gang=group, queue=queue if self.dice.random() < 0.9 else newest.queue)

    def finish(self) -> None:
        self.update(self.some(WorkloadState.ADMITTED), state=WorkloadState.FINISHED, admission=None)

    def leave(self) -> None:
        workload = self.some(self.dice.choice(list(WorkloadState)))
        if workload is not None:
            self.engine.workload_removed(workload.uid, self.now, is_released=self.dice.random() < 0.3)

    def evict(self) -> None:
        self.update(self.some(WorkloadState.ADMITTED), state=WorkloadState.PENDING, admission=None)

    def finish_eviction(self) -> None:
        stopping = [workload for workload in self.engine.workloads.values() if workload.is_being_evicted]
        self.update(self.dice.choice(stopping) if stopping else None, admission=None)

    def stay(self) -> None:
        stopping = [workload for workload in self.engine.workloads.values() if workload.is_being_evicted]
        self.update(self.dice.choice(stopping) if stopping else None, state=WorkloadState.ADMITTED, hold=None)

    def drop_nomination(self) -> None:
        held = [workload for workload in self.engine.workloads.values() if workload.nomination]
        self.update(self.dice.choice(held) if held else None, nomination=None)

    def abort(self) -> None:
        self.update(self.some(WorkloadState.ADMITTED), hold=Refusal(Reason.ABORTED))

    def grow(self) -> None:
        workload = self.some(WorkloadState.ADMITTED)
        if workload is not None:
            times, admission = self.dice.choice([1, 1, 2, 1000]), workload.admission
            charges = tuple(replace(part, charge=scale(part.charge, times)) for part in admission.cluster_charges)
            grown = replace(admission, cluster_charges=charges, charge=scale(admission.charge, times), resized=True)
            self.update(workload, admission=grown)

    def begin(self) -> None:
        self.update(self.some(WorkloadState.ADMITTED), has_run=True)

    def fail_starts(self) -> None:
        """Exclude clusters for the pending workloads of a namespace with equal requests, or let them retry (R1)."""
        shape, namespace = self.dice.choice(self.shapes), self.dice.choice(["one", "two"])
        excluded = frozenset(self.dice.sample(CLUSTERS, self.dice.choice([0, 0, 1, 1, 2, 3])))
        retryable = self.dice.choice([frozenset(), frozenset(), excluded])
        failed = self.with_failed_starts.setdefault(
            (id(shape), excluded, retryable),
            replace(shape, excluded_clusters=excluded, retryable_clusters=retryable),
        )
        for workload in list(self.engine.workloads.values()):
            is_equal = workload.namespace == namespace and workload.requirements.requests is shape.requests
            if is_equal and workload.state is WorkloadState.PENDING:
                self.update(workload, requirements=failed)

    def change_rules(self) -> None:
        self.engine.policy_changed(replace(self.engine.policy, **self.rules()))

    def fill(self) -> None:
        """Submit many workloads of one queue, so that its capacity is exhausted."""
        queue, priority = self.dice.choice(self.homes), self.dice.choice([0, 5])
        for _ in range(5):
            self.arrive()
            newest = self.engine.workloads[WorkloadUid(f"job-{self.number}")]
            self.update(newest, queue=queue, priority=priority)

    def raise_priority(self) -> None:
        self.update(self.some(WorkloadState.PENDING), priority=self.dice.choice([0, 5, 20]))

    def queue(self) -> None:
        name, is_fixed = self.dice.choice(QUEUES), self.exchanges and self.objects.chance(90)
        parents = [PARENTS.get(name, ROOT)] if is_fixed else [ROOT, ROOT, *QUEUES]
        self.engine.queue_changed(self.objects.queue(name, parents))

    def drop_queue(self) -> None:
        if self.exchanges and self.dice.random() < 0.9:
            return
        self.engine.queue_removed(self.dice.choice(QUEUES))

    def cluster(self) -> None:
        self.engine.cluster_changed(self.objects.cluster(self.dice.choice(CLUSTERS)), self.now)

    def drop_cluster(self) -> None:
        if self.exchanges and self.dice.random() < 0.7:
            return
        self.engine.cluster_removed(self.dice.choice(CLUSTERS))

    def rule(self) -> None:
        tenants = (Tenant(("one",), queues=tuple(self.dice.sample(QUEUES, 4))),) if self.dice.random() < 0.5 else ()
        self.engine.policy_changed(replace(self.engine.policy, tenants=tenants))

    def rest(self) -> None:
        self.now += self.dice.choice([1, 1_000, 400_000 if self.exchanges else 40_000])


def fresh(engine: Engine, now: int) -> Engine:
    """Return an engine built from the objects of *engine* and the observed usage of its clusters."""
    built = Engine(engine.policy)
    for workload in engine.workloads.values():
        built.workload_changed(workload, now)
    for queue in engine.queues.values():
        built.queue_changed(queue)
    built.cluster_usage._states = deepcopy(engine.cluster_usage._states)
    for site in built.cluster_usage:
        # The copies have what the reservations of an earlier policy keep free.
        site.in_advance = None
        built.context.usage_tracker.restore_orphans(site.orphans)
    built.cluster_usage._touched = {site.name for site in engine.cluster_usage}
    built.cluster_usage._root_limit = None
    for site in built.cluster_usage:
        if site.estimates is not None:
            built.estimate_tracker.restore(site.name, site.estimates.checkpoint())
    built.cluster_usage.usability_changed_at = engine.cluster_usage.usability_changed_at
    built.cluster_usage.has_usability_changed = engine.cluster_usage.has_usability_changed
    built.cluster_usage.has_begun = engine.cluster_usage.has_begun
    competed = engine.cycle.starvation_timers.heads.items()
    heads = {key: head for key, head in competed if key[0] in built.pending.queues}
    timers = engine.cycle.starvation_timers
    built.cycle.starvation_timers.restore(heads, timers.expirations, timers.passed)
    built.context.windows.backfilled = {**engine.context.windows.backfilled}
    built.context.windows.spent = {**engine.context.windows.spent}
    built.cycle.idle_reservations.by_owner = {**engine.cycle.idle_reservations.by_owner}
    built.cycle.startup.requeued = {**engine.cycle.startup.requeued}
    built.cycle.startup.incomplete_gangs = {**engine.cycle.startup.incomplete_gangs}
    built.cycle.startup.reschedule_all(built.workloads.values(), built.policy.startup_timeout_ms)
    not_fitting = engine.cycle.resize.not_fitting_since.items()
    built.cycle.resize.not_fitting_since = {uid: since for uid, since in not_fitting if uid in built.index.resized}
    built.cycle.resize.spent_grace = {**engine.cycle.resize.spent_grace}
    return built


def reasons(engine: Engine) -> Iterator[tuple[WorkloadUid, Refusal | None]]:
    for uid in sorted(engine.workloads):
        yield uid, engine.refusal(uid)


def fair_shares(engine: Engine) -> dict[QueueName, dict[str, Fraction]]:
    """Return the fair shares that are not zero; for the root, the part of its children."""
    due = engine.queue_shares.fair_shares
    return {name: {key: amount for key, amount in due[name].items() if amount} for name in due if name != ROOT}


def compare(seed: int, *, exchanges: bool = False, prepares: bool = False, in_parts: bool = False) -> None:
    """Compare each plan with that of a rebuilt state.

    With *prepares*, workloads are evaluated before the plan, in parts of any size, and partly before an event;
    with *in_parts*, the plan itself is made in parts of a few steps, with reads in between.
    """
    random_run = RandomRun(seed, exchanges=exchanges, groups=seed % 3 > 0)
    for number in range(EVENTS):
        if prepares:
            prepare(random_run.engine, random_run.dice)
        random_run.apply_event()
        other = fresh(random_run.engine, random_run.now)
        if prepares:
            prepare(other, random_run.dice)
        expected = other.plan(random_run.now)
        plan = plan_in_parts(random_run) if in_parts else random_run.engine.plan(random_run.now)
        decided, due = ((either.decisions, either.record_updates, either.reschedules) for either in (plan, expected))
        assert decided == due, f"seed {seed}, event {number}"
        assert dict(reasons(random_run.engine)) == dict(reasons(other)), f"seed {seed}, event {number}"
        assert fair_shares(random_run.engine) == fair_shares(other), f"seed {seed}, event {number}"
        check_reservations(random_run.engine)
        random_run.now += 10


def prepare(engine: Engine, dice: Random) -> None:
    steps = dice.choice([1, 2, 3, 7, 50])
    for _ in range(dice.choice([0, 1, 2, 1000])):
        if engine.prepare(steps):
            return


def plan_in_parts(random_run: RandomRun) -> Plan:
    work, steps = random_run.engine.plan_in_steps(random_run.now), random_run.dice.choice([1, 2, 3, 7, 50])
    while (made := advance(work, steps)) is None:
        for queue in random_run.engine.queues_with_pending():
            for workload in random_run.engine.pending_workloads(queue)[:1]:
                random_run.engine.position(workload)
    return made[0]


def compare_continued(seed: int) -> None:
    """Compare plans that continue cut ones, with and without events in between, with those of a rebuilt state."""
    random_run = RandomRun(seed, groups=seed % 3 > 0)
    for number in range(EVENTS):
        for _ in range(random_run.dice.choice([0, 0, 1, 5])):
            random_run.apply_event()
        other = fresh(random_run.engine, random_run.now)
        other.context.admitted_so_far = random_run.engine.context.admitted_so_far
        most = random_run.dice.choice([1, 2, 3])
        expected, plan = other.plan(random_run.now, most=most), random_run.engine.plan(random_run.now, most=most)
        assert plan.decisions == expected.decisions, f"seed {seed}, event {number}"
        random_run.now += random_run.dice.choice([0, 10])


def check_reservations(engine: Engine) -> None:
    """Check that each cluster has one reservation at most, and a HyperJob a complete one or none (O6, G1)."""
    owners: dict[ClusterName, set[object]] = {}
    for workload in engine.with_reservation.values():
        for booking in workload.reservation.cluster_charges:
            owners.setdefault(booking.cluster, set()).add(workload.gang or workload.uid)
    assert all(len(of) == 1 for of in owners.values())
    for group in {workload.gang for workload in engine.with_reservation.values()} - {None}:
        covered = [workload for workload in engine.with_reservation.values() if workload.gang == group]
        assert len(covered) >= engine.index.gangs.missing(group) or engine.index.gangs.missing(group) <= 1


@pytest.mark.parametrize("seed", range(6))
def test_incremental_plan_equals_plan_of_a_rebuilt_state(seed):
    compare(seed)


@pytest.mark.parametrize("seed", range(500, 512))
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
def test_plans_of_300_random_runs_equal_those_of_rebuilt_states(how, exchanges):
    for seed in range(1000, 1000 + int(os.environ.get("RUNS", "300"))):
        compare(seed, exchanges=exchanges, **how)


def test_every_pending_workload_has_a_published_reason():
    random_run = RandomRun(77)
    for _ in range(EVENTS):
        random_run.apply_event()
        random_run.engine.plan(random_run.now)
    waiting = {uid for uid, workload in random_run.engine.workloads.items() if workload.state is WorkloadState.PENDING}
    assert set(random_run.engine.last_reasons) == waiting


def plans_of(objects: worlds.Objects, query: Callable[[Engine], object]) -> list[tuple[object, ...]]:
    """Return decisions, reasons and wake-ups of some plans, with *query* before, between and after their parts."""
    things = [*objects.workloads, *objects.clusters, *objects.queues]
    engine, made = worlds.build(objects.policy, *things[::2]), []
    for now, event in enumerate((*things[1::2], *objects.queues[:2]), start=worlds.NOW):
        if isinstance(event, Queue) and event.name in engine.queues:
            engine.queue_removed(event.name)
        else:
            worlds.add(engine, event, now)
        query(engine)
        work = engine.plan_in_steps(now)
        while True:
            try:
                next(work)
            except StopIteration as ended:
                plan = ended.value
                break
            query(engine)
        reasons = {wait.workload.uid: wait.refusal for wait in plan.waits}
        made.append((plan.decisions, reasons, plan.wake_at))
    return made


@given(worlds.crowded())
def test_queries_between_the_parts_of_plans_change_no_plan(objects):
    def query(state):
        for uid in state.workloads:
            state.refusal(uid)

    assert plans_of(objects, query) == plans_of(objects, lambda _: None)
