"""Decides whether and where a workload fits among its candidate clusters.

A workload is placed whole on one cluster (C3), whole on several clusters (D5), or divided by replicas (C4).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from math import lcm
from typing import Final, NamedTuple

from controller.engine.placement.division import divide, parts_by_weight
from controller.engine.placement.filter import select_clusters
from controller.engine.placement.node_packing import replicas_that_pack
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.amounts_in_advance import AmountsInAdvance
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.clusters import Assignment, Cluster, ClusterName
from controller.engine.state.estimates import ClusterEstimates
from controller.engine.state.resources import (
    EMPTY,
    PODS,
    Resources,
    add,
    elementwise_min,
    first_insufficient,
    fits,
    positive,
    scale,
    subtract,
    total,
)
from controller.engine.state.workloads import Choice, ClusterCharge, SchedulingRequirements

#: Why a cluster whose nodes have enough capacity in sum cannot hold a gang.
NODES_FULL: Final = "its nodes cannot hold the gang, according to its scheduler estimator"
#: Different pods that take as long to compare with the resource models of a cluster as the cluster with a workload.
PODS_PER_STEP: Final = 10
ClusterRank = tuple[bool, bool, int, bool, int, str]


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """Free and allocatable capacity of one candidate cluster."""

    cluster_state: ClusterState
    headroom: Resources
    allocatable: Resources
    headroom_for_all_pods: Resources | None = None
    """Headroom for all pods, less nominations; ``None`` without nominations, where only the gang must fit (D11)."""
    freed: Resources | None = EMPTY
    """What nodes may have gained since the cluster's summary; ``None`` if the nodes are assumed to be empty."""
    estimates: ClusterEstimates | None = None
    """Answers of the cluster's estimator; ``None`` if they do not apply."""
    in_advance: AmountsInAdvance | None = None
    """What advance reservations keep free of the headroom; ``None`` if they do not apply (O11)."""
    headroom_after_evictions: Resources | None = None
    """Headroom after the evictions in progress, by which clusters are ranked (P5); ``None`` without any."""

    @property
    def name(self) -> ClusterName:
        """Return the cluster's name."""
        return self.cluster_state.name

    def without(self, reserved: Resources) -> "FreeCapacity":
        """Return the free capacity without the *reserved* one; all pods of a workload must fit in it (D11)."""
        for_all_pods = self.headroom if self.headroom_for_all_pods is None else self.headroom_for_all_pods
        after_evictions = self.headroom_after_evictions
        return replace(
            self,
            headroom=subtract(self.headroom, reserved),
            headroom_for_all_pods=subtract(for_all_pods, reserved),
            headroom_after_evictions=None if after_evictions is None else subtract(after_evictions, reserved),
        )

    def available_to(self, requirements: SchedulingRequirements) -> "FreeCapacity":
        """Return the free capacity without what advance reservations keep free from *requirements* (O11)."""
        in_advance, names = self.in_advance, requirements.amounts_reserved_by
        if in_advance is None or not in_advance.binds(names):
            return replace(self, in_advance=None) if in_advance is not None else self
        return replace(self.without(in_advance.set_aside(names)), in_advance=None)

    def fits(self, requirements: SchedulingRequirements) -> bool:
        """Return whether the gang minimum fits and the cluster's resource models accept every pod (C3).

        What advance reservations keep free from the workload must stay free in addition to all its pods (O11).
        """
        if self.in_advance is not None:
            return self.available_to(requirements).fits(requirements)
        fits_all_pods = self.headroom_for_all_pods is None or fits(requirements.requests, self.headroom_for_all_pods)
        fits_gang = (
            fits_all_pods and fits(requirements.gang_requests, self.headroom) and self.has_nodes_for(requirements.pods)
        )
        return fits_gang and not self.is_refused_by_estimator(requirements)

    def accepts_pods(self, requirements: SchedulingRequirements) -> bool:
        """Return whether the nodes may hold the pods, according to resource models and the cluster's estimator."""
        return self.has_nodes_for(requirements.pods) and not self.is_refused_by_estimator(requirements)

    def is_refused_by_estimator(self, requirements: SchedulingRequirements) -> bool:
        """Return whether the cluster's estimator has counted too little capacity for the gang."""
        return self.estimates is not None and self.estimates.refuses(requirements)

    def has_nodes_for(self, pods: Iterable[Resources]) -> bool:
        """Return whether each pod may fit on some node, according to the cluster's resource models.

        Karmada counts a node in the lowest grade that any graded resource reaches with its free amount
        (``pkg/modeling``). So a node has less than its grade's upper end of at least one resource, and any amount of
        the others.
        """
        grades = self.cluster_state.cluster.grades if self.cluster_state.cluster else ()
        if not grades or self.freed is None:
            return True
        ends = [{name: end + self.freed.get(name, 0) for name, end in grade.items()} for grade in grades]
        return all(any(_grade_may_hold(pod, end) for end in ends) for pod in pods)


