"""Reservations: given to who has been the best blocked one of his queue for long, and taken back in time (O6).

What they keep from others is ``kept``, which clusters those are ``clearance``.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.engine import gangs
from controller.engine.cluster_usage import earliest
from controller.engine.clusters import ClusterName
from controller.engine.ordering import HeadIterator, QueueShares, SchedulableClass
from controller.engine.pending import WorkloadClass
from controller.engine.plan import RecordUpdate
from controller.engine.queues import QueueName
from controller.engine.reservation_placement import PlacedReservations, place_reservations
from controller.engine.resources import positive
from controller.engine.steps import finish
from controller.engine.workloads import HyperJobGang, Reservation, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.state import State


@dataclass(frozen=True, slots=True)
class BlockedHead:
    """Who is the best blocked one of a queue, and since when."""

    uid: WorkloadUid
    since: int


class StarvationTimers:
    """How long the best blocked one of each queue has been that."""

    def __init__(self) -> None:
        self.heads: dict[QueueName, BlockedHead] = {}

    def update(self, state: "State", queues: Iterable[QueueName], now: int) -> None:
        """See who it is in *queues*, in which somebody came, went or changed."""
        for name in queues:
            first = _first_blocked(state, name)
            known = self.heads.get(name)
            if first is None:
                self.heads.pop(name, None)
            elif known is None or known.uid != first.uid:
                self.heads[name] = BlockedHead(first.uid, now)

    def reset(self, workload: Workload, now: int) -> None:
        """Let the patience of *workload* begin anew: its reservation has lapsed."""
        known = self.heads.get(workload.queue)
        if known is not None and known.uid == workload.uid:
            self.heads[workload.queue] = BlockedHead(workload.uid, now)

    def expired(self, state: "State", now: int) -> list[Workload]:
        """Return those whose patience is at an end, of queues without a reservation."""
        taken = {each.queue for each in state.reserved.values()}
        begun = now - state.policy.reservation.after_ms
        return [
            state.workloads[each.uid]
            for name, each in sorted(self.heads.items())
            if each.since <= begun and name not in taken
        ]

    def next_expiry(self, state: "State", now: int) -> int | None:
        """Return when somebody's patience ends next."""
        ends = (each.since + state.policy.reservation.after_ms for each in self.heads.values())
        return min((at for at in ends if at > now), default=None)


def _first_blocked(state: "State", queue: QueueName) -> Workload | None:
    """Return the first of a queue who waits for nothing but room."""
    lanes = (lane for lane in state.backlog.queues.get(queue, ()) if lane.hopeless is None and lane.is_waiting)
    return state.first(queue, [lane.head for lane in lanes])


def expire(state: "State", now: int) -> list[RecordUpdate]:
    """Keep nothing any more for those for whom it has been kept too long, or is of no use; of a group for nobody."""
    lapsed = {uid for uid, each in state.reserved.items() if _has_expired(state, each, now)}
    groups_too = {state.reserved[uid].group for uid in lapsed} - {None}
    return _cancel(
        state, [uid for uid, each in state.reserved.items() if uid in lapsed or each.group in groups_too], now
    )


def _cancel(state: "State", uids: Iterable[WorkloadUid], now: int) -> list[RecordUpdate]:
    notes = []
    for uid in sorted(uids):
        workload = state.reserved[uid]
        state.reserve(workload, None, now)
        state.starvation_timers.reset(workload, now)
        notes.append(RecordUpdate(workload, None))
    return notes


def next_expiry(state: "State") -> int | None:
    """Return when the next reservation lapses by itself."""
    begun = (each.reserved.since for each in state.reserved.values() if each.reserved is not None)
    return earliest(since + state.policy.reservation.max_ms for since in begun)


def _has_expired(state: "State", workload: Workload, now: int) -> bool:
    reserved = workload.reserved
    if workload.uid not in state.backlog or reserved is None:
        return True
    lane = state.backlog.lane(workload.uid)
    if lane.hopeless is not None or not lane.is_waiting or reserved.since + state.policy.reservation.max_ms <= now:
        return True
    names = state.books.feasibility_cache.get(lane.shape).cluster_names
    is_other = reserved.demand is not None and positive(reserved.demand) != positive(lane.charge)
    return is_other or any(booking.cluster not in names for booking in reserved.rooms)


