"""Decides what active reservations withhold from other workloads (O6).

A reservation withholds quota on the path of its queue and capacity on its clusters; the parts of a HyperJob
share one. It binds all workloads except those with an older reservation, those that end before it can be fulfilled
(O9), those before it in its fifo queue and, while it would lift its own queue above its fair share, those of queues
within theirs. ``head`` grants and expires them.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import takewhile

from controller.engine.fairness.shares import QueueShares
from controller.engine.placement.feasibility_cache import Feasibility, ReservedCapacity
from controller.engine.placement.fit import FreeCapacity, choose_clusters, free_capacity
from controller.engine.placement.fitting_index import FittingIndex
from controller.engine.reasons import Reason, Refusal
from controller.engine.reservations.backfill import spends
from controller.engine.reservations.reserved import JointReservation, ReservedResources
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.pending import WorkloadClass, owner_of, run_time_bounds
from controller.engine.state.quota import Quota
from controller.engine.state.request_index import Slots, slots_in
from controller.engine.state.resources import EMPTY, Resources, fits
from controller.engine.state.workloads import Choice, HyperJobGang, Workload, WorkloadUid


@dataclass(frozen=True, slots=True)
class _RemainingQuota:
    """Quota left on the path of one leaf, for each reserved resource."""

    excluding_own: Resources
    """Without this leaf's own reservations, which bind all its other workloads."""
    excluding_all: Resources
    """Without any reservation."""


_Key = tuple[QueueName, int, HyperJobGang | None, WorkloadUid | None, tuple[int, ...]]
"""Queue, id of the requirements, gang, for a workload with a reservation its uid, and the bounds of its run time."""


def _key(workload: Workload, feasibility: Feasibility) -> _Key:
    own = workload.uid if workload.has_reservation else None
    return workload.queue, id(feasibility.requirements), workload.gang, own, run_time_bounds(workload)


