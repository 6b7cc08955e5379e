"""Builds the engine's workload of a binding from the cached objects, and the conditions to report about the binding.

Pure: the result depends only on the arguments, which include the writes in progress. It decides nothing about queues
and clusters.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
from msgspec.structs import replace as replace_fields

from controller.cache import charges
from controller.cache.assumed_writes import AssumedEviction, AssumedOutcome, AssumedRecordUpdate
from controller.cache.data_requirements import NO_DATA, DataRequirement, eviction_reason, pending_reason
from controller.cache.hyperjobs import Membership, resolve_membership
from controller.cache.integrations import NEVER_FINISHED, Integrations
from controller.cache.objects import (
    BATCH_JOB,
    VOLCANO_JOB,
    BindingCondition,
    CachedBinding,
    CachedHyperJob,
    CachedTemplate,
    WorkloadRequests,
    aborted_reason,
    clusters_changed_at,
    is_dependency_only,
    is_duplicated,
    is_finished,
    is_same_object,
)
from controller.cache.record import AdmissionRecord
from controller.cache.requests import (
    ClusterPreferences,
    DispatchedRequests,
    Priorities,
    RequestsResolver,
    RequirementsBuilder,
)
from controller.cache.unapplied_works import phase_to_record, unapplied
from controller.engine.reasons import Reason, Refusal, precedence
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import (
    Admission,
    ClusterCharge,
    EvictionHistory,
    Nomination,
    Reservation,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
)


class BuildResult(msgspec.Struct, frozen=True):
    """The workload of a binding, ``None`` if it is neither pending nor admitted nor finished, and its conditions."""

    workload: Workload | None = None
    conditions: frozenset[BindingCondition] = frozenset()
    is_managed: bool = True
    """It needs admission, also where it has no workload."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Inputs that are the same for all bindings."""

    integrations: Integrations
    priorities: Priorities
    default_queue: QueueName
    requirements: RequirementsBuilder
    requests: RequestsResolver
    dispatched_requests: DispatchedRequests
    hyperjobs: Mapping[str, CachedHyperJob] | None = None
    """HyperJobs by UID; ``None`` where no HyperJob controller runs."""
    finished_after: int = 0
    """Workloads that finished after this time, in milliseconds, may still be in cluster summaries (C2)."""
    replaced_integrations: Collection[Integrations] = ()
    """Integrations of earlier configurations by which the webhook may have suspended bindings."""


class LocalState(msgspec.Struct, frozen=True):
    """State of a binding that only this process knows: its writes in progress, a backoff, where it has run."""

    outcomes: tuple[AssumedOutcome, ...] = ()
    backoff: Refusal | None = None
    """Why it is not considered after a failed write or start, and until when."""
    placeable_until: int | None = None
    """Until when Karmada may still place it although it was evicted before it was placed (P5)."""
    retry_requested: bool = False
    """A Command requests that it be resumed."""
    abort_requested: bool = False
    """A Command requests that it be aborted, and its record does not say so yet."""
    has_run: bool = False
    """It runs, or has run since it was admitted."""
    has_run_before: bool = False
    """Karmada has no cluster for it, after it has run since it was admitted."""
    excluded_clusters: frozenset[ClusterName] = frozenset()
    """Clusters in which it did not start and which have not changed since (R1)."""
    retryable_clusters: frozenset[ClusterName] = frozenset()
    """Those of them where a workload has ended since."""
    data: DataRequirement = NO_DATA
    """What its DataSourceClaims require."""
    has_leftover_work: bool = False
    """A ready cluster reports it although Karmada should have removed it there (P5)."""
    evicted_by_others: bool = False
    """It was observed suspended and without clusters after its admission, so the record no longer counts."""
    was_adopted: bool = False
    """It was observed running without a record until others suspended it (D10)."""
    must_resume: bool = False
    """It was suspended when it was no longer gated, and its resumption is not observed yet."""


NO_LOCAL_STATE = LocalState()
_NOT_MANAGED = BuildResult(is_managed=False)
_SUSPENDED_BUT_NOT_MANAGED = BuildResult(
    None, frozenset({BindingCondition.SUSPENDED_BUT_NOT_MANAGED}), is_managed=False
)


