"""Whether and where a workload fits: the choice among its candidate clusters.

Three ways to be placed: whole on one cluster (C3), whole on several (D5), or
divided by replicas (C4).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Final

from controller.engine.candidates import matches
from controller.engine.cluster_usage import ClusterState
from controller.engine.clusters import Assignment, ClusterName, StaticWeight
from controller.engine.estimates import ClusterEstimates
from controller.engine.node_packing import replicas_that_pack
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import EMPTY, PODS, Resources, add, first_insufficient, fits, scale, total
from controller.engine.spread import select_clusters
from controller.engine.workloads import Choice, ClusterCharge, SchedulingRequirements


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """What one candidate cluster has left, out of how much."""

    site: ClusterState
    headroom: Resources
    allocatable: Resources
    headroom_for_all_pods: Resources | None = None
    """What is left beside what is held there for others, ``None`` where nothing is: all of it must fit (D11)."""
    freed: Resources | None = EMPTY
    """What its nodes may have gained since its summary; ``None`` where they are taken for empty."""
    estimates: ClusterEstimates | None = None
    """What the cluster's estimator has counted on its nodes as they are; ``None`` where they are judged otherwise."""

    @property
    def name(self) -> ClusterName:
        """Return the cluster's name."""
        return self.site.name

    def fits(self, shape: SchedulingRequirements) -> bool:
        """Say whether the gang minimum fits, and no pod is refused by the cluster's resource models (C3)."""
        is_beside = self.headroom_for_all_pods is None or fits(shape.demand, self.headroom_for_all_pods)
        has_room = is_beside and fits(shape.gang, self.headroom) and self.has_nodes_for(shape.pods)
        return has_room and not self.is_refused_by_estimator(shape)

    def is_refused_by_estimator(self, shape: SchedulingRequirements) -> bool:
        """Say whether the cluster's estimator has counted too little room for the gang."""
        return self.estimates is not None and self.estimates.refuses(shape)

    def has_nodes_for(self, pods: Iterable[Resources]) -> bool:
        """Say whether each pod may find a node that has enough free now, as far as resource models tell.

        Karmada counts a node in the lowest grade that any graded resource
        reaches with what is free of it (``pkg/modeling``). So a node has less
        than its grade's upper end free of one resource at least, and any
        amount of the others.
        """
        grades = self.site.cluster.grades if self.site.cluster else ()
        if not grades or self.freed is None:
            return True
        ends = [{name: end + self.freed.get(name, 0) for name, end in grade.items()} for grade in grades]
        return all(any(_grade_may_hold(pod, end) for end in ends) for pod in pods)


def _grade_may_hold(pod: Resources, end: Resources) -> bool:
    """Say whether a node of the grade with this upper *end* may hold *pod*: it stays below it on some resource."""
    return any(pod.get(name, 0) < amount for name, amount in end.items())


def free_capacities(sites: Iterable[ClusterState]) -> list[FreeCapacity]:
    """Return what *sites* have left as they are now."""
    return [free_capacity(site) for site in sites]


def free_capacity(site: ClusterState) -> FreeCapacity:
    """Return what one more may take of *site*."""
    beside = site.settled if site.held else None
    return FreeCapacity(site, site.room, site.allocatable, beside, site.freed, site.estimates)


def free_after_evictions(site: ClusterState, gone: Resources = EMPTY) -> FreeCapacity:
    """Return what *site* will have left once the evictions under way, and those that free *gone*, are done."""
    room, freed = add(site.settled, gone), total((site.freed, site.leaving, gone))
    return FreeCapacity(site, room, site.allocatable, room if site.held else None, freed)


def capacities_when_empty(sites: Iterable[ClusterState]) -> list[FreeCapacity]:
    """Return what *sites* would have if they held nothing, foreign use included (C5).

    Resource models count what is free now, so they say nothing of empty nodes.
    """
    return [FreeCapacity(site, site.allocatable, site.allocatable, freed=None) for site in sites]


