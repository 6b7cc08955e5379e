"""Grants reservations to queue heads that are blocked for too long, and expires them (O6).

``active`` decides what they withhold from other workloads, ``placement`` their clusters.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from typing import Final

from controller.engine.fairness.ordering import HeadIterator
from controller.engine.fairness.pending_order import PendingOrder
from controller.engine.fairness.shares import QueueShares
from controller.engine.fairness.tournament import SchedulableClass
from controller.engine.plan import Assume, Evict, RecordUpdate
from controller.engine.policy import MIN_PAUSE_MS, HeadReservationPolicy, Policy
from controller.engine.reasons import EvictionReason
from controller.engine.reservations.backfill import BackfillWindows, ReservationDemand, longest_run_time
from controller.engine.reservations.idle import IdleReservations
from controller.engine.reservations.placement import PlacedReservations, ReservationPlanner
from controller.engine.reservations.reserved import reservation_demands
from controller.engine.state.cluster_state import earliest
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import WorkloadClass, owner_of
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, positive
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import HyperJobGang, Reservation, Workload, WorkloadState, WorkloadUid
from controller.engine.steps import finish

#: So many heads are tried in a cycle in addition to the first one of each queue.
_MOST_FURTHER_TRIES: Final = 100

TimerKey = tuple[QueueName, str]
"""A queue, and with tenant fairness a namespace, else an empty string."""


@dataclass(frozen=True, slots=True)
class BlockedHead:
    """The first blocked workload of a queue or of a namespace in it, and since when it is first."""

    uid: WorkloadUid
    since: int


class StarvationTimers:
    """Tracks how long each workload has been the first blocked one of its queue.

    With tenant fairness of its namespace there: every admission may let another namespace precede.
    """

    def __init__(self, workloads: WorkloadIndex, order: PendingOrder) -> None:
        self.expirations: dict[WorkloadUid, int] = {}
        """How many reservations of each workload have expired; each doubles the pause before the next (O8)."""
        self.passed: dict[WorkloadUid, int] = {}
        """How much time of its timer had passed when another workload came to precede each blocked one."""
        self.heads: dict[TimerKey, BlockedHead] = {}
        """The first blocked workloads."""
        self._keys: dict[QueueName, set[TimerKey]] = {}
        """The keys of these by queue."""
        self._by_expiry: list[tuple[int, TimerKey]] = []
        """When each timer expires, in order: with 1,000 queues, a search of all timers took half the time of a plan."""
        self._ordered_for: HeadReservationPolicy | None = None
        """The policy that *_by_expiry* was computed for; ``None`` when it must be computed again."""
        self._workloads = workloads
        self._order = order

    def restore(
        self,
        heads: Mapping[TimerKey, BlockedHead],
        expirations: Mapping[WorkloadUid, int],
        passed: Mapping[WorkloadUid, int],
    ) -> None:
        """Continue with timers that were saved."""
        self.heads, self.expirations, self.passed = dict(heads), dict(expirations), dict(passed)
        self._ordered_for = None
        self._keys.clear()
        for key in heads:
            self._keys.setdefault(key[0], set()).add(key)

    def queues(self) -> AbstractSet[QueueName]:
        """Return the queues with a blocked workload."""
        return self._keys.keys()

    def update(self, queues: Iterable[QueueName], now: int) -> None:
        """Update the heads of *queues*, in which workloads were added, removed or changed."""
        for name in queues:
            first = self._first_blocked(name)
            for key in self._keys.get(name, set()) - first.keys():
                self._replace(key, None)
            for key, workload in first.items():
                timer = self.heads.get(key)
                if timer is not None and timer.uid == workload.uid:
                    continue
                if timer is not None and self._is_blocked(timer.uid):
                    self.passed[timer.uid] = now - timer.since
                self._replace(key, BlockedHead(workload.uid, now - self.passed.pop(workload.uid, 0)))

    def _is_blocked(self, uid: WorkloadUid) -> bool:
        pending = self._workloads.pending
        return uid in pending and pending.class_of(uid).competes

    def _first_blocked(self, queue: QueueName) -> dict[TimerKey, Workload]:
        """Return the first workloads of a queue that wait for capacity only."""
        blocked: dict[TimerKey, list[WorkloadClass]] = {}
        for workload_class in self._workloads.pending.queues.get(queue, ()):
            if workload_class.competes:
                blocked.setdefault((queue, workload_class.key.namespace), []).append(workload_class)
        first = ((key, self._order.first_of(queue, classes)) for key, classes in blocked.items())
        return {key: workload for key, workload in first if workload is not None}

    def _replace(self, key: TimerKey, head: BlockedHead | None) -> None:
        before, policy = self.heads.pop(key, None), self._ordered_for
        if head is not None:
            self.heads[key] = head
            self._keys.setdefault(key[0], set()).add(key)
        elif before is not None:
            self._keys[key[0]].remove(key)
            if not self._keys[key[0]]:
                del self._keys[key[0]]
        if policy is None:
            return
        if before is not None:
            del self._by_expiry[bisect_left(self._by_expiry, (self._due_at(before, policy), key))]
        if head is not None:
            insort(self._by_expiry, (self._due_at(head, policy), key))

    def reservation_expired(self, workload: Workload) -> None:
        """Count an expired reservation of *workload*."""
        self.expirations[workload.uid] = self.expirations.get(workload.uid, 0) + 1
        self._ordered_for = None

    def forget(self, uid: WorkloadUid) -> None:
        """Forget the expired reservations and the timer of a workload that has run or no longer exists."""
        self.passed.pop(uid, None)
        if self.expirations.pop(uid, None) is not None:
            self._ordered_for = None

    def _due_at(self, blocked: BlockedHead, policy: HeadReservationPolicy) -> int:
        return blocked.since + policy.pause_ms(self.expirations.get(blocked.uid, 0))

    def reset(self, workload: Workload, now: int) -> None:
        """Restart the timer of *workload*, whose reservation has ended."""
        self.passed.pop(workload.uid, None)
        for key in [key for key in self._keys.get(workload.queue, ()) if self.heads[key].uid == workload.uid]:
            self._replace(key, BlockedHead(workload.uid, now))

    def try_again(self, workload: Workload, policy: HeadReservationPolicy, now: int) -> None:
        """Let the timer of *workload*, which gets no reservation now, expire after the delay, not its pause (O8)."""
        pause_ms = policy.pause_ms(self.expirations.get(workload.uid, 0))
        self.reset(workload, now + (policy.after_ms or MIN_PAUSE_MS) - pause_ms)

    def expired(self, policy: HeadReservationPolicy, now: int) -> list[WorkloadClass]:
        """Return the class of the first head with an expired timer, of each queue without a reservation."""
        reserved_queues = {blocked.queue for blocked in self._workloads.with_reservation.values()}
        by_expiry = self._ordered_by_expiry(policy)
        due = {queue for _, (queue, _) in by_expiry[: bisect_right(by_expiry, now, key=itemgetter(0))]}
        first = (self.first_expired(queue, policy, now) for queue in sorted(due - reserved_queues))
        return [workload_class for workload_class in first if workload_class is not None]

    def first_expired(self, queue: QueueName, policy: HeadReservationPolicy, now: int) -> WorkloadClass | None:
        """Return the class of the first head of *queue* with an expired timer."""
        heads = (self.heads[key] for key in sorted(self._keys.get(queue, ())))
        due = [self._workloads.pending.class_of(head.uid) for head in heads if self._due_at(head, policy) <= now]
        first = self._order.first_of(queue, due)
        return self._workloads.pending.class_of(first.uid) if first is not None else None

    def next_expiry(self, policy: HeadReservationPolicy, now: int) -> int | None:
        """Return when the next timer expires."""
        by_expiry = self._ordered_by_expiry(policy)
        following = bisect_right(by_expiry, now, key=itemgetter(0))
        return by_expiry[following][0] if following < len(by_expiry) else None

    def _ordered_by_expiry(self, policy: HeadReservationPolicy) -> list[tuple[int, TimerKey]]:
        if self._ordered_for != policy:
            self._by_expiry = sorted((self._due_at(blocked, policy), key) for key, blocked in self.heads.items())
            self._ordered_for = policy
        return self._by_expiry


class HeadReservations:
    """The head reservations of all queues: granted, placed, cancelled."""

    def __init__(
        self,
        workloads: WorkloadIndex,
        timers: StarvationTimers,
        planner: ReservationPlanner,
        windows: BackfillWindows,
        assume: Assume,
    ) -> None:
        self._workloads = workloads
        self._feasibility_cache = planner.feasibility_cache
        self._timers = timers
        self._planner = planner
        self._windows = windows
        self.idle = IdleReservations(workloads, planner.feasibility_cache.cluster_usage)
        self._assume = assume

    def expire(self, policy: HeadReservationPolicy, now: int) -> list[RecordUpdate]:
        """Cancel reservations that have expired or become useless, for a gang those of all parts."""
        reserving = self._workloads.with_reservation
        self.idle.add_elapsed(now)
        timed_out = {uid for uid, workload in reserving.items() if self._has_timed_out(workload, policy, now)}
        expired = timed_out | {uid for uid, workload in reserving.items() if self._is_useless(workload)}
        for uid in sorted(timed_out):
            self._timers.reservation_expired(reserving[uid])
        gangs = {reserving[uid].gang for uid in expired} - {None}
        return self._cancel(
            [uid for uid, workload in reserving.items() if uid in expired or workload.gang in gangs], now
        )

    def _cancel(self, uids: Iterable[WorkloadUid], now: int) -> list[RecordUpdate]:
        updates = []
        for uid in sorted(uids):
            workload = self._workloads.with_reservation[uid]
            self._assume(workload.reserving(None), now)
            self._timers.reset(workload, now)
            updates.append(RecordUpdate(workload, None))
        return updates

    def next_expiry(self, policy: HeadReservationPolicy) -> int | None:
        """Return when the next reservation expires."""
        ends = (_ends_at(workload, policy) for workload in self._workloads.with_reservation.values())
        return earliest((*ends, self.idle.next_expiry(policy)))

    def _has_timed_out(self, workload: Workload, policy: HeadReservationPolicy, now: int) -> bool:
        return _ends_at(workload, policy) <= now or self.idle.is_exhausted(workload, policy)

    def _is_useless(self, workload: Workload) -> bool:
        reserved = workload.reservation
        if workload.uid not in self._workloads.pending or reserved is None:
            return True
        workload_class = self._workloads.pending.class_of(workload.uid)
        if not workload_class.competes:
            return True
        cluster_names = self._feasibility_cache.get(workload_class.requirements).cluster_names
        has_changed = reserved.requests is not None and positive(reserved.requests) != positive(workload_class.charge)
        return has_changed or any(
            cluster_charge.cluster not in cluster_names for cluster_charge in reserved.cluster_charges
        )

    def evict_overrun(self, policy: Policy, now: int) -> list[Evict]:
        """Evict the backfilled workloads that still run at the promised start of a reservation (O9).

        Those admitted from then on are expected to end before a later start, which is no promise.
        """
        if not policy.backfill.evicts_overrun:
            return []
        evicted = []
        for workload in self._overrun(now):
            for part in (workload, *self._workloads.gangs.dependents(workload, self._workloads.by_uid)):
                if part.eviction_retry_at <= now:
                    self._assume(part.evicted(EvictionReason.BACKFILL_OVERRUN), now)
                    evicted.append(Evict(part, EvictionReason.BACKFILL_OVERRUN, grace_ms=policy.preemption.grace_ms))
        return evicted

    def _overrun(self, now: int) -> Iterator[Workload]:
        """Yield the backfilled workloads that were admitted before a promised start which is due, by uid.

        The caller may evict them, and others with them, meanwhile.
        """
        due = {
            owner_of(workload): promised_start
            for workload in self._workloads.with_reservation.values()
            if (promised_start := _promised_start(workload)) is not None and promised_start <= now
        }
        for uid, owner in sorted(self._windows.backfilled.items()) if due else ():
            workload = self._workloads.by_uid.get(uid)
            admission = workload.admission if workload is not None and workload.is_admitted_here else None
            if workload is None or admission is None or owner not in due or workload.preserved:
                continue
            if workload.state is WorkloadState.ADMITTED and admission.admitted_at < due[owner]:
                yield workload

    def next_overrun_eviction(self, now: int) -> int | None:
        """Return when the next promised start is due, or the next retry of a rejected eviction after one."""
        promised = map(_promised_start, self._workloads.with_reservation.values())
        retries = (workload.eviction_retry_at for workload in self._overrun(now))
        return earliest(at for at in (*promised, *retries) if at is not None and at > now)

    def complete(self, now: int) -> list[RecordUpdate]:
        """Place reservations of which only the time is known, and those of gang parts without one after a restart.

        Reservations of a gang that cannot be placed are cancelled.
        """
        updates: list[RecordUpdate] = []
        reserving, gangs = self._workloads.with_reservation, set[HyperJobGang | None]()
        for uid in sorted(reserving, key=lambda uid: (_since(reserving[uid]), uid)):
            workload = reserving.get(uid)
            if workload is None or workload.reservation is None:
                continue
            workload_class = self._workloads.pending.class_of(uid)
            if self._workloads.gangs.is_all_or_nothing(workload_class.gang):
                if workload_class.gang not in gangs:
                    updates += self._complete_gang(workload_class, now)
                gangs.add(workload_class.gang)
            elif workload.reservation.requests is None:
                charges = self._planner.place(workload, self._reserved_clusters()).get(uid, ())
                charge = self._feasibility_cache.get(workload_class.requirements).charge
                reserved = replace(workload.reservation, cluster_charges=charges, requests=charge)
                self._assume(workload.reserving(reserved), now)
        return updates

    def _complete_gang(self, workload_class: WorkloadClass, now: int) -> list[RecordUpdate]:
        """Place the reservations of parts without one, while too few parts have one for the gang to start."""
        gang = workload_class.gang
        parts = [part for part in self._workloads.with_reservation.values() if part.gang == gang]
        count = sum(part.reservation is not None and bool(part.reservation.cluster_charges) for part in parts)
        if gang is None or count >= self._workloads.gangs.missing(gang):
            return []
        placed = self._planner.place(parts[0], self._reserved_clusters(excluded_gang=gang))
        if not placed:
            return self._cancel([part.uid for part in parts], now)
        promised = (at for part in parts if (at := _promised_start(part)) is not None)
        return self._apply(placed, min(map(_since, parts)), now, promised_start=min(promised, default=None))

    def _apply(
        self, placed: PlacedReservations, since: int, now: int, *, promised_start: int | None = None
    ) -> list[RecordUpdate]:
        """Reserve what was *placed*; return the updates of records."""
        updates = []
        for uid, charges in placed.items():
            workload, workload_class = self._workloads[uid], self._workloads.pending.class_of(uid)
            charge = self._feasibility_cache.get(workload_class.requirements).charge
            reserved = Reservation(since, charges, charge, promised_start)
            if workload.reservation is None:
                updates.append(RecordUpdate(workload, None, reserved))
            self._assume(workload.reserving(reserved), now)
        return updates

    def _reserved_clusters(self, excluded_gang: HyperJobGang | None = None) -> set[ClusterName]:
        """Return the clusters with reserved capacity, without those of *excluded_gang*."""
        return {
            cluster_charge.cluster
            for workload in self._workloads.with_reservation.values()
            if workload.reservation is not None and (excluded_gang is None or workload.gang != excluded_gang)
            for cluster_charge in workload.reservation.cluster_charges
        }

    def grant(self, queue_shares: QueueShares, policy: Policy, now: int) -> list[RecordUpdate]:
        """Grant reservations to heads with an expired timer, in admission order (O1, O2).

        If a head needs clusters that are already reserved, later heads do not get its other clusters, or all of them
        might never be free at once.
        """
        updates: list[RecordUpdate] = []
        unavailable = self._reserved_clusters()
        due = self._timers.expired(policy.head_reservation, now)
        if all(self._has_only_reserved_clusters(workload_class, unavailable) for workload_class in due):
            return updates
        in_turn, further = deque(self._in_turn(queue_shares, policy, due)), _MOST_FURTHER_TRIES
        # Reservations change no charge, and most heads have the same latest start.
        remaining = cache(lambda until: self._windows.remaining_charges(until, now))
        while in_turn:
            workload_class = in_turn.popleft()
            if self._has_reservation(workload_class) or self._has_only_reserved_clusters(workload_class, unavailable):
                continue
            latest = _latest_starts(workload_class.head, policy.head_reservation, now)
            placed = self._planner.place(workload_class.head, unavailable, [remaining(until) for until in latest])
            if not placed and workload_class.gang is None and not in_turn:
                # Where it would go without other reservations matters to later heads only.
                break
            preferred = placed or self._planner.place(workload_class.head, ())
            if workload_class.gang is not None and not preferred:
                # The parts do not fit together as the clusters are; the restarted timer bounds how often this is tried.
                self._timers.try_again(workload_class.head, policy.head_reservation, now)
            granted = self._grant(workload_class, placed, queue_shares, policy, now)
            if granted or not placed:
                unavailable.update(charge.cluster for charges in preferred.values() for charge in charges)
            if not granted and further:
                # Its queue's next head is due now if its own timer was restarted.
                following = self._timers.first_expired(workload_class.queue, policy.head_reservation, now)
                if following is not None and following is not workload_class:
                    in_turn.appendleft(following)
                    further -= 1
            updates += granted
        return updates

    def _grant(
        self,
        workload_class: WorkloadClass,
        placed: PlacedReservations,
        queue_shares: QueueShares,
        policy: Policy,
        now: int,
    ) -> list[RecordUpdate]:
        """Reserve what was *placed*, unless what is released in time can't suffice (O8); promise a start (O9).

        With a forecast, in time is at most as long again as the workload has waited.
        """
        if not placed:
            return []
        quota, windows = queue_shares.quota, self._windows
        demand = self._demand(placed, quota, all_pods=True)
        others = reservation_demands(quota, self._workloads, self._feasibility_cache)
        promised_start = windows.forecast(demand, others, quota, policy, now)
        max_ms = policy.head_reservation.max_ms
        if promised_start is None:
            # Its cluster may never have free all that it requests (D11).
            start = windows.presumed_start(self._demand(placed, quota, all_pods=False), quota, now)
        else:
            start, max_ms = promised_start, max(max_ms, now - workload_class.head.created_at)
        if start is None or start > now + max_ms:
            self._timers.try_again(workload_class.head, policy.head_reservation, now)
            return []
        # Precedence is by begin: one that is granted later, also in the same cycle, must not delay what was promised.
        since = max((_since(workload) + 1 for workload in self._workloads.with_reservation.values()), default=now)
        return self._apply(placed, max(since, now), now, promised_start=promised_start)

    def _demand(self, placed: PlacedReservations, quota: Quota, *, all_pods: bool) -> ReservationDemand:
        """Return what the workloads of *placed* need together; on clusters for *all_pods*, or for what must start."""
        workloads = [self._workloads[uid] for uid in placed]
        charges, by_cluster = list[tuple[Node, Resources]](), dict[ClusterName, Resources]()
        for workload in workloads:
            requirements = self._workloads.pending.class_of(workload.uid).requirements
            charges.append((quota.tree.nodes[workload.queue], self._feasibility_cache.get(requirements).charge))
            for cluster_charge in placed[workload.uid]:
                name = cluster_charge.cluster
                is_all = all_pods or requirements.is_divided
                needed = cluster_charge.charge if is_all else requirements.gang_requests
                by_cluster[name] = add(by_cluster.get(name, EMPTY), needed)
        run_time = longest_run_time(workloads)
        return ReservationDemand(owner_of(workloads[0]), charges, by_cluster, run_time, uids=tuple(placed))

    def _has_only_reserved_clusters(self, workload_class: WorkloadClass, taken: AbstractSet[ClusterName]) -> bool:
        """Return whether all candidate clusters of a class are *taken*; ``False`` for a gang."""
        return (
            workload_class.gang is None
            and self._feasibility_cache.get(workload_class.requirements).cluster_names <= taken
        )

    def _has_reservation(self, workload_class: WorkloadClass) -> bool:
        """Return whether its queue, or another one of its gang, has a reservation, for example since this cycle."""
        parts = self._workloads.parts(workload_class.gang) if workload_class.gang is not None else ()
        queues = {workload_class.queue, *(part.queue for part in parts)}
        return any(workload.queue in queues for workload in self._workloads.with_reservation.values())

    def _in_turn(self, queue_shares: QueueShares, policy: Policy, due: list[WorkloadClass]) -> list[WorkloadClass]:
        if len(due) <= 1:
            return due
        of = self._feasibility_cache.get
        entries = {
            workload_class.queue: [
                SchedulableClass(workload_class, of(workload_class.requirements).requested_resources)
            ]
            for workload_class in due
        }
        heads = HeadIterator(
            queue_shares,
            policy,
            entries,
            fits=lambda _: True,
            borrows=lambda head: queue_shares.borrows(head.leaf, head.workload_class.charge),
        )
        classes = []
        while (head := finish(heads.next())) is not None:
            classes.append(head.workload_class)
            heads.on_skipped(head)
        return classes


def _ends_at(workload: Workload, policy: HeadReservationPolicy) -> int:
    """Return when a reservation expires: counted from the promised start where there is one."""
    return max(_since(workload), _promised_start(workload) or 0) + policy.max_ms


def _promised_start(workload: Workload) -> int | None:
    return workload.reservation.promised_start if workload.reservation else None


def _latest_starts(head: Workload, policy: HeadReservationPolicy, now: int) -> list[int]:
    """Return the latest starts for which *head* gets a reservation: without a forecast, and with one (O8)."""
    return sorted({now + policy.max_ms, max(now + policy.max_ms, 2 * now - head.created_at)})


def _since(workload: Workload) -> int:
    return workload.reservation.since if workload.reservation else 0
