"""Builds the reports of a scheduling cycle: its decisions, the queues, the pending workloads and the clusters."""

from collections.abc import Iterable, Iterator

import msgspec

from controller.api.quantity import format_quantity
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import (
    format_age,
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
    Pending,
    PendingReport,
    PlanReport,
    StartReport,
    UsageReport,
    WhatIfReport,
    WorkloadUsages,
)
from controller.cli.reports.forecast import first_of_queues, forecast_starts
from controller.cli.reports.queues import borrowing_notes, guarantee_notes, queue_share_reports
from controller.cli.reports.selection import Selection
from controller.engine.engine import Engine
from controller.engine.placement.feasibility_cache import why_unusable
from controller.engine.plan import Admit, Decision
from controller.engine.policy import AdvanceReservation
from controller.engine.reasons import Reason, Refusal
from controller.engine.reservations.advance import running_on_reserved
from controller.engine.reservations.backfill import expected_end
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.resources import Resources, total
from controller.engine.state.workloads import Workload, WorkloadState
from controller.reporting.messages import EVICTION_MESSAGES, pending_message, remedy_message


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
        (*borrowing_notes(snapshot), *guarantee_notes(snapshot), *_reservation_notes(snapshot)),
        tuple(_advance_reservation(snapshot, reservation) for reservation in reservations_to_come(snapshot)),
    )


def _reservation_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note for each queue that cannot use an advance reservation and each cluster that cannot provide it."""
    nodes = snapshot.shares.quota.tree.nodes
    known = {cluster.name: cluster for cluster in snapshot.engine.cluster_usage.clusters}
    for reservation in reservations_to_come(snapshot):
        key = f"advanceReservations '{reservation.name}'"
        if (queue := reservation.queue) is not None:
            if queue not in snapshot.engine.queues:
                yield f"{key} is for queue '{queue}', which does not exist"
            elif queue in nodes and nodes[queue].children:
                yield f"{key} is for queue '{queue}', which takes no workloads: name one of the queues below it"
        for name in reservation.clusters:
            if name not in known:
                yield f"{key} names cluster '{name}' in clusters, which does not exist"
                continue
            allocatable = known[name].allocatable
            for resource, amount in reservation.amounts.items() if allocatable is not None else ():
                has = (allocatable or {}).get(resource, 0)
                if amount > has:
                    asked, capacity = (format_quantity(resource, value) for value in (amount, has))
                    yield f"{key} reserves {asked} {resource} in amounts, but cluster '{name}' has {capacity}"


def reservations_to_come(snapshot: Snapshot) -> list[AdvanceReservation]:
    """Return the advance reservations that have not ended, by begin."""
    reservations = snapshot.engine.policy.advance_reservations
    return sorted(
        (reservation for reservation in reservations if reservation.until > snapshot.now),
        key=lambda reservation: (reservation.since, reservation.name),
    )


def _advance_reservation(snapshot: Snapshot, reservation: AdvanceReservation) -> AdvanceReservationReport:
    running = running_on_reserved([reservation], snapshot.engine.index)
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
        missing=positive_quantities(
            snapshot.engine.context.advance_reservation_tracker.missing(reservation, snapshot.now)
        ),
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
    for queue in snapshot.engine.queues_with_pending():
        for position, workload in enumerate(snapshot.engine.pending_workloads(queue), start=1):
            refusal = snapshot.engine.refusal(workload.uid)
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


def pending_reports(snapshot: Snapshot, selection: Selection | None = None, *, with_starts: bool = True) -> Pending:
    """Return the selected pending workloads; those that the cycle admits are counted only.

    *with_starts*: the first ones of each queue have a forecast, which takes most of the time.
    """
    selection = selection or Selection()
    is_selected = selection.workloads(snapshot)
    selected = [item for item in pending_workloads(snapshot) if is_selected(item[1])]
    first = first_of_queues(workload for _, workload, _ in selected) if with_starts else ()
    starts = forecast_starts(snapshot, first)
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
        group=workload.requirements.api.group,
        namespace=workload.namespace,
        name=workload.name,
        priority=workload.priority,
        priority_class=workload.priority_class,
        since=format_time(workload.created_at),
        age=format_age(workload.created_at, snapshot.now),
        reason=refusal.reason,
        message=pending_message(refusal),
        remedy=remedy_message(refusal),
        raised_priority=raised_priority(snapshot.engine, workload),
        start=start,
    )


def usage_reports(snapshot: Snapshot, selection: Selection | None = None) -> WorkloadUsages:
    """Return the selected admitted workloads, those with the highest dominant share of the capacity first."""
    selection = selection or Selection()
    is_selected = selection.workloads(snapshot)
    capacity = total(state.capacity for state in snapshot.engine.cluster_usage)
    selected = [
        workload
        for workload in snapshot.observed.values()
        if workload.state is WorkloadState.ADMITTED and is_selected(workload)
    ]
    selected.sort(key=lambda workload: (-_dominant(workload, capacity), workload.namespace, workload.name))
    reports = selection.sort(_usage_report(snapshot, workload) for workload in selected)
    return WorkloadUsages(reports)


def _dominant(workload: Workload, capacity: Resources) -> float:
    charge = workload.admission.charge if workload.admission else {}
    return max((amount / capacity[name] for name, amount in charge.items() if capacity.get(name)), default=0)


def _usage_report(snapshot: Snapshot, workload: Workload) -> UsageReport:
    admission = workload.admission
    return UsageReport(
        kind=workload.kind,
        group=workload.requirements.api.group,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        priority=workload.priority,
        clusters=tuple(charge.cluster for charge in workload.cluster_charges),
        charge=positive_quantities(admission.charge) if admission else {},
        since=format_time(admission.admitted_at) if admission else None,
        age=format_age(admission.admitted_at, snapshot.now) if admission else "",
    )


def cluster_reports(
    snapshot: Snapshot, selection: Selection | None = None, *, with_next_cycle: bool = False
) -> Clusters:
    """Return the selected clusters with their current usage, including unknown clusters with charges."""
    states = {cluster.name: cluster for cluster in snapshot.current.clusters}
    after = {cluster.name: cluster for cluster in snapshot.engine.cluster_usage} if with_next_cycle else {}
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
