"""Splits a HyperJob into parts: number of Volcano Jobs, pods of each task, and clusters.

Pure: it depends on the HyperJob and the clusters' capacity only. What happened to an earlier split is in ``state``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from controller.api import bindings as wire
from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.hyperjob_validation import (
    MAX_PARTS,
    count_static_parts,
    parts_size_violation,
    resize_template,
)
from controller.api.hyperjobs import HyperJob, PartStatus, ReplicatedJob, SplitPolicy, Strategy
from controller.api.volcanojobs import JobSpec
from controller.cache.data_requirements import NO_DATA, DataRequirement
from controller.cache.objects import TemplateKey
from controller.cache.translate.bindings import PlacementError, translate_placement
from controller.controllers.hyperjob.capacity_split import (
    UNLIMITED,
    CapacityTracker,
    cluster_subsets,
    place_parts,
    preferred_clusters,
)
from controller.controllers.hyperjob.children import hyperjob_key
from controller.controllers.hyperjob.observed import PendingReason
from controller.controllers.hyperjob.pod_distribution import (
    PodCounts,
    SplitError,
    distribute,
    divide_by_weight,
    divide_equally,
    pod_requests,
    sum_requests,
)
from controller.engine.engine import Engine
from controller.engine.placement.filter import candidates
from controller.engine.placement.fit import FreeCapacity, capacities_when_empty, free_capacities
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Cluster, Placement
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import SchedulingRequirements
from controller.reporting.messages import pending_message

#: Returns why a namespace cannot have these requests admitted in a queue now, or ``None``.
QuotaCheck = Callable[[str, str, Resources], PendingReason | None]

_REASONS: Mapping[Strategy, str] = {
    "ByCluster": "the split policy names cluster and replicas",
    "ByReplicas": "the split policy's share of the replicas",
    "Static": "an equal share of the static split",
    "ByResources": "filled before the clusters after it in the order",
    "Auto": "fewest parts; preferred clusters first, then the largest",
}
_CAPACITY_STRATEGIES = frozenset({"ByResources", "Auto"})

#: Returns what the data of a HyperJob require of its clusters.
DataOf = Callable[[TemplateKey], DataRequirement]


def _unlimited_quota(_: str, __: str, ___: Resources) -> PendingReason | None:
    return None


@dataclass(frozen=True, slots=True)
class CapacitySnapshot:
    """Free capacity of the clusters now, and without our workloads."""

    free: Sequence[FreeCapacity] = ()
    empty: Sequence[FreeCapacity] = ()
    quota: QuotaCheck = _unlimited_quota
    max_parts: int = MAX_PARTS
    """Maximum number of parts of a HyperJob."""
    data_of: DataOf = lambda _: NO_DATA
    data: DataRequirement = NO_DATA
    """What the data of the HyperJob to split require."""

    def with_data_of(self, hyperjob: HyperJob) -> "CapacitySnapshot":
        """Return the clusters that hold the data of *hyperjob*, if its split depends on the clusters (C6)."""
        data = self.data_of(hyperjob_key(hyperjob)) if is_automatic(hyperjob) else NO_DATA
        held = data.clusters
        if held is None:
            return replace(self, data=data)
        free, empty = ([room for room in rooms if room.name in held] for rooms in (self.free, self.empty))
        return replace(self, free=free, empty=empty, data=data)

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters that accept new workloads."""
        return [
            room.cluster_state.cluster
            for room in self.free
            if room.cluster_state.cluster and room.cluster_state.is_usable
        ]


def capacity_snapshot(
    engine: Engine, configuration: VolcanoGlobalConfiguration, data_of: DataOf
) -> CapacitySnapshot | None:
    """Return the capacity of the clusters and queues of *engine*, ``None`` before its first cycle."""
    if engine.queue_shares is None:
        return None
    queue_usage = engine.queue_shares.quota

    def quota(namespace: str, name: str, demand: Resources) -> PendingReason | None:
        queue = QueueName(name or configuration.default_queue)
        # The quota of queues that the namespace may not use is not disclosed (Q7).
        refusal = engine.policy.refusal(namespace, queue)
        node = queue_usage.tree.nodes.get(queue)
        if refusal is None and node is not None:
            refusal = queue_usage.refusal(node, demand)
        return pending_reason(refusal)

    return CapacitySnapshot(
        free_capacities(engine.cluster_usage),
        capacities_when_empty(engine.cluster_usage),
        quota,
        configuration.max_hyper_job_parts,
        data_of,
    )


