"""Backfill delays no promised start where run times are exact (O9)."""

import os
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import exp, sqrt
from random import Random
from statistics import NormalDist

import pytest

from controller.engine.engine import Engine
from controller.engine.policy import AdvanceReservation, Backfill, HeadReservationPolicy, Policy
from controller.engine.reservations.backfill import MISS_BUDGET, BackfillWindows, _Trial
from controller.engine.state.clusters import Affinity, ClusterName
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.pending import owner_of
from controller.engine.state.resources import total
from controller.engine.state.workloads import (
    ClusterCharge,
    HyperJobGang,
    Reservation,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)
from tests.engine.objects import ONE_CLUSTER, cluster, workload
from tests.workloads import changed

MINUTE = 60_000
START = 1_000_000_000
SCHEDULES = 40
LEARNED_SCHEDULES = 20
LATE_WORLDS = 150
CONFIDENCE, DEVIATION = 0.9, 0.8


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a random schedule is; times are in minutes."""

    workloads: tuple[int, int] = (10, 40)
    gap: int = 15
    run_time: int = 200
    size: tuple[int, int] = (4, 12)


SMALL = Scale(workloads=(4, 7), gap=2, run_time=8, size=(3, 6))


def log_normal(median: float, probability: float) -> int:
    """Return a quantile of the run times with this median."""
    return round(median * exp(DEVIATION * NormalDist().inv_cdf(probability)))


def learned(median: int) -> tuple[int, tuple[int, ...]]:
    """Return the expected run time, which is exceeded as seldom as CONFIDENCE allows, and the bounds beyond it."""
    times = [log_normal(median, 1 - (1 - CONFIDENCE) / 2**halvings) for halvings in range(MISS_BUDGET.bit_length())]
    return times[0], tuple(times[1:])


class Schedule:
    """A random load on up to three clusters, with the run time of each workload, exact or learned.

    The promises of queue "q" are judged: it deserves all, so its reservations bind the other queues.
    """

    def __init__(self, seed: int, scale: Scale, *, is_learned: bool = False) -> None:
        self.dice = Random(seed)
        self.scale = scale
        self.is_learned = is_learned
        self.now = START
        self.engine = Engine(Policy(head_reservation=HeadReservationPolicy(after_ms=MINUTE)))
        self.engine.cycle.reason_updates.is_enabled = False
        self.names = [ClusterName(f"m{number}") for number in range(self.dice.randint(1, 3))]
        self.size = self.dice.randint(*scale.size)
        for name in self.names:
            self.engine.cluster_changed(cluster(name, cpu=self.size, memory=2 * self.size), self.now)
        self.capability = self.size * len(self.names) - self.dice.choice([0, 1])
        self.engine.queue_changed(Queue(QueueName("p"), capability={"cpu": self.capability}))
        everything = {"cpu": self.size * len(self.names), "memory": 2 * self.size * len(self.names)}
        self.engine.queue_changed(Queue(QueueName("q"), parent=QueueName("p"), deserved=everything))
        self.queues = [QueueName("q"), QueueName("q"), QueueName("other")][
            : self.dice.randint(1, 1 if is_learned else 3)
        ]
        guarantee = {"cpu": 1} if self.dice.random() < 0.2 and not is_learned else {}
        if guarantee:
            # The fair share of "q" is without what the other queue is guaranteed; beyond it reservations do not bind.
            self.queues = self.queues[:1]
        self.engine.queue_changed(Queue(QueueName("other"), parent=QueueName("p"), guarantee=guarantee))
        self.events: list[tuple[int, int, str]] = []
        self.run_times: dict[WorkloadUid, int] = {}
        self.promised: dict[WorkloadUid, int] = {}
        self.promised_at: dict[WorkloadUid, int] = {}
        self.delayed = 0
        """Workloads that started late although what ran before the promise had released enough for it."""
        self.promises = 0
        self.backfilled = 0
        self.missed: list[WorkloadUid] = []
        """Workloads that started after their promised time, or not at all."""
        self.wakes: set[int] = set()
        self._submit_all()

    def _submit_all(self) -> None:
        at = self.now
        self.unsubmitted = self.dice.randint(*self.scale.workloads)
        for number in range(self.unsubmitted):
            heappush(self.events, (at, number, "submit"))
            at += self.dice.randint(0, self.scale.gap) * MINUTE

    def _workloads(self, number: int) -> list[Workload]:
        is_wide = self.dice.random() < 0.3
        parts = self.dice.randint(2, len(self.names)) if is_wide and len(self.names) > 1 else 1
        gang = HyperJobGang(f"h{number}/1", parts, parts) if parts > 1 and self.dice.random() < 0.5 else None
        run_time, bounds = self.dice.randint(1, self.scale.run_time) * MINUTE, ()
        if self.is_learned:
            run_time, bounds = learned(run_time)
        queue = self.dice.choice(self.queues)
        workloads = []
        for part in range(parts if gang else 1):
            cpu = self.dice.randint(self.size // 2, self.size - 1) if is_wide else self.dice.randint(1, self.size // 2)
            requests = {"cpu": cpu, "memory": self.dice.randint(0, 2 * self.size if is_wide else self.size)}
            names = tuple(self.names[part : part + 1]) if gang or self.dice.random() < 0.3 else ()
            placement = replace(ONE_CLUSTER, affinity=Affinity(names=names) if names else None)
            shape = SchedulingRequirements(requests, requests, placement)
            made = workload(f"w{number:03}-{part}", shape, queue=queue, created_at=self.now, gang=gang)
            workloads.append(changed(made, run_time_ms=run_time, run_time_bounds_ms=bounds))
        return workloads

    def _run_time(self, workload: Workload) -> int:
        """Return the time for which *workload* will run."""
        expected = workload.run_time_ms or 0
        if not self.is_learned:
            return expected
        median = expected / exp(DEVIATION * NormalDist().inv_cdf(CONFIDENCE))
        return max(round(median * self.dice.lognormvariate(0, DEVIATION)), 1)

    def _judge_delays(self) -> None:
        """Count the promises due now that only workloads admitted since then prevent from being kept."""
        due = {
            owner_of(self.engine.workloads[uid]): promised_at
            for uid, promised_at in self.promised_at.items()
            if self.promised.get(uid) == self.now
        }
        for owner, promised_at in due.items():
            needed = [reserving for reserving in self.engine.with_reservation.values() if owner_of(reserving) == owner]
            older = [
                charge
                for running in self.engine.workloads.values()
                if running.state is WorkloadState.ADMITTED and running.admission.admitted_at < promised_at
                for charge in running.admission.cluster_charges
            ]
            used = [*older, *(charge for reserving in needed for charge in reserving.reservation.cluster_charges)]
            self.delayed += (
                all(
                    total(charge.charge for charge in used if charge.cluster == name).get(resource, 0) <= amount
                    for name in self.names
                    for resource, amount in (("cpu", self.size), ("memory", 2 * self.size))
                )
                and total(charge.charge for charge in used).get("cpu", 0) <= self.capability
            )

    def play(self) -> None:
        """Play the load until no further promise can be given."""
        changed_at = self.now
        while self.events and self.now < changed_at + 500 * MINUTE:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] <= self.now:
                _, number, what = heappop(self.events)
                changed_at = changed_at if what == "wake" else self.now
                if what == "submit":
                    self.unsubmitted -= 1
                    for workload in self._workloads(number):
                        self.run_times[workload.uid] = self._run_time(workload)
                        self.engine.workload_changed(workload, self.now)
                elif what != "wake":
                    workload = self.engine.workloads[WorkloadUid(what)]
                    over = replace(workload, state=WorkloadState.FINISHED, admission=None)
                    self.engine.workload_changed(over, self.now)
            if len(self.engine.pending):
                self._plan()
            elif not self.unsubmitted:
                return

    def _plan(self) -> None:
        plan = self.engine.plan(self.now)
        for note in plan.record_updates:
            if note.reservation is None:
                self.promised.pop(note.workload.uid, None)
            elif note.reservation.promised_start is not None and note.workload.queue == "q":
                self.promises += note.workload.uid not in self.promised
                self.promised_at[note.workload.uid] = self.now
                heappush(self.events, (note.reservation.promised_start, -1, "wake"))
                self.promised.setdefault(note.workload.uid, note.reservation.promised_start)
        for decision in plan.decisions:
            uid = decision.workload.uid
            promised = self.promised.pop(uid, None)
            if promised is not None and promised < self.now:
                self.missed.append(uid)
            self.backfilled += bool(self.promised)
            heappush(self.events, (self.now + self.run_times[uid], -1, uid))
        if self.is_learned:
            self._judge_delays()
        for uid in [uid for uid, promised in self.promised.items() if promised < self.now]:
            del self.promised[uid]
            self.missed.append(uid)
        if plan.wake_at is not None and len(self.engine.pending) and plan.wake_at not in self.wakes:
            self.wakes.add(plan.wake_at)
            heappush(self.events, (plan.wake_at, -1, "wake"))


def check(seeds: range, scale: Scale = Scale()) -> int:
    """Return how many workloads were admitted while others had a promise, of which none was missed."""
    backfilled = 0
    for seed in seeds:
        schedule = Schedule(seed, scale)
        schedule.play()
        assert not schedule.missed, f"seed {seed}"
        backfilled += schedule.backfilled
    return backfilled


def test_exact_run_times_miss_no_promised_start():
    assert check(range(SCHEDULES)) > SCHEDULES
    # Several reservations are made in one cycle.
    check(range(63103, 63104), SMALL)


@pytest.mark.long
def test_exact_run_times_miss_no_promise_in_100_000_schedules():
    count = int(os.environ.get("SCHEDULES", "100000"))
    assert check(range(1000, 1000 + count), SMALL) > count // 2


def test_learned_run_times_delay_promises_at_most_as_configured():
    scale = Scale(workloads=(40, 60), gap=2, run_time=30, size=(12, 20))
    schedules = [Schedule(seed, scale, is_learned=True) for seed in range(LEARNED_SCHEDULES)]
    for schedule in schedules:
        schedule.play()
    promises, delayed = (sum(getattr(schedule, name) for schedule in schedules) for name in ("promises", "delayed"))
    assert promises > 5 * LEARNED_SCHEDULES
    assert delayed <= 0.1 * promises + 3 * sqrt(0.1 * 0.9 * promises)


def one_cluster(cpu: int) -> Engine:
    engine = Engine(Policy(head_reservation=HeadReservationPolicy(after_ms=MINUTE)))
    engine.cluster_changed(cluster(cpu=cpu), START)
    engine.queue_changed(Queue(QueueName("q")))
    return engine


def late_backfills(seed: int) -> tuple[int, int]:
    """Return how many of ten workloads are backfilled while one waits for a whole cluster, and how many end late."""
    dice, ends = Random(seed), START + 100 * MINUTE
    engine = one_cluster(cpu=12)

    def submit(name: str, cpu: int, at: int, run_time: int, bounds: tuple[int, ...] = ()) -> None:
        made = workload(name, {"cpu": cpu}, created_at=at, run_time_ms=run_time, run_time_bounds_ms=bounds)
        engine.workload_changed(made, at)

    submit("runs", 2, START, ends - START)
    engine.plan(START)
    submit("waits", 12, START, MINUTE)
    for minute in range(3):
        engine.plan(START + minute * MINUTE)
    now, late, medians = START + 3 * MINUTE, 0, {}
    for number in range(10):
        name = f"small{number}"
        medians[name] = dice.randint(5, 40) * MINUTE
        submit(name, 1, now, *learned(medians[name]))
    admitted = [decision.workload.uid for decision in engine.plan(now).decisions]
    for uid in admitted:
        late += now + medians[uid] * dice.lognormvariate(0, DEVIATION) > ends
    return len(admitted), late


def test_backfilled_workloads_delay_together_as_configured():
    worlds = [late_backfills(seed) for seed in range(LATE_WORLDS)]
    assert sum(backfilled for backfilled, _ in worlds) > 3 * LATE_WORLDS
    assert sum(late > 0 for _, late in worlds) <= 0.1 * LATE_WORLDS + 3 * sqrt(0.1 * 0.9 * LATE_WORLDS)


def test_windows_that_were_not_forecast_again_are_unchanged(monkeypatch):
    update, forecasts = BackfillWindows.update, list[bool]()

    def update_twice(windows, demands, quota, policy, now):
        forecasts.append(update(windows, demands, quota, policy, now))
        known, windows._inputs = windows.by_owner, ()
        update(windows, demands, quota, policy, now)
        assert windows.by_owner == known
        return forecasts[-1]

    monkeypatch.setattr(BackfillWindows, "update", update_twice)
    for seed in range(4):
        Schedule(seed, Scale(), is_learned=seed % 2 == 1).play()
    assert not all(forecasts)


def test_reservation_is_fulfilled_when_its_queues_have_the_quota(monkeypatch):
    is_fulfilled, lacked = _Trial.is_fulfilled, list[bool]()

    def compare(trial, at):
        of_queues = [id(released) for released in trial._by_queue.values()]
        lacks = any(
            released.get(name, 0) < amount for released, name, amount in trial._lacking if id(released) in of_queues
        )
        assert trial._is_unreserved() is not lacks
        lacked.append(lacks)
        return is_fulfilled(trial, at)

    monkeypatch.setattr(_Trial, "is_fulfilled", compare)
    for seed in range(4):
        Schedule(seed, Scale()).play()
    assert {*lacked} == {True, False}


@pytest.mark.parametrize(
    ("waited", "is_granted"), [pytest.param(239, False, id="waited-less"), pytest.param(240, True, id="waited-as-long")]
)
def test_far_start_is_promised_after_as_long_a_wait(waited, is_granted):
    engine, now = one_cluster(cpu=4), START
    for name, created_at in (("runs", 0), ("waits", now)):
        whole = workload(name, {"cpu": 4}, created_at=created_at)
        engine.workload_changed(whole.expecting(480 * MINUTE), now)
    granted = False
    while now <= START + waited * MINUTE:
        granted |= any(note.reservation is not None for note in engine.plan(now).record_updates)
        now += MINUTE
    assert granted is is_granted


def submit(engine: Engine, name: str, cpu: int, minutes: int, *, at: int, queue: str = "q", priority: int = 0) -> None:
    run_time = minutes * MINUTE
    made = workload(name, {"cpu": cpu}, queue=queue, created_at=at, priority=priority, run_time_ms=run_time)
    engine.workload_changed(made, at)


def admitted(plan) -> list[str]:
    return [decision.workload.name for decision in plan.decisions]


def test_missed_promise_is_noticed_without_an_event():
    engine, promised = one_cluster(cpu=4), START + 10 * MINUTE
    submit(engine, "runs", 2, 10, at=START)
    engine.plan(START)
    submit(engine, "waits", 4, 60, at=START)
    for minute in range(3):
        engine.plan(START + minute * MINUTE)
    [waits] = engine.with_reservation.values()
    assert waits.reservation.promised_start == promised
    now = START + 6 * MINUTE
    running = engine.workloads[WorkloadUid("runs")]
    engine.workload_changed(running.expecting(20 * MINUTE), now)
    submit(engine, "small", 1, 5, at=now)
    plan = engine.plan(now)
    assert (admitted(plan), plan.wake_at) == ([], promised)
    # Now it may end after the promised start, until the one that is expected.
    assert admitted(engine.plan(promised)) == ["small"]


def test_later_start_of_a_reservation_lets_others_be_tried_again():
    engine, now = one_cluster(cpu=3), START + 5 * MINUTE
    engine.queue_changed(Queue(QueueName("q"), deserved={"cpu": 3}))
    engine.queue_changed(Queue(QueueName("other")))
    submit(engine, "runs", 2, 5, at=START)
    engine.plan(START)
    submit(engine, "waits", 2, 60, at=START, queue="other")
    for minute in range(3):
        engine.plan(START + minute * MINUTE)
    assert {*engine.with_reservation} == {"waits"}
    over = replace(engine.workloads[WorkloadUid("runs")], state=WorkloadState.FINISHED, admission=None)
    engine.workload_changed(over, now)
    # The reservation does not bind the first one, whose queue is below its fair share.
    submit(engine, "first", 2, 1, at=now, priority=1)
    submit(engine, "small", 1, 60, at=now, queue="other")
    plan = engine.plan(now)
    assert (admitted(plan), plan.wake_at) == (["first"], now)
    assert admitted(engine.plan(plan.wake_at)) == ["small"]


def test_restart_keeps_the_promise_to_parts_without_a_record():
    now, promised, gang = START + 5 * MINUTE, START + 60 * MINUTE, HyperJobGang("h/1", 2, 2)
    engine = Engine(Policy())
    engine.queue_changed(Queue(QueueName("q")))
    for name in ("m0", "m1"):
        engine.workload_changed(workload(f"runs-on-{name}", {"cpu": 1}, on=name), now)
        engine.cluster_changed(cluster(name, cpu=4), now)
    parts = [workload(f"part-{number}", {"cpu": 4}, created_at=START, gang=gang) for number in range(2)]
    recorded = Reservation(START, (ClusterCharge(ClusterName("m0"), {"cpu": 4}),), {"cpu": 4}, promised)
    engine.workload_changed(parts[0].reserving(recorded), now)
    engine.workload_changed(parts[1], now)
    engine.plan(now)
    assert {part.reservation.promised_start for part in engine.with_reservation.values()} == {promised}
    assert len(engine.with_reservation) == 2


def test_no_reservation_while_no_release_gives_enough_quota():
    engine, now = one_cluster(cpu=4), START
    engine.queue_changed(Queue(QueueName("guaranteed"), guarantee={"cpu": 2}))
    down = cluster("down", cpu=4)
    engine.cluster_changed(replace(down, ready=False), now)
    # With one cluster of four CPUs, two remain beside the guarantee.
    engine.workload_changed(workload("waits", {"cpu": 3}, created_at=now), now)
    for minute in range(3):
        assert not engine.plan(START + minute * MINUTE).record_updates
    now = START + 3 * MINUTE
    for number in range(2):
        engine.workload_changed(workload(f"small-{number}", {"cpu": 1}, created_at=now), now)
    assert admitted(engine.plan(now)) == ["small-0", "small-1"]


@pytest.mark.parametrize(("queue", "expected"), [("other", []), ("guaranteed", ["small"])])
def test_quota_beside_a_guarantee_is_left_for_a_promised_start(queue, expected):
    """O9: until then four CPUs are guaranteed; those of "runs" and the two that are left are promised."""
    engine, now = one_cluster(cpu=10), START + 10 * MINUTE
    engine.queue_changed(Queue(QueueName("q"), deserved={"cpu": 10}))
    engine.queue_changed(Queue(QueueName("guaranteed"), guarantee={"cpu": 4}))
    engine.queue_changed(Queue(QueueName("other")))
    submit(engine, "runs", 4, 10, at=START)
    engine.plan(START)
    submit(engine, "waits", 6, 60, at=START)
    for minute in range(3):
        engine.plan(START + minute * MINUTE)
    assert engine.workloads[WorkloadUid("waits")].reservation.promised_start == now
    submit(engine, "small", 2, 600, at=START + 3 * MINUTE, queue=queue)
    assert admitted(engine.plan(START + 3 * MINUTE)) == expected
    over = replace(engine.workloads[WorkloadUid("runs")], state=WorkloadState.FINISHED, admission=None)
    engine.workload_changed(over, now)
    assert admitted(engine.plan(now))[:1] == ["waits"]


def test_more_than_a_cluster_has_may_be_reserved_for():
    engine, now = one_cluster(cpu=4), START
    engine.cluster_changed(replace(cluster("other", cpu=4), enablements=frozenset()), now)
    engine.workload_changed(workload("runs", {"cpu": 2}, on="m", admitted_at=now), now)
    elastic = SchedulingRequirements({"cpu": 6}, {"cpu": 3}, ONE_CLUSTER)
    engine.workload_changed(workload("waits", elastic, created_at=now), now)
    for minute in range(3):
        engine.plan(START + minute * MINUTE)
    assert {*engine.with_reservation} == {"waits"}


@pytest.mark.parametrize(
    ("used", "runs", "asks", "reserved", "promised"),
    [
        # Six of ten CPUs are free, but only after 12 minutes six in addition to the requests.
        pytest.param((4, 12), (3, 60), {"cpu": 6}, (10, 100), 12, id="amounts"),
        # Without the reservation it would start after 8 minutes, and run until the 13th.
        pytest.param((10, 8), (3, 5), {}, (10, 30), 30, id="whole-cluster"),
    ],
)
def test_promised_start_is_one_that_advance_reservations_allow(used, runs, asks, reserved, promised):
    since, until = (START + minute * MINUTE for minute in reserved)
    reservation = AdvanceReservation("r", (ClusterName("m"),), since, until, queue=QueueName("own"), amounts=asks)
    engine = one_cluster(cpu=10)
    engine.policy_changed(replace(engine.policy, advance_reservations=(reservation,)))
    submit(engine, "runs", *used, at=START)
    assert admitted(engine.plan(START)) == ["runs"]
    submit(engine, "waits", *runs, at=START)
    for minute in range(2):
        engine.plan(START + minute * MINUTE)
    [waits] = engine.with_reservation.values()
    assert waits.reservation.promised_start == START + promised * MINUTE


def overrun_at(promised: int) -> tuple[Engine, Workload]:
    """Return an engine that evicts a backfilled workload at a promised start, and that workload as it ran before."""
    engine = one_cluster(cpu=4)
    engine.policy_changed(replace(engine.policy, backfill=Backfill(evicts_overrun=True)))
    submit(engine, "runs", 2, 10, at=START)
    engine.plan(START)
    submit(engine, "waits", 4, 60, at=START)
    for minute in range(3):
        engine.plan(START + minute * MINUTE)
    submit(engine, "before", 1, 5, at=START + 3 * MINUTE)
    assert admitted(engine.plan(START + 3 * MINUTE)) == ["before"]
    running = engine.workloads[WorkloadUid("before")]
    [evicted] = engine.plan(promised).decisions
    assert evicted.workload.name == "before"
    return engine, running


def test_workload_backfilled_after_a_missed_promise_runs_on():
    promised = START + 10 * MINUTE
    engine, _ = overrun_at(promised)
    now = promised + 1000
    engine.workload_changed(replace(engine.workloads[WorkloadUid("before")], admission=None), now)
    after = workload("after", {"cpu": 1}, created_at=now, run_time_ms=MINUTE // 4)
    engine.workload_changed(after, now)
    assert admitted(engine.plan(now)) == ["after"]
    submit(engine, "event", 4, 60, at=now)
    assert not engine.plan(now + 1000).decisions


def test_overrun_is_evicted_again_after_a_rejected_write():
    promised = START + 10 * MINUTE
    engine, running = overrun_at(promised)
    engine.plan(promised + 1000)
    retry_at = promised + MINUTE
    engine.workload_changed(changed(running, eviction_retry_at=retry_at), promised + 2000)
    plan = engine.plan(promised + 2000)
    assert not plan.decisions
    assert plan.wake_at == retry_at
    assert [decision.workload.name for decision in engine.plan(retry_at).decisions] == ["before"]


def test_quarantined_overrun_is_not_evicted():
    promised = START + 10 * MINUTE
    engine, running = overrun_at(promised)
    engine.workload_changed(changed(running, admission=replace(running.admission, adopted=True)), promised - 1000)
    assert not engine.plan(promised + 1000).decisions


def test_each_part_of_a_backfilled_hyperjob_spends_its_budget():
    engine = one_cluster(cpu=6)
    submit(engine, "runs", 4, 60, at=START)
    engine.plan(START)
    submit(engine, "waits", 6, 60, at=START)
    for minute in range(2):
        engine.plan(START + minute * MINUTE)
    gang, now = HyperJobGang("h/1", 2, 2), START + 2 * MINUTE
    for number in range(2):
        part = workload(f"part-{number}", {"cpu": 1}, created_at=now, run_time_ms=MINUTE)
        details = replace(part.details, gang=gang, run_time_bounds_ms=(2 * MINUTE, 3 * MINUTE, 90 * MINUTE))
        engine.workload_changed(replace(part, details=details), now)
    assert admitted(engine.plan(now)) == ["part-0", "part-1"]
    windows = engine.context.windows
    assert sorted(windows.backfilled) == ["part-0", "part-1"]
    assert windows.spent == {"waits": 2 * (MISS_BUDGET >> 2)}
