"""The list of workloads, and one workload: why it waits, when it starts, and what would admit it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from console.model import Model
from console.reader import Reader
from console.views.decisions import DecisionRow, admitted_before
from console.views.forecasts import Forecasts, Start, start_of, visible_start
from console.views.listing import (
    NotVisibleError,
    Paging,
    Query,
    amounts_text,
    page_of,
    paging,
    quantities_text,
    shown_snapshot,
)
from console.views.queues import QueueRow, queue_row
from console.views.timeline import Step, is_adopted, timeline
from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, QUEUE_NAME_KEYS, RESOURCE_BINDINGS, binding_name
from controller.cache.objects import VOLCANO_JOB, CachedBinding, group_kind
from controller.cli.input.snapshot import Snapshot
from controller.cli.input.what_if import WhatIf, parse_what_if
from controller.cli.render.amounts import format_time
from controller.cli.render.explain import CandidateReport, DataReport, ReservationReport
from controller.cli.render.plan import StartReport
from controller.cli.reports.explain import (
    candidate_reports,
    counterfactual_reports,
    data_reports,
    head_reservation_report,
    resized_from,
)
from controller.cli.reports.forecast import start_forecasts
from controller.engine import remedies
from controller.engine.plan import Admit
from controller.engine.reasons import Refusal
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid
from controller.reporting.messages import pending_message, verified_remedy

SORTS = ("state", "age", "priority", "name", "queue")
STATES = ("Any", "Pending", "Admitted", "Finished")
_ORDER = {WorkloadState.PENDING: 0, WorkloadState.ADMITTED: 1, WorkloadState.FINISHED: 2}
_MAX_CLUSTERS = 100


class WorkloadRow(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One workload of a list."""

    kind: str
    namespace: str
    name: str
    queue: str
    state: str
    priority: int
    since: str | None
    requests: str
    clusters: tuple[str, ...] = ()
    position: int | None = None
    reason: str = ""
    start: StartReport | None = None
    next_cycle: str = ""
    """What the next scheduling cycle would do with it."""