def _grade_may_hold(pod: Resources, end: Resources) -> bool:
    """Return whether a node of the grade with upper *end* may hold *pod*: one request must be below its end."""
    return any(pod.get(name, 0) < amount for name, amount in end.items())


def free_capacities(cluster_states: Iterable[ClusterState]) -> list[FreeCapacity]:
    """Return the free capacity of *cluster_states* now."""
    return [free_capacity(cluster_state) for cluster_state in cluster_states]


def free_capacity(cluster_state: ClusterState) -> FreeCapacity:
    """Return the free capacity of a cluster now."""
    after_evictions = cluster_state.headroom_after_evictions
    return FreeCapacity(
        cluster_state,
        cluster_state.available,
        cluster_state.allocatable,
        after_evictions if cluster_state.nominated else None,
        cluster_state.recently_freed.total,
        cluster_state.estimates,
        cluster_state.in_advance,
        after_evictions if cluster_state.being_evicted else None,
    )


def free_after_evictions(
    cluster_state: ClusterState, evicted: Resources | None = None, *, with_estimates: bool = False
) -> FreeCapacity:
    """Return the free capacity once evictions in progress, and those that free *evicted*, have finished.

    With *evicted*, no other release is expected before an advance reservation begins. *with_estimates*: the answers of
    the cluster's estimator count where nothing is evicted, because its nodes stay as they are.
    """
    in_advance = cluster_state.in_advance
    if in_advance is not None and evicted is not None:
        in_advance = in_advance.without_releases
    evicted = evicted if evicted is not None else EMPTY
    capacity, freed = (
        add(cluster_state.headroom_after_evictions, evicted),
        total((cluster_state.recently_freed.total, cluster_state.being_evicted, evicted)),
    )
    return FreeCapacity(
        cluster_state,
        capacity,
        cluster_state.allocatable,
        capacity if cluster_state.nominated else None,
        freed,
        cluster_state.estimates
        if with_estimates and not cluster_state.being_evicted and not any(evicted.values())
        else None,
        in_advance,
    )


def required_after_evictions(
    requirements: SchedulingRequirements,
    cluster_state: ClusterState,
    reserved: Resources | None = None,
    *,
    is_evicted_from: bool = True,
) -> Resources:
    """Return what must be free on a cluster after evictions for a workload with *requirements* (D11, O6, O11).

    Of what is *reserved* for others there, what is free before the evictions. *is_evicted_from*: some of the evicted
    workloads run there.
    """
    in_advance, set_aside = cluster_state.in_advance, EMPTY
    if in_advance is not None and in_advance.binds(requirements.amounts_reserved_by):
        in_advance = in_advance.without_releases if is_evicted_from else in_advance
        set_aside = in_advance.set_aside(requirements.amounts_reserved_by)
    elif not cluster_state.nominated and reserved is None:
        return requirements.gang_requests
    if reserved is not None:
        free = positive(subtract(cluster_state.headroom_after_evictions, set_aside))
        set_aside = add(set_aside, elementwise_min(reserved, free))
    requested = requirements.requests
    return add(requested, {name: set_aside[name] for name in set_aside if requested.get(name, 0) > 0})