def choose_clusters(shape: SchedulingRequirements, candidates: Sequence[FreeCapacity], copies: int) -> Choice | Refusal:
    """Return where *shape* goes, or ``InsufficientCapacity`` with the cluster that comes closest.

    *copies* is the number of clusters that get the whole of an indivisible
    workload (D5).
    """
    if shape.replicas and shape.placement.divided:
        return _divide_replicas(shape, candidates)
    taking = [room for room in candidates if room.fits(shape)]
    chosen = _select_copies(shape, _rank_fitting(shape, taking, candidates), copies) if len(taking) >= copies else ()
    if len(chosen) < copies:
        taken = {room.name for room in taking}
        return _insufficient_capacity(shape, [room for room in candidates if room.name not in taken])
    replicas = shape.replicas or None
    return Choice(
        assignments=tuple(Assignment(room.name, replicas) for room in chosen),
        bookings=tuple(ClusterCharge(room.name, shape.demand) for room in chosen),
    )


def fits_enough_clusters(shape: SchedulingRequirements, rooms: Iterable[FreeCapacity], copies: int) -> bool:
    """Say whether as many of *rooms* take *shape* as it needs; ``False`` also where only ``choose`` can tell."""
    if (shape.replicas and shape.placement.divided) or any(spread.by == "region" for spread in shape.placement.spread):
        return False
    return sum(1 for _ in islice((room for room in rooms if room.fits(shape)), copies)) >= copies


def _rank_fitting(
    shape: SchedulingRequirements, taking: Sequence[FreeCapacity], candidates: Sequence[FreeCapacity]
) -> Sequence[FreeCapacity]:
    """Return the rooms that are *taking* it in C3's order among all *candidates*."""
    if len(taking) <= 1:
        return taking
    fleet = total(room.allocatable for room in candidates)
    return sorted(taking, key=lambda room: rank_cluster(shape, room, fleet))


def _select_copies(
    shape: SchedulingRequirements, ranked: Sequence[FreeCapacity], copies: int
) -> Sequence[FreeCapacity]:
    """Return the *copies* first of *ranked*, as far as a spread by region does not ask for others."""
    if not any(spread.by == "region" for spread in shape.placement.spread):
        return ranked[:copies]
    fitting = {room.name: room for room in ranked}
    clusters = [room.site.cluster for room in fitting.values() if room.site.cluster is not None]
    return [fitting[cluster.name] for cluster in select_clusters(shape.placement, clusters)]


#: Why a cluster with room on all its nodes together has none for a gang.
NODES_FULL: Final = "its nodes have no room for the gang, as its scheduler estimator counts"

ClusterRank = tuple[bool, bool, int, bool, Fraction, str]


def rank_cluster(shape: SchedulingRequirements, room: FreeCapacity, fleet: Resources) -> ClusterRank:
    """Return C3's order: fits, holds all of it, its preference, no unrequested devices, least left over, name."""
    whole = fits(shape.demand, room.headroom)
    preference = shape.preferred.index(room.name) if room.name in shape.preferred else len(shape.preferred)
    left = _leftover_fraction(shape.demand if whole else shape.gang, room, fleet)
    return not room.fits(shape), not whole, preference, _has_unrequested(shape.demand, room), left, room.name


def _has_unrequested(request: Resources, room: FreeCapacity) -> bool:
    """Say whether the cluster has an extended resource, such as GPUs, that is not requested."""
    return any("/" in name and amount > 0 and request.get(name, 0) <= 0 for name, amount in room.allocatable.items())


def _leftover_fraction(request: Resources, room: FreeCapacity, fleet: Resources) -> Fraction:
    """Return what stays free of the resource of which *request* takes the largest part of the cluster.

    As a part of what all candidates have of it: amounts of one resource are
    compared as they are, and those of two resources can be compared at all.
    """
    dominant, taken, whole = "", 0, 1
    for name in sorted(request):
        allocatable = room.allocatable.get(name, 0)
        if name != PODS and request[name] > 0 and allocatable > 0 and request[name] * whole > taken * allocatable:
            dominant, taken, whole = name, request[name], allocatable
    return Fraction(room.headroom.get(dominant, 0) - taken, fleet[dominant]) if dominant else Fraction(0)