class WorkloadsView(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The workloads of the namespaces that the reader may see."""

    time: str | None
    workloads: tuple[WorkloadRow, ...]
    paging: Paging
    state: str
    namespace: str
    queue: str
    namespaces: tuple[str, ...] = ()
    """Namespaces with workloads that a tenant may see; empty for readers of all."""


def workloads_view(model: Model, query: Query, reader: Reader, forecasts: Forecasts) -> WorkloadsView:
    """Return the list."""
    snapshot = shown_snapshot(model)
    state, namespace, queue, text = (
        query.choice("state", STATES),
        query.text("namespace"),
        query.text("queue"),
        query.text("q"),
    )
    readable = reader.may_read(namespace) if namespace else False
    own = () if reader.all_workloads else tuple(reader.own_namespaces(model))
    namespaces = ({namespace} if readable else set()) if namespace else set(own)
    every = reader.all_workloads and not namespace
    chosen = [
        workload
        for workload in snapshot.observed.values()
        if (every or workload.namespace in namespaces)
        and (state in {"Any", workload.state})
        and (not queue or queue == workload.queue)
        and (not text or text in workload.name or text in workload.namespace)
    ]
    page = paging(len(chosen), query, SORTS)
    keys = {
        "state": lambda workload: (_ORDER[workload.state], workload.created_at, workload.name, workload.uid),
        "age": lambda workload: (workload.created_at, workload.name, workload.uid),
        "priority": lambda workload: (-workload.priority, workload.name, workload.uid),
        "name": lambda workload: (workload.namespace, workload.name, workload.uid),
        "queue": lambda workload: (
            workload.queue,
            _ORDER[workload.state],
            workload.created_at,
            workload.name,
            workload.uid,
        ),
    }
    shown = page_of(chosen, query, keys[page.sort])
    decided = _next_cycle(snapshot, {workload.uid for workload in shown})
    rows = tuple(_row(snapshot, workload, reader, forecasts, decided.get(workload.uid, "")) for workload in shown)
    return WorkloadsView(format_time(snapshot.now), rows, page, state, namespace, queue, own)


def _row(snapshot: Snapshot, workload: Workload, reader: Reader, forecasts: Forecasts, next_cycle: str) -> WorkloadRow:
    refusal = refusal_of(snapshot, workload)
    return WorkloadRow(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        state=workload.state,
        priority=workload.priority,
        since=format_time(workload.created_at),
        requests=amounts_text(workload.requirements.requests),
        clusters=clusters_of(workload),
        position=snapshot.engine.position(workload) if refusal is not None else None,
        reason=refusal.reason if refusal is not None else "",
        start=visible_start(forecasts.starts.get(workload.uid), reader),
        next_cycle=next_cycle,
    )


def refusal_of(snapshot: Snapshot, workload: Workload) -> Refusal | None:
    """Return why a workload is pending; ``None`` for one that the plan would only make pending."""
    return snapshot.engine.refusal(workload.uid) if workload.state is WorkloadState.PENDING else None


def _next_cycle(snapshot: Snapshot, uids: Collection[WorkloadUid]) -> dict[WorkloadUid, str]:
    """Return what the next scheduling cycle would do with each of *uids* that it decides about."""
    return {
        decision.workload.uid: f"admits it to {', '.join(cluster.name for cluster in decision.clusters)}"
        if isinstance(decision, Admit)
        else f"evicts it ({decision.reason})"
        for decision in snapshot.plan.decisions
        if decision.workload.uid in uids
    }


def clusters_of(workload: Workload) -> tuple[str, ...]:
    """Return the clusters that a workload is admitted to."""
    return tuple(charge.cluster for charge in workload.cluster_charges if workload.state is WorkloadState.ADMITTED)


class Change(msgspec.Struct, rename={"before": "from", "after": "to"}, frozen=True):
    """A change that would admit the workload now."""

    change: str
    """As `plan --what-if` takes it."""
    dimension: str
    before: str
    after: str


class Analysis(msgspec.Struct, frozen=True):
    """The slow part of an explanation, of which all names are in the texts of *changes*."""

    start: Start | None
    changes: tuple[Change, ...]
    remedy: str
    reason: str
    """What the remedy ends: the workload may be pending for another reason when it is shown."""


class WorkloadView(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One workload."""

    time: str | None
    uid: str
    kind: str
    namespace: str
    name: str
    state: str
    queue: str
    priority: int
    priority_class: str
    since: str | None
    requests: str
    gang: str
    timeline: tuple[Step, ...]
    is_logged: bool
    """Whether the timeline has what the decision log knows."""
    before: tuple[DecisionRow, ...]
    """The last workloads that were admitted while it waited, the newest first."""
    queue_rows: tuple[QueueRow, ...]
    hyperjob: str = ""
    reason: str = ""
    message: str = ""
    remedy: str = ""
    position: int | None = None
    of: int | None = None
    raised_priority: int | None = None
    """The priority as raised by waiting (O10)."""
    reservation: ReservationReport | None = None
    """What is reserved for it while it waits, and the start that was promised (O6, O9)."""
    start: StartReport | None = None
    has_run_times: bool = True
    """Whether forecasts are possible: a run time was learned."""
    analysis: str = ""
    """``Running`` while counterfactuals are computed, ``Failed`` where that took too long."""
    changes: tuple[Change, ...] = ()
    hidden_changes: int = 0
    """Changes of objects that the reader may not name."""
    data: tuple[DataReport, ...] = ()
    """The data that its claims name; where they are only for readers of clusters."""
    clusters: tuple[CandidateReport, ...] = ()
    placed: tuple[tuple[str, str], ...] = ()
    """The clusters that it is admitted to, or is terminating on, each with its charge."""
    adopted: bool = False
    """Whether it runs without an admission, and is never evicted (D10)."""
    resized_from: str = ""
    """Its charge at its admission, where it was resized since (D7)."""
    next_cycle: str = ""
    """What the next scheduling cycle would do with it."""
    evictions: int = 0
    record: dict[str, str] = {}
    commands: tuple[str, ...] = ()


def find_workload(model: Model, query: Query, reader: Reader) -> Workload:
    """Return the workload that the path names; raise `NotVisibleError`."""
    namespace, kind, name = (query.path[part] for part in ("namespace", "kind", "name"))
    namespace = "" if namespace == "-" else namespace
    if reader.may_read(namespace):
        for workload in shown_snapshot(model).observed.values():
            if (workload.name, workload.namespace, workload.kind) == (name, namespace, kind):
                return workload
    raise NotVisibleError(f"there is no {kind} {name!r} in namespace {namespace!r} that you may see")


def analyse(snapshot: Snapshot, uid: WorkloadUid) -> Analysis:
    """Return the slow part of the explanation of a workload; changes the engine, so it runs in a child."""
    workload = snapshot.engine.workloads[uid]
    refusal = snapshot.engine.refusal(uid)
    remedy = ""
    if refusal is not None:
        remedy = verified_remedy(refusal, remedies.find_remedy(snapshot.engine, uid, snapshot.now, snapshot.plan))
    forecast = start_forecasts(snapshot, [workload]).get(uid)
    reports = counterfactual_reports(snapshot, workload) or ()
    changes = tuple(Change(report.change, report.dimension, report.before, report.after) for report in reports)
    start = start_of(forecast) if forecast is not None else None
    return Analysis(start, changes, remedy, refusal.reason if refusal is not None else "")


@dataclass(frozen=True, slots=True)
class Insights:
    """What is known about a workload beyond the snapshot."""

    forecasts: Forecasts
    analysis: Analysis | None = None
    status: str = ""
    """Why there is no analysis."""


def workload_view(model: Model, workload: Workload, reader: Reader, insights: Insights) -> WorkloadView:
    """Return one workload."""
    forecasts, analysis = insights.forecasts, insights.analysis
    snapshot = shown_snapshot(model)
    binding = snapshot.binding(workload)
    refusal = refusal_of(snapshot, workload)
    visible = reader.redacted(refusal)
    pending = refusal is not None
    shown, hidden = _visible_changes(analysis.changes if analysis is not None else (), model, reader)
    start = (
        analysis.start if analysis is not None and analysis.start is not None else forecasts.starts.get(workload.uid)
    )
    node = snapshot.shares.quota.tree.nodes.get(workload.queue)
    path = [ancestor.name for ancestor in node.path()] if node is not None else []
    reports = candidate_reports(snapshot, workload) if pending and reader.all_clusters else ()
    return WorkloadView(
        time=format_time(snapshot.now),
        uid=workload.uid,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        state=workload.state,
        queue=workload.queue,
        priority=workload.priority,
        priority_class=workload.priority_class,
        since=format_time(workload.created_at),
        requests=amounts_text(workload.requirements.requests),
        gang=amounts_text(workload.requirements.gang_requests),
        timeline=tuple(timeline(model, workload, visible.reason if visible else "", reader)),
        is_logged=model.history.is_enabled,
        before=_admitted_before(model, workload, reader),
        queue_rows=tuple(queue_row(model, name, reader, Forecasts()) for name in path),
        hyperjob=_hyperjob(model, workload),
        reason=visible.reason if visible else "",
        message=pending_message(visible) if visible else "",
        remedy=_remedy(analysis, refusal, reader),
        position=snapshot.engine.position(workload) if pending else None,
        of=snapshot.engine.pending_count(workload.queue) if pending else None,
        raised_priority=snapshot.engine.raised_priority(workload),
        reservation=head_reservation_report(workload) if pending else None,
        start=visible_start(start, reader) if pending else None,
        has_run_times=snapshot.run_times is not None,
        analysis=insights.status if pending else "",
        changes=shown,
        hidden_changes=hidden,
        data=_data(snapshot, workload, reader),
        clusters=tuple(reports)[:_MAX_CLUSTERS],
        adopted=is_adopted(workload),
        resized_from=quantities_text(resized_from(snapshot, workload) or {}),
        placed=tuple((charge.cluster, amounts_text(charge.charge)) for charge in workload.cluster_charges),
        next_cycle=_next_cycle(snapshot, {workload.uid}).get(workload.uid, ""),
        evictions=workload.evictions,
        record=_record(binding),
        commands=_commands(workload),
    )


def _remedy(analysis: Analysis | None, refusal: Refusal | None, reader: Reader) -> str:
    """Return what ends the reason of now, empty where the analysis is about another one, or names other workloads."""
    if analysis is None or refusal is None or analysis.reason != refusal.reason or not reader.all_workloads:
        return ""
    return analysis.remedy


def _data(snapshot: Snapshot, workload: Workload, reader: Reader) -> tuple[DataReport, ...]:
    """Return the data that its claims name; where they are only for readers of clusters."""
    reports = data_reports(snapshot, workload)
    if reader.all_clusters:
        return reports
    return tuple(msgspec.structs.replace(report, source=None, clusters=()) for report in reports)


def _hyperjob(model: Model, workload: Workload) -> str:
    if workload.gang is None:
        return ""
    for collection in model.hyperjobs.values():
        for observed in collection:
            if observed.uid == workload.gang.hyperjob:
                return observed.key.name
    return ""


def _visible_changes(changes: Iterable[Change], model: Model, reader: Reader) -> tuple[tuple[Change, ...], int]:
    """Return the changes of objects that the reader may name, and the number of the others."""
    shown, hidden = [], 0
    for change in changes:
        if all(_may_name(part, model, reader) for part in parse_what_if([change.change])):
            shown.append(change)
        else:
            hidden += 1
    return tuple(shown), hidden


def _may_name(change: WhatIf, model: Model, reader: Reader) -> bool:
    """Return whether the reader may read the object of *change*, and the queue or cluster in it."""
    steps = [str(step) for step in change.path]
    names_queue = steps[-1] in {"queue", *QUEUE_NAME_KEYS}
    names_cluster = any("placement" in step or "cluster" in step.lower() for step in steps)
    return (
        reader.may_change(change, model)
        and (not names_queue or reader.may_name(QueueName(str(change.value)), model))
        and (not names_cluster or reader.all_clusters)
    )


def _admitted_before(model: Model, workload: Workload, reader: Reader) -> tuple[DecisionRow, ...]:
    admissions = [decision.at for decision in model.history.of_workload(workload.uid) if decision.action == "Admit"]
    until = admissions[-1] if admissions else None
    if workload.state is WorkloadState.PENDING:
        until = None
    return admitted_before(model, workload.uid, reader, since=workload.created_at, until=until)


def _record(binding: CachedBinding | None) -> dict[str, str]:
    """Return the fields of its admission record that are set."""
    if binding is None or binding.record is None:
        return {}
    record = binding.record
    fields = {
        "charge": amounts_text(record.charge),
        "clusters": ", ".join(record.clusters),
        "admittedAt": format_time(record.admitted_at),
        "waitingSince": format_time(record.waiting_since),
        "reservedSince": format_time(record.reserved_since),
        "nominatedCluster": record.nominated_cluster,
        "nominatedAt": format_time(record.nominated_at),
        "backOffUntil": format_time(record.back_off_until),
        "evictions": str(record.evictions) if record.evictions else "",
        "planID": record.plan_id,
    }
    return {name: value for name, value in fields.items() if value}


def _commands(workload: Workload) -> tuple[str, ...]:
    kind = group_kind(workload.requirements.api)
    resource = "vcjob" if kind == VOLCANO_JOB else kind.lower().rstrip(".")
    scope = f" -n {workload.namespace}" if workload.namespace else ""
    bindings = RESOURCE_BINDINGS if workload.namespace else CLUSTER_RESOURCE_BINDINGS
    return (
        f"volcano-global explain job {workload.name}{scope}",
        f"kubectl get {resource} {workload.name}{scope} -o yaml",
        f"kubectl get {bindings.kind.lower()} {binding_name(workload.name, workload.kind)}{scope} -o yaml",
    )
