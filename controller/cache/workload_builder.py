"""What one binding amounts to: a workload for the engine, or none, and what is remarkable about it.

Pure, and told everything: the binding's facts, its template's, the operator's
choices, the PriorityClasses and the writes under way. It decides nothing
about queues and clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.cache import charges
from controller.cache.assumed_writes import AssumedEviction, AssumedOutcome, AssumedRecordUpdate
from controller.cache.binding_conditions import BindingCondition, is_duplicated
from controller.cache.dispatched_requests import DispatchedRequests
from controller.cache.integrations import Integrations
from controller.cache.objects import (
    BATCH_JOB,
    VOLCANO_JOB,
    AdmissionRecord,
    CachedBinding,
    CachedHyperJob,
    CachedTemplate,
    WorkloadPhase,
    WorkloadRequests,
)
from controller.cache.priorities import Priorities
from controller.cache.requests import RequestsResolver
from controller.cache.scheduling_requirements import RequirementsBuilder
from controller.cache.translate.hyperjob_membership import Membership, resolve_membership
from controller.engine.clusters import ClusterName
from controller.engine.queues import QueueName
from controller.engine.reasons import Reason, Refusal, precedence
from controller.engine.workloads import (
    Admission,
    ClusterCharge,
    EvictionHistory,
    Nomination,
    Reservation,
    SchedulingRequirements,
    Workload,
    WorkloadState,
)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The workload that a binding is, ``None`` where it is none of ours, with remarks."""

    workload: Workload | None = None
    remarks: frozenset[BindingCondition] = frozenset()


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a binding is judged by besides its own objects."""

    gates: Integrations
    priorities: Priorities
    default_queue: QueueName
    shapes: RequirementsBuilder
    demands: RequestsResolver
    dispatched: DispatchedRequests
    hyperjobs: Mapping[str, CachedHyperJob] | None = None
    """The HyperJobs by uid; ``None`` where nobody splits any."""
    recent: int = 0
    """What has ended after this may still be in the clusters' summaries (C2). Milliseconds."""


@dataclass(frozen=True, slots=True)
class LocalState:
    """What we know before it is observed: what is being written, a hold after a write that failed."""

    outcomes: tuple[AssumedOutcome, ...] = ()
    hold: Refusal | None = None
    unplaced_until: int | None = None
    """Until when Karmada may place it although it was evicted before that (P5)."""
    resumed: bool = False
    """A Command has asked to resume it."""
    has_run: bool = False
    """It runs, or has run since it was admitted."""
    excluded_clusters: frozenset[ClusterName] = frozenset()
    """The clusters in which it did not start, and which have not changed since (R1)."""
    cleared: bool = False
    """It was seen paused without clusters since its record admitted it: the record counts no more."""


NO_LOCAL_STATE = LocalState()
_NOT_MANAGED = BuildResult()
_NO_REQUIREMENTS = SchedulingRequirements()
_SUSPENDED_BUT_NOT_MANAGED = BuildResult(None, frozenset({BindingCondition.SUSPENDED_BUT_NOT_MANAGED}))


@dataclass(frozen=True, slots=True)
class _Status:
    """Where a workload stands by what is observed, and what it holds."""

    state: WorkloadState | None
    """``None``: it is nothing that could be admitted or has been."""
    admission: Admission | None = None
    hold: Refusal | None = None
    remarks: tuple[BindingCondition, ...] = ()
    held: Nomination | None = None
    reserved: Reservation | None = None
    evictions: int = 0
    attempts: int = 0
    stays_until: int = 0


@dataclass(frozen=True, slots=True)
class _Inputs:
    """A binding with all that it is judged by."""

    binding: CachedBinding
    template: CachedTemplate | None
    demand: WorkloadRequests | None
    queue: QueueName
    overlay: LocalState
    membership: Membership
    unmapped: str = ""
    """A ResourceClaimTemplate of its pods that nothing maps to resources."""


