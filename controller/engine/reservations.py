"""Reservations: given to who has been the best blocked one of his queue for long, and taken back in time (O6).

What they keep from others is ``kept``, which clusters those are ``clearance``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.engine import gangs
from controller.engine.backlog import Lane
from controller.engine.clusters import ClusterName
from controller.engine.ledger import earliest
from controller.engine.ordering import Entry, Standing, Turns
from controller.engine.plan import Note
from controller.engine.queues import QueueName
from controller.engine.reservation_placement import PlacedReservations, place_reservations
from controller.engine.resources import requested
from controller.engine.steps import finish
from controller.engine.workloads import Group, Reserved, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.world import World


@dataclass(frozen=True, slots=True)
class BlockedHead:
    """Who is the best blocked one of a queue, and since when."""

    uid: WorkloadUid
    since: int


class StarvationTimers:
    """How long the best blocked one of each queue has been that."""

    def __init__(self) -> None:
        self.blocked: dict[QueueName, BlockedHead] = {}

    def look(self, world: "World", queues: Iterable[QueueName], now: int) -> None:
        """See who it is in *queues*, in which somebody came, went or changed."""
        for name in queues:
            first = _first_blocked(world, name)
            known = self.blocked.get(name)
            if first is None:
                self.blocked.pop(name, None)
            elif known is None or known.uid != first.uid:
                self.blocked[name] = BlockedHead(first.uid, now)

    def begin_anew(self, workload: Workload, now: int) -> None:
        """Let the patience of *workload* begin anew: its reservation has lapsed."""
        known = self.blocked.get(workload.queue)
        if known is not None and known.uid == workload.uid:
            self.blocked[workload.queue] = BlockedHead(workload.uid, now)

    def due(self, world: "World", now: int) -> list[Workload]:
        """Return those whose patience is at an end, of queues without a reservation."""
        taken = {each.queue for each in world.reserved.values()}
        begun = now - world.policy.reservation.after_ms
        return [
            world.workloads[each.uid]
            for name, each in sorted(self.blocked.items())
            if each.since <= begun and name not in taken
        ]

    def ends_at(self, world: "World", now: int) -> int | None:
        """Return when somebody's patience ends next."""
        ends = (each.since + world.policy.reservation.after_ms for each in self.blocked.values())
        return min((at for at in ends if at > now), default=None)


def _first_blocked(world: "World", queue: QueueName) -> Workload | None:
    """Return the first of a queue who waits for nothing but room."""
    lanes = (lane for lane in world.backlog.queues.get(queue, ()) if lane.hopeless is None and lane.is_waiting)
    return world.first(queue, [lane.head for lane in lanes])


def expire(world: "World", now: int) -> list[Note]:
    """Keep nothing any more for those for whom it has been kept too long, or is of no use; of a group for nobody."""
    lapsed = {uid for uid, each in world.reserved.items() if _has_expired(world, each, now)}
    groups_too = {world.reserved[uid].group for uid in lapsed} - {None}
    return _cancel(
        world, [uid for uid, each in world.reserved.items() if uid in lapsed or each.group in groups_too], now
    )


def _cancel(world: "World", uids: Iterable[WorkloadUid], now: int) -> list[Note]:
    notes = []
    for uid in sorted(uids):
        workload = world.reserved[uid]
        world.reserve(workload, None, now)
        world.patience.begin_anew(workload, now)
        notes.append(Note(workload, None))
    return notes


def next_expiry(world: "World") -> int | None:
    """Return when the next reservation lapses by itself."""
    begun = (each.reserved.since for each in world.reserved.values() if each.reserved is not None)
    return earliest(since + world.policy.reservation.max_ms for since in begun)


def _has_expired(world: "World", workload: Workload, now: int) -> bool:
    reserved = workload.reserved
    if workload.uid not in world.backlog or reserved is None:
        return True
    lane = world.backlog.lane(workload.uid)
    if lane.hopeless is not None or not lane.is_waiting or reserved.since + world.policy.reservation.max_ms <= now:
        return True
    names = world.books.prospects.of(lane.shape).names
    is_other = reserved.demand is not None and requested(reserved.demand) != requested(lane.charge)
    return is_other or any(booking.cluster not in names for booking in reserved.rooms)


