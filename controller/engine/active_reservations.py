"""What is kept for those who have a reservation, and who may pass all the same (O6).

A reservation keeps quota on its queue's path and room on the clusters where it
will go; for all parts of a group it is one. It binds
everybody but those in queues below their entitlement while it would lift its
own queue above its own, and those who were given theirs before. How one
begins and ends is ``reservations``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controller.engine.clusters import ClusterName
from controller.engine.feasibility_cache import ClassFeasibility, ReservedCapacity
from controller.engine.fit import FreeCapacity, choose_clusters, free_capacity
from controller.engine.ordering import QueueShares
from controller.engine.pending import OrderKey, WorkloadClass, order_key
from controller.engine.queues import QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import EMPTY, Resources, add, subtract
from controller.engine.tree import Node
from controller.engine.workloads import Choice, HyperJobGang, SchedulingRequirements, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.state import State


@dataclass(frozen=True, slots=True)
class _Reservation:
    """What is kept for one who waits, or for all the parts of a group (G1)."""

    first: Workload
    """Whom it is named after."""
    priority: int
    """That one's queue's."""
    since: int
    requirements: Mapping[WorkloadUid, SchedulingRequirements]
    """Of all whom it is for."""
    charges: Sequence[tuple[Node, Resources]]
    """What is kept of the quota of each leaf."""
    charges_by_queue: Mapping[QueueName, Resources]
    """The same at each queue on their paths."""
    charges_by_cluster: Mapping[ClusterName, Resources]


def _reservation(state: "State", standing: QueueShares, workloads: Iterable[Workload]) -> _Reservation | None:
    """Return what is kept for *workloads* together."""
    nodes, of = standing.quota.tree.nodes, state.books.feasibility_cache.get
    found = [each for each in workloads if each.queue in nodes and each.uid in state.backlog]
    if not found:
        return None
    first = min(found, key=order_key)
    shapes = {each.uid: state.backlog.lane(each.uid).shape for each in found}
    charges: dict[QueueName, Resources] = {}
    due: dict[QueueName, Resources] = {}
    rooms: dict[ClusterName, Resources] = {}
    for each in found:
        charge = of(shapes[each.uid]).charge
        charges[each.queue] = add(charges.get(each.queue, EMPTY), charge)
        for node in nodes[each.queue].path():
            due[node.name] = add(due.get(node.name, EMPTY), charge)
        for booking in each.reserved.rooms if each.reserved is not None else ():
            rooms[booking.cluster] = add(rooms.get(booking.cluster, EMPTY), booking.charge)
    since = min(each.reserved.since for each in found if each.reserved is not None)
    leaves = [(nodes[name], charges[name]) for name in sorted(charges)]
    return _Reservation(first, nodes[first.queue].queue.priority, since, shapes, leaves, due, rooms)


@dataclass(frozen=True, slots=True)
class _RemainingQuota:
    """What is left of the quota above one leaf, of each resource that is reserved there."""

    excluding_own: Resources
    """Beside the reservations of this leaf, which bind all its other workloads."""
    excluding_all: Resources
    """Beside every reservation."""


_Key = tuple[QueueName, int, HyperJobGang | None, WorkloadUid | None]
"""Queue, shape by its id, group and, for those that have a reservation themselves, the workload."""


def _key(workload: Workload, prospect: ClassFeasibility) -> _Key:
    own = workload.uid if workload.is_reserved_for else None
    return workload.queue, id(prospect.requirements), workload.group, own


def _precedence(each: _Reservation) -> tuple[int, int, OrderKey]:
    """Return the key that puts reservations in the order in which they bind one another: the oldest first."""
    return each.since, -each.priority, order_key(each.first)


class ActiveReservations:
    """What all reservations keep, as the queues and clusters stand."""

    def __init__(self, state: "State", standing: QueueShares) -> None:
        self._world = state
        self.queue_shares = standing
        found = (_reservation(state, standing, each) for each in _group_by_gang(state.reserved.values()))
        self._reservations = sorted(filter(None, found), key=_precedence)
        self._exceeding = [self._exceeds_fair_share(each) for each in self._reservations]
        self._quota_refusals: dict[_Key, Refusal | None] = {}
        """Which reservation of quota is in the way, as the queues stand."""
        self._resolved: dict[_Key, tuple[int, Choice | Refusal]] = {}
        """With the version of the ledger that each holds for."""
        self._rooms = {key: _reserved_capacity(found) for key, found in self._by_queue().items()}
        """The capacity reserved on clusters for each queue, and for all queues under ``None``."""
        self._remaining_by_queue: dict[QueueName, _RemainingQuota] = {}

    def __bool__(self) -> bool:
        return bool(self._reservations)

    def may_use_capacity(self, shape: int) -> bool:
        """Say whether somebody of the shape with this id may have the room that there is for it: perhaps, or never."""
        if any(self._exceeding):
            return True
        prospect = self._world.books.feasibility_cache.get(self._world.backlog.shapes[shape][0].shape)
        own = (kept for each in self._reservations for kept in each.requirements.values())
        if any(kept is prospect.requirements for kept in own):
            return True
        if prospect.needs_one_cluster:
            return self._world.books.feasibility_cache.fits_excluding_reserved(prospect, self._rooms[None])
        return isinstance(self._choose(prospect, self._reservations), Choice)

    def _by_queue(self) -> dict[QueueName | None, list[_Reservation]]:
        found: dict[QueueName | None, list[_Reservation]] = {None: self._reservations}
        for each in self._reservations:
            for node, _ in each.charges:
                found.setdefault(node.name, []).append(each)
        return found

    def resolve(
        self, workload: Workload, prospect: ClassFeasibility, choice: Choice, quota: Quota | None = None
    ) -> Choice | Refusal:
        """Return where *workload* may go that would go to *choice* otherwise, or behind whom it waits.

        With a *quota*: judged as that has it, beside the charges that there are.
        """
        if quota is not None:
            return self._resolve(workload, prospect, choice, quota)
        key = _key(workload, prospect)
        known, version = self._resolved.get(key), self._world.ledger.version
        if known is None or known[0] != version:
            verdict = self._resolve(workload, prospect, choice, self.queue_shares.quota)
            known = self._resolved[key] = version, verdict
        return known[1]

    def quota_refusal(self, workload: Workload, prospect: ClassFeasibility) -> Refusal | None:
        """Return the reservation that keeps quota from *workload* wherever it would go, ``None`` where none does."""
        key = _key(workload, prospect)
        if key not in self._quota_refusals:
            binding = self._binding_reservations(workload, prospect.charge)
            self._quota_refusals[key] = self._first_quota_refusal(
                binding, workload, prospect.charge, self.queue_shares.quota
            )
        return self._quota_refusals[key]

    def blocks(self, lane: WorkloadClass) -> bool:
        """Say whether reservations keep quota or room from all workloads of *lane* as long as usage only grows.

        ``False``: perhaps.
        """
        if lane.group is not None or lane.reserved is not None:
            return False
        left = self._remaining(lane.queue)
        if _exceeds(lane.charge, left.excluding_own):
            return True
        is_over = self.queue_shares.over(self.queue_shares.quota.tree.nodes[lane.queue], lane.charge) is not None
        if is_over and _exceeds(lane.charge, left.excluding_all):
            return True
        # All reservations bind a queue above its fair share; its own bind it always.
        reserved, prospects = self._rooms.get(None if is_over else lane.queue, ()), self._world.books.feasibility_cache
        prospect = prospects.get(lane.shape)
        return (
            bool(reserved) and prospect.needs_one_cluster and not prospects.fits_excluding_reserved(prospect, reserved)
        )

    def _remaining(self, queue: QueueName) -> _RemainingQuota:
        """Return what reservations leave of the quota of *queue* and its ancestors."""
        known = self._remaining_by_queue.get(queue)
        if known is None:
            known = self._remaining_by_queue[queue] = self._compute_remaining(self.queue_shares.quota.tree.nodes[queue])
        return known

    def _compute_remaining(self, leaf: Node) -> _RemainingQuota:
        quota = self.queue_shares.quota
        beside_own: dict[str, int] = {}
        beside_all: dict[str, int] = {}
        for each in self._reservations:
            is_own = any(node.name == leaf.name for node, _ in each.charges)
            for above in leaf.path():
                for name, due in each.charges_by_queue.get(above.name, EMPTY).items():
                    if due <= 0 or not above.compares(name):
                        continue
                    left = quota.limits[above.name].ceiling.get(name, 0) - quota.amount(above.name, name) - due
                    for lefts in (beside_all, beside_own) if is_own else (beside_all,):
                        lefts[name] = min(lefts.get(name, left), left)
        return _RemainingQuota(beside_own, beside_all)

    def _first_quota_refusal(
        self, binding: Iterable[_Reservation], workload: Workload, charge: Resources, quota: Quota
    ) -> Refusal | None:
        leaf = self.queue_shares.quota.tree.nodes[workload.queue]
        return next(filter(None, (self._quota_refusal(each, leaf, charge, quota) for each in binding)), None)

    def _resolve(
        self, workload: Workload, prospect: ClassFeasibility, choice: Choice, quota: Quota
    ) -> Choice | Refusal:
        binding = self._binding_reservations(workload, prospect.charge)
        over = self._first_quota_refusal(binding, workload, prospect.charge, quota)
        if over is not None:
            return over
        clusters = {booking.cluster for booking in choice.bookings}
        if not any(clusters.intersection(each.charges_by_cluster) for each in binding):
            return choice
        other = self._choose(prospect, binding)
        if isinstance(other, Choice):
            return other
        ahead = next(each for each in binding if clusters.intersection(each.charges_by_cluster))
        cluster = min(clusters.intersection(ahead.charges_by_cluster))
        return Refusal(Reason.BLOCKED_BY_RESERVATION, cluster=cluster, subject=ahead.first.path)

    def _binding_reservations(self, workload: Workload, charge: Resources) -> list[_Reservation]:
        """Return the reservations that bind *workload*."""
        found = []
        leaf = self.queue_shares.quota.tree.nodes[workload.queue]
        for each, is_soft in zip(self._reservations, self._exceeding, strict=True):
            if workload.uid in each.requirements:
                # Those that were given later wait for it.
                break
            is_own = workload.group is not None and workload.group == each.first.group
            is_other = all(node.name != workload.queue for node, _ in each.charges)
            is_below = is_other and is_soft and self.queue_shares.over(leaf, charge) is None
            if not is_own and not is_below:
                found.append(each)
        return found

    def _exceeds_fair_share(self, reservation: _Reservation) -> bool:
        """Say whether it would lift its queue above its entitlement."""
        return any(self.queue_shares.over(leaf, charge) is not None for leaf, charge in reservation.charges)

    def _quota_refusal(self, kept: _Reservation, leaf: Node, charge: Resources, quota: Quota) -> Refusal | None:
        """Return what *charge* would take of the quota that is kept, ``None`` where enough is left."""
        asks = sorted(name for name, amount in charge.items() if amount > 0)
        for above in leaf.path():
            due = kept.charges_by_queue.get(above.name, EMPTY)
            for name in (each for each in asks if due.get(each, 0) > 0):
                held = quota.amount(above.name, name) + charge[name]
                left = quota.limits[above.name].ceiling.get(name, 0) - held
                if above.compares(name) and due[name] > left:
                    return _blocked_refusal(kept, name, charge[name], max(left, 0), above)
        if not quota.guaranteed:
            return None
        after = quota.trial()
        after.carry(after.tree.nodes[leaf.name], charge)
        return self._guarantee_refusal(kept, leaf, charge, after)

    def _guarantee_refusal(self, kept: _Reservation, leaf: Node, charge: Resources, after: Quota) -> Refusal | None:
        """Return what of the quota that is kept would be left only of what others are guaranteed."""
        for own, due in kept.charges:
            over = after.refusal(after.tree.nodes[own.name], due)
            asked = charge.get(over.resource or "", 0) if over is not None else 0
            if over is not None and over.reason is Reason.BLOCKED_BY_GUARANTEE and over.resource and asked > 0:
                shared = next(
                    (
                        above
                        for above in leaf.path()
                        if above.name == over.queue and above.name in kept.charges_by_queue
                    ),
                    None,
                )
                if shared is not None:
                    return _blocked_refusal(kept, over.resource, asked, over.available or 0, shared)
            after.carry(after.tree.nodes[own.name], due)
        return None

    def _choose(self, prospect: ClassFeasibility, binding: Sequence[_Reservation]) -> Choice | Refusal:
        """Return where a shape goes beside what is kept on the clusters."""
        sites = (self._world.ledger.site(name) for name in prospect.candidates.names)
        rooms = [_excluding_reservations(free_capacity(site), binding) for site in sites]
        return choose_clusters(prospect.requirements, rooms, prospect.candidates.copies)


def _reserved_capacity(reservations: Iterable[_Reservation]) -> ReservedCapacity:
    """Return the capacity that *reservations* keep on each cluster together."""
    rooms: dict[ClusterName, Resources] = {}
    for each in reservations:
        for name, kept in each.charges_by_cluster.items():
            rooms[name] = add(rooms.get(name, EMPTY), kept)
    return tuple((name, tuple(sorted(rooms[name].items()))) for name in sorted(rooms))


def _exceeds(charge: Resources, left: Resources) -> bool:
    """Say whether *charge* asks for more than is *left* of one of the resources named there."""
    return any(0 < charge.get(name, 0) > amount for name, amount in left.items())


def _blocked_refusal(kept: _Reservation, resource: str, asked: int, left: int, queue: Node) -> Refusal:
    return Refusal(Reason.BLOCKED_BY_RESERVATION, resource, asked, left, queue=queue.name, subject=kept.first.path)


def _excluding_reservations(room: FreeCapacity, binding: Iterable[_Reservation]) -> FreeCapacity:
    """Return what is left of *room* beside what is kept there: all of a workload must fit (D11)."""
    for each in binding:
        kept = each.charges_by_cluster.get(room.name)
        if kept is not None:
            beside = subtract(room.headroom if room.headroom_for_all_pods is None else room.headroom_for_all_pods, kept)
            room = replace(room, headroom=subtract(room.headroom, kept), headroom_for_all_pods=beside)
    return room


def _group_by_gang(workloads: Iterable[Workload]) -> Iterable[list[Workload]]:
    """Return those for whom something is kept, all parts of a group together."""
    found: dict[object, list[Workload]] = {}
    for each in workloads:
        found.setdefault(each.group or each.uid, []).append(each)
    return found.values()


def active_reservations(state: "State") -> ActiveReservations | None:
    """Return what reservations keep from others as things stand, ``None`` where there are none."""
    if state.standing is None or not state.reserved:
        return None
    if state.active_reservations is None or state.active_reservations.queue_shares is not state.standing:
        state.active_reservations = ActiveReservations(state, state.standing)
    return state.active_reservations