class _Status(msgspec.Struct, frozen=True):
    """Status of a workload and what it holds."""

    state: WorkloadState | None
    """``None``: it is neither pending nor admitted."""
    admission: Admission | None = None
    hold: Refusal | None = None
    conditions: tuple[BindingCondition, ...] = ()
    nomination: Nomination | None = None
    reservation: Reservation | None = None
    evictions: int = 0
    failed_starts: int = 0
    eviction_retry_at: int = 0


class _Inputs(msgspec.Struct, frozen=True):
    """A binding with everything that its workload is built from."""

    binding: CachedBinding
    template: CachedTemplate | None
    requests: WorkloadRequests | None
    queue: QueueName
    local_state: LocalState
    membership: Membership
    leaving: WorkloadRequests | None = None
    """What the clusters run that it is leaving; ``None``: what its template requests."""
    unmapped_claim: str = ""
    """A ResourceClaimTemplate of its pods that the configuration does not map to resources."""


def build_workload(
    binding: CachedBinding,
    template: CachedTemplate | None,
    *,
    context: BuildContext,
    local_state: LocalState = NO_LOCAL_STATE,
) -> BuildResult:
    """Build the workload of *binding*; *template* is the object with the name that the binding refers to, if known."""
    if not needs_admission(binding, context.integrations):
        return (
            _SUSPENDED_BUT_NOT_MANAGED
            if binding.is_suspended and (local_state.must_resume or _was_suspended_here(binding, context))
            else _NOT_MANAGED
        )
    template = template if is_same_object(binding, template) else None
    queue = _queue_name(binding, template, context)
    if queue is None:
        if template is None:
            # It ran without a record, and its template is deleted: its pods end.
            return BuildResult()
        return _SUSPENDED_BUT_NOT_MANAGED if binding.is_suspended else _NOT_MANAGED
    requests = context.dispatched_requests.effective_requests(
        binding, context.requests.resolve(binding, template), generation=template.generation if template else None
    )
    unmapped = context.requests.unmapped_claim(template)
    hyperjob_membership = resolve_membership(template, context.hyperjobs)
    leaving = context.dispatched_requests.leaving_requests(binding.uid)
    inputs = _Inputs(binding, template, requests, queue, local_state, hyperjob_membership, leaving, unmapped)
    status = _with_local_state(_with_record(inputs, _observed_status(inputs)), local_state)
    conditions = frozenset(
        (
            *status.conditions,
            *((BindingCondition.WORK_NOT_REMOVED,) if local_state.has_leftover_work else ()),
            *_decode_conditions(inputs),
            *_apply_conditions(inputs, status),
            *_queue_conditions(inputs, status),
            *_retry_conditions(inputs),
            *_abort_conditions(inputs, status),
            *_policy_conditions(inputs, context.integrations),
        )
    )
    if conditions and local_state.outcomes:
        # During a write of ours, a suspension is most likely ours.
        conditions -= {BindingCondition.RESUSPENDED_AFTER_ADMISSION, BindingCondition.EVICTED_BY_OTHERS}
    return BuildResult(_make_workload(inputs, status, context), conditions)


def as_quarantined(built: BuildResult, why: str) -> BuildResult:
    """Return the result for a workload that is quarantined: it keeps its charge, and is neither admitted nor evicted.

    Only what its charge depends on is left of it, and nothing of its binding is repaired.
    """
    workload = built.workload
    if workload is None or workload.state is WorkloadState.FINISHED:
        return BuildResult(workload, is_managed=built.is_managed)
    admission = workload.admission
    if workload.state is WorkloadState.ADMITTED and admission is not None:
        # As one from before the installation, which is never evicted either (D10).
        admission = replace(admission, adopted=True, moved=False)
    workload = replace(
        workload,
        requirements=SchedulingRequirements(),
        priority=0,
        admission=admission,
        hold=Refusal(Reason.INTERNAL_ERROR, subject=why),
        details=WorkloadDetails(
            preserved=workload.details.preserved, has_long_grace_period=workload.details.has_long_grace_period
        ),
    )
    return BuildResult(workload)