def capacities_when_empty(cluster_states: Iterable[ClusterState]) -> list[FreeCapacity]:
    """Return the capacity of *cluster_states* without any usage, external usage included (C5).

    Resource models count what is free now, so they are ignored.
    """
    return [
        FreeCapacity(cluster_state, cluster_state.allocatable, cluster_state.allocatable, freed=None)
        for cluster_state in cluster_states
    ]


def choose_clusters(
    requirements: SchedulingRequirements, candidates: Sequence[FreeCapacity], copies: int
) -> Choice | Refusal:
    """Return the clusters for *requirements*, or ``InsufficientCapacity`` with the cluster that comes closest.

    *copies* is the number of clusters that each run an indivisible workload (D5).
    """
    if requirements.is_divided:
        return _divide_replicas(requirements, candidates)
    fitting = [capacity for capacity in candidates if capacity.fits(requirements)]
    chosen = (
        _select_copies(requirements, _rank_fitting(requirements, fitting, candidates), copies)
        if len(fitting) >= copies
        else ()
    )
    if len(chosen) < copies:
        fitting_names = {capacity.name for capacity in fitting}
        return insufficient_capacity(
            requirements, [capacity for capacity in candidates if capacity.name not in fitting_names]
        )
    return place_copies(requirements, [capacity.name for capacity in chosen])


def place_copies(requirements: SchedulingRequirements, names: Sequence[ClusterName]) -> Choice:
    """Return the choice that runs a whole copy on each of the clusters *names*."""
    replicas = requirements.replicas or None
    return Choice(
        assignments=tuple(Assignment(name, replicas) for name in names),
        cluster_charges=tuple(ClusterCharge(name, requirements.requests) for name in names),
    )


def fits_enough_clusters(requirements: SchedulingRequirements, capacities: Iterable[FreeCapacity], copies: int) -> bool:
    """Return whether *copies* clusters fit; ``False`` also where only ``choose_clusters`` can decide."""
    if requirements.is_divided or any(spread.by == "region" for spread in requirements.placement.spread):
        return False
    return (
        sum(1 for _ in islice((capacity for capacity in capacities if capacity.fits(requirements)), copies)) >= copies
    )


def _rank_fitting(
    requirements: SchedulingRequirements, fitting: Sequence[FreeCapacity], candidates: Sequence[FreeCapacity]
) -> Sequence[FreeCapacity]:
    """Return the *fitting* clusters in C3's order."""
    if len(fitting) <= 1:
        return fitting
    units = units_of(total(capacity.allocatable for capacity in candidates), requirements)
    return sorted(fitting, key=lambda capacity: rank_cluster(requirements, capacity, units))


def _select_copies(
    requirements: SchedulingRequirements, ranked: Sequence[FreeCapacity], copies: int
) -> Sequence[FreeCapacity]:
    """Return the first *copies* of *ranked*, or those that a spread constraint by region selects."""
    if not any(spread.by == "region" for spread in requirements.placement.spread):
        return ranked[:copies]
    by_name = {capacity.name: capacity for capacity in ranked}
    clusters = [
        capacity.cluster_state.cluster for capacity in by_name.values() if capacity.cluster_state.cluster is not None
    ]
    return [by_name[cluster.name] for cluster in select_clusters(requirements.placement, clusters)]


