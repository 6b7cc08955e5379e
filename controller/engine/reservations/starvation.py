"""Grants reservations to queue heads that are blocked for too long, and expires them (O6).

``active_reservations`` decides what they withhold from other workloads, ``reservation_placement`` their
clusters.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.engine.fairness.ordering import HeadIterator, QueueShares, SchedulableClass
from controller.engine.lifecycle import gangs
from controller.engine.plan import RecordUpdate
from controller.engine.reservations.placement import PlacedReservations, place_reservations
from controller.engine.state.cluster_usage import earliest
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.resources import positive
from controller.engine.state.workloads import HyperJobGang, Reservation, Workload, WorkloadUid
from controller.engine.steps import finish

if TYPE_CHECKING:
    from controller.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class BlockedHead:
    """The first blocked workload of a queue, and since when it is first."""

    uid: WorkloadUid
    since: int


class StarvationTimers:
    """Tracks how long the same workload has been the first blocked one of each queue."""

    def __init__(self) -> None:
        self.heads: dict[QueueName, BlockedHead] = {}

    def update(self, state: "Engine", queues: Iterable[QueueName], now: int) -> None:
        """Update the heads of *queues*, in which workloads were added, removed or changed."""
        for name in queues:
            first = _first_blocked(state, name)
            timer = self.heads.get(name)
            if first is None:
                self.heads.pop(name, None)
            elif timer is None or timer.uid != first.uid:
                self.heads[name] = BlockedHead(first.uid, now)

    def reset(self, workload: Workload, now: int) -> None:
        """Restart the timer of *workload*, whose reservation has expired."""
        timer = self.heads.get(workload.queue)
        if timer is not None and timer.uid == workload.uid:
            self.heads[workload.queue] = BlockedHead(workload.uid, now)

    def expired(self, state: "Engine", now: int) -> list[Workload]:
        """Return the heads with an expired timer, of queues without a reservation."""
        reserved_queues = {blocked.queue for blocked in state.with_reservation.values()}
        latest_start = now - state.policy.head_reservation.after_ms
        return [
            state.workloads[blocked.uid]
            for name, blocked in sorted(self.heads.items())
            if blocked.since <= latest_start and name not in reserved_queues
        ]

    def next_expiry(self, state: "Engine", now: int) -> int | None:
        """Return when the next timer expires."""
        ends = (blocked.since + state.policy.head_reservation.after_ms for blocked in self.heads.values())
        return min((at for at in ends if at > now), default=None)


def _first_blocked(state: "Engine", queue: QueueName) -> Workload | None:
    """Return the first workload of a queue that is inadmissible for capacity only."""
    workload_classes = (
        workload_class
        for workload_class in state.pending.queues.get(queue, ())
        if workload_class.inadmissible is None and workload_class.is_waiting
    )
    return state.first_of(queue, [workload_class.head for workload_class in workload_classes])


def expire(state: "Engine", now: int) -> list[RecordUpdate]:
    """Cancel reservations that have expired or become useless, for a gang those of all parts."""
    expired = {uid for uid, workload in state.with_reservation.items() if _has_expired(state, workload, now)}
    gangs = {state.with_reservation[uid].gang for uid in expired} - {None}
    return _cancel(
        state,
        [uid for uid, workload in state.with_reservation.items() if uid in expired or workload.gang in gangs],
        now,
    )


def _cancel(state: "Engine", uids: Iterable[WorkloadUid], now: int) -> list[RecordUpdate]:
    updates = []
    for uid in sorted(uids):
        workload = state.with_reservation[uid]
        state.reserve(workload, None, now)
        state.starvation_timers.reset(workload, now)
        updates.append(RecordUpdate(workload, None))
    return updates


def next_expiry(state: "Engine") -> int | None:
    """Return when the next reservation expires."""
    starts = (
        workload.reservation.since for workload in state.with_reservation.values() if workload.reservation is not None
    )
    return earliest(since + state.policy.head_reservation.max_ms for since in starts)


def _has_expired(state: "Engine", workload: Workload, now: int) -> bool:
    reserved = workload.reservation
    if workload.uid not in state.pending or reserved is None:
        return True
    workload_class = state.pending.class_of(workload.uid)
    if (
        workload_class.inadmissible is not None
        or not workload_class.is_waiting
        or reserved.since + state.policy.head_reservation.max_ms <= now
    ):
        return True
    cluster_names = state.queue_usage.feasibility_cache.get(workload_class.requirements).cluster_names
    has_changed = reserved.requests is not None and positive(reserved.requests) != positive(workload_class.charge)
    return has_changed or any(
        cluster_charge.cluster not in cluster_names for cluster_charge in reserved.cluster_charges
    )


def complete(state: "Engine", now: int) -> list[RecordUpdate]:
    """Place reservations of which only the time is known, and those of gang parts without one after a restart.

    Reservations of a gang that cannot be placed are cancelled.
    """
    updates: list[RecordUpdate] = []
    for uid in sorted(state.with_reservation, key=lambda uid: (_since(state.with_reservation[uid]), uid)):
        workload = state.with_reservation.get(uid)
        if workload is None or workload.reservation is None:
            continue
        workload_class = state.pending.class_of(uid)
        if gangs.is_all_or_nothing(state, workload_class):
            updates += _complete_gang(state, workload_class, now)
        elif workload.reservation.requests is None:
            charges = place_reservations(state, workload, _reserved_clusters(state)).get(uid, ())
            charge = state.queue_usage.feasibility_cache.get(workload_class.requirements).charge
            state.reserve(workload, Reservation(workload.reservation.since, charges, charge), now)
    return updates


def _complete_gang(state: "Engine", workload_class: WorkloadClass, now: int) -> list[RecordUpdate]:
    """Place the reservations of parts without one, while too few parts have one for the gang to start."""
    parts = [part for part in state.with_reservation.values() if part.gang == workload_class.gang]
    count = sum(part.reservation is not None and bool(part.reservation.cluster_charges) for part in parts)
    if workload_class.gang is None or count >= state.gangs.missing(workload_class.gang):
        return []
    placed = place_reservations(state, parts[0], _reserved_clusters(state, excluded_gang=workload_class.gang))
    if not placed:
        return _cancel(state, [part.uid for part in parts], now)
    since = min(map(_since, parts))
    return _apply(state, placed, since, now)


def _apply(state: "Engine", placed: PlacedReservations, since: int, now: int) -> list[RecordUpdate]:
    """Reserve what was *placed*; return the updates of records."""
    updates = []
    for uid, charges in placed.items():
        workload, workload_class = state.workloads[uid], state.pending.class_of(uid)
        reserved = Reservation(
            since, charges, state.queue_usage.feasibility_cache.get(workload_class.requirements).charge
        )
        if workload.reservation is None:
            updates.append(RecordUpdate(workload, None, reserved))
        state.reserve(workload, reserved, now)
    return updates


def _since(workload: Workload) -> int:
    return workload.reservation.since if workload.reservation else 0


def _reserved_clusters(state: "Engine", excluded_gang: HyperJobGang | None = None) -> set[ClusterName]:
    """Return the clusters with reserved capacity, without those of *excluded_gang*."""
    reservations = (
        workload.reservation
        for workload in state.with_reservation.values()
        if excluded_gang is None or workload.gang != excluded_gang
    )
    return {
        cluster_charge.cluster
        for reserved in reservations
        if reserved is not None
        for cluster_charge in reserved.cluster_charges
    }


def grant(state: "Engine", queue_shares: QueueShares, now: int) -> list[RecordUpdate]:
    """Grant reservations to heads with an expired timer, in admission order (O1, O2).

    If a head needs clusters that are already reserved, later heads do not get its other clusters, or all of them
    might never be free at once.
    """
    updates: list[RecordUpdate] = []
    unavailable = _reserved_clusters(state)
    due = state.starvation_timers.expired(state, now)
    if all(_has_only_reserved_clusters(state, state.pending.class_of(workload.uid), unavailable) for workload in due):
        return updates
    in_turn = _in_turn(state, queue_shares, due)
    for workload_class in in_turn:
        if _has_reservation(state, workload_class) or _has_only_reserved_clusters(state, workload_class, unavailable):
            continue
        placed = place_reservations(state, workload_class.head, unavailable)
        if not placed and workload_class.gang is None and workload_class is in_turn[-1]:
            break
        preferred = placed or place_reservations(state, workload_class.head, ())
        unavailable.update(cluster_charge.cluster for charges in preferred.values() for cluster_charge in charges)
        if workload_class.gang is not None and not preferred:
            # The parts do not fit together as the clusters are; the restarted timer bounds how often this is tried.
            state.starvation_timers.reset(workload_class.head, now)
        updates += _apply(state, placed, now, now)
    return updates


def _has_only_reserved_clusters(
    state: "Engine", workload_class: WorkloadClass, taken: AbstractSet[ClusterName]
) -> bool:
    """Say whether a queue of the gang has a reservation already."""
    return (
        workload_class.gang is None
        and state.queue_usage.feasibility_cache.get(workload_class.requirements).cluster_names <= taken
    )


def _has_reservation(state: "Engine", workload_class: WorkloadClass) -> bool:
    """Say whether a queue of the gang has a reservation already."""
    if workload_class.gang is None:
        return False
    queues = {state.workloads[uid].queue for uid in state.gangs.parts(workload_class.gang)}
    return any(workload.queue in queues for workload in state.with_reservation.values())


def _in_turn(state: "Engine", queue_shares: QueueShares, due: Iterable[Workload]) -> list[WorkloadClass]:
    classes = [state.pending.class_of(workload.uid) for workload in due]
    if len(classes) <= 1:
        return classes
    entries = {}
    for workload in due:
        workload_class = state.pending.class_of(workload.uid)
        entries[workload_class.queue] = [
            SchedulableClass(
                workload_class, state.queue_usage.feasibility_cache.get(workload_class.requirements).requested_resources
            )
        ]
    heads = HeadIterator(queue_shares, state.policy, entries, fits=lambda _: True)
    classes.clear()
    while (head := finish(heads.next())) is not None:
        classes.append(head.workload_class)
        heads.on_skipped(head)
    return classes
