"""Builds the explanations of a job, of the parts of a HyperJob and of a queue."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType

import msgspec

from controller.api.events import Event
from controller.api.hyperjobs import HyperJob, PartStatus
from controller.api.quantity import format_quantity
from controller.cache.objects import VOLCANO_JOB
from controller.cache.translate.units import to_milliseconds
from controller.cache.unapplied_works import unapplied
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import Amounts, format_time, positive_quantities, quantities
from controller.cli.render.explain import (
    AdmittedState,
    CandidateReport,
    ClusterCharge,
    CounterfactualReport,
    DataReport,
    Explanation,
    Guarantee,
    PendingState,
    PublishedEvent,
    QueueExplanation,
    ReasonCount,
    RemedyStep,
    ReservationReport,
    UnmetRequirement,
    WorkloadAhead,
    WorkloadQueue,
)
from controller.cli.render.hyperjob import HyperJobPart, HyperJobReport
from controller.cli.render.plan import StartReport
from controller.cli.reports.forecast import forecast_starts
from controller.cli.reports.plan import pending_reports, raised_priority, unusable_reason
from controller.cli.reports.queues import (
    current_share_report,
    guarantee_notes,
    queue_path,
    queue_report,
    queue_share_report,
    reachable_capacity,
    reachable_notes,
)
from controller.cli.reports.selection import Selection, require_queue
from controller.controllers.hyperjob.children import minimum_parts
from controller.controllers.hyperjob.preview import Preview
from controller.controllers.hyperjob.split import requests_of_parts
from controller.controllers.hyperjob.state import SUSPENDED
from controller.engine import remedies
from controller.engine.placement.feasibility_cache import candidate_clusters, candidates_now, has_nodes
from controller.engine.placement.filter import Candidates, Exclusion, untolerated_taints
from controller.engine.placement.fit import FreeCapacity, free_capacity, replicas_that_fit
from controller.engine.plan import Evict
from controller.engine.reasons import Refusal, precedence
from controller.engine.remedies import Change
from controller.engine.shortfalls import Gap, Shortfall, cluster_gap, shortfalls
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import nonzero, positive, subtract
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadState, WorkloadUid
from controller.forecast.counterfactuals import PendingJob, find_counterfactuals, quoted
from controller.forecast.trials import Trials
from controller.reporting.messages import pending_message, shortfall_message, verified_remedy

#: Maximum number of events shown for one workload.
_MAX_EVENTS = 5

#: Maximum number of pending workloads shown for a queue.
_MAX_FIRST = 5


def _published_events(events: Iterable[Event]) -> tuple[PublishedEvent, ...]:
    """Return the latest *events*, the latest last."""
    timed = [(to_milliseconds(event.last_seen), event) for event in events]
    # By milliseconds, which the text does not have: a workload may be pending and be admitted within a second.
    timed.sort(key=lambda pair: (pair[0] or 0, pair[1].reason))
    return tuple(
        PublishedEvent(format_time(at) or "", event.reason, event.note, event.count)
        for at, event in timed[-_MAX_EVENTS:]
    )


_EXCLUSIONS: Mapping[Exclusion, str] = MappingProxyType(
    {
        Exclusion.DELETING: "it is being deleted",
        Exclusion.AFFINITY_MISMATCH: "the placement requires other names, labels or regions",
        Exclusion.API_NOT_ENABLED: "it does not serve {api}",
        Exclusion.UNTOLERATED_TAINT: "the placement does not tolerate its taint {taints}",
        Exclusion.SPREAD_PROPERTY_MISSING: "it lacks a property that the placement spreads by",
        Exclusion.DATA_MISSING: "it does not hold all data of the workload's DataSourceClaims",
        Exclusion.EVICTION_TASK: "the workload is being evicted from it",
        Exclusion.TOO_FEW_GROUPS: "the placement spreads over more clusters than there are",
        Exclusion.MAX_GROUPS_MISSING: "a spread constraint of the placement has no maxGroups, so Karmada selects no"
        " cluster; set maxGroups",
        Exclusion.SMALLER_REGION: "the placement spreads by region, and Karmada chooses a region with more clusters",
        Exclusion.RESERVED: "it is kept free for an advance reservation, and the workload is not expected to end"
        " before that begins",
        Exclusion.STARTUP_FAILED: "the workload or an equal one did not start on it, and it has not changed since",
    }
)


def candidate_reports(snapshot: Snapshot, workload: Workload) -> tuple[CandidateReport, ...]:
    """Return all clusters as *workload* finds them after the plan, candidates first, sorted by name."""
    cluster_usage, requirements = snapshot.engine.cluster_usage, workload.requirements
    candidate_set = candidates_now(requirements, cluster_usage)
    planned = snapshot.engine.workloads.get(workload.uid, workload)
    clusters = (_as_found_by(planned, cluster) for cluster in cluster_usage)
    reports = [_candidate_report(cluster, requirements, candidate_set) for cluster in clusters]
    return tuple(sorted(reports, key=lambda report: (not report.candidate, report.name)))


def _as_found_by(workload: Workload, cluster: ClusterState) -> ClusterState:
    """Return *cluster* with what the nomination of *workload* itself sets aside as free."""
    nomination = workload.nomination
    if nomination is None or not workload.is_nominated or nomination.cluster != cluster.name:
        return cluster
    return replace(cluster, nominated=nonzero(subtract(cluster.nominated, nomination.requests)))


def _candidate_report(
    cluster: ClusterState, requirements: SchedulingRequirements, candidate_set: Candidates
) -> CandidateReport:
    exclusion = candidate_set.excluded.get(cluster.name)
    capacity = free_capacity(cluster).available_to(requirements)
    gap = cluster_gap(requirements, capacity)
    return CandidateReport(
        name=cluster.name,
        candidate=cluster.name in candidate_set.names,
        exclusion=exclusion,
        problem=_exclusion_text(cluster, requirements, exclusion)
        if exclusion
        else unusable_reason(cluster)
        or _set_aside_in_advance(cluster, requirements)
        or _node_shortage(cluster, capacity, gap, requirements),
        free=quantities(gap.free, positive(gap.requests)),
        lacks=positive_quantities(gap.missing),
        replicas=min(replicas_that_fit(requirements, capacity), requirements.replicas)
        if requirements.replicas
        else None,
    )


def _exclusion_text(cluster: ClusterState, requirements: SchedulingRequirements, exclusion: Exclusion) -> str:
    taints = untolerated_taints(cluster.cluster, requirements.placement) if cluster.cluster else ()
    written = ", ".join(f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}" for taint in taints)
    return _EXCLUSIONS[exclusion].format(
        api=f"{requirements.api.group_version} {requirements.api.kind}", taints=written
    )


def _set_aside_in_advance(cluster: ClusterState, requirements: SchedulingRequirements) -> str:
    """Return what advance reservations of amounts keep free from a workload, empty where nothing (O11)."""
    set_aside = cluster.in_advance.set_aside(requirements.amounts_reserved_by) if cluster.in_advance is not None else {}
    amounts = positive_quantities({name: set_aside.get(name, 0) for name in positive(requirements.requests)})
    listed = ", ".join(f"{amount} {name}" for name, amount in amounts.items())
    return f"keeps {listed} of its free capacity free for advance reservations" if listed else ""


def _node_shortage(
    cluster: ClusterState, capacity: FreeCapacity, gap: Gap, requirements: SchedulingRequirements
) -> str:
    """Return why the nodes of a cluster cannot run a workload; empty where they can, or where nothing is known."""
    if cluster.cluster is not None and not has_nodes(requirements, cluster.cluster):
        return "cannot hold its gang on its nodes, even empty ones"
    if not capacity.has_nodes_for(requirements.pods):
        return "has no node with enough free capacity for one of its pods"
    if not gap.missing and capacity.is_refused_by_estimator(requirements):
        return "has no nodes free for its gang, according to its scheduler estimator"
    return ""


def explain(snapshot: Snapshot, workload: Workload, events: Iterable[Event] | None = None) -> Explanation:
    """Return the explanation of *workload*; *events* are those recorded for it, ``None`` if unknown."""
    requirements = workload.requirements
    explanation = Explanation(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        state=workload.state,
        priority=workload.priority,
        priority_class=workload.priority_class,
        unknown_class=workload.details.unknown_class,
        raised_priority=raised_priority(snapshot.engine, workload),
        since=format_time(workload.created_at),
        requests=positive_quantities(requirements.requests),
        gang=positive_quantities(requirements.gang_requests),
        copies=candidate_clusters(requirements, snapshot.engine.cluster_usage).copies,
        queue=_queue(snapshot, workload.queue),
        waiting=_pending_state(snapshot, workload),
        running=_admitted_state(snapshot, workload),
        finished_on=_finished_on(snapshot, workload),
        start=forecast_starts(snapshot, [workload]).get(workload.uid),
        events=msgspec.UNSET if events is None else _published_events(events),
        data=data_reports(snapshot, workload) or msgspec.UNSET,
        evicted=_eviction_reason(snapshot, workload),
    )
    # Last: the trials return the state to that before the plan.
    counterfactuals, is_complete = _counterfactuals(snapshot, workload)
    return msgspec.structs.replace(explanation, counterfactuals=counterfactuals, counterfactuals_complete=is_complete)


def _eviction_reason(snapshot: Snapshot, workload: Workload) -> str | None:
    """Return why the plan evicts a workload, ``None`` where it does not."""
    for decision in snapshot.plan.decisions:
        if isinstance(decision, Evict) and decision.workload.uid == workload.uid:
            return decision.reason
    return None


def data_reports(snapshot: Snapshot, workload: Workload) -> tuple[DataReport, ...]:
    """Return the data that the DataSourceClaims of a workload name."""
    binding = snapshot.binding(workload)
    claimed = snapshot.store.data_requirement(binding).claimed if binding is not None else ()
    return tuple(
        DataReport(data.claim, data.data, data.source or None, data.clusters, data.is_preferred) for data in claimed
    )


def counterfactual_reports(snapshot: Snapshot, workload: Workload) -> tuple[CounterfactualReport, ...] | None:
    """Return the least changes that admit a pending workload now, ``None`` for other workloads."""
    return _counterfactuals(snapshot, workload)[0]


def _counterfactuals(snapshot: Snapshot, workload: Workload) -> tuple[tuple[CounterfactualReport, ...] | None, bool]:
    """Return the least changes that admit a pending workload now, and whether all changes were tried."""
    uid = workload.uid
    if uid not in snapshot.engine.pending:
        return () if snapshot.engine.refusal(uid) else None, True
    trials = Trials(snapshot.engine, snapshot.history, snapshot.now, snapshot.plan)
    counterfactuals = find_counterfactuals(trials, _pending_job(snapshot, trials.engine.workloads[uid]))
    reports = tuple(
        CounterfactualReport(
            change=";".join(map(str, counterfactual.changes)),
            dimension=counterfactual.dimension,
            before="; ".join(change.before for change in counterfactual.changes),
            after="; ".join(change.after for change in counterfactual.changes),
        )
        for counterfactual in counterfactuals
    )
    return reports, not trials.is_cut


def _pending_job(snapshot: Snapshot, workload: Workload) -> PendingJob:
    """Return what of *workload* may be changed: a part of a HyperJob and other kinds keep their templates."""
    store, binding = snapshot.store, snapshot.binding(workload)
    template = store.template(binding) if binding else None
    requests = template.requests if template else None
    is_own = workload.gang is None and template is not None and template.key.kind == VOLCANO_JOB
    job = requests.job if is_own and requests is not None and not requests.claims else None
    return PendingJob(
        workload,
        template=job,
        priority_of=store.priorities.task_value,
        priority_classes={cached.key: cached.value for cached in store.priority_classes} if job is not None else None,
        binding=binding.name if binding is not None and workload.gang is None else "",
    )


def _pending_state(snapshot: Snapshot, workload: Workload) -> PendingState | None:
    refusal = snapshot.engine.refusal(workload.uid)
    if refusal is None:
        return None
    remedy = remedies.find_remedy(snapshot.engine, workload.uid, snapshot.now, snapshot.plan)
    queued = snapshot.engine.pending_workloads(workload.queue)
    position = [other.uid for other in queued].index(workload.uid)
    return PendingState(
        reason=refusal.reason,
        message=pending_message(refusal),
        remedy=verified_remedy(refusal, remedy),
        missing=tuple(map(_unmet_requirement, shortfalls(snapshot.engine, workload.uid))),
        changes=tuple(map(_step, remedy.changes)) if remedy is not None else None,
        complete=remedy is not None and remedy.is_complete,
        position=position + 1,
        of=len(queued),
        before=tuple(_workload_ahead(snapshot, other) for other in queued[:position]),
        clusters=candidate_reports(snapshot, workload),
        reservation=head_reservation_report(workload),
    )


def head_reservation_report(workload: Workload) -> ReservationReport | None:
    """Return what is reserved for a pending workload, ``None`` where nothing is (O6)."""
    reservation = workload.reservation
    if reservation is None:
        return None
    clusters = sorted({charge.cluster for charge in reservation.cluster_charges})
    since, promised = format_time(reservation.since) or "", format_time(reservation.promised_start)
    return ReservationReport(since, tuple(clusters), promised)


def _unmet_requirement(shortfall: Shortfall) -> UnmetRequirement:
    resource = shortfall.resource
    requests, free, lacks = (
        None if resource is None or amount is None else format_quantity(resource, amount)
        for amount in (shortfall.requests, shortfall.free, shortfall.lacks)
    )
    others = ((queue, format_quantity(resource or "", amount)) for queue, amount in shortfall.guaranteed)
    return UnmetRequirement(
        reason=shortfall.reason,
        queue=shortfall.queue,
        cluster=shortfall.cluster,
        resource=resource,
        requests=requests,
        free=free,
        lacks=lacks,
        guaranteed_to_others=tuple(Guarantee(queue, amount) for queue, amount in others),
        message=shortfall_message(shortfall),
    )


def _step(change: Change) -> RemedyStep:
    field = "spec.capability" if change.kind == "queue" else "status.resourceSummary.allocatable"
    before, after = (format_quantity(change.resource, amount) for amount in (change.before, change.after))
    return RemedyStep(f"{change.kind}/{change.name}.{field}.{quoted(change.resource)}={after}", before, after)


def _workload_ahead(snapshot: Snapshot, workload: Workload) -> WorkloadAhead:
    refusal = snapshot.engine.refusal(workload.uid)
    return WorkloadAhead(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        priority=workload.priority,
        since=format_time(workload.created_at),
        reason=refusal.reason if refusal else "",
        raised_priority=raised_priority(snapshot.engine, workload),
    )


def _admitted_state(snapshot: Snapshot, workload: Workload) -> AdmittedState | None:
    admission = workload.admission
    if workload.state is not WorkloadState.ADMITTED or admission is None:
        return None
    return AdmittedState(
        clusters=tuple(
            ClusterCharge(cluster_charge.cluster, positive_quantities(cluster_charge.charge))
            for cluster_charge in admission.cluster_charges
        ),
        charge=positive_quantities(admission.charge),
        pending_resize=resized_from(snapshot, workload),
        since=format_time(admission.admitted_at),
        adopted=admission.adopted,
        now=snapshot.admission(workload.uid) is not None,
        apply_errors=_apply_errors(snapshot, workload) or msgspec.UNSET,
    )


def _apply_errors(snapshot: Snapshot, workload: Workload) -> Mapping[str, str]:
    binding = snapshot.binding(workload)
    return {reported.cluster: reported.apply_error for reported in unapplied(binding)} if binding is not None else {}


def resized_from(snapshot: Snapshot, workload: Workload) -> Amounts | None:
    """Return the charge in the admission record, if the workload requests more by now; a failover is charged, too."""
    binding, admission = snapshot.binding(workload), workload.admission
    record = binding.record if binding else None
    if record is None or not record.admits or admission is None or not admission.resized:
        return None
    return positive_quantities(record.charge)


def _finished_on(snapshot: Snapshot, workload: Workload) -> tuple[str, ...]:
    binding = snapshot.binding(workload)
    if workload.state is not WorkloadState.FINISHED or binding is None:
        return ()
    return tuple(target.name for target in binding.targets)


def _queue(snapshot: Snapshot, name: QueueName) -> WorkloadQueue:
    engine = snapshot.engine
    node = engine.tree().nodes.get(name)
    queue = node.queue if node else engine.queues.get(name)
    path = queue_path(snapshot, name)
    return WorkloadQueue(
        name=name,
        path=path,
        exists=queue is not None,
        state=queue.state if queue else "",
        weight=queue.weight if queue else 0,
        priority=queue.priority if queue else 0,
        shares=tuple(
            queue_share_report(snapshot, queue_name) for queue_name in path[::-1] or ((name,) if queue else ())
        ),
        similar_names=() if queue else tuple(get_close_matches(name, sorted(engine.queues), n=3)),
        notes=_queue_notes(snapshot, name) if queue else (),
    )


def _queue_notes(snapshot: Snapshot, name: QueueName) -> tuple[str, ...]:
    return tuple(reachable_notes(snapshot, [queue_report(snapshot, name, reachable_capacity(snapshot))]))


def queue_explanation(snapshot: Snapshot, queue: str) -> QueueExplanation:
    """Return the explanation of a queue; raise `NotFoundError`."""
    require_queue(queue, {*snapshot.shares.quota.tree.nodes, *snapshot.engine.queues})
    name = QueueName(queue)
    node = snapshot.shares.quota.tree.nodes.get(name)
    spec = node.queue if node else snapshot.engine.queues[name]
    report = queue_report(snapshot, name, reachable_capacity(snapshot), with_next_cycle=True)
    pending = pending_reports(snapshot, Selection(queue=name)).pending
    counts = Counter(workload.reason for workload in pending)
    return QueueExplanation(
        queue=report,
        capability=quantities(spec.capability, sorted(spec.capability)),
        guarantee=positive_quantities(spec.guarantee),
        deserved=positive_quantities(spec.deserved),
        children=tuple(child.name for child in node.children) if node else (),
        ancestors=tuple(current_share_report(snapshot, ancestor) for ancestor in queue_path(snapshot, name)[-2::-1]),
        reasons=tuple(
            ReasonCount(reason, count) for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        ),
        first=pending[:_MAX_FIRST],
        notes=(*guarantee_notes(snapshot, report.path), *reachable_notes(snapshot, [report])),
    )


def hyperjob_report(snapshot: Snapshot, hyperjob: HyperJob, split: Preview) -> HyperJobReport:
    """Return the state of *hyperjob* and its parts in *snapshot*."""
    demands = requests_of_parts(hyperjob, split.parts) if split.parts else []
    uid = hyperjob.metadata.uid
    workloads = {
        workload.name: workload
        for workload in snapshot.engine.workloads.values()
        if workload.gang is not None and workload.gang.hyperjob == uid
    }
    starts = forecast_starts(snapshot, workloads.values())
    parts = tuple(
        _part(snapshot, part, positive_quantities(amounts), workload=workloads.get(part.name), starts=starts)
        for part, amounts in zip(split.parts, demands, strict=True)
    )
    reason, message = _hyperjob_reason(snapshot, hyperjob, split, workloads)
    return HyperJobReport(
        namespace=hyperjob.metadata.namespace,
        name=hyperjob.metadata.name,
        phase=hyperjob.status.phase or "Pending",
        reason=reason,
        message=message,
        decided=split.is_decided,
        min_available=minimum_parts(hyperjob, len(split.parts)),
        parts=parts,
    )


def _hyperjob_reason(
    snapshot: Snapshot, hyperjob: HyperJob, split: Preview, workloads: Mapping[str, Workload]
) -> tuple[str, str]:
    """Return code and message of why parts are pending: that of the engine, if it knows the parts."""
    if hyperjob.status.is_finished:
        return "", hyperjob.status.message
    refusals = [refusal for workload in workloads.values() if (refusal := snapshot.engine.refusal(workload.uid))]
    if refusals:
        first: Refusal = min(refusals, key=precedence)
        return first.reason, pending_message(first)
    if split.pending_reason is not None and not workloads:
        return split.pending_reason.reason, split.pending_reason.message
    if workloads:
        return "", ""
    return "", hyperjob.status.message or (SUSPENDED if hyperjob.spec.suspend else "")


def _part(
    snapshot: Snapshot,
    part: PartStatus,
    amounts: Amounts,
    *,
    workload: Workload | None,
    starts: Mapping[WorkloadUid, StartReport],
) -> HyperJobPart:
    refusal = snapshot.engine.refusal(workload.uid) if workload else None
    return HyperJobPart(
        name=part.name,
        replicated_job=part.replicated_job,
        cluster=part.cluster,
        pods=sum(part.pods),
        requests=amounts,
        why=part.reason,
        state=_part_state(part, workload),
        clusters=tuple(charge.cluster for charge in workload.cluster_charges) if workload else (),
        reason=refusal.reason if refusal else "",
        message=pending_message(refusal) if refusal else "",
        retries=part.retries,
        start=starts.get(workload.uid) if workload else None,
    )


def _part_state(part: PartStatus, workload: Workload | None) -> str:
    """Return the engine's state of a part, or its recorded phase if the engine no longer has it."""
    return str(workload.state) if workload is not None and workload.state is not WorkloadState.FINISHED else part.phase