def units_of(fleet: Resources, requirements: SchedulingRequirements) -> Resources:
    """Return an integer for each requested resource of the *fleet*, so that amounts times it compare as fractions."""
    names = {*requirements.requests, *requirements.gang_requests}
    amounts = {name: fleet[name] for name in names if fleet.get(name, 0) > 0}
    unit = lcm(*amounts.values())
    return {name: unit // amount for name, amount in amounts.items()}


_Dominant = tuple[str, int, int]
"""A resource, the request of it, and its unit; empty and zero where no resource counts."""


class FixedRank(NamedTuple):
    """The part of C3's order that stays the same until the feasibility cache is cleared."""

    name: ClusterName
    preference: int
    has_unrequested: bool
    """It has an extended resource, such as GPUs, that is not requested."""
    of_all_pods: _Dominant
    of_gang: _Dominant

    def rank(self, headroom: Resources, *, fits_gang: bool, fits_all_pods: bool) -> ClusterRank:
        """Return C3's order: gang fits, all pods fit, preference, no unrequested devices, least left over, name.

        What is left over of the dominant resource counts in parts of the total over all candidates, so that clusters
        with different dominant resources are comparable.
        """
        resource, asked, unit = self.of_all_pods if fits_all_pods else self.of_gang
        leftover = (headroom.get(resource, 0) - asked) * unit
        return not fits_gang, not fits_all_pods, self.preference, self.has_unrequested, leftover, self.name


def fixed_rank(
    requirements: SchedulingRequirements, name: ClusterName, allocatable: Resources, units: Resources
) -> FixedRank:
    """Return the part of a cluster's rank that follows from its *allocatable* resources."""
    requests, gang, preferred = requirements.requests, requirements.gang_requests, requirements.preferred_clusters
    of_all_pods = _dominant(requests, allocatable, units)
    return FixedRank(
        name,
        preferred.index(name) if name in preferred else len(preferred),
        any(
            "/" in resource and amount > 0 and requests.get(resource, 0) <= 0
            for resource, amount in allocatable.items()
        ),
        of_all_pods,
        of_all_pods if gang == requests else _dominant(gang, allocatable, units),
    )


def _dominant(request: Resources, allocatable: Resources, units: Resources) -> _Dominant:
    """Return the resource with the largest request / allocatable, ``pods`` aside (C3)."""
    dominant, taken, dominant_allocatable = "", 0, 1
    for name in sorted(request):
        amount = allocatable.get(name, 0)
        if name != PODS and request[name] > 0 and amount > 0 and request[name] * dominant_allocatable > taken * amount:
            dominant, taken, dominant_allocatable = name, request[name], amount
    return dominant, taken, units[dominant] if dominant else 0


def rank_cluster(requirements: SchedulingRequirements, capacity: FreeCapacity, units: Resources) -> ClusterRank:
    """Return a cluster's rank in C3's order."""
    fixed = fixed_rank(requirements, capacity.name, capacity.allocatable, units)
    headroom = capacity.headroom if capacity.headroom_after_evictions is None else capacity.headroom_after_evictions
    fits_all_pods = fits(requirements.requests, headroom)
    return fixed.rank(headroom, fits_gang=capacity.fits(requirements), fits_all_pods=fits_all_pods)


def insufficient_capacity(requirements: SchedulingRequirements, candidates: Sequence[FreeCapacity]) -> Refusal:
    """Return the refusal with the cluster that lacks least, and what it lacks."""
    request = requirements.requests if requirements.is_divided else requirements.gang_requests
    if all(fits(request, capacity.headroom) and capacity.headroom_for_all_pods is not None for capacity in candidates):
        # The gang would fit, but not all pods next to the nominated workloads.
        request = requirements.requests
    shortages = [
        (resource, capacity)
        for capacity in candidates
        if (resource := first_insufficient(request, capacity.headroom)) is not None
    ]
    refused = [
        capacity.name
        for capacity in candidates
        if capacity.is_refused_by_estimator(requirements) and fits(request, capacity.headroom)
    ]
    if refused:
        # These clusters come closest: only their individual nodes have too little free.
        return Refusal(Reason.INSUFFICIENT_CAPACITY, cluster=min(refused), subject=NODES_FULL)
    if not shortages:
        name = min((capacity.name for capacity in candidates), default=None)
        return Refusal(
            Reason.INSUFFICIENT_CAPACITY,
            cluster=name,
            subject="no node has enough free for one of its pods" if name else None,
        )
    resource, capacity = min(shortages, key=lambda pair: (-_free_fraction(request, *pair), pair[1].name))
    return Refusal(
        Reason.INSUFFICIENT_CAPACITY,
        resource,
        request[resource],
        capacity.headroom.get(resource, 0),
        cluster=capacity.name,
    )


def _free_fraction(request: Resources, resource: str, capacity: FreeCapacity) -> Fraction:
    return Fraction(capacity.headroom.get(resource, 0), request[resource])


def _divide_replicas(requirements: SchedulingRequirements, candidates: Sequence[FreeCapacity]) -> Choice | Refusal:
    clusters = [capacity.cluster_state.cluster for capacity in candidates if capacity.cluster_state.cluster is not None]
    capacity_by_cluster = {capacity.name: replicas_that_fit(requirements, capacity) for capacity in candidates}
    parts = divide(requirements, capacity_by_cluster, clusters)
    if parts is None:
        return _division_refusal(requirements, candidates, capacity_by_cluster, clusters)
    used = {name: count for name, count in parts.items() if count > 0}
    return Choice(
        assignments=tuple(Assignment(name, used[name]) for name in sorted(used)),
        cluster_charges=tuple(
            ClusterCharge(name, scale(requirements.replica_requests, used[name])) for name in sorted(used)
        ),
    )


def _division_refusal(
    requirements: SchedulingRequirements,
    candidates: Sequence[FreeCapacity],
    capacity_by_cluster: Mapping[ClusterName, int],
    clusters: Sequence[Cluster],
) -> Refusal:
    """Return what the first part by static weights that does not fit lacks, else the cluster that lacks least."""
    parts = parts_by_weight(requirements, capacity_by_cluster, clusters) if requirements.placement.weights else {}
    for capacity in candidates:
        part, room = parts.get(capacity.name, 0), capacity_by_cluster[capacity.name]
        if part > room:
            request = scale(requirements.replica_requests, part)
            resource = first_insufficient(request, capacity.headroom)
            if resource is None:
                subject = f"the nodes of '{capacity.name}' hold {room} of its {part} replicas there"
                return Refusal(Reason.INSUFFICIENT_CAPACITY, subject=subject)
            free = capacity.headroom.get(resource, 0)
            return Refusal(Reason.INSUFFICIENT_CAPACITY, resource, request[resource], free, cluster=capacity.name)
    room = sum(capacity_by_cluster.values())
    if room < requirements.replicas:
        by_sum = {capacity.name: _replicas_by_sum(requirements, capacity) for capacity in candidates}
        if divide(requirements, by_sum, clusters) is not None:
            subject = f"the nodes of its candidate clusters hold {room} of its {requirements.replicas} replicas"
            return Refusal(Reason.INSUFFICIENT_CAPACITY, subject=subject)
    return insufficient_capacity(requirements, candidates)


def replicas_that_fit(requirements: SchedulingRequirements, capacity: FreeCapacity) -> int:
    """Return how many replicas of a divisible workload fit."""
    by_sum = _replicas_by_sum(requirements, capacity)
    nodes = capacity.cluster_state.cluster.nodes if capacity.cluster_state.cluster else ()
    packed = replicas_that_pack(requirements.replica_requests, nodes) if nodes else None
    return by_sum if packed is None else min(by_sum, packed)


def _replicas_by_sum(requirements: SchedulingRequirements, capacity: FreeCapacity) -> int:
    """Return how many replicas fit the sum of the cluster's capacity, however its nodes divide that."""
    counts = [
        max(capacity.headroom.get(name, 0), 0) // amount
        for name, amount in requirements.replica_requests.items()
        if amount > 0
    ]
    return min(counts, default=requirements.replicas)