def _insufficient_capacity(shape: SchedulingRequirements, left: Sequence[FreeCapacity]) -> Refusal:
    """Return the refusal with the cluster that lacks least, and what it lacks."""
    request = shape.demand if shape.replicas and shape.placement.divided else shape.gang
    if all(fits(request, room.headroom) and room.headroom_for_all_pods is not None for room in left):
        # The gang would fit, but not all of it beside what is held there for others.
        request = shape.demand
    short = [(resource, room) for room in left if (resource := first_insufficient(request, room.headroom)) is not None]
    refused = [room.name for room in left if room.is_refused_by_estimator(shape) and fits(request, room.headroom)]
    if refused:
        # They come closest: only their nodes, one by one, have too little free.
        return Refusal(Reason.INSUFFICIENT_CAPACITY, cluster=min(refused), subject=NODES_FULL)
    if not short:
        name = min((room.name for room in left), default=None)
        return Refusal(
            Reason.INSUFFICIENT_CAPACITY,
            cluster=name,
            subject="no node has enough free for one of its pods" if name else None,
        )
    resource, room = min(short, key=lambda pair: (-_free_fraction(request, *pair), pair[1].name))
    return Refusal(
        Reason.INSUFFICIENT_CAPACITY, resource, request[resource], room.headroom.get(resource, 0), cluster=room.name
    )


def _free_fraction(request: Resources, resource: str, room: FreeCapacity) -> Fraction:
    """Return which part of what is asked of *resource* there is."""
    return Fraction(room.headroom.get(resource, 0), request[resource])


def _divide_replicas(shape: SchedulingRequirements, candidates: Sequence[FreeCapacity]) -> Choice | Refusal:
    capacity = {room.name: replicas_that_fit(shape, room) for room in candidates}
    if shape.placement.weights:
        parts = split_by_weight(shape.replicas, _static_weights(shape.placement.weights, candidates))
        fitting = all(count <= capacity[name] for name, count in parts.items())
    else:
        parts = _fill_largest_first(shape, capacity)
        fitting = sum(parts.values()) == shape.replicas
    if not fitting or not parts:
        return _insufficient_capacity(shape, candidates)
    used = {name: count for name, count in parts.items() if count > 0}
    return Choice(
        assignments=tuple(Assignment(name, used[name]) for name in sorted(used)),
        bookings=tuple(ClusterCharge(name, scale(shape.replica, used[name])) for name in sorted(used)),
    )


def replicas_that_fit(shape: SchedulingRequirements, room: FreeCapacity) -> int:
    """Return how many replicas of a divisible *shape* there is room for."""
    counts = [max(room.headroom.get(name, 0), 0) // amount for name, amount in shape.replica.items() if amount > 0]
    nodes = room.site.cluster.nodes if room.site.cluster else ()
    most = replicas_that_pack(shape.replica, nodes) if nodes else None
    return min(counts if most is None else [*counts, most], default=shape.replicas)


def _fill_largest_first(shape: SchedulingRequirements, capacity: Mapping[ClusterName, int]) -> dict[ClusterName, int]:
    """Return the replicas by cluster, those that take most of them first, as many clusters as the spread allows."""
    parts: dict[ClusterName, int] = {}
    left = shape.replicas
    most = min((each.maximum for each in shape.placement.spread if each.by == "cluster" and each.maximum), default=None)
    for name in sorted(capacity, key=lambda name: (-capacity[name], name))[:most]:
        parts[name] = min(left, capacity[name])
        left -= parts[name]
    return parts


def _static_weights(weights: Sequence[StaticWeight], candidates: Sequence[FreeCapacity]) -> dict[ClusterName, int]:
    """Return each cluster's static weight: the largest of the rules that match it."""
    found: dict[ClusterName, int] = {}
    for room in candidates:
        matching = [rule.weight for rule in weights if room.site.cluster and matches(rule.affinity, room.site.cluster)]
        if matching:
            found[room.name] = max(matching)
    return found


def split_by_weight(replicas: int, weights: Mapping[ClusterName, int]) -> dict[ClusterName, int]:
    """Return the replicas by cluster, in proportion to *weights*.

    Each gets its share rounded down; what is left goes one by one to the
    largest weights, then by name, as Karmada's division does.
    """
    whole = sum(weights.values())
    if whole <= 0:
        return {}
    parts = {name: replicas * weight // whole for name, weight in weights.items()}
    left = replicas - sum(parts.values())
    for name in sorted(weights, key=lambda name: (-weights[name], name))[:left]:
        parts[name] += 1
    return parts
