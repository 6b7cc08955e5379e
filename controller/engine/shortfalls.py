"""Lists everything that a pending workload lacks, in the order of the engine's refusals.

Computed on request, never in a cycle. The first shortfall is the workload's pending reason, which
``pending_reasons`` finds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from controller.engine.engine import Engine
from controller.engine.placement.feasibility_cache import CandidateClusters, FeasibilityCache
from controller.engine.placement.fit import FreeCapacity, free_capacity, replicas_that_fit
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.resources import Resources, elementwise_min, scale, subtract
from controller.engine.state.workloads import SchedulingRequirements, WorkloadUid


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One thing that a pending workload lacks; amounts are in base units, negative where overcommitted."""

    reason: Reason
    refusal: Refusal
    """The same as a refusal, from which messages are made."""
    resource: str | None = None
    requests: int | None = None
    free: int | None = None
    lacks: int | None = None
    queue: QueueName | None = None
    cluster: ClusterName | None = None
    guaranteed: tuple[tuple[QueueName, int], ...] = ()
    """Siblings whose guarantees lower the queue's limit, with the amount of each."""


def shortfalls(engine: Engine, uid: WorkloadUid) -> tuple[Shortfall, ...]:
    """Return what the pending workload *uid* lacks, its pending reason first, without duplicates."""
    reason = engine.refusal(uid)
    if reason is None:
        return ()
    quota = engine.queue_shares.quota if engine.queue_shares is not None else None
    queue = engine.workloads[uid].queue
    shortfalls_found = [_shortfall(quota, queue, reason)]
    if uid in engine.pending:
        shortfalls_found += _class_shortfalls(engine, engine.pending.class_of(uid))
    unique: dict[tuple[object, ...], Shortfall] = {}
    for shortfall in shortfalls_found:
        unique.setdefault((shortfall.reason, shortfall.resource, shortfall.queue, shortfall.cluster), shortfall)
    return tuple(unique.values())


def _class_shortfalls(engine: Engine, workload_class: WorkloadClass) -> Iterator[Shortfall]:
    """Yield what the head of *workload_class* lacks: quota from leaf to root, cluster capacity, other rules."""
    queue_shares, node = engine.queue_shares, engine.tree().nodes.get(workload_class.queue)
    if queue_shares is None or node is None or not workload_class.is_waiting:
        return
    if workload_class.inadmissible is not None:
        yield _shortfall(queue_shares.quota, workload_class.queue, workload_class.inadmissible)
    node = queue_shares.quota.tree.nodes[workload_class.queue]
    yield from _queue_shortfalls(queue_shares.quota, node, workload_class.charge)
    present = engine.queue_usage.current_quota()
    if present is not None:
        yield from _queue_shortfalls(present, present.tree.nodes[workload_class.queue], workload_class.charge)
    yield from cluster_shortfalls(engine.feasibility_cache, workload_class.requirements)
    refusal = engine.cycle.reasons.of_class(workload_class)
    if refusal is not None:
        yield _shortfall(queue_shares.quota, workload_class.queue, refusal)


def _queue_shortfalls(quota: Quota, node: Node, charge: Resources) -> Iterator[Shortfall]:
    """Yield the limits on the path of *node* that *charge* exceeds, full queues before guarantees."""
    faults = list(quota.violations(node, charge))
    for fault in sorted(faults, key=lambda fault: fault.reason is Reason.BLOCKED_BY_GUARANTEE):
        yield _quota_shortfall(quota, node.name, fault)


def _quota_shortfall(quota: Quota, leaf: QueueName, fault: Refusal) -> Shortfall:
    name = QueueName(fault.queue or "")
    requested = fault.asked or 0
    return Shortfall(
        fault.reason,
        fault,
        fault.resource,
        requests=requested,
        free=fault.available,
        lacks=requested - (fault.available or 0),
        queue=name,
        guaranteed=_limiting_guarantees(quota, quota.tree.nodes[leaf], quota.tree.nodes[name], fault),
    )


def _limiting_guarantees(quota: Quota, leaf: Node, node: Node, fault: Refusal) -> tuple[tuple[QueueName, int], ...]:
    """Return the guarantees that lower the limit: those of a full queue's siblings, else of its own children.

    Of the child on the path of *leaf*, the part that the workload itself would use does not count.
    """
    resource = fault.resource or ""
    if fault.reason is Reason.BLOCKED_BY_GUARANTEE:
        requested = fault.asked or 0
        raised = {above.name: raised for above, raised in quota.reserved_quota_increases(leaf, resource, requested)}
        idle = (
            (
                child.name,
                quota.reserved_quota(child, resource)
                - quota.usage(child.name, resource)
                - (requested - raised[node.name] if child.name in raised else 0),
            )
            for child in node.children
        )
        return tuple((name, amount) for name, amount in idle if amount > 0)
    if node.parent is None or not is_limited_by_siblings(quota, node, resource):
        return ()
    amounts = ((child.name, quota.limits[child.name].guarantee.get(resource, 0)) for child in node.parent.children)
    return tuple((name, amount) for name, amount in amounts if amount > 0 and name != node.name)


def is_limited_by_siblings(quota: Quota, node: Node, resource: str) -> bool:
    """Return whether siblings' guarantees determine the limit of *node*."""
    capability = node.queue.capability.get(resource)
    return capability is None or capability > quota.limits[node.name].limit.get(resource, 0)


