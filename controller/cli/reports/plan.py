"""Builds the reports of a scheduling cycle: its decisions, the queues, the pending workloads and the clusters."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from controller.api.quantity import format_quantity, parse_quantity
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import (
    format_age,
    format_short,
    format_time,
    positive_quantities,
    quantities,
)
from controller.cli.render.plan import (
    AdvanceReservationReport,
    ClusterReport,
    Clusters,
    ClusterTarget,
    ClusterUsageReport,
    DecisionDifference,
    DecisionReport,
    NextCycle,
    Pending,
    PendingReport,
    PlanReport,
    QueueReport,
    Queues,
    QueueShareReport,
    StartReport,
    UsageReport,
    WhatIfReport,
    WorkloadUsages,
)
from controller.cli.reports.forecast import first_of_queues, forecast_starts
from controller.cli.reports.selection import Selection
from controller.engine.engine import Engine
from controller.engine.placement.feasibility_cache import why_unusable
from controller.engine.placement.filter import CandidateCache
from controller.engine.plan import Admit, Decision
from controller.engine.policy import AdvanceReservation
from controller.engine.reasons import Reason, Refusal
from controller.engine.reservations.advance import running_on_reserved
from controller.engine.reservations.backfill import expected_end
from controller.engine.state.cluster_usage import ClusterState
from controller.engine.state.hierarchy import ROOT, Node, Queue, QueueName
from controller.engine.state.resources import PODS, Resources, total
from controller.engine.state.workloads import Workload, WorkloadState
from controller.reporting.messages import EVICTION_MESSAGES, pending_message, remedy_message

if TYPE_CHECKING:
    from controller.engine.state.clusters import ClusterName


def queue_share_reports(snapshot: Snapshot) -> tuple[QueueShareReport, ...]:
    """Return the shares of all queues, including parents and the root, sorted by name."""
    tree = snapshot.shares.quota.tree
    names = sorted({*tree.nodes, *snapshot.state.queues})
    return tuple(queue_share_report(snapshot, name) for name in names)


def queue_share_report(snapshot: Snapshot, name: QueueName) -> QueueShareReport:
    """Return the share of one queue after the plan; a queue outside the hierarchy has usage only."""
    return _share_report(snapshot, name, usage_after_plan(snapshot, name))


def current_share_report(snapshot: Snapshot, name: QueueName) -> QueueShareReport:
    """Return the share of one queue with its current usage."""
    return _share_report(snapshot, name, snapshot.current.queues.get(name, {}))


def usage_after_plan(snapshot: Snapshot, name: QueueName) -> Resources:
    """Return the usage of a queue after the plan, victims included."""
    state = snapshot.state
    is_known = name in snapshot.shares.quota.tree.nodes
    return (
        state.current_quota.allocated[name] if is_known and state.current_quota else state.current_usage.get(name, {})
    )


def _share_report(snapshot: Snapshot, name: QueueName, usage: Resources) -> QueueShareReport:
    shares = snapshot.shares
    resources = relevant_resources(snapshot, name)
    node = shares.quota.tree.nodes.get(name)
    limit = shares.quota.limits[name].limit if node else {}
    limits = quantities({resource: max(amount, 0) for resource, amount in limit.items()}, resources)
    return QueueShareReport(
        name=name,
        fair_share=quantities(
            shares.fair_shares.get(name, {}), [resource for resource in resources if resource != PODS]
        ),
        allocated=quantities(usage, resources),
        limit=limits,
        limited=tuple(resource for resource in limits if node and _is_limited(node, resource)),
        share=_share(snapshot, name, usage) if node else None,
    )


def relevant_resources(snapshot: Snapshot, name: QueueName) -> list[str]:
    """Return the resources that any queue uses, requests or limits, and cpu, memory and devices of the clusters.

    ``pods`` is included only if this queue names it.
    """
    queue = snapshot.state.queues.get(name, Queue(name))
    return sorted(snapshot.resources | ({PODS} if queue.names(PODS) else set()))


def _share(snapshot: Snapshot, name: QueueName, usage: Resources) -> float | None:
    """Return usage divided by fair share, rounded; the engine uses exact fractions instead."""
    if not any(amount > 0 for amount in snapshot.shares.fair_shares[name].values()):
        return None
    is_infinite, share = snapshot.shares.usage_ratio_with(name, usage)
    return None if is_infinite else float(round(share, 3))


def queue_reports(snapshot: Snapshot, selection: Selection | None = None, *, with_next_cycle: bool = False) -> Queues:
    """Return the selected queues of the hierarchy with their current usage."""
    names = sorted({*snapshot.shares.quota.tree.nodes, *snapshot.state.queues})
    reachable = reachable_capacity(snapshot)
    reports = [queue_report(snapshot, name, reachable, with_next_cycle=with_next_cycle) for name in names]
    if selection is not None:
        reports = list(selection.queues(snapshot, reports))
    is_ordered = selection is not None and bool(selection.sort_by)
    if not is_ordered:
        # Each queue after its parent; queues that are not connected to the root come last.
        reports.sort(key=lambda report: (not report.path, report.path, report.name))
    return Queues(tuple(reports), (*borrowing_notes(snapshot), *reachable_notes(snapshot, reports)))


def reachable_capacity(snapshot: Snapshot) -> Mapping[QueueName, Resources]:
    """Return the capacity of the clusters that the pending workloads of each queue can use, if that is not all.

    The fair share counts all usable clusters, so that a queue may wait below its fair share. Clusters that are
    reserved in advance count, because their reservations end.
    """
    usable = [state.cluster for state in snapshot.state.cluster_usage if state.is_usable and state.cluster]
    capacity = {state.name: state.capacity for state in snapshot.state.cluster_usage}
    cache = CandidateCache()
    reached: dict[QueueName, set[ClusterName]] = {}
    for workload_class in snapshot.state.pending.classes():
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
    standing = current_share_report(snapshot, name)
    node = snapshot.shares.quota.tree.nodes.get(name)
    queue = node.queue if node else snapshot.state.queues[name]
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
        fair_share=standing.fair_share,
        allocated=standing.allocated,
        limit=standing.limit,
        limited=standing.limited,
        share=standing.share,
        reachable=None if within is None else quantities(within, standing.fair_share),
        next_cycle=_next_cycle(snapshot, name, node) if with_next_cycle else None,
    )


def _is_limited(node: Node, resource: str) -> bool:
    """Return whether the queue or an ancestor has a capability for *resource*; the root's is the total capacity."""
    return node.parent is None or any(resource in ancestor.queue.capability for ancestor in node.path())


