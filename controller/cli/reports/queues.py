"""Builds the reports of queues: usage, fair share, limit and the next cycle."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from controller.api.quantity import parse_quantity
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_short, quantities
from controller.cli.render.queues import NextCycle, QueueReport, Queues, QueueShareReport
from controller.cli.reports.selection import Selection, queue_subtree
from controller.engine.placement.filter import CandidateCache
from controller.engine.plan import Admit
from controller.engine.state.hierarchy import ROOT, Node, Queue, QueueName
from controller.engine.state.quota import Quota
from controller.engine.state.resources import PODS, Resources, total

if TYPE_CHECKING:
    from controller.engine.state.clusters import ClusterName


def queue_share_reports(snapshot: Snapshot) -> tuple[QueueShareReport, ...]:
    """Return the shares of all queues, including parents and the root, sorted by name."""
    tree = snapshot.shares.quota.tree
    names = sorted({*tree.nodes, *snapshot.engine.queues})
    return tuple(queue_share_report(snapshot, name) for name in names)


def queue_share_report(snapshot: Snapshot, name: QueueName) -> QueueShareReport:
    """Return the share of one queue after the plan; a queue outside the hierarchy has usage only."""
    return _share_report(snapshot, name, usage_after_plan(snapshot, name))


def current_share_report(snapshot: Snapshot, name: QueueName) -> QueueShareReport:
    """Return the share of one queue with its current usage."""
    return _share_report(snapshot, name, snapshot.current.queues.get(name, {}))


def usage_after_plan(snapshot: Snapshot, name: QueueName) -> Resources:
    """Return the usage of a queue after the plan, victims included."""
    engine = snapshot.engine
    is_known = name in snapshot.shares.quota.tree.nodes
    return (
        engine.current_quota.allocated[name]
        if is_known and engine.current_quota
        else engine.current_usage.get(name, {})
    )


def _share_report(snapshot: Snapshot, name: QueueName, usage: Resources) -> QueueShareReport:
    shares = snapshot.shares
    resources = relevant_resources(snapshot, name)
    node = shares.quota.tree.nodes.get(name)
    limit = shares.quota.limits[name].limit if node else {}
    limits = quantities({resource: max(amount, 0) for resource, amount in limit.items()}, resources)
    return QueueShareReport(
        name=name,
        fair_share=quantities(fair_share_of(snapshot, name), [resource for resource in resources if resource != PODS]),
        allocated=quantities(usage, resources),
        limit=limits,
        limited=tuple(resource for resource in limits if node and _is_limited(shares.quota, node, resource)),
        share=usage_ratio(snapshot, name, usage),
    )


def fair_share_of(snapshot: Snapshot, name: QueueName) -> Mapping[str, int | Fraction]:
    """Return the fair share of a queue.

    The root's is its limit (Q4), also of resources that no workload has requested and that are not divided yet.
    """
    share = snapshot.shares.fair_shares.get(name, {})
    if name != ROOT:
        return share
    limit = snapshot.shares.quota.limits[ROOT].limit
    return {**{resource: max(amount, 0) for resource, amount in limit.items() if resource != PODS}, **share}


def relevant_resources(snapshot: Snapshot, name: QueueName) -> list[str]:
    """Return the resources that any queue uses, requests or limits, and cpu, memory and devices of the clusters.

    ``pods`` is included only if this queue names it.
    """
    queue = snapshot.engine.queues.get(name, Queue(name))
    return sorted(snapshot.resources | ({PODS} if queue.names(PODS) else set()))


def usage_ratio(snapshot: Snapshot, name: QueueName, usage: Resources) -> float | None:
    """Return usage divided by fair share, rounded; ``None`` if infinite, or without a fair share."""
    if not any(amount > 0 for amount in snapshot.shares.fair_shares.get(name, {}).values()):
        return None
    is_infinite, share = snapshot.shares.usage_ratio_with(name, usage)
    return None if is_infinite else float(round(share, 3))


def queue_reports(snapshot: Snapshot, selection: Selection | None = None, *, with_next_cycle: bool = False) -> Queues:
    """Return the selected queues of the hierarchy with their current usage."""
    names = sorted({*snapshot.shares.quota.tree.nodes, *snapshot.engine.queues})
    reachable = reachable_capacity(snapshot)
    reports = [queue_report(snapshot, name, reachable, with_next_cycle=with_next_cycle) for name in names]
    if selection is not None:
        reports = list(selection.queues(snapshot, reports))
    is_ordered = selection is not None and bool(selection.sort_by)
    if not is_ordered:
        # Each queue after its parent; queues that are not connected to the root come last.
        reports.sort(key=lambda report: (not report.path, report.path, report.name))
    notes = (*borrowing_notes(snapshot), *guarantee_notes(snapshot), *reachable_notes(snapshot, reports))
    return Queues(tuple(reports), notes)


def reachable_capacity(snapshot: Snapshot) -> Mapping[QueueName, Resources]:
    """Return the capacity of the clusters that the pending workloads of each queue can use, if that is not all.

    The fair share counts all usable clusters, so that a queue may wait below its fair share. Clusters that are
    reserved in advance count, because their reservations end.
    """
    clusters = list(snapshot.engine.cluster_usage)
    usable = [cluster_state.cluster for cluster_state in clusters if cluster_state.is_usable and cluster_state.cluster]
    capacity = {cluster_state.name: cluster_state.capacity for cluster_state in clusters}
    cache = CandidateCache()
    reached: dict[QueueName, set[ClusterName]] = {}
    for workload_class in snapshot.engine.pending.classes():
        names = cache.of(replace(workload_class.requirements, reserved_clusters=()), usable).names
        reached.setdefault(workload_class.queue, set()).update(names)
    return {
        queue: total(capacity[name] for name in sorted(names))
        for queue, names in reached.items()
        if len(names) < len(usable)
    }


def reachable_notes(snapshot: Snapshot, reports: Iterable[QueueReport]) -> Iterator[str]:
    """Yield a note for each queue with a fair share above what its pending workloads can use."""
    for report in reports:
        share = snapshot.shares.fair_shares.get(QueueName(report.name), {})
        whole = snapshot.shares.quota.limits[ROOT].limit
        short = [
            f"{format_short(name, parse_quantity(name, amount))} of {format_short(name, whole.get(name, 0))} {name}"
            for name, amount in (report.reachable or {}).items()
            if name in share and parse_quantity(name, amount) < share[name]
        ]
        if short:
            yield (
                f"the pending workloads of queue '{report.name}' can use {', '.join(short)}: their placement matches "
                "some clusters only, while its fair share counts all of them"
            )


def guarantee_notes(snapshot: Snapshot, names: Collection[str] | None = None) -> Iterator[str]:
    """Yield a note for each queue whose guarantee is scaled down (Q3); of *names* only, if given."""
    quota = snapshot.shares.quota
    for name in sorted(quota.tree.nodes if names is None else names):
        node = quota.tree.nodes.get(QueueName(name))
        if node is None or node.parent is None or not node.is_open:
            continue
        capability, reserved = node.queue.capability, quota.limits[node.name].guarantee
        short = [
            f"{format_short(resource, reserved.get(resource, 0))} of {format_short(resource, amount)} {resource}"
            for resource, amount in sorted(node.queue.guarantee.items())
            if reserved.get(resource, 0) < min(amount, capability.get(resource, amount))
        ]
        if short:
            yield (
                f"queue '{name}' has only {', '.join(short)} of its guarantee: guarantees exceed the capacity, or the "
                "capability of a queue above it"
            )


def queue_path(snapshot: Snapshot, name: QueueName) -> tuple[QueueName, ...]:
    """Return the queue and its ancestors, the root first; empty if it is not connected to the root."""
    node = snapshot.shares.quota.tree.nodes.get(name)
    return tuple(ancestor.name for ancestor in node.path())[::-1] if node else ()


def queue_report(
    snapshot: Snapshot,
    name: QueueName,
    reachable: Mapping[QueueName, Resources],
    *,
    with_next_cycle: bool = False,
) -> QueueReport:
    """Return the current usage of one queue, its limits and, if requested, the effect of the next cycle."""
    current = snapshot.current
    share_report = current_share_report(snapshot, name)
    node = snapshot.shares.quota.tree.nodes.get(name)
    queue = node.queue if node else snapshot.engine.queues[name]
    within = reachable.get(name)
    return QueueReport(
        name=name,
        parent="" if name == ROOT else queue.parent,
        path=queue_path(snapshot, name),
        weight=queue.weight,
        priority=queue.priority,
        state=queue.state if node else "Broken",
        pending=current.pending.get(name, 0),
        admitted=current.admitted.get(name, 0),
        fair_share=share_report.fair_share,
        allocated=share_report.allocated,
        limit=share_report.limit,
        limited=share_report.limited,
        share=share_report.share,
        reachable=None if within is None else quantities(within, share_report.fair_share),
        next_cycle=_next_cycle(snapshot, name) if with_next_cycle else None,
    )


def _is_limited(quota: Quota, node: Node, resource: str) -> bool:
    """Return whether a capability, or guarantees of siblings (Q2), limit *resource*; the root always has a limit."""
    if node.parent is None or any(resource in ancestor.queue.capability for ancestor in node.path()):
        return True
    return quota.limits[node.name].limit.get(resource, 0) < quota.limits[ROOT].limit.get(resource, 0)


def _next_cycle(snapshot: Snapshot, name: QueueName) -> NextCycle:
    share_report = queue_share_report(snapshot, name)
    subtree = queue_subtree(snapshot, name)
    decisions = [decision for decision in snapshot.plan.decisions if decision.workload.queue in subtree]
    admitted = sum(isinstance(decision, Admit) for decision in decisions)
    return NextCycle(
        admitted=admitted,
        evicted=len(decisions) - admitted,
        pending=sum(map(snapshot.engine.pending_count, subtree)),
        allocated=share_report.allocated,
        share=share_report.share,
    )


def borrowing_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note for each queue that borrows while a lower-priority queue has workloads within its fair share."""
    policy = snapshot.engine.policy
    if policy.queue_order != "PriorityFirst" or policy.reclaim.enabled:
        return
    leaves = [node for node in snapshot.shares.quota.tree.leaves() if node.parent is not None]
    lacking = [(leaf, resources) for leaf in leaves if (resources := _requests_within_fair_share(snapshot, leaf))]
    for leaf in leaves:
        over = _borrowed_resources(snapshot, leaf)
        lower = [
            other for other, requested in lacking if other.queue.priority < leaf.queue.priority and over & requested
        ]
        if lower:
            first, other = leaf.queue, lower[0].queue
            yield (
                f"after the next cycle queue '{first.name}' (priority {first.priority}) uses more "
                f"{', '.join(sorted(over))} than its fair share, and queue '{other.name}' (priority {other.priority}) "
                "has workloads pending within its own: queueOrder PriorityFirst admits from queues of higher priority "
                "first"
            )


def _borrowed_resources(snapshot: Snapshot, leaf: Node) -> frozenset[str]:
    """Return the resources with usage above the queue's fair share."""
    fair_share, used = snapshot.shares.fair_shares[leaf.name], snapshot.shares.quota.allocated[leaf.name]
    return frozenset(name for name, amount in used.items() if name != PODS and amount > fair_share.get(name, 0))


def _requests_within_fair_share(snapshot: Snapshot, leaf: Node) -> frozenset[str]:
    """Return the resources that a queue's pending workloads request and that would stay within its fair share."""
    workload_classes = snapshot.engine.pending.queues.get(leaf.name, ())
    waiting = [workload_class for workload_class in workload_classes if workload_class.competes]
    within_share = [
        workload_class for workload_class in waiting if not snapshot.shares.borrows(leaf, workload_class.charge)
    ]
    charges = [workload_class.charge for workload_class in within_share]
    return frozenset(name for charge in charges for name, amount in charge.items() if amount > 0 and name != PODS)
