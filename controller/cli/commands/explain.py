"""Explains one workload: its state, its queue, its clusters and what would admit it."""

from difflib import get_close_matches

import msgspec

from controller.api.quantity import format_quantity
from controller.cli.input.snapshot import Snapshot
from controller.cli.report.amounts import Amounts, format_time, positive_quantities
from controller.cli.report.candidates import CandidateReport, candidate_reports
from controller.cli.report.queues import QueueShareReport, queue_path, queue_share_report
from controller.engine import remedies
from controller.engine.placement.feasibility_cache import feasibility
from controller.engine.remedies import Change
from controller.engine.shortfalls import Shortfall, shortfalls
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Workload, WorkloadState
from controller.reporting.messages import pending_message, shortfall_message, verified_remedy


class WorkloadAhead(msgspec.Struct, rename="camel", frozen=True):
    """A workload ahead of the explained one in its queue."""

    kind: str
    namespace: str
    name: str
    priority: int
    since: str | None
    reason: str


class Guarantee(msgspec.Struct, frozen=True):
    """Guarantee of another queue for an insufficient resource."""

    queue: str
    amount: str


class UnmetRequirement(msgspec.Struct, rename="camel", frozen=True):
    """One requirement that is not met; amounts are null where the reason has none, *free* may be negative."""

    reason: str
    queue: str | None
    cluster: str | None
    resource: str | None
    requests: str | None
    free: str | None
    lacks: str | None
    guaranteed_to_others: tuple[Guarantee, ...]
    message: str


class RemedyStep(msgspec.Struct, rename={"before": "from", "after": "to"}, frozen=True):
    """One change of a remedy: the field of a queue or cluster, with the amounts before and after."""

    change: str
    before: str
    after: str


class PendingState(msgspec.Struct, rename="camel", frozen=True):
    """State of a pending workload; *position* counts from 1, *of* is the number of pending workloads in its queue.

    *missing* lists the unmet requirements in the order in which they are checked, the
    reason first. *changes* are verified by a simulation: exactly these changes admit it,
    with all workloads ahead of it if *complete*; null if none were found.
    """

    reason: str
    message: str
    remedy: str
    missing: tuple[UnmetRequirement, ...]
    changes: tuple[RemedyStep, ...] | None
    complete: bool
    position: int
    of: int
    before: tuple[WorkloadAhead, ...]
    clusters: tuple[CandidateReport, ...]


class ClusterCharge(msgspec.Struct, frozen=True):
    """Charge of the workload on one cluster."""

    name: str
    charge: Amounts


class AdmittedState(msgspec.Struct, rename="camel", frozen=True):
    """Clusters and charge of an admitted workload; *now* is true if this plan admits it.

    *outgrown* is its charge at admission, if it was resized since (D7).
    """

    clusters: tuple[ClusterCharge, ...]
    charge: Amounts
    pending_resize: Amounts | None
    since: str | None
    adopted: bool
    now: bool


class WorkloadQueue(msgspec.Struct, rename="camel", frozen=True):
    """The queue of a workload; *path* is empty if the queue is not connected to the root."""

    name: str
    path: tuple[str, ...]
    exists: bool
    state: str
    weight: int
    priority: int
    shares: tuple[QueueShareReport, ...]
    """The shares of the queue, then those of its ancestors, the root last."""
    similar_names: tuple[str, ...]
    """Similar names of existing queues, if the queue does not exist."""


class PublishedEvent(msgspec.Struct, rename="camel", frozen=True):
    """One event that the controller recorded for a workload."""

    last: str
    reason: str
    note: str
    count: int


class Explanation(msgspec.Struct, rename="camel", frozen=True):
    """One workload; *waiting* is set for a pending one, *running* for an admitted one, neither for a finished one."""

    kind: str
    namespace: str
    name: str
    state: str
    priority: int
    priority_class: str
    unknown_class: bool
    since: str | None
    requests: Amounts
    gang: Amounts
    copies: int
    queue: WorkloadQueue
    waiting: PendingState | None
    running: AdmittedState | None
    finished_on: tuple[str, ...]
    events: tuple[PublishedEvent, ...] | msgspec.UnsetType = msgspec.UNSET
    """Its recorded events, the latest last; from the live control plane only."""