def build_from_record(
    binding: CachedBinding, context: BuildContext, outcomes: tuple[AssumedOutcome, ...], why: str
) -> BuildResult:
    """Build the quarantined workload of a binding for which ``build_workload`` fails.

    Its charge comes from its record on the clusters that the binding names, or from the write in progress. The charge
    of a workload without a record, or that is leaving its clusters, is unknown.
    """
    if not needs_admission(binding, context.integrations):
        return _NOT_MANAGED
    record = binding.record
    is_admitted = bool(binding.targets) or (record is not None and record.admits and not binding.is_suspended)
    admission = charges.recorded(binding, None, record or AdmissionRecord()) if is_admitted else None
    status = _Status(WorkloadState.ADMITTED, admission) if admission else _Status(WorkloadState.PENDING)
    for outcome in outcomes:
        status = _apply_outcome(status, outcome)
    workload = Workload(
        uid=binding.uid,
        namespace=binding.template.namespace,
        name=binding.template.name,
        kind=binding.api.kind,
        queue=record.queue if record and record.queue else context.default_queue,
        requirements=SchedulingRequirements(),
        created_at=binding.created_at,
        state=status.state or WorkloadState.PENDING,
        admission=status.admission,
    )
    return as_quarantined(BuildResult(workload), why)


def needs_admission(binding: CachedBinding, integrations: Integrations) -> bool:
    """Whether a binding needs admission; a mere dependency of another binding requests nothing itself."""
    return _is_gated(binding, integrations) and not is_dependency_only(binding)


def _is_gated(binding: CachedBinding, integrations: Integrations) -> bool:
    """Whether the webhook suspends a binding of its kind in its namespace."""
    return integrations.get(binding.template.kind) is not None and not integrations.is_exempt(binding.namespace)


def _was_suspended_here(binding: CachedBinding, context: BuildContext) -> bool:
    """Whether webhook or controller suspended a binding that needs no admission.

    They did if it was gated until now or is a dependency, or if it has a record. Any other suspended binding was
    suspended by a user.
    """
    if binding.record is not None or any(_is_gated(binding, earlier) for earlier in context.replaced_integrations):
        return True
    return _is_gated(binding, context.integrations) and is_dependency_only(binding)


def _queue_name(binding: CachedBinding, template: CachedTemplate | None, context: BuildContext) -> QueueName | None:
    """Return the queue of a workload, ``None`` for a kind that is managed only if it names a queue (Q6).

    The queue field of a Volcano Job is immutable and takes precedence until the Job is admitted: Karmada may give its
    binding to another Job of its name. For other kinds the record fixes the queue.
    """
    record = QueueName(binding.record.queue) if binding.record else QueueName("")
    named = QueueName(template.queue) if template else QueueName("")
    if binding.template.kind == VOLCANO_JOB:
        if binding.record is not None and binding.record.admits:
            return record or named or context.default_queue
        return named or record or context.default_queue
    if record or named:
        return record or named
    # Its queue is unknown without its template, so it stays managed while it is suspended.
    return QueueName("") if template is None and binding.is_suspended else None


def _make_workload(inputs: _Inputs, status: _Status, context: BuildContext) -> Workload | None:
    if status.state is None:
        return None
    binding, template = inputs.binding, inputs.template
    priority_class = context.priorities.effective(template.priority_class if template else "")
    return Workload(
        uid=binding.uid,
        namespace=binding.template.namespace,
        name=binding.template.name,
        kind=binding.api.kind,
        queue=inputs.queue,
        requirements=context.requirements.build(
            binding,
            inputs.requests,
            context.priorities,
            preferences=_preferences(inputs),
            is_admitted=status.state is WorkloadState.ADMITTED,
        ),
        priority=context.priorities.value(priority_class),
        created_at=_queued_since(inputs),
        state=status.state,
        admission=status.admission,
        hold=_pending_reason(inputs, status),
        details=_details(inputs, status, context, priority_class).shared(),
    )