def _next_cycle(snapshot: Snapshot, name: QueueName, node: Node | None) -> NextCycle:
    standing = queue_share_report(snapshot, name)
    subtree = set(_subtree(node)) if node else {name}
    decisions = [decision for decision in snapshot.plan.decisions if decision.workload.queue in subtree]
    admitted = sum(isinstance(decision, Admit) for decision in decisions)
    return NextCycle(
        admitted=admitted,
        evicted=len(decisions) - admitted,
        pending=sum(map(snapshot.state.pending_count, subtree)),
        allocated=standing.allocated,
        share=standing.share,
    )


def _subtree(node: Node) -> Iterator[QueueName]:
    yield node.name
    for child in node.children:
        yield from _subtree(child)


def borrowing_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return a note for each queue that borrows while a lower-priority queue has workloads within its fair share."""
    policy = snapshot.state.policy
    if policy.queue_order != "PriorityFirst" or policy.reclaim.enabled:
        return ()
    leaves = [node for node in snapshot.shares.quota.tree.leaves() if node.parent is not None]
    lacking = [(leaf, resources) for leaf in leaves if (resources := _requests_within_fair_share(snapshot, leaf))]
    return tuple(_notes(snapshot, leaves, lacking))


def _notes(snapshot: Snapshot, leaves: list[Node], lacking: list[tuple[Node, frozenset[str]]]) -> Iterator[str]:
    for leaf in leaves:
        over = _borrowed_resources(snapshot, leaf)
        lower = [
            other for other, requested in lacking if other.queue.priority < leaf.queue.priority and over & requested
        ]
        if lower:
            first, other = leaf.queue, lower[0].queue
            yield (
                f"queue '{first.name}' (priority {first.priority}) uses more {', '.join(sorted(over))} than its "
                f"fair share, and queue '{other.name}' (priority {other.priority}) has workloads pending within its "
                "own: queueOrder PriorityFirst admits from queues of higher priority first"
            )


def _borrowed_resources(snapshot: Snapshot, leaf: Node) -> frozenset[str]:
    """Return the resources with usage above the queue's fair share."""
    fair_share, used = snapshot.shares.fair_shares[leaf.name], snapshot.shares.quota.allocated[leaf.name]
    return frozenset(name for name, amount in used.items() if name != PODS and amount > fair_share.get(name, 0))