def explain(snapshot: Snapshot, workload: Workload) -> Explanation:
    """Return the explanation of *workload*."""
    requirements = workload.requirements
    return Explanation(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        state=workload.state,
        priority=workload.priority,
        priority_class=workload.priority_class,
        unknown_class=workload.unknown_class,
        since=format_time(workload.created_at),
        requests=positive_quantities(requirements.requests),
        gang=positive_quantities(requirements.gang_requests),
        copies=feasibility(requirements, snapshot.state.cluster_usage).copies,
        queue=_queue(snapshot, workload.queue),
        waiting=_pending_state(snapshot, workload),
        running=_admitted_state(snapshot, workload),
        finished_on=_finished_on(snapshot, workload),
    )


def _pending_state(snapshot: Snapshot, workload: Workload) -> PendingState | None:
    refusal = snapshot.state.refusal(workload.uid)
    if refusal is None:
        return None
    remedy = remedies.find_remedy(snapshot.state, workload.uid, snapshot.now, snapshot.plan)
    queued = snapshot.state.pending_workloads(workload.queue)
    position = [other.uid for other in queued].index(workload.uid)
    return PendingState(
        reason=refusal.reason,
        message=pending_message(refusal),
        remedy=verified_remedy(refusal, remedy),
        missing=tuple(map(_unmet_requirement, shortfalls(snapshot.state, workload.uid))),
        changes=tuple(map(_step, remedy.changes)) if remedy is not None else None,
        complete=remedy is not None and remedy.is_complete,
        position=position + 1,
        of=len(queued),
        before=tuple(_workload_ahead(snapshot, other) for other in queued[:position]),
        clusters=candidate_reports(snapshot, workload.requirements),
    )


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
    return RemedyStep(f"{change.kind}/{change.name}.{field}.{_quote_resource(change.resource)}={after}", before, after)


def _quote_resource(resource: str) -> str:
    """Return *resource* as an element of a field path, quoted if it contains a dot."""
    return f"'{resource}'" if "." in resource else resource


def _workload_ahead(snapshot: Snapshot, workload: Workload) -> WorkloadAhead:
    refusal = snapshot.state.refusal(workload.uid)
    return WorkloadAhead(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        priority=workload.priority,
        since=format_time(workload.created_at),
        reason=refusal.reason if refusal else "",
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
        pending_resize=_resized_from(snapshot, workload),
        since=format_time(admission.admitted_at),
        adopted=admission.adopted,
        now=snapshot.admission(workload.uid) is not None,
    )


def _resized_from(snapshot: Snapshot, workload: Workload) -> Amounts | None:
    """Return the charge in the admission record, if the current charge is higher for any resource."""
    binding, admission = snapshot.binding(workload), workload.admission
    record = binding.record if binding else None
    if record is None or not record.admits or admission is None:
        return None
    has_grown = any(amount > record.charge.get(name, 0) for name, amount in admission.charge.items())
    return positive_quantities(record.charge) if has_grown else None


def _finished_on(snapshot: Snapshot, workload: Workload) -> tuple[str, ...]:
    binding = snapshot.binding(workload)
    if workload.state is not WorkloadState.FINISHED or binding is None:
        return ()
    return tuple(target.name for target in binding.targets)


def _queue(snapshot: Snapshot, name: QueueName) -> WorkloadQueue:
    state = snapshot.state
    node = state.tree().nodes.get(name)
    queue = node.queue if node else state.queues.get(name)
    path = queue_path(snapshot, name)
    return WorkloadQueue(
        name=name,
        path=path,
        exists=queue is not None,
        state=queue.state if queue else "",
        weight=queue.weight if queue else 0,
        priority=queue.priority if queue else 0,
        shares=tuple(queue_share_report(snapshot, each) for each in path[::-1] or ((name,) if queue else ())),
        similar_names=() if queue else tuple(get_close_matches(name, sorted(state.queues), n=3)),
    )