def _details(inputs: _Inputs, status: _Status, context: BuildContext, priority_class: str) -> WorkloadDetails:
    binding, template = inputs.binding, inputs.template
    is_admitted = status.state is WorkloadState.ADMITTED
    return WorkloadDetails(
        priority_class=priority_class,
        task_classes=template.requests.task_classes if template and template.requests else (),
        unknown_class=bool(priority_class) and priority_class not in context.priorities,
        gang=inputs.membership.gang,
        evictions=status.evictions,
        failed_starts=status.failed_starts,
        has_run=is_admitted and _has_run(inputs),
        unplaced=is_admitted and not binding.is_suspended and not binding.targets,
        has_run_before=is_admitted and inputs.local_state.has_run_before,
        placed_at=clusters_changed_at(binding) if is_admitted else 0,
        preserved=binding.details.preserved,
        has_long_grace_period=inputs.requests is not None and inputs.requests.has_long_grace_period,
        preempts=context.priorities.preempts(priority_class),
        nomination=status.nomination,
        reservation=status.reservation,
        eviction_retry_at=status.eviction_retry_at,
        last_admission=_finished_admission(inputs, status, context.finished_after),
    )


def _has_run(inputs: _Inputs) -> bool:
    """Whether it has run since its admission.

    Without pods, such as a Deployment of zero replicas, there is nothing to start (R1).
    """
    requests_nothing = inputs.requests is not None and not inputs.requests.total
    return inputs.local_state.has_run or requests_nothing


def _preferences(inputs: _Inputs) -> ClusterPreferences:
    template, data = inputs.template, inputs.local_state.data
    preferred = template.preferred if template else ()
    # The preference of its HyperJob comes first (C3).
    preferred = (*preferred, *data.preferred) if data.preferred else preferred
    local = inputs.local_state
    return ClusterPreferences(preferred, data.clusters, local.excluded_clusters, local.retryable_clusters)


def _observed_status(inputs: _Inputs) -> _Status:
    """Return the status of the workload according to the observed objects."""
    binding, template = inputs.binding, inputs.template
    if is_finished(binding):
        return _Status(WorkloadState.FINISHED, charges.still_evicting(binding, inputs.requests))
    status = _suspended_status(inputs) if binding.is_suspended else _unsuspended_status(inputs)
    is_being_deleted = binding.details.deleting or (template is not None and template.deleting)
    if is_being_deleted and status.state is WorkloadState.PENDING:
        # An object that is being deleted is not admitted, and stays charged until it is deleted (F11).
        if status.admission is None:
            return _Status(None, conditions=status.conditions)
        return replace_fields(status, admission=replace(status.admission, ends_at=None))
    return status


def _suspended_status(inputs: _Inputs) -> _Status:
    binding, requests, record = inputs.binding, inputs.requests, inputs.binding.record
    is_admitted = record is not None and record.admits
    if record and is_admitted and binding.targets and not inputs.local_state.evicted_by_others:
        admission = charges.recorded(binding, requests, record)
        return _Status(
            WorkloadState.ADMITTED,
            admission,
            conditions=(BindingCondition.RESUSPENDED_AFTER_ADMISSION, *_record_mismatches(inputs, admission)),
        )
    if record is None and binding.targets and inputs.local_state.was_adopted:
        return _Status(
            WorkloadState.ADMITTED,
            charges.adopted(binding, requests),
            conditions=(BindingCondition.ADOPTED, BindingCondition.RESUSPENDED_AFTER_ADMISSION),
        )
    left = charges.remaining(
        binding, requests, leaving=inputs.leaving, placeable_until=inputs.local_state.placeable_until
    )
    hold = Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=left.cluster_charges[0].cluster) if left else None
    condition = (
        BindingCondition.PLACED_WITHOUT_ADMISSION
        if binding.targets
        else BindingCondition.EVICTED_BY_OTHERS
        if is_admitted
        else None
    )
    return _Status(WorkloadState.PENDING, left, hold, (condition,) if condition else ())