def complete(state: "State", now: int) -> list[RecordUpdate]:
    """Choose the rooms of reservations of which only the time is known, and of parts that a restart left without.

    A group for which that cannot be has none any more.
    """
    notes: list[RecordUpdate] = []
    for uid in sorted(state.reserved, key=lambda uid: (_since(state.reserved[uid]), uid)):
        workload = state.reserved.get(uid)
        if workload is None or workload.reserved is None:
            continue
        lane = state.backlog.lane(uid)
        if gangs.is_all_or_nothing(state, lane):
            notes += _complete_gang(state, lane, now)
        elif workload.reserved.demand is None:
            rooms = place_reservations(state, workload, _reserved_clusters(state)).get(uid, ())
            charge = state.books.feasibility_cache.get(lane.shape).charge
            state.reserve(workload, Reservation(workload.reserved.since, rooms, charge), now)
    return notes


def _complete_gang(state: "State", lane: WorkloadClass, now: int) -> list[RecordUpdate]:
    """Choose the rooms of parts that have none, as long as too few have some for the group to start."""
    parts = [part for part in state.reserved.values() if part.group == lane.group]
    count = sum(part.reserved is not None and bool(part.reserved.rooms) for part in parts)
    if lane.group is None or count >= state.gangs.missing(lane.group):
        return []
    claimed = place_reservations(state, parts[0], _reserved_clusters(state, but=lane.group))
    if not claimed:
        return _cancel(state, [part.uid for part in parts], now)
    since = min(map(_since, parts))
    return _apply(state, claimed, since, now)


def _apply(state: "State", claimed: PlacedReservations, since: int, now: int) -> list[RecordUpdate]:
    """Keep what is *claimed*; return what is not in the records yet."""
    notes = []
    for uid, rooms in claimed.items():
        workload, lane = state.workloads[uid], state.backlog.lane(uid)
        reserved = Reservation(since, rooms, state.books.feasibility_cache.get(lane.shape).charge)
        if workload.reserved is None:
            notes.append(RecordUpdate(workload, None, reserved))
        state.reserve(workload, reserved, now)
    return notes


def _since(workload: Workload) -> int:
    return workload.reserved.since if workload.reserved else 0


def _reserved_clusters(state: "State", but: HyperJobGang | None = None) -> set[ClusterName]:
    """Return the clusters on which room is kept already, *but* not that for a certain group."""
    found = (each.reserved for each in state.reserved.values() if but is None or each.group != but)
    return {booking.cluster for reserved in found if reserved is not None for booking in reserved.rooms}


def grant(state: "State", standing: QueueShares, now: int) -> list[RecordUpdate]:
    """Keep quota and rooms for those whose patience is at an end, in the order of their turns (O1, O2).

    Where those who come first find clusters taken that they need, nobody who
    comes after them is given the others, or they might never be free at once.
    """
    notes: list[RecordUpdate] = []
    taken = _reserved_clusters(state)
    due = state.starvation_timers.expired(state, now)
    if all(_has_only_reserved_clusters(state, state.backlog.lane(each.uid), taken) for each in due):
        return notes
    for lane in _in_turn(state, standing, due):
        if _has_reservation(state, lane) or _has_only_reserved_clusters(state, lane, taken):
            continue
        claimed = place_reservations(state, lane.head, taken)
        wanted = claimed or place_reservations(state, lane.head, ())
        taken.update(booking.cluster for rooms in wanted.values() for booking in rooms)
        if lane.group is not None and not wanted:
            # All its parts together find no room as the clusters are: that is not looked into again and again.
            state.starvation_timers.reset(lane.head, now)
        notes += _apply(state, claimed, now, now)
    return notes


def _has_only_reserved_clusters(state: "State", lane: WorkloadClass, taken: AbstractSet[ClusterName]) -> bool:
    """Say whether all clusters of *lane* are *taken*, so that it gets no reservation and delays none."""
    return lane.group is None and state.books.feasibility_cache.get(lane.shape).cluster_names <= taken


def _has_reservation(state: "State", lane: WorkloadClass) -> bool:
    """Say whether a queue of the group has a reservation already."""
    if lane.group is None:
        return False
    queues = {state.workloads[uid].queue for uid in state.gangs.parts(lane.group)}
    return any(each.queue in queues for each in state.reserved.values())


def _in_turn(state: "State", standing: QueueShares, due: Iterable[Workload]) -> list[WorkloadClass]:
    entries = {}
    for workload in due:
        lane = state.backlog.lane(workload.uid)
        entries[lane.queue] = [
            SchedulableClass(lane, state.books.feasibility_cache.get(lane.shape).requested_resources)
        ]
    if not entries:
        return []
    turns = HeadIterator(standing, state.policy, entries, fits=lambda _: True)
    found = []
    while (head := finish(turns.next())) is not None:
        found.append(head.lane)
        turns.passed_over(head)
    return found
