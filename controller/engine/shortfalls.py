"""Lists everything that a pending workload lacks, in the order in which the engine would refuse it.

Worked out on request, never by a cycle: the reason that a workload is given is
the first of these, and stays ``cycle``'s.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from controller.engine import cycle
from controller.engine.clusters import ClusterName
from controller.engine.fit import FreeCapacity, free_capacity, replicas_that_fit
from controller.engine.pending import WorkloadClass
from controller.engine.queues import QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import Resources, scale, subtract
from controller.engine.tree import Node
from controller.engine.workloads import SchedulingRequirements, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.state import State


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One thing that a pending workload lacks; amounts are in base units, and negative where overdrawn."""

    reason: Reason
    refusal: Refusal
    """The same as a refusal, for its sentence."""
    resource: str | None = None
    requests: int | None = None
    free: int | None = None
    lacks: int | None = None
    queue: QueueName | None = None
    cluster: ClusterName | None = None
    guaranteed: tuple[tuple[QueueName, int], ...] = ()
    """The siblings whose guarantees lower the queue's limit, with how much each takes."""


def shortfalls(state: "State", uid: WorkloadUid) -> tuple[Shortfall, ...]:
    """Return what the pending workload *uid* lacks; its reason comes first, nothing comes twice."""
    reason = state.refusal(uid)
    if reason is None:
        return ()
    found = [_shortfall(state, reason)]
    if uid in state.backlog:
        found += _class_shortfalls(state, state.backlog.lane(uid))
    unique: dict[tuple[object, ...], Shortfall] = {}
    for each in found:
        unique.setdefault((each.reason, each.resource, each.queue, each.cluster), each)
    return tuple(unique.values())


def _class_shortfalls(state: "State", lane: WorkloadClass) -> Iterator[Shortfall]:
    """Yield what the first of *lane* lacks once it is first: of queues from below, of clusters, by other rules."""
    standing, node = state.standing, state.tree().nodes.get(lane.queue)
    if standing is None or node is None or not lane.is_waiting:
        return
    if lane.hopeless is not None:
        yield _shortfall(state, lane.hopeless)
    node = standing.quota.tree.nodes[lane.queue]
    yield from _queue_shortfalls(standing.quota, node, lane.charge)
    present = state.books.present()
    if present is not None:
        yield from _queue_shortfalls(present, present.tree.nodes[lane.queue], lane.charge)
    yield from cluster_shortfalls(state, lane.shape)
    why = cycle.refusal(state, lane)
    if why is not None:
        yield _shortfall(state, why)


def _queue_shortfalls(quota: Quota, node: Node, charge: Resources) -> Iterator[Shortfall]:
    """Yield the limits on the path of *node* that *charge* is not within, what is full before what is guaranteed."""
    faults = list(quota.faults(node, charge))
    for fault in sorted(faults, key=lambda fault: fault.reason is not Reason.QUEUE_LIMIT_REACHED):
        yield _quota_shortfall(quota, fault)


def _quota_shortfall(quota: Quota, fault: Refusal) -> Shortfall:
    name = QueueName(fault.queue or "")
    raised = fault.asked or 0
    return Shortfall(
        fault.reason,
        fault,
        fault.resource,
        requests=raised,
        free=fault.available,
        lacks=raised - (fault.available or 0),
        queue=name,
        guaranteed=_limiting_guarantees(quota, quota.tree.nodes[name], fault),
    )


def _limiting_guarantees(quota: Quota, node: Node, fault: Refusal) -> tuple[tuple[QueueName, int], ...]:
    """Return whose guarantees make the limit smaller: a full queue's siblings, else the children it reserves for."""
    resource = fault.resource or ""
    if fault.reason is Reason.BLOCKED_BY_GUARANTEE:
        idle = (
            (child.name, quota.reservation(child, resource) - quota.amount(child.name, resource))
            for child in node.children
        )
        return tuple((name, amount) for name, amount in idle if amount > 0)
    if node.parent is None or not is_limited_by_siblings(quota, node, resource):
        return ()
    amounts = ((each.name, quota.limits[each.name].guarantee.get(resource, 0)) for each in node.parent.children)
    return tuple((name, amount) for name, amount in amounts if amount > 0 and name != node.name)


