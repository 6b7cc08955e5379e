"""Chooses the clusters on which capacity is reserved for a starving queue head (O6).

The head gets the clusters where it would fit, else those with the smallest shortage, if possible of those where enough
is presumed to be released in time. Reservations cover one cluster, several for a workload that runs on several, or all
parts of a HyperJob together. This module changes no usage.
"""

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from controller.engine.fairness.pending_order import FifoHeads, PendingOrder
from controller.engine.placement.division import has_static_weights
from controller.engine.placement.feasibility_cache import FeasibilityCache
from controller.engine.placement.fit import (
    FreeCapacity,
    choose_clusters,
    free_capacity,
    rank_cluster,
    replicas_that_fit,
    units_of,
)
from controller.engine.placement.part_order import PartOrder, PartSorter
from controller.engine.state.clusters import ClusterName
from controller.engine.state.queue_usage import QueueUsage
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, fits, scale, subtract, total
from controller.engine.state.workloads import (
    Choice,
    ClusterCharge,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadUid,
)

ClusterReservations = tuple[ClusterCharge, ...]
PlacedReservations = Mapping[WorkloadUid, ClusterReservations]
"""Charges to reserve for each workload that starts together; empty where too little capacity can be reserved."""
RemainingCharges = Mapping[ClusterName, Resources]
"""What of the charges on each cluster is not presumed to be released in time."""


class ReservationPlanner:
    """Chooses what to reserve for a starving head, with the other parts of its HyperJob."""

    def __init__(self, order: PendingOrder, queue_usage: QueueUsage, feasibility_cache: FeasibilityCache) -> None:
        self._order = order
        self._workloads = order.workloads
        self._queue_usage = queue_usage
        self.feasibility_cache = feasibility_cache

    def place(
        self, workload: Workload, unavailable: Collection[ClusterName], remaining: Sequence[RemainingCharges] = ()
    ) -> PlacedReservations:
        """Return what to reserve for *workload* and its HyperJob parts on clusters that are not *unavailable*.

        Where possible next to the first of the *remaining* charges, else the second, and so on. Reservations that parts
        hold already stay as they are and are left out of the result.
        """
        workload_class = self._workloads.pending.class_of(workload.uid)
        gang = workload_class.gang
        if not self._workloads.gangs.is_all_or_nothing(gang):
            charges = ReservationPlacer(self.feasibility_cache, unavailable, remaining).place(
                workload_class.requirements
            )
            return {workload.uid: charges} if charges else {}
        sorter = PartSorter(self._placeable_parts(gang), self._workloads.pending, self.feasibility_cache)
        for order in PartOrder:
            best_fit = order is not PartOrder.BY_NAME
            placer = ReservationPlacer(self.feasibility_cache, unavailable, remaining, best_fit=best_fit)
            # Parts with a reservation come first.
            parts = sorted(sorter.in_order(order), key=lambda part: part.reservation is None)
            placed = self._place_gang(gang, parts, placer)
            if placed is not None:
                return placed
        return {}

    def _place_gang(
        self, gang: HyperJobGang, parts: Sequence[Workload], placer: "ReservationPlacer"
    ) -> PlacedReservations | None:
        """Return what to reserve for as many *parts* of *gang* as fit together; ``None`` if too few fit."""
        present = self._queue_usage.quota()
        quota = Quota(present.tree, present.limits, {})
        placed: dict[WorkloadUid, ClusterReservations] = {}
        spare = len(parts) - self._workloads.gangs.missing(gang)
        for part in parts if spare >= 0 else ():
            requirements, node = self._workloads.pending.class_of(part.uid).requirements, quota.tree.nodes[part.queue]
            charge = self.feasibility_cache.get(requirements).charge
            reserved = part.reservation.cluster_charges if part.reservation is not None else ()
            charges = reserved or (placer.place(requirements) if quota.refusal(node, charge) is None else ())
            if not charges:
                spare -= 1
                if spare < 0:
                    return None
                continue
            quota.add_assumed(node, charge)
            placer.assign(charges)
            if not reserved:
                placed[part.uid] = charges
        return placed if spare >= 0 else None

    def _placeable_parts(self, gang: HyperJobGang) -> list[Workload]:
        """Return the pending parts that capacity could admit.

        Those behind another workload in a fifo queue are left out: they could not use the capacity (O5).
        """
        pending, heads = self._workloads.pending, FifoHeads(self._order)
        classes = ((part, pending.class_of(part.uid)) for part in self._workloads.pending_parts(gang))
        return [part for part, workload_class in classes if workload_class.competes and heads.before(part) is None]