def build_workload(
    binding: CachedBinding,
    template: CachedTemplate | None,
    *,
    rules: BuildContext,
    overlay: LocalState = NO_LOCAL_STATE,
) -> BuildResult:
    """Return what *binding* amounts to; *template* is the object of the name that it refers to, if known."""
    if not _needs_admission(binding, rules.gates):
        return (
            _SUSPENDED_BUT_NOT_MANAGED if binding.paused and _was_suspended_here(binding, rules.gates) else _NOT_MANAGED
        )
    template = template if _is_same_object(binding, template) else None
    queue = _queue_name(binding, template, rules)
    if queue is None:
        return BuildResult(
            None, frozenset({BindingCondition.SUSPENDED_BUT_NOT_MANAGED} if binding.paused and template else ())
        )
    demand = rules.dispatched.charged(binding, rules.demands.of(binding, template))
    unmapped = rules.demands.unmapped(template)
    belongs = resolve_membership(template, rules.hyperjobs)
    case = _Inputs(binding, template, demand, queue, overlay, belongs, unmapped)
    standing = _with_local_state(_with_record(case, _observed_status(case)), overlay)
    remarks = frozenset(
        (
            *standing.remarks,
            *_decode_conditions(case),
            *_queue_conditions(case, standing),
            *_retry_conditions(case, overlay),
            *_policy_conditions(case),
        )
    )
    # While we write ourselves, a pause is most likely ours.
    ours = (
        {BindingCondition.RESUSPENDED_AFTER_ADMISSION, BindingCondition.EVICTED_BY_OTHERS}
        if overlay.outcomes
        else frozenset[BindingCondition]()
    )
    return BuildResult(_make_workload(case, standing, rules), remarks - ours)


def build_quarantined(
    binding: CachedBinding, rules: BuildContext, outcomes: tuple[AssumedOutcome, ...], why: str
) -> BuildResult:
    """Return what *binding* amounts to where assessing it failed: what it holds stays charged, and it is not admitted.

    It holds what its record says on the clusters that the binding names, or what is being written.
    """
    if not _needs_admission(binding, rules.gates):
        return _NOT_MANAGED
    record = binding.record
    is_admitted = bool(binding.targets) or (record is not None and record.admits and not binding.paused)
    charge = charges.recorded(binding, None, record or AdmissionRecord(QueueName(""))) if is_admitted else None
    standing = _Status(WorkloadState.ADMITTED, charge.admission) if charge else _Status(WorkloadState.PENDING)
    for outcome in outcomes:
        standing = _apply_outcome(standing, outcome)
    workload = Workload(
        uid=binding.uid,
        namespace=binding.template.namespace,
        name=binding.template.name,
        kind=binding.api.kind,
        queue=record.queue if record and record.queue else rules.default_queue,
        shape=_NO_REQUIREMENTS,
        since=binding.since,
        state=standing.state or WorkloadState.PENDING,
        admission=standing.admission,
        hold=Refusal(Reason.INTERNAL_ERROR, subject=why),
    )
    return BuildResult(workload)


def was_evicted_unplaced(binding: CachedBinding) -> bool:
    """Say whether *binding* was evicted, perhaps before Karmada had placed it: its record names where it was to go.

    Where others have evicted it, its record still admits it.
    """
    record = binding.record
    if not binding.paused or record is None or not record.clusters:
        return False
    return not record.admits or not (binding.targets or binding.progress)


def _needs_admission(binding: CachedBinding, gates: Integrations) -> bool:
    """Say whether a binding is of those that wait; a mere dependency of another asks for nothing itself."""
    if gates.gate(binding.template.kind) is None or gates.is_exempt(binding.namespace):
        return False
    return not _is_dependency_only(binding)


def _was_suspended_here(binding: CachedBinding, gates: Integrations) -> bool:
    """Say whether we have paused one that is not gated: it was before, or is brought along by another.

    Whatever else is paused, somebody else has paused.
    """
    gated = gates.gate(binding.template.kind) is not None and not gates.is_exempt(binding.namespace)
    return binding.record is not None or (gated and _is_dependency_only(binding))


def _is_dependency_only(binding: CachedBinding) -> bool:
    """Say whether a binding is there only because another one needs it."""
    return binding.attached and not binding.claimed


def _is_same_object(binding: CachedBinding, template: CachedTemplate | None) -> bool:
    """Say whether *template* is the very object, not another one of its name."""
    return template is not None and (
        not binding.template_uid or not template.uid or binding.template_uid == template.uid
    )


def _queue_name(binding: CachedBinding, template: CachedTemplate | None, rules: BuildContext) -> QueueName | None:
    """Return the queue of a workload, ``None`` for a kind that is not gated without one (Q6).

    A Job's own field cannot change and counts first; whatever else was found
    once is fixed by the record.
    """
    record = QueueName(binding.record.queue) if binding.record else QueueName("")
    named = QueueName(template.queue) if template else QueueName("")
    if binding.template.kind == VOLCANO_JOB:
        return named or record or rules.default_queue
    if record or named:
        return record or named
    # Nobody knows yet whether it names a queue: it stays held while it is paused.
    return QueueName("") if template is None and binding.paused else None


