"""Splits a job by the free capacity of the clusters: which clusters take parts, and of which size.

Pure. Equal units are packed onto clusters with as few parts as possible. One cluster, the leader, also takes the pods
that must exist once. The tracker knows the candidate clusters and what earlier jobs use.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, combinations, islice

from controller.api.hyperjob_validation import resize_template
from controller.api.hyperjobs import HyperJob, ReplicatedJob, SplitPolicy
from controller.api.quantity import format_quantity
from controller.api.volcanojobs import JobSpec
from controller.controllers.hyperjob.observed import PendingReason
from controller.controllers.hyperjob.pod_distribution import (
    PodCounts,
    distribute,
    equal_units,
    pod_requests,
    sum_requests,
)
from controller.engine.placement.fit import FreeCapacity
from controller.engine.placement.node_packing import can_hold_gang
from controller.engine.reasons import Reason
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import Resources, add, fits, subtract, total

Shares = tuple[tuple[str, int], ...]
"""Units of each cluster; the leader first."""

UNLIMITED = 10_000
#: Maximum number of cluster subsets that are tried for jobs that share clusters; all subsets if clusters are few.
_MAX_SUBSETS = 300
#: Work of all subsets that are tried, in pods; to place a job takes as long as to distribute this many pods.
_MAX_SUBSETS_WORK = 250_000
_JOB_WORK = 250

PartShare = tuple[str, PodCounts]
"""Cluster of a part, and its pods of each task."""


@dataclass(frozen=True, slots=True)
class ClusterBin:
    """Capacity of one cluster, in units."""

    name: str
    capacity: int
    leader_capacity: int
    """Capacity after placing the pods that must exist once; negative where these do not fit."""


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """The units to pack and their limits."""

    units: int
    max_parts: int
    """Maximum number of parts."""
    min_units: int = 1
    """Minimum number of units of a part."""


def pack(bins: Sequence[ClusterBin], request: PackingRequest, preferred: Sequence[str] = ()) -> Shares | None:
    """Return the packing with the fewest parts, ``None`` if there is none."""
    order = usable_bins(bins, request, preferred)
    by_size = _by_size(order)
    largest = [0, *accumulate(cluster.capacity for cluster in by_size)]
    preferred_names = [cluster.name for cluster in order if cluster.name in preferred]
    for parts in range(_min_parts(order, request), _max_parts(order, request) + 1):
        for leader in order:
            if leader.leader_capacity < request.min_units:
                continue
            others = largest[parts - 1] + min(by_size[parts - 1].capacity - leader.capacity, 0)
            if leader.leader_capacity + others < request.units:
                continue  # the search would find nothing, but slowly
            chosen = _choose(order, leader, request=request, parts=parts, preferred_names=preferred_names)
            if chosen:
                return _assign(order, chosen, leader, request)
    return None


def fill_in_order(bins: Sequence[ClusterBin], request: PackingRequest, preferred: Sequence[str] = ()) -> Shares | None:
    """Return the packing that fills one cluster after the other, ``None`` if there is none."""
    order = usable_bins(bins, request, preferred)
    for parts in range(_min_parts(order, request), _max_parts(order, request) + 1):
        chosen = order[:parts]
        held = sum(cluster.capacity for cluster in chosen)
        for leader in chosen:
            capacity = held - leader.capacity + leader.leader_capacity
            if leader.leader_capacity >= request.min_units and capacity >= request.units:
                return _assign(order, chosen, leader, request)
    return None


def usable_bins(bins: Sequence[ClusterBin], request: PackingRequest, preferred: Sequence[str]) -> list[ClusterBin]:
    """Return the bins that can hold a part: preferred ones in their order, then by size and name."""
    index = {name: number for number, name in enumerate(preferred)}
    usable = (cluster for cluster in bins if cluster.capacity >= request.min_units)
    return sorted(
        usable,
        key=lambda cluster: (index.get(cluster.name, len(index)), -min(cluster.capacity, request.units), cluster.name),
    )


def _min_parts(order: Sequence[ClusterBin], request: PackingRequest) -> int:
    """Return the minimum number of parts, ignoring pods that must exist once."""
    sums = accumulate(sorted((cluster.capacity for cluster in order), reverse=True))
    return next((parts for parts, held in enumerate(sums, start=1) if held >= request.units), len(order) + 1)


def _max_parts(order: Sequence[ClusterBin], request: PackingRequest) -> int:
    return min(request.max_parts, request.units // request.min_units, len(order))


def _choose(
    order: Sequence[ClusterBin],
    leader: ClusterBin,
    *,
    request: PackingRequest,
    parts: int,
    preferred_names: Sequence[str],
) -> list[ClusterBin] | None:
    """Return *parts* bins including *leader* that hold all units, preferred ones first, ``None`` if impossible."""
    others = [cluster for cluster in order if cluster is not leader]
    by_size = _by_size(others)
    need = request.units - leader.leader_capacity
    chosen: list[ClusterBin] = [leader]
    for left in range(parts - 1, 0, -1):
        cluster = _choose_next(others, by_size, need, left=left, preferred_names=preferred_names)
        if cluster is None:
            return None
        chosen.append(cluster)
        others.remove(cluster)
        by_size.remove(cluster)
        need -= cluster.capacity
    return chosen if need <= 0 else None


def _choose_next(
    others: Sequence[ClusterBin],
    by_size: Sequence[ClusterBin],
    need: int,
    *,
    left: int,
    preferred_names: Sequence[str],
) -> ClusterBin | None:
    """Return the first bin that leaves a solution for the *left* - 1 after it; the last bin wastes least."""
    least = need - sum(cluster.capacity for cluster in by_size[: left - 1])
    if by_size[left - 1].capacity < least:
        return None
    feasible = (cluster for cluster in others if cluster.capacity >= least)
    first = next(feasible)
    if left > 1 or first.name in preferred_names:
        return first
    return min((first, *feasible), key=lambda cluster: (cluster.capacity, cluster.name))


def _by_size(bins: Iterable[ClusterBin]) -> list[ClusterBin]:
    return sorted(bins, key=lambda cluster: -cluster.capacity)


def _assign(
    order: Sequence[ClusterBin], chosen: Sequence[ClusterBin], leader: ClusterBin, request: PackingRequest
) -> Shares:
    """Give each chosen bin the minimum, then fill them in order."""
    assigned = {cluster.name: request.min_units for cluster in chosen}
    rest = request.units - request.min_units * len(chosen)
    for cluster in (cluster for cluster in order if cluster.name in assigned):
        more = min((cluster.leader_capacity if cluster is leader else cluster.capacity) - request.min_units, rest)
        assigned[cluster.name] += more
        rest -= more
    return tuple(_leader_first(assigned, leader.name))


def _leader_first(assigned: dict[str, int], leader: str) -> Iterator[tuple[str, int]]:
    yield leader, assigned[leader]
    yield from ((name, units) for name, units in assigned.items() if name != leader)


@dataclass(slots=True)
class CapacityTracker:
    """Tracks what the parts placed so far use, by cluster."""

    free: Sequence[FreeCapacity]
    names: frozenset[str]
    """Names of the candidate clusters."""
    max_clusters: int
    taken: dict[str, Resources] = field(default_factory=dict)
    preferred: Sequence[str] = ()
    """Clusters that come after those that a job prefers, and before all others."""

    def headroom(self, room: FreeCapacity) -> Resources:
        """Return the remaining capacity of *room*."""
        return subtract(room.headroom, self.taken.get(room.name, {}))

    def take(self, name: str, amounts: Resources) -> None:
        """Use *amounts* on the cluster *name*."""
        self.taken[name] = add(self.taken.get(name, {}), amounts)


@dataclass(frozen=True, slots=True)
class _UnitRequests:
    """Requests of one unit of a template, and of the pods that exist once."""

    unit: Resources
    single_pods: Resources
    """Of all pods that exist once together."""
    pods: tuple[Resources, ...]
    tasks: tuple[tuple[Resources, int, int], ...]
    """By task: requests of a pod, number of pods in a unit, and number of pods that exist once."""

    def pod_sets(self, count: int, *, is_leader: bool) -> list[PodSet]:
        """Return the pods of *count* units, with those that exist once if it is the leader."""
        counted = [(request, per_unit * count + (once if is_leader else 0)) for request, per_unit, once in self.tasks]
        return [PodSet(tuple(sorted(request.items())), pods, pods) for request, pods in counted]


def _unit_requests(template: JobSpec) -> _UnitRequests:
    requests = pod_requests(template)
    units = equal_units(template)
    tasks = tuple(zip(template.tasks, template.is_single_instance, strict=True))
    once = tuple(task.replicas if is_single else 0 for task, is_single in tasks)
    unit = tuple(0 if is_single else task.replicas // units for task, is_single in tasks)
    asked = tuple(request for request, task in zip(requests, template.tasks, strict=True) if task.replicas > 0)
    return _UnitRequests(
        sum_requests(requests, unit), sum_requests(requests, once), asked, tuple(zip(requests, unit, once, strict=True))
    )


def place_parts(job: ReplicatedJob, policy: SplitPolicy, tracker: CapacityTracker) -> list[PartShare] | PendingReason:
    """Return the parts of *job* by free capacity, and record their usage; or why there is no solution."""
    template = resize_template(job)
    need, units = _unit_requests(template), equal_units(template)
    size = template.pods // units
    bins = [_cluster_bin(room, need, tracker) for room in tracker.free if room.has_nodes_for(need.pods)]
    least = -(-(policy.min_replicas or 1) // size)
    preferred = preferred_clusters(job, policy)
    packed = _pack(
        policy, bins, PackingRequest(units, tracker.max_clusters, least), preferred=preferred, tracker=tracker
    )
    if packed is None:
        return _explain_shortage(need, bins, units, tracker=tracker)
    pods = distribute(template, [count * size for _, count in packed])
    requests = pod_requests(template)
    shares = [(name, counts) for (name, _), counts in zip(packed, pods, strict=True)]
    for name, counts in shares:
        tracker.take(name, sum_requests(requests, counts))
    return shares


def preferred_clusters(job: ReplicatedJob, policy: SplitPolicy) -> Sequence[str]:
    """Return the clusters that *job* names, in this order; with ByResources, no others if there are any."""
    return [share.name for share in policy.clusters] or job.cluster_names


def cluster_subsets(hyperjob: HyperJob, tracker: CapacityTracker) -> Iterator[CapacityTracker]:
    """Yield empty trackers of as many clusters as all parts may use together, the largest clusters first.

    For several jobs that share their clusters: the placement of the first may leave no solution for the next. The more
    jobs and pods there are, the fewer subsets are tried.
    """
    most = max(min(_MAX_SUBSETS_WORK // sum(map(_work, hyperjob.spec.replicated_jobs)), _MAX_SUBSETS), 1)
    whole = total(map(_job_requests, hyperjob.spec.replicated_jobs))
    by_size = sorted(tracker.free, key=lambda room: (-_fitting_fraction(whole, room), room.name))
    chosen = combinations(by_size, min(tracker.max_clusters, len(by_size)))
    preferred = tracker.preferred
    yield from (CapacityTracker(rooms, tracker.names, UNLIMITED, preferred=preferred) for rooms in islice(chosen, most))


def _work(job: ReplicatedJob) -> int:
    """Return how long it takes to place *job*, in pods."""
    return _JOB_WORK + (job.replicas if job.split_policy is None else resize_template(job).pods)


def _job_requests(job: ReplicatedJob) -> Resources:
    template = resize_template(job)
    return sum_requests(pod_requests(template), tuple(max(task.replicas, 0) for task in template.tasks))


def _fitting_fraction(whole: Resources, room: FreeCapacity) -> Fraction:
    """Return the fraction of *whole* that fits on a cluster, by its scarcest resource."""
    shares = (Fraction(room.headroom.get(name, 0), amount) for name, amount in whole.items() if amount > 0)
    return min(shares, default=Fraction())


def _pack(
    policy: SplitPolicy,
    bins: Sequence[ClusterBin],
    request: PackingRequest,
    *,
    preferred: Sequence[str],
    tracker: CapacityTracker,
) -> Shares | None:
    """Pack onto the clusters in use if possible, otherwise onto as many more as `maxDomains` allows."""
    if policy.effective_strategy == "ByResources" and preferred:
        bins = [cluster for cluster in bins if cluster.name in preferred]
    preferred = tuple(dict.fromkeys((*preferred, *tracker.preferred)))
    fill = fill_in_order if policy.effective_strategy == "ByResources" else pack
    in_use = [cluster for cluster in bins if cluster.name in tracker.taken]
    packed = fill(in_use, request, preferred) if in_use else None
    if packed is not None or len(tracker.taken) >= request.max_parts:
        return packed
    return fill(
        bins, PackingRequest(request.units, request.max_parts - len(tracker.taken), request.min_units), preferred
    )


def _cluster_bin(room: FreeCapacity, need: _UnitRequests, tracker: CapacityTracker) -> ClusterBin:
    headroom = tracker.headroom(room)
    plain = _limit_by_nodes(_count_fitting(need.unit, headroom), room, need)
    if not need.single_pods:
        return ClusterBin(room.name, plain, plain)
    as_leader = (
        _count_fitting(need.unit, subtract(headroom, need.single_pods)) if fits(need.single_pods, headroom) else -1
    )
    return ClusterBin(room.name, plain, _limit_by_nodes(as_leader, room, need, is_leader=True))


def _limit_by_nodes(most: int, room: FreeCapacity, need: _UnitRequests, *, is_leader: bool = False) -> int:
    """Return how many of at most *most* units fit on the cluster's nodes, as far as these are known."""
    nodes = room.cluster_state.cluster.nodes if room.cluster_state.cluster else ()
    if most < 0 or not nodes or can_hold_gang(need.pod_sets(most, is_leader=is_leader), nodes):
        return most
    fitting, too_many = -1, most
    while too_many - fitting > 1:
        count = (fitting + too_many) // 2
        if can_hold_gang(need.pod_sets(count, is_leader=is_leader), nodes):
            fitting = count
        else:
            too_many = count
    return fitting