class ActiveReservations:
    """The active reservations, evaluated for the current queues and clusters."""

    def __init__(
        self,
        queue_shares: QueueShares,
        reserved: ReservedResources,
        index: FittingIndex,
        cluster_usage: ClusterUsage,
        now: int,
    ) -> None:
        self.queue_shares = queue_shares
        self._now = now
        self._index = index
        self._cluster_usage = cluster_usage
        self._reserved = reserved
        self._reservations = reserved.reservations
        self._exceeding = [self._exceeds_fair_share(item) for item in self._reservations]
        self._quota_refusals: dict[_Key, Refusal | None] = {}
        """Refusals by quota reservations, for the current queue shares."""
        self._resolved: dict[_Key, tuple[int, Choice | Refusal]] = {}
        """Choices or refusals, with the ``version`` of the cluster usage for which they are valid."""
        self._blocked: dict[QueueName, tuple[int, Slots]] = {}
        """Blocked requirements, with the ``version`` of the cluster usage for which they are valid."""
        self._fitting: dict[ReservedCapacity, tuple[int, Slots]] = {}
        """Requirements that fit next to reserved capacity, with the ``version`` for which they are valid."""
        self._remaining_by_queue: dict[QueueName, _RemainingQuota] = {}

    @property
    def exceeding_fair_share(self) -> AbstractSet[WorkloadUid]:
        """Return the workloads whose reservations do not bind queues below their fair shares."""
        exceeding = zip(self._reservations, self._exceeding, strict=True)
        return {uid for item, is_exceeding in exceeding if is_exceeding for uid in item.requirements}

    def set_aside(self) -> list[Resources]:
        """Return what each reservation sets aside in all queues together."""
        return [reservation.charges_by_queue.get(ROOT, EMPTY) for reservation in self._reservations]

    def set_aside_on(self) -> dict[ClusterName, Resources]:
        """Return what the reservations set aside on each cluster."""
        return dict(self._reserved.by_queue[None].by_cluster)

    def may_use_capacity(self, slots: Slots) -> Slots:
        """Return those of *slots* of which some workload may use free capacity; also those that are undecided."""
        if any(self._exceeding) or any(item.backfill_until is not None for item in self._reservations):
            return slots
        if any(leaf.queue.fifo for item in self._reservations for leaf, _ in item.charges):
            return slots
        own = self._index.slots_of(
            id(requirements) for reservation in self._reservations for requirements in reservation.requirements.values()
        )
        usable = slots & (own | self._fitting_next_to(self._reserved.by_queue[None]))
        for slot in slots_in(self._index.without_one_cluster(slots & ~own)):
            if isinstance(self._choose(self._index.member(slot), self._reservations), Choice):
                usable |= 1 << slot
        return usable

    def binding(self, workload: Workload, charge: Resources) -> list[JointReservation]:
        """Return the reservations that bind a preemptor; of one with a reservation the older ones.

        They bind it also where it would end in time, because it starts only after its victims have stopped.
        """
        older = takewhile(
            lambda item: workload.uid not in item[0].requirements, zip(self._reservations, self._exceeding, strict=True)
        )
        return [
            reservation
            for reservation, is_exceeding in older
            if self._may_bind(reservation, workload, charge, is_exceeding=is_exceeding)
        ]

    def resolve(
        self, workload: Workload, feasibility: Feasibility, choice: Choice, quota: Quota | None = None
    ) -> Choice | Refusal:
        """Return where *workload* may be placed in view of its unreserved *choice*, or the reservation that blocks it.

        With *quota*, decide for that usage in place of the current one.
        """
        if quota is not None:
            return self._resolve(workload, feasibility, choice, quota)
        key = _key(workload, feasibility)
        known, version = self._resolved.get(key), self._cluster_usage.version
        if known is None or known[0] != version:
            verdict = self._resolve(workload, feasibility, choice, self.queue_shares.quota)
            known = self._resolved[key] = version, verdict
        return known[1]

    def quota_refusal(self, workload: Workload, feasibility: Feasibility) -> Refusal | None:
        """Return the refusal by a quota reservation that applies on every cluster; ``None`` where there is none."""
        key = _key(workload, feasibility)
        if key not in self._quota_refusals:
            self._quota_refusals[key] = self._first_quota_refusal(workload, feasibility.charge, self.queue_shares.quota)
        return self._quota_refusals[key]

    def blocks(self, workload_class: WorkloadClass) -> bool:
        """Return whether reservations block all workloads of *workload_class* as long as usage only grows.

        ``False`` if undecided.
        """
        if workload_class.gang is not None or workload_class.key.reservation_owner is not None:
            return False
        if self.may_backfill(workload_class):
            return False
        return self._index.contains(self.blocked_in(workload_class.queue), workload_class.requirements)

    def may_backfill(self, workload_class: WorkloadClass) -> bool:
        """Return whether some reservation does not bind *workload_class*, because it ends before (O9)."""
        run_times, gang = workload_class.key.run_times_ms, workload_class.gang
        return bool(run_times) and any(self._ends_before(item, run_times, gang) for item in self._reservations)

    def _ends_before(
        self, reservation: JointReservation, run_times_ms: tuple[int, ...], gang: HyperJobGang | None
    ) -> bool:
        """Return whether a workload ends in time to be backfilled; a gang ends together.

        It may spend half of what is left of the budget.
        """
        if reservation.backfill_until is None:
            return False
        spent = spends(run_times_ms, reservation.backfill_until - self._now)
        return spent is not None and 2 * spent * (gang.parts if gang is not None else 1) <= reservation.budget

    def blocked_in(self, queue: QueueName) -> Slots:
        """Return the requirements of which all workloads in *queue* are blocked, as long as usage only grows."""
        known, version = self._blocked.get(queue), self._cluster_usage.version
        if known is None or known[0] != version:
            known = self._blocked[queue] = version, self._find_blocked(queue)
        return known[1]

    def _find_blocked(self, queue: QueueName) -> Slots:
        remaining, charges = self._remaining(queue), self._index.charges
        leaf = self.queue_shares.quota.tree.nodes[queue]
        if leaf.queue.fifo and queue in self._reserved.by_queue:
            return 0
        over = self.queue_shares.above_fair_share(leaf, charges)
        blocked = charges.exceeding(remaining.excluding_own) | over & charges.exceeding(remaining.excluding_all)
        # All reservations bind a queue above its fair share; its own always bind it.
        for bound, key in ((over, None), (~over, queue)):
            reserved = self._reserved.by_queue.get(key)
            if reserved is not None and reserved.by_cluster:
                blocked |= bound & self._index.single & ~self._fitting_next_to(reserved)
        return blocked

    def _fitting_next_to(self, reserved: ReservedCapacity) -> Slots:
        """Return the requirements that need one cluster, and fit one next to *reserved* capacity."""
        known, version = self._fitting.get(reserved), self._cluster_usage.version
        if known is None or known[0] != version:
            known = self._fitting[reserved] = version, self._index.fitting_next_to(reserved)
        return known[1]

    def _remaining(self, queue: QueueName) -> _RemainingQuota:
        """Return the quota that reservations leave on the path of *queue*."""
        known = self._remaining_by_queue.get(queue)
        if known is None:
            known = self._remaining_by_queue[queue] = self._compute_remaining(self.queue_shares.quota.tree.nodes[queue])
        return known

    def _compute_remaining(self, leaf: Node) -> _RemainingQuota:
        quota = self.queue_shares.quota
        excluding_own: dict[str, int] = {}
        excluding_all: dict[str, int] = {}
        for reserved in self._reserved.on_path(leaf):
            name = reserved.resource
            free = quota.limits[reserved.node.name].limit.get(name, 0) - quota.usage(reserved.node.name, name)
            remaining = free - reserved.by_any
            excluding_all[name] = min(excluding_all.get(name, remaining), remaining)
            if reserved.by_own is not None:
                remaining = free - reserved.by_own
                excluding_own[name] = min(excluding_own.get(name, remaining), remaining)
        return _RemainingQuota(excluding_own, excluding_all)

    def _first_quota_refusal(
        self,
        workload: Workload,
        charge: Resources,
        quota: Quota,
        binding: Iterable[JointReservation] | None = None,
    ) -> Refusal | None:
        leaf = self.queue_shares.quota.tree.nodes[workload.queue]
        if not quota.guaranteed and not self._may_lack_quota(leaf, charge, quota):
            return None
        binding = self._binding_reservations(workload, charge) if binding is None else binding
        return next(
            filter(None, (self._quota_refusal(reservation, leaf, charge, quota) for reservation in binding)), None
        )

    def _may_lack_quota(self, leaf: Node, charge: Resources, quota: Quota) -> bool:
        """Return whether *charge* would leave less on the path of *leaf* than the largest reservation there."""
        for reserved in self._reserved.on_path(leaf):
            queue, name = reserved.node.name, reserved.resource
            asked = charge.get(name, 0)
            if asked > 0:
                remaining = quota.limits[queue].limit.get(name, 0) - quota.usage(queue, name) - asked
                if reserved.by_any > remaining:
                    return True
        return False

    def _resolve(self, workload: Workload, feasibility: Feasibility, choice: Choice, quota: Quota) -> Choice | Refusal:
        binding = self._binding_reservations(workload, feasibility.charge)
        refusal = self._first_quota_refusal(workload, feasibility.charge, quota, binding)
        if refusal is not None:
            return refusal
        if workload.has_reservation:
            binding += self._younger_promises(workload, feasibility.charge)
        clusters = {cluster_charge.cluster for cluster_charge in choice.cluster_charges}
        if not any(clusters.intersection(reservation.charges_by_cluster) for reservation in binding):
            return choice
        alternative = self._choose(feasibility, binding)
        if isinstance(alternative, Choice):
            return alternative
        blocking = next(reservation for reservation in binding if clusters.intersection(reservation.charges_by_cluster))
        cluster = min(clusters.intersection(blocking.charges_by_cluster))
        return Refusal(Reason.BLOCKED_BY_RESERVATION, cluster=cluster, subject=blocking.first.path)

    def _binding_reservations(self, workload: Workload, charge: Resources) -> list[JointReservation]:
        """Return the reservations that bind *workload*; of one with a reservation the older ones."""
        binding = []
        for reservation, is_exceeding in zip(self._reservations, self._exceeding, strict=True):
            if workload.uid in reservation.requirements:
                # Later reservations yield to this one.
                break
            if self._binds(reservation, workload, charge, is_exceeding=is_exceeding):
                binding.append(reservation)
        return binding

    def _younger_promises(self, workload: Workload, charge: Resources) -> Iterator[JointReservation]:
        """Yield the younger reservations that bind *workload* on clusters other than those of its own one.

        They were promised a start for which it starts on its own clusters.
        """
        is_younger = False
        for reservation, is_exceeding in zip(self._reservations, self._exceeding, strict=True):
            if workload.uid in reservation.requirements:
                is_younger = True
                continue
            is_promised = is_younger and reservation.backfill_until is not None
            if is_promised and self._binds(reservation, workload, charge, is_exceeding=is_exceeding):
                yield reservation

    def _binds(
        self, reservation: JointReservation, workload: Workload, charge: Resources, *, is_exceeding: bool
    ) -> bool:
        """Return whether *reservation*, of another workload, binds *workload*."""
        if self._ends_before(reservation, run_time_bounds(workload), workload.gang):
            return False
        return self._may_bind(reservation, workload, charge, is_exceeding=is_exceeding)

    def backfilled_onto(self, workload: Workload, choice: Choice) -> list[str]:
        """Return the owners of the reservations that would block *workload* if it did not end in time (O9)."""
        leaf, run_times = self.queue_shares.quota.tree.nodes[workload.queue], run_time_bounds(workload)
        owners, is_older = list[str](), True
        for reservation, is_exceeding in zip(self._reservations, self._exceeding, strict=True):
            if workload.uid in reservation.requirements:
                is_older = False
            elif self._ends_before(reservation, run_times, workload.gang) and self._may_bind(
                reservation, workload, choice.charge, is_exceeding=is_exceeding
            ):
                quota = self.queue_shares.quota
                lacks_quota = is_older and self._quota_refusal(reservation, leaf, choice.charge, quota) is not None
                if lacks_quota or self._lacks_capacity(reservation, choice):
                    owners.append(owner_of(reservation.first))
        return owners

    def _lacks_capacity(self, reservation: JointReservation, choice: Choice) -> bool:
        """Return whether some cluster of *choice* has too little capacity next to what *reservation* sets aside."""
        capacities = (
            (
                cluster_charge.charge,
                free_capacity(self._cluster_usage.cluster_state(cluster_charge.cluster)).without(due).headroom,
            )
            for cluster_charge in choice.cluster_charges
            if (due := reservation.charges_by_cluster.get(cluster_charge.cluster)) is not None
        )
        return any(not fits(charge, headroom) for charge, headroom in capacities)

    def _may_bind(
        self, reservation: JointReservation, workload: Workload, charge: Resources, *, is_exceeding: bool
    ) -> bool:
        """Return whether *reservation*, of another workload, binds *workload* unless that ends in time.

        A fifo queue tries only its head: a reservation of another workload of the queue is behind it (O5).
        """
        leaf = self.queue_shares.quota.tree.nodes[workload.queue]
        is_own = workload.gang is not None and workload.gang == reservation.first.gang
        is_other = all(node.name != workload.queue for node, _ in reservation.charges)
        is_behind = not is_other and leaf.queue.fifo
        is_below = is_other and is_exceeding and self.queue_shares.first_above_fair_share(leaf, charge) is None
        return not (is_own or is_behind or is_below)

    def _exceeds_fair_share(self, reservation: JointReservation) -> bool:
        """Return whether admitting the reservation would lift its queue above its fair share."""
        return any(
            self.queue_shares.first_above_fair_share(leaf, charge) is not None for leaf, charge in reservation.charges
        )

    def _quota_refusal(
        self, reservation: JointReservation, leaf: Node, charge: Resources, quota: Quota
    ) -> Refusal | None:
        """Return the refusal if *charge* needs reserved quota; ``None`` if enough is left."""
        requested = sorted(name for name, amount in charge.items() if amount > 0)
        for node in leaf.path():
            charge_due = reservation.charges_by_queue.get(node.name, EMPTY)
            for name in (name for name in requested if charge_due.get(name, 0) > 0):
                free = quota.limits[node.name].limit.get(name, 0) - quota.usage(node.name, name)
                unreserved = free - charge_due[name]
                if node.limits_resource(name) and charge[name] > unreserved:
                    return _blocked_refusal(reservation, name, charge[name], unreserved, node)
        return self._guarantee_refusal(reservation, leaf, charge, quota) if quota.guaranteed else None

    def _guarantee_refusal(
        self, reservation: JointReservation, leaf: Node, charge: Resources, quota: Quota
    ) -> Refusal | None:
        """Return the refusal if *charge* needs quota that guarantees of other queues do not leave to the reservation.

        The whole reservation counts, without what is released before its shadow time, but nothing of the charge that
        the guarantees of its own queues cover.
        """
        raised_by_charge = {
            (node.name, name): raised
            for name, amount in charge.items()
            if amount > 0
            for node, raised in quota.reserved_quota_increases(quota.tree.nodes[leaf.name], name, amount)
        }
        after = quota.overlay()
        after.add_assumed(after.tree.nodes[leaf.name], charge)
        for leaf_of_reservation, due in reservation.charges:
            node = after.tree.nodes[leaf_of_reservation.name]
            for name in sorted(name for name, amount in charge.items() if amount > 0):
                for above, raised in after.reserved_quota_increases(node, name, due.get(name, 0)):
                    unreserved = after.unreserved(above, name)
                    free = after.limits[above.name].limit.get(name, 0) - after.usage(above.name, name)
                    is_guaranteed = unreserved < free and above.limits_resource(name)
                    if is_guaranteed and raised > unreserved and raised_by_charge.get((above.name, name), 0) > 0:
                        available = charge[name] - (raised - unreserved)
                        return _blocked_refusal(reservation, name, charge[name], available, above)
            after.add_assumed(node, due)
        return None

    def _choose(self, feasibility: Feasibility, binding: Sequence[JointReservation]) -> Choice | Refusal:
        """Return a choice that leaves reserved capacity on the clusters untouched."""
        cluster_states = (self._cluster_usage.cluster_state(name) for name in feasibility.candidates.names)
        capacities = [
            _excluding_reservations(free_capacity(cluster_state), binding) for cluster_state in cluster_states
        ]
        return choose_clusters(feasibility.requirements, capacities, feasibility.candidates.copies)


def _blocked_refusal(
    reservation: JointReservation, resource: str, requested: int, unreserved: int, queue: Node
) -> Refusal:
    """Return the refusal of a workload for which only *unreserved* quota of *queue* is free and not reserved."""
    available = max(unreserved, 0)
    return Refusal(
        Reason.BLOCKED_BY_RESERVATION, resource, requested, available, queue=queue.name, subject=reservation.first.path
    )


def _excluding_reservations(capacity: FreeCapacity, binding: Iterable[JointReservation]) -> FreeCapacity:
    """Return the free capacity without what the *binding* reservations set aside."""
    for reservation in binding:
        charge = reservation.charges_by_cluster.get(capacity.name)
        if charge is not None:
            capacity = capacity.without(charge)
    return capacity