def _make_workload(case: _Inputs, standing: _Status, rules: BuildContext) -> Workload | None:
    if standing.state is None:
        return None
    binding, template = case.binding, case.template
    priority_class = rules.priorities.effective(template.priority_class if template else "")
    return Workload(
        uid=binding.uid,
        namespace=binding.template.namespace,
        name=binding.template.name,
        kind=binding.api.kind,
        queue=case.queue,
        shape=rules.shapes.shape(
            binding,
            case.demand,
            rules.priorities,
            preferred=template.preferred if template else (),
            excluded_clusters=case.overlay.excluded_clusters,
        ),
        priority=rules.priorities.value(priority_class),
        priority_class=priority_class,
        task_classes=template.demand.task_classes if template and template.demand else (),
        unknown_class=bool(priority_class) and priority_class not in rules.priorities,
        since=_queued_since(case),
        state=standing.state,
        admission=standing.admission,
        hold=_pending_reason(case, standing),
        group=case.membership.group,
        evictions=standing.evictions,
        preserved=binding.preserved,
        preempts=rules.priorities.preempts(priority_class),
        held=standing.held,
        reserved=standing.reserved,
        stays_until=standing.stays_until,
        attempts=standing.attempts,
        has_run=standing.state is WorkloadState.ADMITTED and case.overlay.has_run,
        unplaced=standing.state is WorkloadState.ADMITTED and not binding.paused and not binding.targets,
        placed_at=_clusters_changed_at(binding) if standing.state is WorkloadState.ADMITTED else 0,
        ended=_finished_admission(case, rules.recent) if standing.state is WorkloadState.FINISHED else None,
    )


def _clusters_changed_at(binding: CachedBinding) -> int:
    """Return when others last changed its clusters, as its record says."""
    record = binding.record
    return record.clusters_changed_at or 0 if record is not None and record.admits else 0


def _observed_status(case: _Inputs) -> _Status:
    """Return where the workload stands by what is observed."""
    binding, template = case.binding, case.template
    if _is_finished(binding):
        return _Status(WorkloadState.FINISHED)
    standing = _suspended_status(case) if binding.paused else _unsuspended_status(case)
    leaving = binding.deleting or (template is not None and template.deleting)
    if leaving and standing.state is WorkloadState.PENDING:
        # What goes away is not admitted any more, and stays charged until it is gone (F11).
        state = WorkloadState.ADMITTED if standing.admission else None
        return _Status(state, standing.admission, remarks=standing.remarks)
    return standing


def _suspended_status(case: _Inputs) -> _Status:
    binding, demand, record = case.binding, case.demand, case.binding.record
    is_admitted = record is not None and record.admits
    if record and is_admitted and binding.targets and not case.overlay.cleared:
        charge = charges.recorded(binding, demand, record)
        return _Status(
            WorkloadState.ADMITTED,
            charge.admission,
            remarks=(BindingCondition.RESUSPENDED_AFTER_ADMISSION, *_record_mismatches(binding, charge)),
        )
    left = charges.remaining(binding, demand, unplaced_until=case.overlay.unplaced_until)
    hold = Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=left.bookings[0].cluster) if left else None
    remark = (
        BindingCondition.PLACED_WITHOUT_ADMISSION
        if binding.targets
        else BindingCondition.EVICTED_BY_OTHERS
        if is_admitted
        else None
    )
    return _Status(WorkloadState.PENDING, left, hold, (remark,) if remark else ())


def _unsuspended_status(case: _Inputs) -> _Status:
    binding, demand, record = case.binding, case.demand, case.binding.record
    if record and record.admits and (binding.targets or binding.claimed):
        charge = charges.recorded(binding, demand, record)
        hold = _aborted_reason(binding)
        if case.unmapped:
            # It asks for more than was admitted, and nobody knows for how much more: no size of it fits (D7).
            charge = charges.Charge(replace(charge.admission, grown=True), grown=True)
            hold = hold or Refusal(Reason.REQUESTS_UNKNOWN, subject=_unmapped_claim_message(case))
        return _Status(WorkloadState.ADMITTED, charge.admission, hold, _record_mismatches(binding, charge))
    if binding.targets and record is not None:
        charge = charges.adopted(binding, demand)
        return _Status(WorkloadState.ADMITTED, charge.admission, remarks=(BindingCondition.PLACED_WITHOUT_ADMISSION,))
    if binding.targets:
        charge = charges.adopted(binding, demand)
        return _Status(WorkloadState.ADMITTED, charge.admission, remarks=(BindingCondition.ADOPTED,))
    if binding.flaw or (record and record.admits):
        # Unreadable: perhaps it is paused. Or unclaimed: Karmada leaves it alone, and D9 does not charge it.
        return _Status(WorkloadState.PENDING)
    return _Status(None, remarks=(BindingCondition.NOT_SUSPENDED,))