def _requests_within_fair_share(snapshot: Snapshot, leaf: Node) -> frozenset[str]:
    """Return the resources that a queue's pending workloads request and that would stay within its fair share."""
    workload_classes = snapshot.state.pending.queues.get(leaf.name, ())
    waiting = [
        workload_class
        for workload_class in workload_classes
        if workload_class.inadmissible is None and workload_class.is_waiting
    ]
    within_share = [
        workload_class for workload_class in waiting if not snapshot.shares.borrows(leaf, workload_class.charge)
    ]
    charges = [workload_class.charge for workload_class in within_share]
    return frozenset(name for charge in charges for name, amount in charge.items() if amount > 0 and name != PODS)


def plan_report(snapshot: Snapshot) -> PlanReport:
    """Return the decisions in order, then the pending workloads without a decision, by queue and position."""
    decided = (_decided_report(decision) for decision in snapshot.plan.decisions)
    evicted = {decision.workload.uid for decision in snapshot.plan.decisions}
    waiting = (
        _wait_report(workload, refusal)
        for _, workload, refusal in pending_workloads(snapshot)
        if workload.uid not in evicted
    )
    return PlanReport(
        (*decided, *waiting),
        queue_share_reports(snapshot),
        (*borrowing_notes(snapshot), *_reservation_notes(snapshot)),
        tuple(_advance_reservation(snapshot, each) for each in reservations_to_come(snapshot)),
    )