def _unsuspended_status(inputs: _Inputs) -> _Status:
    binding, requests, record = inputs.binding, inputs.requests, inputs.binding.record
    if record and record.admits and (binding.targets or binding.details.has_policy):
        admission = charges.recorded(binding, requests, record)
        hold = aborted_reason(binding) or eviction_reason(binding, inputs.local_state.data)
        if inputs.local_state.abort_requested:
            hold = Refusal(Reason.ABORTED)
        if unknown := _unmapped_claim_message(inputs) or _invalid_requests_message(inputs):
            # It may request more than was admitted, by an unknown amount, so its resize cannot be accepted (D7).
            admission = replace(admission, resized=True)
            hold = hold or Refusal(Reason.REQUESTS_UNKNOWN, subject=unknown)
        # Its startup timeout begins once it may start (R1).
        hold = hold or _suspension(inputs)
        return _Status(WorkloadState.ADMITTED, admission, hold, tuple(_record_mismatches(inputs, admission)))
    if binding.targets:
        condition = BindingCondition.ADOPTED if record is None else BindingCondition.RESUMED_BY_OTHERS
        return _Status(WorkloadState.ADMITTED, charges.adopted(binding, requests), conditions=(condition,))
    if record and record.admits:
        # Karmada ignores it because it has no policy: D9 charges it only where it has not stopped yet.
        left = charges.remaining(binding, requests, leaving=inputs.leaving)
        return _Status(WorkloadState.PENDING, left, conditions=(BindingCondition.ADMITTED_WITHOUT_POLICY,))
    if binding.decode_error:
        # It may be suspended but unreadable.
        return _Status(WorkloadState.PENDING)
    return _Status(None, conditions=(BindingCondition.NOT_SUSPENDED,))


def _record_mismatches(inputs: _Inputs, admission: Admission) -> Iterator[BindingCondition]:
    """Yield the conditions in which an admitted workload differs from its record."""
    if admission.resized:
        yield BindingCondition.RESIZED
    if admission.moved:
        is_divided = charges.is_divided(inputs.binding, inputs.requests)
        yield BindingCondition.REPLICAS_REDIVIDED if is_divided else BindingCondition.MOVED


def _finished_admission(inputs: _Inputs, status: _Status, finished_after: int) -> Admission | None:
    """Return what a finished workload held, ``None`` unless it finished recently."""
    binding, record, ended_at = inputs.binding, inputs.binding.record, inputs.binding.details.ended_at
    if status.state is not WorkloadState.FINISHED or ended_at is None or ended_at <= finished_after:
        return None
    if record is not None and record.admits:
        admission = charges.recorded(binding, inputs.requests, record)
    else:
        admission = charges.adopted(binding, inputs.requests)
    return replace(admission, ends_at=ended_at)


def _with_record(inputs: _Inputs, status: _Status) -> _Status:
    """Return *status* completed with what only the record stores (R2)."""
    record = inputs.binding.record
    if record is None:
        return status
    nomination = None
    if (
        record.nominated_cluster
        and record.nominated_at is not None
        and record.nominated_requests is not None
        and not record.admits
    ):
        nomination = Nomination(
            record.nominated_cluster, record.nominated_at, record.nomination_rank or 0, record.nominated_requests
        )
    reservation = None
    if record.reserved_since is not None and nomination is None and not record.admits:
        reserved_clusters = sorted((record.reserved_clusters or {}).items())
        cluster_charges = tuple(ClusterCharge(name, amounts) for name, amounts in reserved_clusters)
        reservation = Reservation(
            record.reserved_since, cluster_charges, record.nominated_requests, record.promised_start
        )
    if (nomination, reservation, record.evictions, record.attempts) == (None, None, 0, 0):
        return status
    return replace_fields(
        status,
        nomination=nomination,
        reservation=reservation,
        evictions=record.evictions,
        failed_starts=record.attempts,
    )