def _record_mismatches(binding: CachedBinding, charge: charges.Charge) -> tuple[BindingCondition, ...]:
    """Return in what an admitted workload differs from its record."""
    moved = (
        BindingCondition.REPLICAS_REDIVIDED
        if binding.placement.divided and charge.is_divisible
        else BindingCondition.MOVED
    )
    return (
        *((BindingCondition.RESIZED,) if charge.grown else ()),
        *((moved,) if charge.admission.moved else ()),
    )


def _aborted_reason(binding: CachedBinding) -> Refusal | None:
    """Return the hold of an admitted workload that was aborted and is to be evicted (D8)."""
    phases = {each.phase for each in binding.progress if each.cluster in {target.name for target in binding.targets}}
    return (
        Refusal(Reason.ABORTED)
        if WorkloadPhase.ABORTED in phases and phases <= {WorkloadPhase.ABORTED, WorkloadPhase.FINISHED}
        else None
    )


def _finished_admission(case: _Inputs, recent: int) -> Admission | None:
    """Return what a finished workload held, ``None`` unless it ended lately."""
    binding, record = case.binding, case.binding.record
    if binding.ended_at is None or binding.ended_at <= recent:
        return None
    if record is not None and record.admits:
        charge = charges.recorded(binding, case.demand, record)
    else:
        charge = charges.adopted(binding, case.demand)
    return replace(charge.admission, ends_at=binding.ended_at)


def _is_finished(binding: CachedBinding) -> bool:
    """Say whether it is over in every cluster it is placed on (D8)."""
    told = {each.cluster: each.phase for each in binding.progress}
    return bool(binding.targets) and all(told.get(target.name) is WorkloadPhase.FINISHED for target in binding.targets)


def _with_record(case: _Inputs, standing: _Status) -> _Status:
    """Return *standing* with what our record alone tells (R2)."""
    record = case.binding.record
    if record is None:
        return standing
    held = None
    if (
        record.nominated_cluster
        and record.nominated_at is not None
        and record.nominated_requests is not None
        and not record.admits
    ):
        held = Nomination(
            record.nominated_cluster, record.nominated_at, record.nomination_rank or 0, record.nominated_requests
        )
    reserved = None
    if record.reserved_since is not None and held is None and not record.admits:
        reserved = Reservation(record.reserved_since, _reserved_bookings(record), record.nominated_requests)
    return replace(standing, held=held, reserved=reserved, evictions=record.evictions, attempts=record.attempts)


def _reserved_bookings(record: AdmissionRecord) -> tuple[ClusterCharge, ...]:
    """Return where room is kept: all of it on one cluster, or so much on each of several."""
    if record.nominated_requests is None:
        return ()
    if record.nominated_cluster:
        return (ClusterCharge(record.nominated_cluster, record.nominated_requests),)
    return tuple(ClusterCharge(name, amounts) for name, amounts in sorted((record.nominated_clusters or {}).items()))


def _with_local_state(standing: _Status, overlay: LocalState) -> _Status:
    """Return *standing* as it will be once the writes under way are observed."""
    for outcome in overlay.outcomes:
        standing = _apply_outcome(standing, outcome)
    hold = overlay.hold
    if hold is None or standing.state in {WorkloadState.FINISHED, None}:
        return standing
    if standing.state is WorkloadState.ADMITTED:
        return replace(standing, stays_until=hold.until or 0)
    return replace(standing, hold=hold if standing.hold is None else min(hold, standing.hold, key=precedence))


def _apply_outcome(standing: _Status, outcome: AssumedOutcome) -> _Status:
    """Return *standing* as a write makes it."""
    match outcome:
        case Admission() if standing.state in {WorkloadState.PENDING, None}:
            return replace(
                standing, state=WorkloadState.ADMITTED, admission=outcome, hold=None, held=None, reserved=None
            )
        case AssumedEviction() if standing.state is WorkloadState.ADMITTED:
            hold = outcome.back_off or standing.hold or Refusal(Reason.PREEMPTION_IN_PROGRESS)
            past = EvictionHistory(standing.evictions, standing.attempts)
            past = past.once_gone(has_run=outcome.has_run, taken_back=outcome.back_off is not None)
            return replace(standing, state=WorkloadState.PENDING, hold=hold, **past._asdict())
        case AssumedRecordUpdate() if standing.state is WorkloadState.PENDING:
            return replace(standing, held=outcome.held, reserved=outcome.reserved)
    return standing