@dataclass(frozen=True, slots=True)
class Gap:
    """What one candidate cluster lacks to run its part of a workload."""

    cluster: ClusterName
    requests: Resources
    """What it would have to hold."""
    free: Resources
    missing: Resources
    """By resource, above zero only."""


def cluster_shortfalls(
    feasibility_cache: FeasibilityCache, requirements: SchedulingRequirements
) -> Iterator[Shortfall]:
    """Yield every resource that the closest candidate clusters lack; nothing if the workload fits."""
    feasibility = feasibility_cache.get(requirements)
    refusal = feasibility_cache.refusal(feasibility)
    if refusal is None:
        return
    if refusal.reason is Reason.BLOCKED_BY_RESERVATION:
        yield _plain_shortfall(refusal)
        return
    for gap in cluster_gaps(feasibility_cache, requirements):
        for resource in sorted(gap.missing):
            free = gap.free.get(resource, 0)
            refusal_of_cluster = Refusal(
                Reason.INSUFFICIENT_CAPACITY, resource, gap.requests[resource], free, cluster=gap.cluster
            )
            yield _plain_shortfall(refusal_of_cluster)
    # One that names nothing says that no cluster accepts new workloads.
    names_something = refusal.subject is not None or refusal.cluster is not None
    if refusal.resource is None and (names_something or _are_all_unusable(feasibility_cache, feasibility.candidates)):
        yield _plain_shortfall(refusal)


def _are_all_unusable(feasibility_cache: FeasibilityCache, candidates: CandidateClusters) -> bool:
    """Return whether clusters match, and none of them accepts new workloads."""
    states = [feasibility_cache.cluster_usage.cluster_state(name) for name in candidates.potential]
    return bool(states) and not any(state.is_usable for state in states)


def cluster_gaps(feasibility_cache: FeasibilityCache, requirements: SchedulingRequirements) -> list[Gap]:
    """Return what the closest clusters lack, as many as the workload needs, without those that fit."""
    feasibility = feasibility_cache.get(requirements)
    capacities = [
        free_capacity(feasibility_cache.cluster_usage.cluster_state(name)).available_to(requirements)
        for name in feasibility.candidates.names
    ]
    if requirements.is_divided:
        return [] if requirements.placement.weights else _divided_gap(requirements, capacities)
    nearest = sorted((cluster_gap(requirements, capacity) for capacity in capacities), key=_relative_gap)
    return [gap for gap in nearest[: feasibility.candidates.copies] if gap.missing]


def cluster_gap(requirements: SchedulingRequirements, capacity: FreeCapacity) -> Gap:
    """Return what one cluster lacks, of its *capacity* without what advance reservations keep free."""
    free, requests = capacity.headroom, requirements.gang_requests
    if capacity.headroom_for_all_pods is not None:
        # Next to nominated workloads, all pods must fit (D11).
        requests = requirements.requests
        free = elementwise_min(capacity.headroom, capacity.headroom_for_all_pods)
    return Gap(capacity.name, requests, free, _missing_amounts(requests, free))


def _divided_gap(requirements: SchedulingRequirements, capacities: Sequence[FreeCapacity]) -> list[Gap]:
    """Return what the cluster with most free replicas lacks to run the replicas that fit nowhere."""
    counts = {capacity.name: replicas_that_fit(requirements, capacity) for capacity in capacities}
    missing = requirements.replicas - sum(counts.values())
    if not capacities or missing <= 0:
        return []
    capacity = min(capacities, key=lambda capacity: (-counts[capacity.name], capacity.name))
    requests = scale(requirements.replica_requests, counts[capacity.name] + missing)
    return [Gap(capacity.name, requests, capacity.headroom, _missing_amounts(requests, capacity.headroom))]


def _missing_amounts(requests: Resources, free: Resources) -> Resources:
    missing = subtract(requests, free)
    return {name: missing[name] for name, amount in requests.items() if amount > 0 and missing[name] > 0}


def _relative_gap(gap: Gap) -> tuple[Fraction, ClusterName]:
    """Return the key that sorts clusters by the missing fraction of what they would have to hold."""
    return max(
        (Fraction(amount, gap.requests[name]) for name, amount in gap.missing.items()), default=Fraction(0)
    ), gap.cluster


def _shortfall(quota: Quota | None, leaf: QueueName, refusal: Refusal) -> Shortfall:
    """Return *refusal* with its amounts, and the guarantees that lower the limit it names."""
    if quota is not None and refusal.reason in _QUOTA and {refusal.queue, leaf} <= quota.tree.nodes.keys():
        return _quota_shortfall(quota, leaf, refusal)
    return _plain_shortfall(refusal)


def _plain_shortfall(refusal: Refusal) -> Shortfall:
    has_amounts = refusal.asked is not None and refusal.available is not None
    return Shortfall(
        refusal.reason,
        refusal,
        refusal.resource,
        requests=refusal.asked,
        free=refusal.available,
        lacks=(refusal.asked or 0) - (refusal.available or 0) if has_amounts else None,
        queue=QueueName(refusal.queue) if refusal.queue else None,
        cluster=ClusterName(refusal.cluster) if refusal.cluster else None,
    )


_QUOTA = frozenset(
    {
        Reason.EXCEEDS_QUEUE_LIMIT,
        Reason.EXCEEDS_TOTAL_CAPACITY,
        Reason.QUEUE_LIMIT_REACHED,
        Reason.BLOCKED_BY_GUARANTEE,
        Reason.INSUFFICIENT_CAPACITY,
    }
)