class ReservationPlacer:
    """Places reservations on clusters, next to those already assigned to other parts of the same HyperJob.

    With *best_fit* it takes clusters with the least capacity left over in place of those with the smallest
    shortage, so that more parts fit together.
    """

    def __init__(
        self,
        feasibility_cache: FeasibilityCache,
        unavailable: Collection[ClusterName],
        remaining: Sequence[RemainingCharges] = (),
        *,
        best_fit: bool = False,
    ) -> None:
        self._best_fit = best_fit
        self._remaining = remaining
        self._feasibility_cache = feasibility_cache
        self._cluster_usage = feasibility_cache.cluster_usage
        self._unavailable = unavailable
        self._assigned: dict[ClusterName, Resources] = {}
        self._infeasible: set[int] = set()
        """Ids of requirements that could not be placed; further assignments only reduce the free capacity."""

    def assign(self, charges: ClusterReservations) -> None:
        """Deduct *charges* from what can be reserved for other parts."""
        for cluster_charge in charges:
            self._assigned[cluster_charge.cluster] = add(
                self._assigned.get(cluster_charge.cluster, EMPTY), cluster_charge.charge
            )

    def place(self, requirements: SchedulingRequirements) -> ClusterReservations:
        """Return the charges to reserve for *requirements*; empty where the available clusters are too small."""
        feasibility = self._feasibility_cache.get(requirements)
        names, copies = feasibility.candidates.names, feasibility.candidates.copies
        available = [name for name in names if name not in self._unavailable]
        if not available or id(requirements) in self._infeasible:
            return ()
        charges = self._search(requirements, names if has_static_weights(requirements) else available, copies)
        if any(cluster_charge.cluster in self._unavailable for cluster_charge in charges):
            charges = ()
        if not charges:
            self._infeasible.add(id(requirements))
        return charges

    def _search(
        self, requirements: SchedulingRequirements, names: Sequence[ClusterName], copies: int
    ) -> ClusterReservations:
        free = [] if self._best_fit else [self._free_now(name) for name in names]
        if free and (charges := _choose_charges(requirements, free, copies)):
            return charges
        for remaining in (*self._remaining, {}):
            later = [self._free_later(name, remaining.get(name, EMPTY)) for name in names]
            charges = _with_smallest_shortage(requirements, free, later, copies) if free else ()
            if charges := charges or _choose_charges(requirements, later, copies):
                return charges
        return ()

    def _free_now(self, name: ClusterName) -> FreeCapacity:
        capacity, assigned = free_capacity(self._cluster_usage.cluster_state(name)), self._assigned.get(name)
        return capacity if assigned is None else capacity.without(assigned)

    def _free_later(self, name: ClusterName, remaining: Resources) -> FreeCapacity:
        """Return a cluster's free capacity beside *remaining* charges, assigned reservations and external usage."""
        cluster_state, assigned = self._cluster_usage.cluster_state(name), self._assigned.get(name)
        freed = subtract(add(cluster_state.recently_freed.total, cluster_state.charged), remaining)
        set_aside = cluster_state.in_advance.without_releases if cluster_state.in_advance is not None else None
        free = subtract(cluster_state.capacity, remaining)
        capacity = FreeCapacity(cluster_state, free, cluster_state.allocatable, freed=freed, in_advance=set_aside)
        return capacity if assigned is None else capacity.without(assigned)


def _choose_charges(
    requirements: SchedulingRequirements, capacities: list[FreeCapacity], copies: int
) -> ClusterReservations:
    if not requirements.replicas and sum(capacity.fits(requirements) for capacity in capacities) < copies:
        return ()
    choice = choose_clusters(requirements, capacities, copies)
    return choice.cluster_charges if isinstance(choice, Choice) else ()


def _with_smallest_shortage(
    requirements: SchedulingRequirements, free: list[FreeCapacity], later: list[FreeCapacity], copies: int
) -> ClusterReservations:
    """Return charges on clusters that fit *later*, those with the most capacity free now first; else nothing."""
    if has_static_weights(requirements) or any(spread.by == "region" for spread in requirements.placement.spread):
        return ()
    feasible = {
        capacity.name
        for capacity in later
        if (fits(requirements.requests, capacity.headroom) if requirements.is_divided else capacity.fits(requirements))
    }
    if requirements.is_divided and not feasible:
        return _divide_replicas(requirements, free, later)
    candidates = [capacity for capacity in free if capacity.name in feasible]
    units = units_of(total(capacity.allocatable for capacity in candidates), requirements)
    candidates.sort(
        key=lambda capacity: (
            -_free_fraction(requirements.gang_requests, capacity),
            rank_cluster(requirements, capacity, units),
        )
    )
    return (
        tuple(ClusterCharge(capacity.name, requirements.requests) for capacity in candidates[:copies])
        if len(candidates) >= copies
        else ()
    )


def _divide_replicas(
    requirements: SchedulingRequirements, capacities: list[FreeCapacity], later: list[FreeCapacity]
) -> ClusterReservations:
    """Return charges for all replicas on as few clusters as possible, those with the most free replicas first."""
    free_replicas = {capacity.name: replicas_that_fit(requirements, capacity) for capacity in capacities}
    max_clusters = min(
        (
            constraint.maximum
            for constraint in requirements.placement.spread
            if constraint.by == "cluster" and constraint.maximum
        ),
        default=None,
    )
    parts: dict[ClusterName, int] = {}
    remaining = requirements.replicas
    for capacity in sorted(later, key=lambda capacity: (-free_replicas[capacity.name], capacity.name)):
        count = min(replicas_that_fit(requirements, capacity), remaining)
        if count > 0 and (max_clusters is None or len(parts) < max_clusters):
            parts[capacity.name] = count
            remaining -= count
    return (
        ()
        if remaining
        else tuple(ClusterCharge(name, scale(requirements.replica_requests, parts[name])) for name in sorted(parts))
    )


def _free_fraction(request: Resources, capacity: FreeCapacity) -> Fraction:
    """Return the smallest free fraction of *request* over all resources."""
    fractions = (Fraction(capacity.headroom.get(name, 0), amount) for name, amount in request.items() if amount > 0)
    return min(fractions, default=Fraction(1))