def _with_local_state(status: _Status, local_state: LocalState) -> _Status:
    """Return *status* as it will be once the writes in progress are observed."""
    for outcome in local_state.outcomes:
        status = _apply_outcome(status, outcome)
    backoff = local_state.backoff
    if backoff is None or status.state in {WorkloadState.FINISHED, None}:
        return status
    if status.state is WorkloadState.ADMITTED:
        return replace_fields(status, eviction_retry_at=backoff.until or 0)
    return replace_fields(status, hold=backoff if status.hold is None else min(backoff, status.hold, key=precedence))


def _apply_outcome(status: _Status, outcome: AssumedOutcome) -> _Status:
    """Return *status* after one write."""
    match outcome:
        case Admission() if status.state in {WorkloadState.PENDING, None}:
            return replace_fields(
                status, state=WorkloadState.ADMITTED, admission=outcome, hold=None, nomination=None, reservation=None
            )
        case AssumedEviction() if status.state is WorkloadState.ADMITTED:
            hold = outcome.back_off or status.hold or Refusal(Reason.PREEMPTION_IN_PROGRESS)
            past = EvictionHistory(status.evictions, status.failed_starts)
            past = past.after_eviction(
                has_run=outcome.has_run, taken_back=outcome.back_off is not None, self_caused=outcome.self_caused
            )
            return replace_fields(status, state=WorkloadState.PENDING, hold=hold, **past._asdict())
        case AssumedRecordUpdate() if status.state is WorkloadState.PENDING:
            return replace_fields(status, nomination=outcome.nomination, reservation=outcome.reservation)
    return status


def _pending_reason(inputs: _Inputs, status: _Status) -> Refusal | None:
    """Return the first reason to report why the workload is not considered, whatever the free capacity."""
    if status.state is not WorkloadState.PENDING:
        return status.hold
    binding, record = inputs.binding, inputs.binding.record
    holds = [status.hold, inputs.membership.hold, pending_reason(binding, inputs.local_state.data)]
    if (record is not None and record.aborted) or inputs.local_state.abort_requested:
        holds.append(Refusal(Reason.ABORTED))
    if not binding.details.has_policy:
        holds.append(Refusal(Reason.NO_MATCHING_POLICY))
    holds.append(_suspension(inputs))
    if unknown := _why_requests_unknown(inputs):
        holds.append(Refusal(Reason.REQUESTS_UNKNOWN, subject=unknown))
    return min((hold for hold in holds if hold is not None), key=precedence, default=None)


def _suspension(inputs: _Inputs) -> Refusal | None:
    """Return that its policy suspends dispatching or that its own field suspends it, ``None`` if neither does."""
    suspension, template = inputs.binding.suspension, inputs.template
    if suspension is not None and suspension.dispatching:
        return Refusal(Reason.SUSPENDED)
    if template is not None and template.suspended_by:
        return Refusal(Reason.SUSPENDED, subject=template.suspended_by)
    return None


def _why_requests_unknown(inputs: _Inputs) -> str:
    """Return why the requests of the workload are unknown, empty if they are known."""
    binding, template = inputs.binding, inputs.template
    if template is None:
        return f"{binding.api.kind} {binding.template.path} does not exist"
    if template.decode_error or binding.decode_error:
        return template.decode_error or binding.decode_error
    return _unmapped_claim_message(inputs) or (
        "" if inputs.requests is not None else "Karmada has not counted its requests"
    )


def _unmapped_claim_message(inputs: _Inputs) -> str:
    """Return that a ResourceClaimTemplate is not mapped to resources, empty if all are."""
    name = inputs.unmapped_claim
    return f"its pods claim devices by {name!r}; map it in resourceClaimTemplates of the configuration" if name else ""


def _invalid_requests_message(inputs: _Inputs) -> str:
    """Return which amounts of an admitted workload cannot be read, empty if its requests are known.

    A template that does not exist, or has another field that cannot be read, changes no charge (D6).
    """
    binding, template = inputs.binding, inputs.template
    if inputs.requests is not None or template is None:
        return ""
    if template.has_invalid_requests:
        return template.decode_error
    return binding.decode_error if binding.details.has_invalid_requests else ""