def _reservation_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note for each cluster that cannot provide what an advance reservation names."""
    known = {cluster.name: cluster for cluster in snapshot.state.cluster_usage.clusters}
    for reservation in reservations_to_come(snapshot):
        key = f"advanceReservations '{reservation.name}'"
        for name in reservation.clusters:
            if name not in known:
                yield f"{key} names cluster '{name}' in clusters, which does not exist"
                continue
            allocatable = known[name].allocatable
            for resource, amount in reservation.amounts.items() if allocatable is not None else ():
                has = (allocatable or {}).get(resource, 0)
                if amount > has:
                    asked, found = (format_quantity(resource, each) for each in (amount, has))
                    yield f"{key} reserves {asked} {resource} in amounts, but cluster '{name}' has {found}"


def reservations_to_come(snapshot: Snapshot) -> list[AdvanceReservation]:
    """Return the advance reservations that have not ended, by begin."""
    reservations = snapshot.state.policy.advance_reservations
    return sorted(
        (each for each in reservations if each.until > snapshot.now), key=lambda each: (each.since, each.name)
    )


def _advance_reservation(snapshot: Snapshot, reservation: AdvanceReservation) -> AdvanceReservationReport:
    running = running_on_reserved([reservation], snapshot.state.index)
    ends = (expected_end(workload, snapshot.now) for workload in running)
    return AdvanceReservationReport(
        name=reservation.name,
        clusters=reservation.clusters,
        since=format_time(reservation.since),
        until=format_time(reservation.until),
        queue=reservation.queue,
        workload="/".join(reservation.workload) if reservation.workload else None,
        amounts=positive_quantities(reservation.amounts) if reservation.amounts else None,
        evict=reservation.evicts,
        in_force=reservation.since <= snapshot.now,
        overlapping=sum(end is None or end > reservation.since for end in ends),
        missing=positive_quantities(snapshot.state.context.amounts_in_advance.missing(reservation, snapshot.now)),
    )


def with_difference(report: PlanReport, before: PlanReport, changes: Iterable[str]) -> PlanReport:
    """Return *report* with what differs from *before*, the plan without *changes*; messages do not count."""
    was, now = (
        {msgspec.structs.replace(decision, message=""): decision for decision in plan.decisions}
        for plan in (before, report)
    )
    difference = DecisionDifference(
        added=tuple(decision for key, decision in now.items() if key not in was),
        removed=tuple(decision for key, decision in was.items() if key not in now),
    )
    return msgspec.structs.replace(report, what_if=WhatIfReport(tuple(changes), difference))


def pending_workloads(snapshot: Snapshot) -> Iterator[tuple[int, Workload, Refusal]]:
    """Yield position, workload and reason of each pending workload, by queue and position."""
    for queue in snapshot.state.queues_with_pending():
        for position, workload in enumerate(snapshot.state.pending_workloads(queue), start=1):
            refusal = snapshot.state.refusal(workload.uid)
            if refusal is not None:
                yield position, workload, refusal


def _decided_report(decision: Decision) -> DecisionReport:
    if isinstance(decision, Admit):
        clusters = tuple(ClusterTarget(assignment.name, assignment.replicas) for assignment in decision.clusters)
        return _decision_report(decision.workload, "Admit", clusters=clusters)
    message = EVICTION_MESSAGES[decision.reason] if decision.back_off is None else decision.back_off.message
    return _decision_report(decision.workload, "Evict", reason=decision.reason, message=message)


def _wait_report(workload: Workload, refusal: Refusal) -> DecisionReport:
    is_nominated = refusal.reason is Reason.PREEMPTION_IN_PROGRESS and refusal.cluster is not None
    clusters = (ClusterTarget(refusal.cluster),) if is_nominated and refusal.cluster else ()
    return _decision_report(
        workload, "Wait", clusters=clusters, reason=refusal.reason, message=pending_message(refusal)
    )


def _decision_report(
    workload: Workload,
    action: str,
    *,
    clusters: tuple[ClusterTarget, ...] = (),
    reason: str | None = None,
    message: str = "",
) -> DecisionReport:
    return DecisionReport(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        action=action,
        clusters=clusters,
        reason=reason,
        message=message,
    )


def pending_reports(snapshot: Snapshot, selection: Selection | None = None) -> Pending:
    """Return the selected pending workloads; those that the cycle admits are counted only."""
    selection = selection or Selection()
    is_selected = selection.workloads(snapshot)
    selected = [item for item in pending_workloads(snapshot) if is_selected(item[1])]
    starts = forecast_starts(snapshot, first_of_queues(workload for _, workload, _ in selected))
    reports = (
        _pending_report(snapshot, position, workload, refusal, start=starts.get(workload.uid))
        for position, workload, refusal in selected
    )
    admitted = [
        decision.workload
        for decision in snapshot.plan.decisions
        if isinstance(decision, Admit) and is_selected(decision.workload)
    ]
    return Pending(selection.sort(reports), len(admitted))


def raised_priority(engine: Engine, workload: Workload) -> int | msgspec.UnsetType:
    """Return the job priority of a pending workload as raised by waiting (O10), unset where it is not raised."""
    raised = engine.raised_priority(workload)
    return msgspec.UNSET if raised is None else raised


def _pending_report(
    snapshot: Snapshot, position: int, workload: Workload, refusal: Refusal, *, start: StartReport | None
) -> PendingReport:
    return PendingReport(
        queue=workload.queue,
        position=position,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        priority=workload.priority,
        priority_class=workload.priority_class,
        since=format_time(workload.created_at),
        age=format_age(workload.created_at, snapshot.now),
        reason=refusal.reason,
        message=pending_message(refusal),
        remedy=remedy_message(refusal),
        raised_priority=raised_priority(snapshot.state, workload),
        start=start,
    )


def usage_reports(snapshot: Snapshot, selection: Selection | None = None) -> WorkloadUsages:
    """Return the selected admitted workloads, those with the highest dominant share of the capacity first."""
    selection = selection or Selection()
    is_selected = selection.workloads(snapshot)
    capacity = total(state.capacity for state in snapshot.state.cluster_usage)
    admitted_now = {decision.workload.uid for decision in snapshot.plan.decisions if isinstance(decision, Admit)}
    found = [
        workload
        for workload in snapshot.state.workloads.values()
        if workload.state is WorkloadState.ADMITTED and workload.uid not in admitted_now and is_selected(workload)
    ]
    found.sort(key=lambda workload: (-_dominant(workload, capacity), workload.namespace, workload.name))
    reports = selection.sort(_usage_report(snapshot, workload) for workload in found)
    return WorkloadUsages(reports)


def _dominant(workload: Workload, capacity: Resources) -> float:
    charge = workload.admission.charge if workload.admission else {}
    return max((amount / capacity[name] for name, amount in charge.items() if capacity.get(name)), default=0)


def _usage_report(snapshot: Snapshot, workload: Workload) -> UsageReport:
    admission = workload.admission
    return UsageReport(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        priority=workload.priority,
        clusters=tuple(charge.cluster for charge in admission.cluster_charges) if admission else (),
        charge=positive_quantities(admission.charge) if admission else {},
        since=format_time(admission.admitted_at) if admission else None,
        age=format_age(admission.admitted_at, snapshot.now) if admission else "",
    )


def cluster_reports(
    snapshot: Snapshot, selection: Selection | None = None, *, with_next_cycle: bool = False
) -> Clusters:
    """Return the selected clusters with their current usage, including unknown clusters with charges."""
    states = {cluster.name: cluster for cluster in snapshot.current.clusters}
    after = {cluster.name: cluster for cluster in snapshot.state.cluster_usage} if with_next_cycle else {}
    reports = [_cluster_report(snapshot, state, after.get(name)) for name, state in sorted(states.items())]
    if selection is None:
        return Clusters(tuple(reports))
    return Clusters(selection.clusters(snapshot, reports))


def unusable_reason(cluster: ClusterState) -> str:
    """Return why a cluster admits no workloads, or an empty text."""
    return "is unknown" if cluster.cluster is None else why_unusable(cluster.cluster) or ""


def _cluster_report(snapshot: Snapshot, cluster: ClusterState, after: ClusterState | None) -> ClusterReport:
    charged = {name for state in (cluster, after) if state for name, amount in state.charged.items() if amount}
    resources = sorted({*cluster.allocatable, *cluster.external_usage, *charged})
    return ClusterReport(
        name=cluster.name,
        ready=cluster.is_usable,
        problem=unusable_reason(cluster),
        admitted=snapshot.current.admitted_on.get(cluster.name, 0),
        allocatable=quantities(cluster.allocatable, resources),
        external_usage=quantities(cluster.external_usage, resources),
        usage=quantities(cluster.charged, resources),
        free=quantities(cluster.headroom, resources),
        next_cycle=ClusterUsageReport(quantities(after.charged, resources), quantities(after.headroom, resources))
        if after
        else None,
    )
