"""Which rooms are kept for one who has a reservation: where he would go, or else where least is lacking (O6).

Of one cluster, of several for one that goes to several at once, and for all
parts of a group beside one another. Nothing is booked here.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from fractions import Fraction
from typing import TYPE_CHECKING

from controller.engine import groups
from controller.engine.clusters import ClusterName
from controller.engine.fit import Room, choose, rank, replicas_that_fit, room_of
from controller.engine.quota import Quota
from controller.engine.resources import EMPTY, Resources, add, fits, scale, subtract, total
from controller.engine.workloads import Booking, Choice, Group, Shape, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.world import World

Rooms = tuple[Booking, ...]
Claim = Mapping[WorkloadUid, Rooms]
"""What is to be kept for each of those who start together; empty where too little may be kept for that."""


class Order(Enum):
    """In which order rooms are sought for the parts of a group, the first that will do."""

    BY_NAME = auto()
    LARGEST_FIRST = auto()
    SMALLEST_FIRST = auto()


def claim(world: "World", workload: Workload, taken: Collection[ClusterName]) -> Claim:
    """Return what is to be kept for *workload* and his group on clusters that are not *taken* by others.

    What is kept for parts of the group already stays as it is and is left out.
    """
    lane = world.backlog.lane(workload.uid)
    if lane.group is None or not groups.is_whole(world, lane):
        rooms = Clearance(world, taken).find(lane.shape)
        return {workload.uid: rooms} if rooms else {}
    for order in Order:
        found = _together(world, lane.group, order, Clearance(world, taken, sparing=order is not Order.BY_NAME))
        if found is not None:
            return found
    return {}


def _together(world: "World", group: Group, order: Order, clearance: "Clearance") -> Claim | None:
    """Return what is to be kept for the parts of *group*, as many as ever have room together; ``None`` if too few."""
    quota = _empty(world.books.quota())
    claims: dict[WorkloadUid, Rooms] = {}
    parts = _in_order(world, group, order)
    spare = len(parts) - world.groups.missing(group)
    for part in parts if spare >= 0 else ():
        shape, node = world.backlog.lane(part.uid).shape, quota.tree.nodes[part.queue]
        charge = world.books.prospects.of(shape).charge
        known = part.reserved.rooms if part.reserved is not None else ()
        rooms = known or (clearance.find(shape) if quota.refusal(node, charge) is None else ())
        if not rooms:
            spare -= 1
            if spare < 0:
                return None
            continue
        quota.carry(node, charge)
        clearance.promise(rooms)
        if not known:
            claims[part.uid] = rooms
    return claims if spare >= 0 else None


def _empty(quota: Quota) -> Quota:
    """Return the same ceilings with nothing charged."""
    return Quota(quota.tree, quota.limits, {})


def _in_order(world: "World", group: Group, order: Order) -> list[Workload]:
    """Return the parts in the order in which rooms are sought: those that have some first."""
    lanes = ((part, world.backlog.lane(part.uid)) for part in groups.waiting(world, group))
    parts = [part for part, lane in lanes if lane.hopeless is None and lane.is_waiting]
    if order is not Order.BY_NAME:
        fleet = total(site.capacity for site in world.ledger)
        parts.sort(key=lambda part: _size(part.shape.demand, fleet), reverse=order is Order.LARGEST_FIRST)
    return sorted(parts, key=lambda part: part.reserved is None)


def _size(demand: Resources, fleet: Resources) -> Fraction:
    sizes = (Fraction(amount, fleet[name]) for name, amount in demand.items() if amount > 0 and fleet.get(name))
    return max(sizes, default=Fraction(0))


class Clearance:
    """The clusters on which room may be kept, with what is promised there to others who start together with one.

    *sparing*: where least is left over, not where least is lacking, so that more have room beside one another.
    """

    def __init__(self, world: "World", taken: Collection[ClusterName], *, sparing: bool = False) -> None:
        self.sparing = sparing
        self._world = world
        self._taken = taken
        self._promised: dict[ClusterName, Resources] = {}
        self._in_vain: set[int] = set()
        """The shapes for which there was nothing: what is promised since makes it no more."""

    def promise(self, rooms: Rooms) -> None:
        """Leave *rooms* to somebody."""
        for booking in rooms:
            self._promised[booking.cluster] = add(self._promised.get(booking.cluster, EMPTY), booking.charge)

    def find(self, shape: Shape) -> Rooms:
        """Return the rooms to be kept for one of *shape*, none where those that may be kept would not do."""
        prospect = self._world.books.prospects.of(shape)
        names, copies = prospect.outlook.names, prospect.outlook.copies
        free = [name for name in names if name not in self._taken]
        if not free or id(shape) in self._in_vain:
            return ()
        rooms = self._found(shape, names if _is_weighted(shape) else free, copies)
        if any(booking.cluster in self._taken for booking in rooms):
            rooms = ()
        if not rooms:
            self._in_vain.add(id(shape))
        return rooms

    def _found(self, shape: Shape, names: Sequence[ClusterName], copies: int) -> Rooms:
        now = [] if self.sparing else [self._now(name) for name in names]
        if now and (rooms := _chosen(shape, now, copies)):
            return rooms
        empty = [self._empty(name) for name in names]
        return (_lacking_least(shape, now, empty, copies) if now else ()) or _chosen(shape, empty, copies)

    def _now(self, name: ClusterName) -> Room:
        room, promised = room_of(self._world.ledger.site(name)), self._promised.get(name)
        if promised is None:
            return room
        beside = subtract(room.headroom if room.beside is None else room.beside, promised)
        return replace(room, headroom=subtract(room.headroom, promised), beside=beside)

    def _empty(self, name: ClusterName) -> Room:
        """Return what a cluster has while nothing of ours runs there but what is promised."""
        site, promised = self._world.ledger.site(name), self._promised.get(name)
        freed = add(site.freed, site.booked)
        if promised is None:
            return Room(site, site.capacity, site.allocatable, freed=freed)
        left = subtract(site.capacity, promised)
        return Room(site, left, site.allocatable, left, freed)


def _is_weighted(shape: Shape) -> bool:
    """Say whether static weights name its clusters, whoever has taken them."""
    return shape.replicas > 0 and shape.placement.divided and bool(shape.placement.weights)


def _chosen(shape: Shape, rooms: list[Room], copies: int) -> Rooms:
    if not shape.replicas and sum(room.takes(shape) for room in rooms) < copies:
        return ()
    choice = choose(shape, rooms, copies)
    return choice.bookings if isinstance(choice, Choice) else ()


def _lacking_least(shape: Shape, now: list[Room], empty: list[Room], copies: int) -> Rooms:
    """Return the rooms of *empty* clusters that would do and of which most is free *now*; none where that is no way."""
    if _is_weighted(shape) or any(spread.by == "region" for spread in shape.placement.spread):
        return ()
    is_divided = shape.replicas > 0 and shape.placement.divided
    held = {room.name for room in empty if (fits(shape.demand, room.headroom) if is_divided else room.takes(shape))}
    if is_divided and not held:
        return _divided(shape, now, empty)
    able = [room for room in now if room.name in held]
    fleet = total(room.allocatable for room in able)
    able.sort(key=lambda room: (-_part(shape.gang, room), rank(shape, room, fleet)))
    return tuple(Booking(room.name, shape.demand) for room in able[:copies]) if len(able) >= copies else ()


def _divided(shape: Shape, now: list[Room], empty: list[Room]) -> Rooms:
    """Return the rooms for all replicas on as few clusters as may be, those with most of them free first."""
    free = {room.name: replicas_that_fit(shape, room) for room in now}
    most = min((each.maximum for each in shape.placement.spread if each.by == "cluster" and each.maximum), default=None)
    parts: dict[ClusterName, int] = {}
    left = shape.replicas
    for room in sorted(empty, key=lambda room: (-free[room.name], room.name)):
        count = min(replicas_that_fit(shape, room), left)
        if count > 0 and (most is None or len(parts) < most):
            parts[room.name] = count
            left -= count
    return () if left else tuple(Booking(name, scale(shape.replica, parts[name])) for name in sorted(parts))


def _part(request: Resources, room: Room) -> Fraction:
    """Return how much there is of what there is least of, as a part of what is asked."""
    parts = (Fraction(room.headroom.get(name, 0), amount) for name, amount in request.items() if amount > 0)
    return min(parts, default=Fraction(1))
