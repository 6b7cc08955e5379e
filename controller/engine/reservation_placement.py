"""Which rooms are kept for one who has a reservation: where he would go, or else where least is lacking (O6).

Of one cluster, of several for one that goes to several at once, and for all
parts of a group beside one another. Nothing is booked here.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from fractions import Fraction
from typing import TYPE_CHECKING

from controller.engine import gangs
from controller.engine.clusters import ClusterName
from controller.engine.fit import FreeCapacity, choose_clusters, free_capacity, rank_cluster, replicas_that_fit
from controller.engine.quota import Quota
from controller.engine.resources import EMPTY, Resources, add, fits, scale, subtract, total
from controller.engine.workloads import (
    Choice,
    ClusterCharge,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadUid,
)

if TYPE_CHECKING:
    from controller.engine.state import State

ClusterReservations = tuple[ClusterCharge, ...]
PlacedReservations = Mapping[WorkloadUid, ClusterReservations]
"""What is to be kept for each of those who start together; empty where too little may be kept for that."""


class SearchOrder(Enum):
    """In which order rooms are sought for the parts of a group, the first that will do."""

    BY_NAME = auto()
    LARGEST_FIRST = auto()
    SMALLEST_FIRST = auto()


def place_reservations(state: "State", workload: Workload, taken: Collection[ClusterName]) -> PlacedReservations:
    """Return what is to be kept for *workload* and his group on clusters that are not *taken* by others.

    What is kept for parts of the group already stays as it is and is left out.
    """
    lane = state.backlog.lane(workload.uid)
    if lane.group is None or not gangs.is_all_or_nothing(state, lane):
        rooms = ReservationPlacer(state, taken).place(lane.shape)
        return {workload.uid: rooms} if rooms else {}
    for order in SearchOrder:
        found = _place_gang(
            state, lane.group, order, ReservationPlacer(state, taken, sparing=order is not SearchOrder.BY_NAME)
        )
        if found is not None:
            return found
    return {}


def _place_gang(
    state: "State", group: HyperJobGang, order: SearchOrder, clearance: "ReservationPlacer"
) -> PlacedReservations | None:
    """Return what is to be kept for the parts of *group*, as many as ever have room together; ``None`` if too few."""
    quota = _without_usage(state.books.quota())
    claims: dict[WorkloadUid, ClusterReservations] = {}
    parts = _parts_in_order(state, group, order)
    spare = len(parts) - state.gangs.missing(group)
    for part in parts if spare >= 0 else ():
        shape, node = state.backlog.lane(part.uid).shape, quota.tree.nodes[part.queue]
        charge = state.books.feasibility_cache.get(shape).charge
        known = part.reserved.rooms if part.reserved is not None else ()
        rooms = known or (clearance.place(shape) if quota.refusal(node, charge) is None else ())
        if not rooms:
            spare -= 1
            if spare < 0:
                return None
            continue
        quota.carry(node, charge)
        clearance.assign(rooms)
        if not known:
            claims[part.uid] = rooms
    return claims if spare >= 0 else None


def _without_usage(quota: Quota) -> Quota:
    """Return the same ceilings with nothing charged."""
    return Quota(quota.tree, quota.limits, {})


def _parts_in_order(state: "State", group: HyperJobGang, order: SearchOrder) -> list[Workload]:
    """Return the parts in the order in which rooms are sought: those that have some first."""
    lanes = ((part, state.backlog.lane(part.uid)) for part in gangs.pending_parts(state, group))
    parts = [part for part, lane in lanes if lane.hopeless is None and lane.is_waiting]
    if order is not SearchOrder.BY_NAME:
        fleet = total(site.capacity for site in state.ledger)
        parts.sort(
            key=lambda part: _dominant_share(part.shape.demand, fleet), reverse=order is SearchOrder.LARGEST_FIRST
        )
    return sorted(parts, key=lambda part: part.reserved is None)


def _dominant_share(demand: Resources, fleet: Resources) -> Fraction:
    sizes = (Fraction(amount, fleet[name]) for name, amount in demand.items() if amount > 0 and fleet.get(name))
    return max(sizes, default=Fraction(0))


class ReservationPlacer:
    """The clusters on which room may be kept, with what is promised there to others who start together with one.

    *sparing*: where least is left over, not where least is lacking, so that more have room beside one another.
    """

    def __init__(self, state: "State", taken: Collection[ClusterName], *, sparing: bool = False) -> None:
        self.best_fit = sparing
        self._world = state
        self._unavailable = taken
        self._assigned: dict[ClusterName, Resources] = {}
        self._infeasible: set[int] = set()
        """The shapes for which there was nothing: what is promised since makes it no more."""

    def assign(self, rooms: ClusterReservations) -> None:
        """Leave *rooms* to somebody."""
        for booking in rooms:
            self._assigned[booking.cluster] = add(self._assigned.get(booking.cluster, EMPTY), booking.charge)

    def place(self, shape: SchedulingRequirements) -> ClusterReservations:
        """Return the rooms to be kept for one of *shape*, none where those that may be kept would not do."""
        prospect = self._world.books.feasibility_cache.get(shape)
        names, copies = prospect.candidates.names, prospect.candidates.copies
        free = [name for name in names if name not in self._unavailable]
        if not free or id(shape) in self._infeasible:
            return ()
        rooms = self._search(shape, names if _has_static_weights(shape) else free, copies)
        if any(booking.cluster in self._unavailable for booking in rooms):
            rooms = ()
        if not rooms:
            self._infeasible.add(id(shape))
        return rooms

    def _search(self, shape: SchedulingRequirements, names: Sequence[ClusterName], copies: int) -> ClusterReservations:
        now = [] if self.best_fit else [self._free_now(name) for name in names]
        if now and (rooms := _choose_bookings(shape, now, copies)):
            return rooms
        empty = [self._free_when_empty(name) for name in names]
        return (_with_smallest_shortage(shape, now, empty, copies) if now else ()) or _choose_bookings(
            shape, empty, copies
        )

    def _free_now(self, name: ClusterName) -> FreeCapacity:
        room, promised = free_capacity(self._world.ledger.site(name)), self._assigned.get(name)
        if promised is None:
            return room
        beside = subtract(room.headroom if room.headroom_for_all_pods is None else room.headroom_for_all_pods, promised)
        return replace(room, headroom=subtract(room.headroom, promised), headroom_for_all_pods=beside)

    def _free_when_empty(self, name: ClusterName) -> FreeCapacity:
        """Return what a cluster has while nothing of ours runs there but what is promised."""
        site, promised = self._world.ledger.site(name), self._assigned.get(name)
        freed = add(site.freed, site.booked)
        if promised is None:
            return FreeCapacity(site, site.capacity, site.allocatable, freed=freed)
        left = subtract(site.capacity, promised)
        return FreeCapacity(site, left, site.allocatable, left, freed)


def _has_static_weights(shape: SchedulingRequirements) -> bool:
    """Say whether static weights name its clusters, whoever has taken them."""
    return shape.replicas > 0 and shape.placement.divided and bool(shape.placement.weights)


def _choose_bookings(shape: SchedulingRequirements, rooms: list[FreeCapacity], copies: int) -> ClusterReservations:
    if not shape.replicas and sum(room.fits(shape) for room in rooms) < copies:
        return ()
    choice = choose_clusters(shape, rooms, copies)
    return choice.bookings if isinstance(choice, Choice) else ()


def _with_smallest_shortage(
    shape: SchedulingRequirements, now: list[FreeCapacity], empty: list[FreeCapacity], copies: int
) -> ClusterReservations:
    """Return the rooms of *empty* clusters that would do and of which most is free *now*; none where that is no way."""
    if _has_static_weights(shape) or any(spread.by == "region" for spread in shape.placement.spread):
        return ()
    is_divided = shape.replicas > 0 and shape.placement.divided
    held = {room.name for room in empty if (fits(shape.demand, room.headroom) if is_divided else room.fits(shape))}
    if is_divided and not held:
        return _divide_replicas(shape, now, empty)
    able = [room for room in now if room.name in held]
    fleet = total(room.allocatable for room in able)
    able.sort(key=lambda room: (-_free_fraction(shape.gang, room), rank_cluster(shape, room, fleet)))
    return tuple(ClusterCharge(room.name, shape.demand) for room in able[:copies]) if len(able) >= copies else ()


def _divide_replicas(
    shape: SchedulingRequirements, now: list[FreeCapacity], empty: list[FreeCapacity]
) -> ClusterReservations:
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
    return () if left else tuple(ClusterCharge(name, scale(shape.replica, parts[name])) for name in sorted(parts))


def _free_fraction(request: Resources, room: FreeCapacity) -> Fraction:
    """Return how much there is of what there is least of, as a part of what is asked."""
    parts = (Fraction(room.headroom.get(name, 0), amount) for name, amount in request.items() if amount > 0)
    return min(parts, default=Fraction(1))