def _count_fitting(unit: Resources, headroom: Resources) -> int:
    """Return how often *unit* fits into *headroom*."""
    return max(min((headroom.get(name, 0) // amount for name, amount in unit.items() if amount > 0), default=0), 0)


def _explain_shortage(
    need: _UnitRequests, bins: Sequence[ClusterBin], units: int, *, tracker: CapacityTracker
) -> PendingReason:
    """Return why there is no solution, by the scarcest resource."""
    if not tracker.names:
        message = "no cluster that takes new workloads matches its placement and holds its data"
        return PendingReason(Reason.NO_MATCHING_CLUSTER, message)
    if not bins:
        return PendingReason(Reason.INSUFFICIENT_CAPACITY, "no candidate cluster has a node for each of its pods")
    asked = {name: amount * units + need.single_pods.get(name, 0) for name, amount in need.unit.items() if amount > 0}
    free = {name: sum(max(tracker.headroom(room).get(name, 0), 0) for room in tracker.free) for name in asked}
    short = min(sorted(asked), key=lambda name: Fraction(free[name], asked[name]), default=None)
    if short is not None and free[short] < asked[short]:
        amounts = f"{format_quantity(short, free[short])} {short} of {format_quantity(short, asked[short])}"
        return PendingReason(Reason.INSUFFICIENT_CAPACITY, f"its candidate clusters have {amounts} free")
    most = (
        f" on at most {tracker.max_clusters} cluster{'s' if tracker.max_clusters > 1 else ''}"
        if tracker.max_clusters < UNLIMITED
        else ""
    )
    return PendingReason(
        Reason.INSUFFICIENT_CAPACITY,
        f"its candidate clusters have enough capacity together, but not in parts that fit{most}",
    )
