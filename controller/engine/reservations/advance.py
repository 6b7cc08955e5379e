"""Keeps capacity free for advance reservations: maintenance windows, and capacity of one queue or workload (O11).

A reservation of whole clusters excludes them. A reservation of amounts stays free in addition to the requests of the
workloads that it keeps off, as far as running ones are not expected to release it until it begins.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from fractions import Fraction
from typing import NamedTuple

from controller.engine.fairness.ageing import VictimPriorities
from controller.engine.placement.filter import is_placed_by_karmada
from controller.engine.plan import Assume, Evict
from controller.engine.policy import AdvanceReservation, Policy
from controller.engine.reasons import EvictionReason
from controller.engine.reservations.backfill import expected_end
from controller.engine.reservations.expected_ends import ExpectedEnds, ReservationNames, by_reservations
from controller.engine.state.amounts_in_advance import AmountsInAdvance, ReservationBegin, ReservationInForce
from controller.engine.state.cluster_state import earliest
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.pending import PendingWorkloads
from controller.engine.state.queue_usage import QueueUsage
from controller.engine.state.resources import (
    EMPTY,
    Resources,
    add,
    elementwise_min,
    fits,
    positive,
    remaining,
    subtract,
    total,
)
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import ReservedCluster, Workload, WorkloadState, WorkloadUid
from controller.engine.steps import Steps

_VictimRank = tuple[bool, int, int, int, str, str]


class _Victim(NamedTuple):
    """A workload that may be evicted from one cluster."""

    rank: _VictimRank
    workload: Workload
    charge: Resources
    """Its charge on the cluster."""


def reserved_clusters(
    reservations: Iterable[AdvanceReservation], workload: Workload, now: int
) -> tuple[ReservedCluster, ...]:
    """Return the clusters that *workload* may not use if it is admitted at *now*, each with its first reservation."""
    first: dict[ClusterName, str] = {}
    for reservation in _binding(reservations, workload, now):
        if not reservation.amounts or is_placed_by_karmada(workload.requirements):
            for cluster in reservation.clusters:
                first.setdefault(cluster, reservation.name)
    return tuple(ReservedCluster(cluster, first[cluster]) for cluster in sorted(first))


def reserved_amounts(reservations: Iterable[AdvanceReservation], workload: Workload, now: int) -> tuple[str, ...]:
    """Return the reservations of amounts that *workload* must leave free if it is admitted at *now*."""
    if is_placed_by_karmada(workload.requirements):
        return ()
    return tuple(
        sorted(reservation.name for reservation in _binding(reservations, workload, now) if reservation.amounts)
    )


def _binding(reservations: Iterable[AdvanceReservation], workload: Workload, now: int) -> Iterator[AdvanceReservation]:
    """Yield the reservations that keep *workload* off at *now*."""
    for reservation in reservations:
        if now < reservation.until and not is_for(reservation, workload) and _bound_from(reservation, workload) <= now:
            yield reservation


def next_change(reservations: Iterable[AdvanceReservation], workload: Workload, now: int) -> int | None:
    """Return when ``reserved_clusters`` of *workload* changes next."""
    times = (
        at
        for reservation in reservations
        if not is_for(reservation, workload)
        for at in (_bound_from(reservation, workload), reservation.until)
    )
    return earliest(at for at in times if at > now)


def is_for(reservation: AdvanceReservation, workload: Workload) -> bool:
    """Return whether *workload* is one of those that *reservation* keeps capacity free for."""
    return workload.queue == reservation.queue or (workload.namespace, workload.name) == reservation.workload


def _bound_from(reservation: AdvanceReservation, workload: Workload) -> int:
    """Return from when on *workload* would not end before the reservation begins."""
    if workload.run_time_ms is None:
        return reservation.since - reservation.drain_ms
    return min(reservation.since - workload.run_time_ms + 1, reservation.since)


def running_on_reserved(reservations: Sequence[AdvanceReservation], workloads: WorkloadIndex) -> Iterator[Workload]:
    """Yield the admitted workloads on clusters of *reservations* that keep them off."""
    for by_uid in workloads.admitted.values():
        for workload in by_uid.values():
            used = _clusters_of(workload)
            if any(
                used.intersection(reservation.clusters) and not is_for(reservation, workload)
                for reservation in reservations
            ):
                yield workload


def blocking_reservations(pending: PendingWorkloads) -> frozenset[str]:
    """Return the reservations that keep pending workloads off."""
    requirements = [next(iter(classes)).requirements for classes in pending.by_requirements.values()]
    of_clusters = {reserved.reservation for required in requirements for reserved in required.reserved_clusters}
    return frozenset(of_clusters.union(*(required.amounts_reserved_by for required in requirements)))


def idle_for(reservation: AdvanceReservation, cluster_usage: ClusterUsage) -> Resources:
    """Return what is free on the clusters of *reservation* and kept free for it."""
    idle: list[Resources] = []
    for name in reservation.clusters:
        if name not in cluster_usage:
            continue
        state = cluster_usage.cluster_state(name)
        set_aside = state.in_advance.set_aside((reservation.name,)) if state.in_advance is not None else EMPTY
        headroom = positive(state.headroom)
        if reservation.amounts:
            headroom = elementwise_min(headroom, set_aside)
        idle.append(positive(headroom))
    return total(idle)


class AdvanceReservationTracker:
    """Computes what reservations of amounts keep free on each cluster; ``refresh`` at the begin of a cycle."""

    def __init__(self, workloads: WorkloadIndex, cluster_usage: ClusterUsage) -> None:
        self._workloads = workloads
        self._cluster_usage = cluster_usage
        self._reservations: tuple[AdvanceReservation, ...] = ()
        self._by_cluster: dict[ClusterName, list[AdvanceReservation]] = {}
        """The reservations of amounts of each cluster, by begin."""
        self._running: dict[ClusterName, dict[WorkloadUid, Workload]] = {}
        """The admitted workloads on these clusters."""
        self._deferred: set[ClusterName] | None = None
        """Clusters to update at the end of ``deferring``; ``None`` outside of it."""
        self._now = 0
        self._valid_until: int | None = None
        """When what is kept free changes without an event; ``None``: never."""
        self._expected_ends: dict[ClusterName, ExpectedEnds] = {}
        """As of the present cycle, where they were asked for."""

    def refresh(self, reservations: tuple[AdvanceReservation, ...], now: int) -> None:
        """Use *reservations* at *now*."""
        self._now = now
        self._expected_ends.clear()
        if reservations != self._reservations:
            self._use(reservations)
        elif self._valid_until is None or now < self._valid_until:
            for name in self._by_cluster:
                if name in self._cluster_usage and self._cluster_usage.cluster_state(name).in_advance is None:
                    self._update(name, gained_capacity=False)
            return
        self._valid_until = None
        for name in self._by_cluster:
            self._update(name, gained_capacity=True)

    def _use(self, reservations: tuple[AdvanceReservation, ...]) -> None:
        self._reservations = reservations
        before, self._by_cluster = self._by_cluster, {}
        for reservation in sorted(reservations, key=lambda reservation: (reservation.since, reservation.name)):
            for name in reservation.clusters if reservation.amounts else ():
                self._by_cluster.setdefault(name, []).append(reservation)
        self._running = {name: {} for name in self._by_cluster}
        for by_uid in self._workloads.admitted.values() if self._running else ():
            for workload in by_uid.values():
                for name in _clusters_of(workload) & self._running.keys():
                    self._running[name][workload.uid] = workload
        for name in before.keys() - self._by_cluster.keys():
            self._cluster_usage.keep_free(name, None, gained_capacity=True)

    def workload_changed(self, before: Workload | None, workload: Workload | None) -> None:
        """Follow a change of a workload; ``None`` where it does not exist."""
        if not self._running:
            return
        left, entered = (_clusters_of(version) & self._running.keys() for version in (before, workload))
        for name in left:
            if before is not None:
                self._running[name].pop(before.uid, None)
        for name in entered:
            if workload is not None:
                self._running[name][workload.uid] = workload
        for name in left | entered:
            self._expected_ends.pop(name, None)
        if self._deferred is not None:
            self._deferred |= left | entered
            return
        # Where charges change, the change of usage says already that capacity may have been freed.
        for name in sorted(left | entered):
            self._update(name, gained_capacity=left == entered)

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """Update each cluster once, at the end: an update takes time in proportion to the workloads that run there."""
        self._deferred = set()
        try:
            yield
        finally:
            deferred, self._deferred = self._deferred, None
            for name in sorted(deferred):
                self._update(name, gained_capacity=False)

    def running_on(self, name: ClusterName) -> Iterable[Workload]:
        """Return the admitted workloads on a cluster of which amounts are reserved."""
        return self._running.get(name, {}).values()

    def lacking(self, name: ClusterName, reservations: Collection[AdvanceReservation]) -> Resources:
        """Return what is missing for the amounts of *reservations* once evictions in progress have finished."""
        if name not in self._cluster_usage:
            return EMPTY
        running = [(workload, _charge_on(workload, name)) for workload in self.running_on(name)]
        needed = total(amounts.lacking for amounts in _in_force(reservations, _reserved(reservations, running)))
        free = self._cluster_usage.cluster_state(name).headroom_after_evictions
        return positive(remaining(needed, free))

    def missing(self, reservation: AdvanceReservation, now: int) -> Resources:
        """Return what of its amounts is expected to be in use by others when *reservation* begins, on all clusters."""
        missing: Resources = EMPTY
        for name in reservation.clusters if reservation.amounts else ():
            at, charges = max(reservation.since, now), self.running_on(name)
            ends = [(workload, expected_end(workload, now), _charge_on(workload, name)) for workload in charges]
            staying = [(workload, charge) for workload, end, charge in ends if end is None or end > at]
            [needed] = _in_force((reservation,), _reserved((reservation,), staying))
            free = [charge for _, end, charge in ends if end is not None and end <= at]
            if name in self._cluster_usage:
                free.append(self._cluster_usage.cluster_state(name).headroom_after_evictions)
            free_then = total(free)
            missing = add(missing, positive(remaining(needed.lacking, free_then)))
        return missing

    def to_leave_free(
        self, workloads: Iterable[Workload], clusters: AbstractSet[ClusterName], at: int
    ) -> Mapping[ClusterName, Resources] | None:
        """Return what *workloads* will have to leave free on *clusters* at *at*, ``None`` if they may not use one then.

        As expected now: running workloads have ended by then as far as their run times are known.
        """
        names: set[str] = set()
        for workload in workloads if self._reservations else ():
            if any(reserved.cluster in clusters for reserved in reserved_clusters(self._reservations, workload, at)):
                return None
            names.update(reserved_amounts(self._reservations, workload, at))
        key = tuple(sorted(names))
        return {name: self._amounts_at(name, at).set_aside(key) for name in clusters & self._by_cluster.keys() if key}

    def ends_after(self, now: int) -> list[int]:
        """Return when reservations end after *now*."""
        return sorted({reservation.until for reservation in self._reservations if reservation.until > now})

    def _update(self, name: ClusterName, *, gained_capacity: bool) -> None:
        in_advance = self._in_advance(name)
        self._cluster_usage.keep_free(name, in_advance if in_advance.begins else None, gained_capacity=gained_capacity)

    def _in_advance(self, name: ClusterName) -> AmountsInAdvance:
        now, reservations = self._now, self._by_cluster[name]
        times = (at for reservation in reservations for at in (reservation.since, reservation.until) if at > now)
        self._valid_until = earliest((self._valid_until, self._ends_on(name).first, *times))
        return self._amounts_at(name, now)

    def _amounts_at(self, name: ClusterName, at: int) -> AmountsInAdvance:
        """Return what is reserved on a cluster at a time from the present cycle on."""
        reservations = [reservation for reservation in self._by_cluster[name] if at < reservation.until]
        ends, begins = self._ends_on(name), []
        for reservation in reservations:
            since = max(reservation.since, at)
            others = (
                other for other in reservations if other is not reservation and other.since <= since < other.until
            )
            in_force = _in_force((reservation, *others), ends.reserved_after(since))
            begins.append(ReservationBegin(in_force, ends.released(at, since)))
        return AmountsInAdvance(tuple(begins))

    def _ends_on(self, name: ClusterName) -> ExpectedEnds:
        if name not in self._expected_ends:
            now, reservations = self._now, self._by_cluster[name]
            self._expected_ends[name] = ExpectedEnds(
                [
                    (_names_for(workload, reservations), expected_end(workload, now), _charge_on(workload, name))
                    for workload in self._running[name].values()
                ]
            )
        return self._expected_ends[name]


def _names_for(workload: Workload, reservations: Collection[AdvanceReservation]) -> ReservationNames:
    return tuple(sorted(reservation.name for reservation in reservations if is_for(reservation, workload)))


def _reserved(
    reservations: Collection[AdvanceReservation], running: Iterable[tuple[Workload, Resources]]
) -> Mapping[ReservationNames, Resources]:
    """Return what the workloads that *reservations* are for use of *running*."""
    charges = by_reservations((_names_for(workload, reservations), charge) for workload, charge in running)
    return {names: total(of_names) for names, of_names in charges.items()}


def _in_force(
    reservations: Iterable[AdvanceReservation], reserved: Mapping[ReservationNames, Resources]
) -> tuple[ReservationInForce, ...]:
    """Return what each of *reservations* lacks while its workloads use what is *reserved*; each charge counts once."""
    uncounted, in_force = {**reserved}, list[ReservationInForce]()
    for reservation in reservations:
        lacking = reservation.amounts
        for names, charge in uncounted.items():
            if reservation.name in names:
                lacking, uncounted[names] = positive(remaining(lacking, charge)), positive(remaining(charge, lacking))
        in_force.append(ReservationInForce(reservation.name, reservation.amounts, lacking))
    return tuple(in_force)


def _clusters_of(workload: Workload | None) -> set[ClusterName]:
    if workload is None or workload.state is not WorkloadState.ADMITTED or workload.admission is None:
        return set()
    return workload.admission.clusters


def _charge_on(workload: Workload, name: ClusterName) -> Resources:
    here = [charge.charge for charge in workload.cluster_charges if charge.cluster == name]
    return here[0] if len(here) == 1 else total(here)


class AdvanceReservations:
    """Evicts what still runs where a reservation begins, where that is asked for."""

    def __init__(
        self, workloads: WorkloadIndex, queue_usage: QueueUsage, amounts: AdvanceReservationTracker, assume: Assume
    ) -> None:
        self._workloads = workloads
        self._queue_usage = queue_usage
        self._amounts = amounts
        self._assume = assume

    def evict(self, policy: Policy, now: int) -> Steps[list[Evict]]:
        """Evict what runs in the way of reservations in force, with the parts that cannot run without it.

        Of whole clusters that is every workload that the reservation keeps off; of amounts, as few as suffice.
        """
        due, evicted = _due(policy, now), list[Evict]()
        whole, of_amounts = (
            [reservation for reservation in due if bool(reservation.amounts) is kind] for kind in (False, True)
        )
        with self._amounts.deferring():
            running = running_on_reserved(whole, self._workloads) if whole else ()
            for workload in sorted(_movable(running), key=lambda workload: workload.uid):
                evicted += self._evict(workload, policy, now)
                yield 1
            for name in sorted({name for reservation in of_amounts for name in reservation.clusters}):
                evicted += yield from self._evict_for_amounts(name, of_amounts, policy, now)
        return evicted

    def next_eviction(self, policy: Policy, now: int) -> int | None:
        """Return when ``evict`` is due next."""
        begins = (
            reservation.since
            for reservation in policy.advance_reservations
            if reservation.evicts and reservation.since > now
        )
        due = _due(policy, now)
        movable = _movable(running_on_reserved(due, self._workloads) if due else ())
        return earliest(
            (*begins, *(workload.eviction_retry_at for workload in movable if workload.eviction_retry_at > now))
        )

    def _evict(self, workload: Workload, policy: Policy, now: int) -> Iterator[Evict]:
        current = self._workloads[workload.uid]
        if current.state is not WorkloadState.ADMITTED or current.eviction_retry_at > now:
            return
        for part in (current, *self._workloads.gangs.dependents(current, self._workloads.by_uid)):
            if part.eviction_retry_at <= now:
                self._assume(part.evicted(EvictionReason.ADVANCE_RESERVATION), now)
                yield Evict(part, EvictionReason.ADVANCE_RESERVATION, grace_ms=policy.preemption.grace_ms)

    def _evict_for_amounts(
        self, name: ClusterName, due: Sequence[AdvanceReservation], policy: Policy, now: int
    ) -> Steps[list[Evict]]:
        """Evict as few workloads as free the amounts of *due* on a cluster."""
        here, evicted = [reservation for reservation in due if name in reservation.clusters], list[Evict]()
        running = self._amounts.running_on(name)
        candidates = [
            workload for workload in running if not any(is_for(reservation, workload) for reservation in here)
        ]
        movable = (workload for workload in _movable(candidates) if workload.eviction_retry_at <= now)
        priorities = VictimPriorities(policy)
        ranked = sorted((self._rank(workload, priorities), workload.uid, workload) for workload in movable)
        victims = [_Victim(rank, workload, _charge_on(workload, name)) for rank, _, workload in ranked]
        lacking = self._amounts.lacking(name, here)
        while (victim := _next_victim(lacking, victims)) is not None:
            parts = [*self._evict(victim.workload, policy, now)]
            evicted += parts
            yield len(victims)
            gone = {eviction.workload.uid for eviction in parts}
            victims = [other for other in victims if other.workload.uid not in gone]
            is_alone = len(parts) == 1
            lacking = positive(remaining(lacking, victim.charge)) if is_alone else self._amounts.lacking(name, here)
        return evicted

    def _rank(self, workload: Workload, priorities: VictimPriorities) -> _VictimRank:
        """Return the order of victims (P3): resized, lower priorities, and admitted last come first."""
        queue, admitted_at = self._queue_usage.queues.get(workload.queue), 0
        if workload.admission is not None:
            admitted_at = workload.admission.admitted_at
        above = queue.priority if queue is not None else 0
        return not workload.has_resized, above, priorities.of(workload), -admitted_at, workload.name, workload.namespace


def _due(policy: Policy, now: int) -> list[AdvanceReservation]:
    return [
        reservation
        for reservation in policy.advance_reservations
        if reservation.evicts and reservation.since <= now < reservation.until
    ]


def _movable(workloads: Iterable[Workload]) -> Iterator[Workload]:
    for workload in workloads:
        if not workload.preserved and workload.admission is not None and not workload.admission.adopted:
            yield workload


def _next_victim(lacking: Resources, victims: Sequence[_Victim]) -> _Victim | None:
    """Return the first of as few *victims* as free what is *lacking*, in the order of P3."""
    missing, chosen = lacking, list[_Victim]()
    for victim in victims:
        if not missing:
            break
        if any(victim.charge.get(resource, 0) > 0 for resource in missing):
            chosen.append(victim)
            missing = positive(remaining(missing, victim.charge))
    if not chosen:
        return None
    tier = chosen[-1].rank[:3]
    if alone := [victim for victim in victims if victim.rank[:3] == tier and fits(lacking, victim.charge)]:
        return min(alone, key=lambda victim: (_relative_size(victim, lacking), victim.rank))
    freed, first = total(victim.charge for victim in chosen), None
    for victim in reversed(chosen):
        rest = subtract(freed, victim.charge)
        if positive(remaining(lacking, rest)) == missing:
            freed = rest
        else:
            first = victim
    return first


def _relative_size(victim: _Victim, lacking: Resources) -> list[Fraction]:
    parts = (Fraction(victim.charge.get(resource, 0), amount) for resource, amount in lacking.items())
    return sorted(parts, reverse=True)
