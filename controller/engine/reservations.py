"""Reservations: given to who has been the best blocked one of his queue for long, and taken back in time (O6).

What they keep from others is ``kept``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from controller.engine.backlog import Lane
from controller.engine.clusters import ClusterName
from controller.engine.fit import Room, choose, rank, room_of
from controller.engine.ledger import Site, earliest
from controller.engine.ordering import Entry, Standing, Turns
from controller.engine.plan import Note
from controller.engine.queues import QueueName
from controller.engine.resources import Resources, fits, requested, total
from controller.engine.workloads import Choice, Reserved, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.prospects import Prospect
    from controller.engine.world import World


@dataclass(frozen=True, slots=True)
class Blocked:
    """Who is the best blocked one of a queue, and since when."""

    uid: WorkloadUid
    since: int


class Patience:
    """How long the best blocked one of each queue has been that."""

    def __init__(self) -> None:
        self.blocked: dict[QueueName, Blocked] = {}

    def look(self, world: "World", queues: Iterable[QueueName], now: int) -> None:
        """See who it is in *queues*, in which somebody came, went or changed."""
        for name in queues:
            first = _first(world, name)
            known = self.blocked.get(name)
            if first is None:
                self.blocked.pop(name, None)
            elif known is None or known.uid != first.uid:
                self.blocked[name] = Blocked(first.uid, now)

    def begin_anew(self, workload: Workload, now: int) -> None:
        """Let the patience of *workload* begin anew: its reservation has lapsed."""
        known = self.blocked.get(workload.queue)
        if known is not None and known.uid == workload.uid:
            self.blocked[workload.queue] = Blocked(workload.uid, now)

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


def _first(world: "World", queue: QueueName) -> Workload | None:
    """Return the first of a queue who waits for nothing but room."""
    lanes = (lane for lane in world.backlog.queues.get(queue, ()) if lane.hopeless is None and lane.is_waiting)
    return world.first(queue, [lane.head for lane in lanes])


def lapse(world: "World", now: int) -> list[Note]:
    """Keep nothing any more for those for whom it has been kept too long, or is of no use."""
    notes = []
    for uid in sorted(world.reserved):
        workload = world.reserved[uid]
        if workload.reserved is not None and _has_lapsed(world, workload, workload.reserved, now):
            world.reserve(workload, None, now)
            world.patience.begin_anew(workload, now)
            notes.append(Note(workload, None))
    return notes


def lapses_at(world: "World") -> int | None:
    """Return when the next reservation lapses by itself."""
    begun = (each.reserved.since for each in world.reserved.values() if each.reserved is not None)
    return earliest(since + world.policy.reservation.max_ms for since in begun)


def _has_lapsed(world: "World", workload: Workload, reserved: Reserved, now: int) -> bool:
    if workload.uid not in world.backlog:
        return True
    lane = world.backlog.lane(workload.uid)
    if lane.hopeless is not None or not lane.is_waiting or reserved.since + world.policy.reservation.max_ms <= now:
        return True
    names = world.books.prospects.of(lane.shape).names
    is_other = reserved.demand is not None and requested(reserved.demand) != requested(lane.charge)
    return is_other or (reserved.cluster is not None and reserved.cluster not in names)


def settle(world: "World", now: int) -> None:
    """Choose the clusters of reservations of which only the time is known."""
    for uid in sorted(world.reserved, key=lambda uid: (_since(world.reserved[uid]), uid)):
        workload = world.reserved[uid]
        lane, reserved = world.backlog.lane(uid), workload.reserved
        if reserved is not None and reserved.demand is None:
            cluster, charge = reserved.cluster or _cluster(world, lane), world.books.prospects.of(lane.shape).charge
            world.reserve(workload, Reserved(reserved.since, cluster, charge), now)


def _since(workload: Workload) -> int:
    return workload.reserved.since if workload.reserved else 0


def give(world: "World", standing: Standing, now: int) -> list[Note]:
    """Keep quota and a cluster for those whose patience is at an end, in the order of their turns (O1, O2)."""
    notes = []
    for lane in _in_turn(world, standing, world.patience.due(world, now)):
        needs_one = _needs_one(world, lane)
        cluster = _cluster(world, lane) if needs_one else None
        if needs_one and cluster is None:
            continue
        reserved = Reserved(now, cluster, lane.charge)
        notes.append(Note(lane.head, None, reserved))
        world.reserve(lane.head, reserved, now)
    return notes


def _in_turn(world: "World", standing: Standing, due: Iterable[Workload]) -> list[Lane]:
    entries = {}
    for workload in due:
        lane = world.backlog.lane(workload.uid)
        entries[lane.queue] = [Entry(lane, world.books.prospects.of(lane.shape).asks)]
    if not entries:
        return []
    turns = Turns(standing, world.policy, entries, fits=lambda _: True)
    found = []
    while (head := turns.next()) is not None:
        found.append(head.lane)
        turns.passed_over(head)
    return found


def _needs_one(world: "World", lane: Lane) -> bool:
    """Say whether the room of one cluster is all that the first of *lane* needs."""
    prospect = world.books.prospects.of(lane.shape)
    return prospect.outlook.copies == 1 and (prospect.is_simple or bool(_able(world, prospect)))


def _cluster(world: "World", lane: Lane) -> ClusterName | None:
    """Return the cluster that is kept: of those with no other reservation, where it would go, or that lacks least."""
    taken = {each.reserved.cluster for each in world.reserved.values() if each.reserved is not None}
    prospect = world.books.prospects.of(lane.shape)
    free = [site for site in _able(world, prospect) if site.name not in taken]
    if not free:
        return None
    rooms = [room_of(site) for site in free]
    choice = choose(lane.shape, rooms, 1)
    if isinstance(choice, Choice) and len(choice.bookings) == 1:
        return choice.bookings[0].cluster
    fleet = total(room.allocatable for room in rooms)
    return min(rooms, key=lambda room: (-_part(lane.shape.gang, room), rank(lane.shape, room, fleet))).name


def _able(world: "World", prospect: "Prospect") -> list[Site]:
    """Return the candidates that would take one of the shape if nothing of ours ran there."""
    sites = [world.ledger.site(name) for name in prospect.outlook.names]
    if prospect.is_simple:
        return [site for site in sites if Room(site, site.capacity, site.allocatable).takes(prospect.shape)]
    return [site for site in sites if fits(prospect.shape.demand, site.capacity)]


def _part(request: Resources, room: Room) -> Fraction:
    """Return how much there is of what there is least of, as a part of what is asked."""
    parts = (Fraction(room.headroom.get(name, 0), amount) for name, amount in request.items() if amount > 0)
    return min(parts, default=Fraction(1))