def _pending_reason(case: _Inputs, standing: _Status) -> Refusal | None:
    """Return why the workload is kept back whatever room there is, the reason to be shown first."""
    if standing.state is not WorkloadState.PENDING:
        return standing.hold
    holds = [] if standing.hold is None else [standing.hold]
    record = case.binding.record
    if record is not None and record.aborted:
        holds.append(Refusal(Reason.ABORTED))
    if case.membership.hold is not None:
        holds.append(case.membership.hold)
    if not case.binding.claimed:
        holds.append(Refusal(Reason.NO_MATCHING_POLICY))
    if case.binding.suspension is not None and case.binding.suspension.dispatching:
        holds.append(Refusal(Reason.SUSPENDED))
    unknown = _why_requests_unknown(case)
    if unknown:
        holds.append(Refusal(Reason.REQUESTS_UNKNOWN, subject=unknown))
    return min(holds, key=precedence, default=None)


def _why_requests_unknown(case: _Inputs) -> str:
    """Return why nobody can say what the workload asks for, or nothing."""
    binding, template = case.binding, case.template
    if template is None:
        return f"{binding.api.kind} {'/'.join(part for part in binding.template[1:] if part)} is not there"
    if template.flaw or binding.flaw:
        return template.flaw or binding.flaw
    return _unmapped_claim_message(case) or ("" if case.demand is not None else "its size was not counted")


def _unmapped_claim_message(case: _Inputs) -> str:
    """Return why nothing counts the devices that its pods claim, or nothing."""
    name = case.unmapped
    return f"its pods claim devices by {name!r}; map it in resourceClaimTemplates of the configuration" if name else ""


def _decode_conditions(case: _Inputs) -> tuple[BindingCondition, ...]:
    unreadable = case.binding.flaw or (case.template is not None and case.template.flaw)
    return (
        *((BindingCondition.UNREADABLE,) if unreadable else ()),
        *((BindingCondition.INVALID_RECORD,) if case.binding.record_flaw else ()),
    )


def _queue_conditions(case: _Inputs, standing: _Status) -> tuple[BindingCondition, ...]:
    """Say whether nothing but a label or an annotation says which queue a workload waits in (Q6)."""
    is_own = case.binding.template.kind == VOLCANO_JOB
    waits = standing.state is WorkloadState.PENDING and case.binding.paused and bool(case.queue)
    return (BindingCondition.QUEUE_NOT_RECORDED,) if waits and not is_own and case.binding.record is None else ()


def is_aborted(binding: CachedBinding) -> bool:
    """Say whether it was aborted and taken back for that, or is about to be."""
    return (binding.record is not None and binding.record.aborted) or _aborted_reason(binding) is not None


def _retry_conditions(case: _Inputs, overlay: LocalState) -> tuple[BindingCondition, ...]:
    """Say whether what was aborted is to be tried again: its template has changed, or a Command says so (D8)."""
    record, template = case.binding.record, case.template
    if record is None or not record.aborted or not case.binding.paused:
        return ()
    before = record.aborted_generation
    is_changed = template is not None and before is not None and template.generation > before
    return (BindingCondition.RETRY_REQUESTED,) if is_changed or overlay.resumed else ()


def _runs_to_completion(binding: CachedBinding) -> bool:
    """Say whether a workload is over one day, so that a failure of it is no reason to begin anew for ever."""
    return binding.template.kind in {VOLCANO_JOB, BATCH_JOB}


def _policy_conditions(case: _Inputs) -> tuple[BindingCondition, ...]:
    """Return what its policy does that its tenant may not expect."""
    copied = case.binding.template.kind == VOLCANO_JOB and is_duplicated(case.binding.placement)
    return (
        *((BindingCondition.PLACED_ON_ALL_CLUSTERS,) if copied else ()),
        *((BindingCondition.RESOURCES_PRESERVED,) if case.binding.preserved else ()),
        *(
            (BindingCondition.APPLICATION_FAILOVER,)
            if case.binding.fails_over and _runs_to_completion(case.binding)
            else ()
        ),
    )


def _queued_since(case: _Inputs) -> int:
    """Return when its age began: with its template or HyperJob; an evicted one keeps what its record says (O2)."""
    binding, template, record = case.binding, case.template, case.binding.record
    if record is not None and record.waiting_since is not None and (record.evictions or template is None):
        return record.waiting_since
    since = case.membership.since
    if since is not None:
        return since
    return template.since if template else binding.since