def is_limited_by_siblings(quota: Quota, node: Node, resource: str) -> bool:
    """Say whether the limit of *node* is what its siblings' guarantees leave of its parent's."""
    own = node.queue.capability.get(resource)
    return own is None or own > quota.limits[node.name].ceiling.get(resource, 0)


@dataclass(frozen=True, slots=True)
class Gap:
    """What one candidate cluster lacks to take its part of a workload."""

    cluster: ClusterName
    requests: Resources
    """What it would have to take."""
    free: Resources
    missing: Resources
    """By resource, above zero only."""


def cluster_shortfalls(state: "State", shape: SchedulingRequirements) -> Iterator[Shortfall]:
    """Yield every resource that the closest candidate clusters lack for *shape*; nothing where there is room."""
    prospects = state.books.feasibility_cache
    refusal = prospects.refusal(prospects.get(shape))
    if refusal is None:
        return
    for gap in cluster_gaps(state, shape):
        for resource in sorted(gap.missing):
            free = gap.free.get(resource, 0)
            fault = Refusal(Reason.INSUFFICIENT_CAPACITY, resource, gap.requests[resource], free, cluster=gap.cluster)
            yield _shortfall(state, fault)
    if refusal.resource is None:
        yield _shortfall(state, refusal)


def cluster_gaps(state: "State", shape: SchedulingRequirements) -> list[Gap]:
    """Return what the clusters that come closest lack for *shape*, as many as it needs, without those with room."""
    prospect = state.books.feasibility_cache.get(shape)
    found = [free_capacity(state.ledger.site(name)) for name in prospect.candidates.names]
    if shape.replicas and shape.placement.divided:
        return [] if shape.placement.weights else _divided_gap(shape, found)
    nearest = sorted((_gap(shape, room) for room in found), key=_relative_gap)
    return [gap for gap in nearest[: prospect.candidates.copies] if gap.missing]


def _gap(shape: SchedulingRequirements, room: FreeCapacity) -> Gap:
    left, request = room.headroom, shape.gang
    if room.headroom_for_all_pods is not None:
        # Beside what is held there for others, all of it must fit (D11).
        request = shape.demand
        names = {*room.headroom, *room.headroom_for_all_pods}
        left = {name: min(room.headroom.get(name, 0), room.headroom_for_all_pods.get(name, 0)) for name in names}
    return Gap(room.name, request, left, _missing_amounts(request, left))


def _divided_gap(shape: SchedulingRequirements, found: Sequence[FreeCapacity]) -> list[Gap]:
    """Return what the cluster that takes most replicas lacks to take those for which there is no room."""
    counts = {room.name: replicas_that_fit(shape, room) for room in found}
    missing = shape.replicas - sum(counts.values())
    if not found or missing <= 0:
        return []
    room = min(found, key=lambda room: (-counts[room.name], room.name))
    request = scale(shape.replica, counts[room.name] + missing)
    return [Gap(room.name, request, room.headroom, _missing_amounts(request, room.headroom))]


def _missing_amounts(request: Resources, room: Resources) -> Resources:
    short = subtract(request, room)
    return {name: short[name] for name, amount in request.items() if amount > 0 and short[name] > 0}


def _relative_gap(gap: Gap) -> tuple[Fraction, ClusterName]:
    """Return the key that puts first which cluster lacks the smallest part of what it would have to take."""
    return max(
        (Fraction(lack, gap.requests[name]) for name, lack in gap.missing.items()), default=Fraction(0)
    ), gap.cluster


def _shortfall(state: "State", refusal: Refusal) -> Shortfall:
    """Return *refusal* with its amounts, and with whose guarantees lower the limit that it names."""
    quota = state.standing.quota if state.standing is not None else None
    if quota is not None and refusal.reason in _QUOTA and refusal.queue in quota.tree.nodes:
        return _quota_shortfall(quota, refusal)
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


_QUOTA = frozenset({Reason.EXCEEDS_QUEUE_LIMIT, Reason.QUEUE_LIMIT_REACHED, Reason.BLOCKED_BY_GUARANTEE})