def _decode_conditions(inputs: _Inputs) -> tuple[BindingCondition, ...]:
    binding, template = inputs.binding, inputs.template
    is_unreadable = binding.decode_error or (template is not None and template.decode_error)
    return (
        *((BindingCondition.UNREADABLE,) if is_unreadable else ()),
        *((BindingCondition.INVALID_RECORD,) if binding.record_error else ()),
    )


def _apply_conditions(inputs: _Inputs, status: _Status) -> tuple[BindingCondition, ...]:
    """Return whether a Work cannot be applied, and whether the record must contain the last known phase (R1)."""
    binding, record = inputs.binding, inputs.binding.record
    is_refused = bool(unapplied(binding))
    if record is None or not record.admits or status.state not in {WorkloadState.ADMITTED, WorkloadState.FINISHED}:
        is_recorded = True
    elif is_refused:
        is_recorded = record.last_phase == phase_to_record(binding, has_run=_has_run(inputs))
    else:
        is_recorded = not record.last_phase
    return (
        *((BindingCondition.WORK_NOT_APPLIED,) if is_refused else ()),
        *(() if is_recorded or binding.is_suspended else (BindingCondition.PHASE_NOT_RECORDED,)),
    )


def _queue_conditions(inputs: _Inputs, status: _Status) -> tuple[BindingCondition, ...]:
    """Return whether the queue of a pending workload must be written to its record (Q6)."""
    is_own = inputs.binding.template.kind == VOLCANO_JOB
    waits = status.state is WorkloadState.PENDING and inputs.binding.is_suspended and bool(inputs.queue)
    return (BindingCondition.QUEUE_NOT_RECORDED,) if waits and not is_own and inputs.binding.record is None else ()


def _retry_conditions(inputs: _Inputs) -> tuple[BindingCondition, ...]:
    """Return whether an aborted workload is to be retried: its template changed, or a Command requests it (D8)."""
    record, template = inputs.binding.record, inputs.template
    if record is None or not record.aborted or not inputs.binding.is_suspended:
        return ()
    before = record.aborted_generation
    is_changed = template is not None and before is not None and template.generation > before
    return (BindingCondition.RETRY_REQUESTED,) if is_changed or inputs.local_state.retry_requested else ()


def _abort_conditions(inputs: _Inputs, status: _Status) -> tuple[BindingCondition, ...]:
    """Return whether the record of a pending workload must say that a Command aborts it (D8)."""
    waits = status.state is WorkloadState.PENDING and inputs.binding.is_suspended
    return (BindingCondition.ABORT_REQUESTED,) if waits and inputs.local_state.abort_requested else ()


def _policy_conditions(inputs: _Inputs, integrations: Integrations) -> tuple[BindingCondition, ...]:
    """Return conditions about effects of its policy that the tenant may not expect."""
    binding = inputs.binding
    is_copied = binding.template.kind == VOLCANO_JOB and is_duplicated(binding.placement)
    is_recreated = binding.details.application_failover and _is_recreated_after_failure(binding, integrations)
    return (
        *((BindingCondition.PLACED_ON_ALL_CLUSTERS,) if is_copied else ()),
        *((BindingCondition.RESOURCES_PRESERVED,) if binding.details.preserved else ()),
        *((BindingCondition.APPLICATION_FAILOVER,) if is_recreated else ()),
    )


def _is_recreated_after_failure(binding: CachedBinding, integrations: Integrations) -> bool:
    """Return whether the workload ends, so that failover may recreate it after each failure, without an end.

    Karmada does not know the health of a Kubernetes Job, so its failover ignores one.
    """
    kind = binding.template.kind
    return kind != BATCH_JOB and integrations.finished_rule(kind) is not NEVER_FINISHED


def _queued_since(inputs: _Inputs) -> int:
    """Return when it was queued: when its template or HyperJob was created, or the recorded time if evicted (O2)."""
    binding, template, record = inputs.binding, inputs.template, inputs.binding.record
    if record is not None and record.waiting_since is not None and (record.evictions or template is None):
        return record.waiting_since
    if inputs.membership.created_at is not None:
        return inputs.membership.created_at
    return template.created_at if template else binding.created_at