def pending_reason(refusal: Refusal | None) -> PendingReason | None:
    """Return *refusal* with its message."""
    return None if refusal is None else PendingReason(refusal.reason, pending_message(refusal))


@dataclass(frozen=True, slots=True)
class SplitResult:
    """The parts of a HyperJob, and why they cannot all start now, as far as the split determines."""

    parts: tuple[PartStatus, ...] = ()
    pending_reason: PendingReason | None = None

    @property
    def fits(self) -> bool:
        """Whether nothing prevents a start now."""
        return self.pending_reason is None


def split(hyperjob: HyperJob, capacity: CapacitySnapshot) -> SplitResult:
    """Return the parts of *hyperjob*: by free capacity if they fit now, otherwise by the capacity of empty clusters.

    Parts that cannot start now still queue. There are no parts if even empty clusters could not hold them, or while
    the clusters that hold its data are not known.
    """
    if capacity.data.pending:
        return SplitResult(pending_reason=pending_reason(Refusal(Reason.DATA_NOT_READY, subject=capacity.data.pending)))
    now = _split_on(hyperjob, capacity, capacity.free)
    if now.fits:
        refusal = _quota_reason(hyperjob, capacity.quota) if now.parts and is_automatic(hyperjob) else None
        return SplitResult(now.parts, refusal)
    waiting = _split_on(hyperjob, capacity, capacity.empty)
    if waiting.pending_reason is None:
        return SplitResult(waiting.parts, now.pending_reason)
    if waiting.pending_reason.reason == Reason.INSUFFICIENT_CAPACITY:
        return SplitResult(
            pending_reason=PendingReason(
                Reason.EXCEEDS_EVERY_CLUSTER, f"even while empty, {waiting.pending_reason.message}"
            )
        )
    return waiting


def is_automatic(hyperjob: HyperJob) -> bool:
    """Whether the clusters of its parts depend on free capacity."""
    return any(
        job.split_policy is not None and job.split_policy.effective_strategy in _CAPACITY_STRATEGIES
        for job in hyperjob.spec.replicated_jobs
    )


def cluster_placement(hyperjob: HyperJob) -> Placement:
    """Return which clusters may take parts; raises `SplitError`."""
    asked = {"clusterAffinity": hyperjob.spec.cluster_affinity, "clusterTolerations": hyperjob.spec.cluster_tolerations}
    try:
        return translate_placement(msgspec.convert(asked, wire.Placement, strict=False))
    except (msgspec.ValidationError, PlacementError) as error:
        raise SplitError(f"spec.clusterAffinity or spec.clusterTolerations: {error}") from error


def allowed_clusters(hyperjob: HyperJob, replicated_job: str, capacity: CapacitySnapshot) -> frozenset[str]:
    """Return the clusters that may take parts of a job that is split by free capacity; none for any other job.

    Raises `SplitError`.
    """
    job = next(job for job in hyperjob.spec.replicated_jobs if job.name == replicated_job)
    policy = job.split_policy
    if policy is None or policy.effective_strategy not in _CAPACITY_STRATEGIES:
        return frozenset()
    names = _candidate_names(hyperjob, capacity)
    ordered = preferred_clusters(job, policy)
    return names.intersection(ordered) if policy.effective_strategy == "ByResources" and ordered else names


def _candidate_names(hyperjob: HyperJob, capacity: CapacitySnapshot) -> frozenset[str]:
    requirements = SchedulingRequirements(placement=cluster_placement(hyperjob))
    return frozenset(map(str, candidates(requirements, capacity.clusters).names))


def requests_of_parts(hyperjob: HyperJob, parts: Iterable[PartStatus]) -> list[Resources]:
    """Return the requests of each of *parts*."""
    requests = {job.name: pod_requests(job.template_spec) for job in hyperjob.spec.replicated_jobs}
    return [sum_requests(requests[part.replicated_job], part.pods) for part in parts]


def _split_on(hyperjob: HyperJob, capacity: CapacitySnapshot, rooms: Sequence[FreeCapacity]) -> SplitResult:
    """Return the parts of all jobs in order; where jobs share few clusters, several subsets are tried."""
    names = _candidate_names(hyperjob, capacity)
    most = hyperjob.spec.max_domains or UNLIMITED
    rooms = [room for room in rooms if room.name in names]
    tracker = CapacityTracker(rooms, names, most, preferred=capacity.data.preferred)
    result = _split_jobs(hyperjob, tracker)
    if len(result.parts) > capacity.max_parts:
        raise SplitError(f"it would have {len(result.parts)} parts; {capacity.max_parts} are allowed")
    if is_automatic(hyperjob):
        counts = Counter(part.replicated_job for part in result.parts)
        excess = parts_size_violation(hyperjob, [counts[job.name] for job in hyperjob.spec.replicated_jobs])
        if excess:
            raise SplitError(excess)
    if result.fits or most == UNLIMITED or len(hyperjob.spec.replicated_jobs) == 1:
        return result
    others = (_split_jobs(hyperjob, subset) for subset in cluster_subsets(hyperjob, tracker))
    return next((other for other in others if other.fits), result)


