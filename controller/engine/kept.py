"""What is kept for those who have a reservation, and who may pass all the same (O6).

A reservation keeps quota on its queue's path and room on one cluster. It binds
everybody but those in queues below their entitlement while it would lift its
own queue above its own, and those who were given theirs before. How one
begins and ends is ``reservations``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.engine.backlog import Place, place
from controller.engine.clusters import ClusterName
from controller.engine.fit import Room, choose, room_of
from controller.engine.ordering import Standing
from controller.engine.prospects import Prospect
from controller.engine.quota import Quota
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import Resources, subtract
from controller.engine.tree import Node
from controller.engine.workloads import Choice, Reserved, Shape, Workload

if TYPE_CHECKING:
    from controller.engine.world import World


@dataclass(frozen=True, slots=True)
class _Reservation:
    workload: Workload
    leaf: Node
    shape: Shape
    reserved: Reserved
    charge: Resources

    @property
    def cluster(self) -> ClusterName | None:
        return self.reserved.cluster


def _reservation(world: "World", standing: Standing, workload: Workload) -> _Reservation | None:
    reserved, leaf = workload.reserved, standing.quota.tree.nodes.get(workload.queue)
    if reserved is None or leaf is None or workload.uid not in world.backlog:
        return None
    shape = world.backlog.lane(workload.uid).shape
    return _Reservation(workload, leaf, shape, reserved, world.books.prospects.of(shape).charge)


def _precedence(each: _Reservation) -> tuple[int, int, Place]:
    """Return the key that puts reservations in the order in which they bind one another: the oldest first."""
    return each.reserved.since, -each.leaf.queue.priority, place(each.workload)


class Kept:
    """What all reservations keep, as the queues and clusters stand."""

    def __init__(self, world: "World", standing: Standing) -> None:
        self._world = world
        self.standing = standing
        found = (_reservation(world, standing, each) for each in world.reserved.values())
        self._reservations = sorted(filter(None, found), key=_precedence)
        self._looks: dict[int, tuple[int, bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._reservations)

    def may_have_room(self, shape: int) -> bool:
        """Say whether somebody of the shape with this id may have the room that there is for it: perhaps, or never."""
        version = self._world.ledger.version
        known = self._looks.get(shape)
        if known is None or known[0] != version:
            known = self._looks[shape] = version, self._look(shape)
        return known[1]

    def _look(self, shape: int) -> bool:
        prospect = self._world.books.prospects.of(self._world.backlog.shapes[shape][0].shape)
        if any(each.shape is prospect.shape or self._is_soft(each) for each in self._reservations):
            return True
        return isinstance(self._choice(prospect, self._reservations), Choice)

    def verdict(
        self, workload: Workload, prospect: Prospect, choice: Choice, quota: Quota | None = None
    ) -> Choice | Refusal:
        """Return where *workload* may go that would go to *choice* otherwise, or behind whom it waits."""
        binding = self._binding(workload, prospect.charge)
        if not binding:
            return choice
        leaf = self.standing.quota.tree.nodes[workload.queue]
        for each in binding:
            over = self._over(each, leaf, prospect.charge, quota or self.standing.quota)
            if over is not None:
                return over
        clusters = {booking.cluster for booking in choice.bookings}
        if not any(each.cluster in clusters for each in binding):
            return choice
        other = self._choice(prospect, binding)
        if isinstance(other, Choice):
            return other
        ahead = next(each for each in binding if each.cluster in clusters)
        return Refusal(Reason.BEHIND_RESERVATION, cluster=ahead.cluster, subject=ahead.workload.path)

    def _binding(self, workload: Workload, charge: Resources) -> list[_Reservation]:
        """Return the reservations that bind *workload*."""
        found = []
        leaf = self.standing.quota.tree.nodes[workload.queue]
        for each in self._reservations:
            if each.workload.uid == workload.uid:
                # Those that were given later wait for it.
                break
            is_own = workload.group is not None and workload.group == each.workload.group
            is_other = workload.queue != each.workload.queue
            is_below = is_other and self._is_soft(each) and self.standing.over(leaf, charge) is None
            if not is_own and not is_below:
                found.append(each)
        return found

    def _is_soft(self, reservation: _Reservation) -> bool:
        """Say whether it would lift its queue above its entitlement."""
        return self.standing.over(reservation.leaf, reservation.charge) is not None

    def _over(self, kept: _Reservation, leaf: Node, charge: Resources, quota: Quota) -> Refusal | None:
        """Return what *charge* would take of the quota that is kept, ``None`` where enough is left."""
        path = {node.name for node in kept.leaf.path()}
        both = [name for name, amount in sorted(charge.items()) if amount > 0 and kept.charge.get(name, 0) > 0]
        after = quota.trial()
        after.carry(after.tree.nodes[leaf.name], charge)
        for above in leaf.path():
            for name in both if above.name in path else ():
                left = quota.limits[above.name].ceiling.get(name, 0) - after.amount(above.name, name)
                if above.compares(name) and kept.charge[name] > left:
                    return _behind(kept, name, charge[name], max(left, 0), above)
        over = after.refusal(after.tree.nodes[kept.leaf.name], kept.charge) if quota.guaranteed else None
        if over is not None and over.reason is Reason.RESERVED_FOR_GUARANTEE and over.resource in both:
            shared = next((above for above in leaf.path() if above.name == over.queue and above.name in path), None)
            return _behind(kept, over.resource, charge[over.resource], over.available or 0, shared) if shared else None
        return None

    def _choice(self, prospect: Prospect, binding: Sequence[_Reservation]) -> Choice | Refusal:
        """Return where a shape goes beside what is kept on the clusters."""
        sites = (self._world.ledger.site(name) for name in prospect.outlook.names)
        rooms = [_beside(room_of(site), binding) for site in sites]
        return choose(prospect.shape, rooms, prospect.outlook.copies)


def _behind(kept: _Reservation, resource: str, asked: int, left: int, queue: Node) -> Refusal:
    return Refusal(Reason.BEHIND_RESERVATION, resource, asked, left, queue=queue.name, subject=kept.workload.path)


def _beside(room: Room, binding: Iterable[_Reservation]) -> Room:
    """Return what is left of *room* beside what is kept there: all of a workload must fit (D11)."""
    for each in binding:
        if each.cluster == room.name:
            beside = subtract(room.headroom if room.beside is None else room.beside, each.shape.demand)
            room = Room(room.site, subtract(room.headroom, each.shape.demand), room.allocatable, beside)
    return room


def keeping(world: "World") -> Kept | None:
    """Return what reservations keep from others as things stand, ``None`` where there are none."""
    if world.standing is None or not world.reserved:
        return None
    if world.kept is None or world.kept.standing is not world.standing:
        world.kept = Kept(world, world.standing)
    return world.kept