def complete(world: "World", now: int) -> list[Note]:
    """Choose the rooms of reservations of which only the time is known, and of parts that a restart left without.

    A group for which that cannot be has none any more.
    """
    notes: list[Note] = []
    for uid in sorted(world.reserved, key=lambda uid: (_since(world.reserved[uid]), uid)):
        workload = world.reserved.get(uid)
        if workload is None or workload.reserved is None:
            continue
        lane = world.backlog.lane(uid)
        if gangs.is_all_or_nothing(world, lane):
            notes += _complete_gang(world, lane, now)
        elif workload.reserved.demand is None:
            rooms = place_reservations(world, workload, _reserved_clusters(world)).get(uid, ())
            charge = world.books.prospects.of(lane.shape).charge
            world.reserve(workload, Reserved(workload.reserved.since, rooms, charge), now)
    return notes


def _complete_gang(world: "World", lane: Lane, now: int) -> list[Note]:
    """Choose the rooms of parts that have none, as long as too few have some for the group to start."""
    parts = [part for part in world.reserved.values() if part.group == lane.group]
    count = sum(part.reserved is not None and bool(part.reserved.rooms) for part in parts)
    if lane.group is None or count >= world.groups.missing(lane.group):
        return []
    claimed = place_reservations(world, parts[0], _reserved_clusters(world, but=lane.group))
    if not claimed:
        return _cancel(world, [part.uid for part in parts], now)
    since = min(map(_since, parts))
    return _apply(world, claimed, since, now)


def _apply(world: "World", claimed: PlacedReservations, since: int, now: int) -> list[Note]:
    """Keep what is *claimed*; return what is not in the records yet."""
    notes = []
    for uid, rooms in claimed.items():
        workload, lane = world.workloads[uid], world.backlog.lane(uid)
        reserved = Reserved(since, rooms, world.books.prospects.of(lane.shape).charge)
        if workload.reserved is None:
            notes.append(Note(workload, None, reserved))
        world.reserve(workload, reserved, now)
    return notes


def _since(workload: Workload) -> int:
    return workload.reserved.since if workload.reserved else 0


def _reserved_clusters(world: "World", but: Group | None = None) -> set[ClusterName]:
    """Return the clusters on which room is kept already, *but* not that for a certain group."""
    found = (each.reserved for each in world.reserved.values() if but is None or each.group != but)
    return {booking.cluster for reserved in found if reserved is not None for booking in reserved.rooms}


def grant(world: "World", standing: Standing, now: int) -> list[Note]:
    """Keep quota and rooms for those whose patience is at an end, in the order of their turns (O1, O2).

    Where those who come first find clusters taken that they need, nobody who
    comes after them is given the others, or they might never be free at once.
    """
    notes: list[Note] = []
    taken = _reserved_clusters(world)
    for lane in _in_turn(world, standing, world.patience.due(world, now)):
        if _has_reservation(world, lane):
            continue
        claimed = place_reservations(world, lane.head, taken)
        wanted = claimed or place_reservations(world, lane.head, ())
        taken.update(booking.cluster for rooms in wanted.values() for booking in rooms)
        if lane.group is not None and not wanted:
            # All its parts together find no room as the clusters are: that is not looked into again and again.
            world.patience.begin_anew(lane.head, now)
        notes += _apply(world, claimed, now, now)
    return notes


def _has_reservation(world: "World", lane: Lane) -> bool:
    """Say whether a queue of the group has a reservation already."""
    if lane.group is None:
        return False
    queues = {world.workloads[uid].queue for uid in world.groups.parts(lane.group)}
    return any(each.queue in queues for each in world.reserved.values())


def _in_turn(world: "World", standing: Standing, due: Iterable[Workload]) -> list[Lane]:
    entries = {}
    for workload in due:
        lane = world.backlog.lane(workload.uid)
        entries[lane.queue] = [Entry(lane, world.books.prospects.of(lane.shape).asks)]
    if not entries:
        return []
    turns = Turns(standing, world.policy, entries, fits=lambda _: True)
    found = []
    while (head := finish(turns.next())) is not None:
        found.append(head.lane)
        turns.passed_over(head)
    return found