def _split_jobs(hyperjob: HyperJob, tracker: CapacityTracker) -> SplitResult:
    parts: list[PartStatus] = []
    for job in hyperjob.spec.replicated_jobs:
        result = _split_job(job, tracker)
        if not result.fits:
            return result
        parts.extend(
            part.model_copy(update={"name": hyperjob.part_name(job, part.index), "replicated_job": job.name})
            for part in result.parts
        )
    return SplitResult(tuple(parts))


def _split_job(job: ReplicatedJob, tracker: CapacityTracker) -> SplitResult:
    template = resize_template(job)
    policy = job.split_policy
    if policy is None:
        whole = tuple(max(task.replicas, 0) for task in template.tasks)
        copies = range(max(job.replicas, 0))
        return SplitResult(tuple(_part(index, whole, reason="copy of the template") for index in copies))
    if policy.effective_strategy in _CAPACITY_STRATEGIES:
        return _split_by_capacity(job, policy, tracker)
    counts, names = _COUNTS[policy.effective_strategy](job, policy, template)
    pods = distribute(template, counts)
    if not all(map(any, pods)):
        raise SplitError(
            f"job {job.name!r}: a part would have no pods, because partitions cannot be divided; use fewer parts"
        )
    reason = _REASONS[policy.effective_strategy]
    return SplitResult(
        tuple(
            _part(index, counts, name, reason=reason)
            for index, (counts, name) in enumerate(zip(pods, names, strict=True))
        )
    )


def _part(index: int, pods: PodCounts, cluster: str = "", *, reason: str) -> PartStatus:
    return PartStatus(name="", index=index, pods=pods, cluster=cluster, reason=reason, phase="Pending")


def _split_by_capacity(job: ReplicatedJob, policy: SplitPolicy, tracker: CapacityTracker) -> SplitResult:
    shares = place_parts(job, policy, tracker)
    if isinstance(shares, PendingReason):
        return SplitResult(pending_reason=shares)
    reason = _REASONS[policy.effective_strategy]
    return SplitResult(tuple(_part(index, pods, name, reason=reason) for index, (name, pods) in enumerate(shares)))


# -- counts from the spec -----------------------------------------------------


def _by_cluster(_: ReplicatedJob, policy: SplitPolicy, template: JobSpec) -> tuple[list[int], list[str]]:
    shares = [(share.replicas or 0, share.name) for share in policy.clusters if share.replicas]
    counts, names = [count for count, _ in shares], [name for _, name in shares]
    # The counts may include the tasks that exist once, which are in the first part.
    counts[0] -= sum(counts) - template.pods
    return counts, names


def _by_replicas(_: ReplicatedJob, policy: SplitPolicy, template: JobSpec) -> tuple[list[int], list[str]]:
    if not policy.clusters:
        parts = policy.parts or 1
        return divide_equally(template.pods, parts), [""] * parts
    shares = divide_by_weight(template.pods, [share.weight or 1 for share in policy.clusters])
    return shares, [share.name for share in policy.clusters]


def _static(job: ReplicatedJob, _: SplitPolicy, template: JobSpec) -> tuple[list[int], list[str]]:
    parts = count_static_parts(job)
    return divide_equally(template.pods, parts), [""] * parts


_COUNTS: Mapping[Strategy, Callable[[ReplicatedJob, SplitPolicy, JobSpec], tuple[list[int], list[str]]]] = {
    "ByCluster": _by_cluster,
    "ByReplicas": _by_replicas,
    "Static": _static,
}


def _quota_reason(hyperjob: HyperJob, quota: QuotaCheck) -> PendingReason | None:
    for job in hyperjob.spec.replicated_jobs:
        template = resize_template(job)
        whole = sum_requests(pod_requests(template), tuple(max(task.replicas, 0) for task in template.tasks))
        refusal = quota(hyperjob.metadata.namespace, template.queue, whole)
        if refusal:
            return refusal
    return None
