"""What one binding amounts to: a workload for the engine, or none, and what is remarkable about it.

Pure, and told everything: the binding's facts, its template's, the operator's
choices, the PriorityClasses and the writes under way. It decides nothing
about queues and clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.cache import charges
from controller.cache.demands import Demands
from controller.cache.dispatch import Dispatched
from controller.cache.facts import (
    BATCH_JOB,
    VOLCANO_JOB,
    BindingFacts,
    Demand,
    HyperJobFacts,
    Phase,
    Record,
    TemplateFacts,
)
from controller.cache.gates import Gates
from controller.cache.overlays import Gone, Noted, Outcome
from controller.cache.priorities import Priorities
from controller.cache.remarks import Remark, is_copied
from controller.cache.shapes import Shapes
from controller.cache.translate.membership import Membership, membership
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
class Assessment:
    """The workload that a binding is, ``None`` where it is none of ours, with remarks."""

    workload: Workload | None = None
    remarks: frozenset[Remark] = frozenset()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a binding is judged by besides its own objects."""

    gates: Gates
    priorities: Priorities
    default_queue: QueueName
    shapes: Shapes
    demands: Demands
    dispatched: Dispatched
    hyperjobs: Mapping[str, HyperJobFacts] | None = None
    """The HyperJobs by uid; ``None`` where nobody splits any."""
    recent: int = 0
    """What has ended after this may still be in the clusters' summaries (C2). Milliseconds."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """What we know before it is observed: what is being written, a hold after a write that failed."""

    outcomes: tuple[Outcome, ...] = ()
    hold: Refusal | None = None
    unplaced_until: int | None = None
    """Until when Karmada may place it although it was evicted before that (P5)."""
    resumed: bool = False
    """A Command has asked to resume it."""
    has_run: bool = False
    """It runs, or has run since it was admitted."""
    left_out: frozenset[ClusterName] = frozenset()
    """The clusters in which it did not start, and which have not changed since (R1)."""
    cleared: bool = False
    """It was seen paused without clusters since its record admitted it: the record counts no more."""


NO_OVERLAY = Overlay()
_NOTHING = Assessment()
_ASIDE = SchedulingRequirements()
_LET_GO = Assessment(None, frozenset({Remark.UNGATED}))


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where a workload stands by what is observed, and what it holds."""

    state: WorkloadState | None
    """``None``: it is nothing that could be admitted or has been."""
    admission: Admission | None = None
    hold: Refusal | None = None
    remarks: tuple[Remark, ...] = ()
    held: Nomination | None = None
    reserved: Reservation | None = None
    evictions: int = 0
    attempts: int = 0
    stays_until: int = 0


@dataclass(frozen=True, slots=True)
class _Case:
    """A binding with all that it is judged by."""

    binding: BindingFacts
    template: TemplateFacts | None
    demand: Demand | None
    queue: QueueName
    overlay: Overlay
    membership: Membership
    unmapped: str = ""
    """A ResourceClaimTemplate of its pods that nothing maps to resources."""


def assess(
    binding: BindingFacts, template: TemplateFacts | None, *, rules: Rules, overlay: Overlay = NO_OVERLAY
) -> Assessment:
    """Return what *binding* amounts to; *template* is the object of the name that it refers to, if known."""
    if not _is_gated(binding, rules.gates):
        return _LET_GO if binding.paused and _is_ours(binding, rules.gates) else _NOTHING
    template = template if _belongs(binding, template) else None
    queue = _queue(binding, template, rules)
    if queue is None:
        return Assessment(None, frozenset({Remark.UNGATED} if binding.paused and template else ()))
    demand = rules.dispatched.charged(binding, rules.demands.of(binding, template))
    unmapped = rules.demands.unmapped(template)
    belongs = membership(template, rules.hyperjobs)
    case = _Case(binding, template, demand, queue, overlay, belongs, unmapped)
    standing = _overlaid(_recorded(case, _stand(case)), overlay)
    remarks = frozenset(
        (*standing.remarks, *_flaws(case), *_unfixed(case, standing), *_resumed_again(case, overlay), *_concerns(case))
    )
    # While we write ourselves, a pause is most likely ours.
    ours = {Remark.REPAUSED, Remark.CLEARED} if overlay.outcomes else frozenset[Remark]()
    return Assessment(_workload(case, standing, rules), remarks - ours)


def set_aside(binding: BindingFacts, rules: Rules, outcomes: tuple[Outcome, ...], why: str) -> Assessment:
    """Return what *binding* amounts to where assessing it failed: what it holds stays charged, and it is not admitted.

    It holds what its record says on the clusters that the binding names, or what is being written.
    """
    if not _is_gated(binding, rules.gates):
        return _NOTHING
    record = binding.record
    is_admitted = bool(binding.targets) or (record is not None and record.admits and not binding.paused)
    charge = charges.recorded(binding, None, record or Record(QueueName(""))) if is_admitted else None
    standing = _Standing(WorkloadState.ADMITTED, charge.admission) if charge else _Standing(WorkloadState.PENDING)
    for outcome in outcomes:
        standing = _after(standing, outcome)
    workload = Workload(
        uid=binding.uid,
        namespace=binding.template.namespace,
        name=binding.template.name,
        kind=binding.api.kind,
        queue=record.queue if record and record.queue else rules.default_queue,
        shape=_ASIDE,
        since=binding.since,
        state=standing.state or WorkloadState.PENDING,
        admission=standing.admission,
        hold=Refusal(Reason.INTERNAL_ERROR, subject=why),
    )
    return Assessment(workload)


def is_unplaced(binding: BindingFacts) -> bool:
    """Say whether *binding* was evicted, perhaps before Karmada had placed it: its record names where it was to go.

    Where others have evicted it, its record still admits it.
    """
    record = binding.record
    if not binding.paused or record is None or not record.clusters:
        return False
    return not record.admits or not (binding.targets or binding.progress)


def _is_gated(binding: BindingFacts, gates: Gates) -> bool:
    """Say whether a binding is of those that wait; a mere dependency of another asks for nothing itself."""
    if gates.gate(binding.template.kind) is None or gates.is_exempt(binding.namespace):
        return False
    return not _is_brought(binding)


def _is_ours(binding: BindingFacts, gates: Gates) -> bool:
    """Say whether we have paused one that is not gated: it was before, or is brought along by another.

    Whatever else is paused, somebody else has paused.
    """
    gated = gates.gate(binding.template.kind) is not None and not gates.is_exempt(binding.namespace)
    return binding.record is not None or (gated and _is_brought(binding))


def _is_brought(binding: BindingFacts) -> bool:
    """Say whether a binding is there only because another one needs it."""
    return binding.attached and not binding.claimed


def _belongs(binding: BindingFacts, template: TemplateFacts | None) -> bool:
    """Say whether *template* is the very object, not another one of its name."""
    return template is not None and (
        not binding.template_uid or not template.uid or binding.template_uid == template.uid
    )


def _queue(binding: BindingFacts, template: TemplateFacts | None, rules: Rules) -> QueueName | None:
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


def _workload(case: _Case, standing: _Standing, rules: Rules) -> Workload | None:
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
            left_out=case.overlay.left_out,
        ),
        priority=rules.priorities.value(priority_class),
        priority_class=priority_class,
        task_classes=template.demand.task_classes if template and template.demand else (),
        unknown_class=bool(priority_class) and priority_class not in rules.priorities,
        since=_since(case),
        state=standing.state,
        admission=standing.admission,
        hold=_hold(case, standing),
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
        placed_at=_placed_at(binding) if standing.state is WorkloadState.ADMITTED else 0,
        ended=_ended(case, rules.recent) if standing.state is WorkloadState.FINISHED else None,
    )


def _placed_at(binding: BindingFacts) -> int:
    """Return when others last changed its clusters, as its record says."""
    record = binding.record
    return record.clusters_changed_at or 0 if record is not None and record.admits else 0


def _stand(case: _Case) -> _Standing:
    """Return where the workload stands by what is observed."""
    binding, template = case.binding, case.template
    if _is_finished(binding):
        return _Standing(WorkloadState.FINISHED)
    standing = _paused(case) if binding.paused else _resumed(case)
    leaving = binding.deleting or (template is not None and template.deleting)
    if leaving and standing.state is WorkloadState.PENDING:
        # What goes away is not admitted any more, and stays charged until it is gone (F11).
        state = WorkloadState.ADMITTED if standing.admission else None
        return _Standing(state, standing.admission, remarks=standing.remarks)
    return standing


def _paused(case: _Case) -> _Standing:
    binding, demand, record = case.binding, case.demand, case.binding.record
    is_admitted = record is not None and record.admits
    if record and is_admitted and binding.targets and not case.overlay.cleared:
        charge = charges.recorded(binding, demand, record)
        return _Standing(
            WorkloadState.ADMITTED, charge.admission, remarks=(Remark.REPAUSED, *_differences(binding, charge))
        )
    left = charges.remaining(binding, demand, unplaced_until=case.overlay.unplaced_until)
    hold = Refusal(Reason.EVICTION_IN_PROGRESS, cluster=left.bookings[0].cluster) if left else None
    remark = Remark.LEAKED if binding.targets else Remark.CLEARED if is_admitted else None
    return _Standing(WorkloadState.PENDING, left, hold, (remark,) if remark else ())


def _resumed(case: _Case) -> _Standing:
    binding, demand, record = case.binding, case.demand, case.binding.record
    if record and record.admits and (binding.targets or binding.claimed):
        charge = charges.recorded(binding, demand, record)
        hold = _aborted(binding)
        if case.unmapped:
            # It asks for more than was admitted, and nobody knows for how much more: no size of it fits (D7).
            charge = charges.Charge(replace(charge.admission, grown=True), grown=True)
            hold = hold or Refusal(Reason.DEMAND_UNKNOWN, subject=_unmapped(case))
        return _Standing(WorkloadState.ADMITTED, charge.admission, hold, _differences(binding, charge))
    if binding.targets and record is not None:
        charge = charges.adopted(binding, demand)
        return _Standing(WorkloadState.ADMITTED, charge.admission, remarks=(Remark.LEAKED,))
    if binding.targets:
        charge = charges.adopted(binding, demand)
        return _Standing(WorkloadState.ADMITTED, charge.admission, remarks=(Remark.ADOPTED,))
    if binding.flaw or (record and record.admits):
        # Unreadable: perhaps it is paused. Or unclaimed: Karmada leaves it alone, and D9 does not charge it.
        return _Standing(WorkloadState.PENDING)
    return _Standing(None, remarks=(Remark.UNPAUSED,))


def _differences(binding: BindingFacts, charge: charges.Charge) -> tuple[Remark, ...]:
    """Return in what an admitted workload differs from its record."""
    moved = Remark.REDIVIDED if binding.placement.divided and charge.is_divisible else Remark.MOVED
    return (
        *((Remark.GROWN,) if charge.grown else ()),
        *((moved,) if charge.admission.moved else ()),
    )


def _aborted(binding: BindingFacts) -> Refusal | None:
    """Return the hold of an admitted workload that was aborted and is to be evicted (D8)."""
    phases = {each.phase for each in binding.progress if each.cluster in {target.name for target in binding.targets}}
    return Refusal(Reason.ABORTED) if Phase.ABORTED in phases and phases <= {Phase.ABORTED, Phase.FINISHED} else None


def _ended(case: _Case, recent: int) -> Admission | None:
    """Return what a finished workload held, ``None`` unless it ended lately."""
    binding, record = case.binding, case.binding.record
    if binding.ended_at is None or binding.ended_at <= recent:
        return None
    if record is not None and record.admits:
        charge = charges.recorded(binding, case.demand, record)
    else:
        charge = charges.adopted(binding, case.demand)
    return replace(charge.admission, ends_at=binding.ended_at)


def _is_finished(binding: BindingFacts) -> bool:
    """Say whether it is over in every cluster it is placed on (D8)."""
    told = {each.cluster: each.phase for each in binding.progress}
    return bool(binding.targets) and all(told.get(target.name) is Phase.FINISHED for target in binding.targets)


def _recorded(case: _Case, standing: _Standing) -> _Standing:
    """Return *standing* with what our record alone tells (R2)."""
    record = case.binding.record
    if record is None:
        return standing
    held = None
    if record.held_cluster and record.held_since is not None and record.held_demand is not None and not record.admits:
        held = Nomination(record.held_cluster, record.held_since, record.held_rank or 0, record.held_demand)
    reserved = None
    if record.reserved_since is not None and held is None and not record.admits:
        reserved = Reservation(record.reserved_since, _rooms(record), record.held_demand)
    return replace(standing, held=held, reserved=reserved, evictions=record.evictions, attempts=record.attempts)


def _rooms(record: Record) -> tuple[ClusterCharge, ...]:
    """Return where room is kept: all of it on one cluster, or so much on each of several."""
    if record.held_demand is None:
        return ()
    if record.held_cluster:
        return (ClusterCharge(record.held_cluster, record.held_demand),)
    return tuple(ClusterCharge(name, amounts) for name, amounts in sorted((record.held_clusters or {}).items()))


def _overlaid(standing: _Standing, overlay: Overlay) -> _Standing:
    """Return *standing* as it will be once the writes under way are observed."""
    for outcome in overlay.outcomes:
        standing = _after(standing, outcome)
    hold = overlay.hold
    if hold is None or standing.state in {WorkloadState.FINISHED, None}:
        return standing
    if standing.state is WorkloadState.ADMITTED:
        return replace(standing, stays_until=hold.until or 0)
    return replace(standing, hold=hold if standing.hold is None else min(hold, standing.hold, key=precedence))


def _after(standing: _Standing, outcome: Outcome) -> _Standing:
    """Return *standing* as a write makes it."""
    match outcome:
        case Admission() if standing.state in {WorkloadState.PENDING, None}:
            return replace(
                standing, state=WorkloadState.ADMITTED, admission=outcome, hold=None, held=None, reserved=None
            )
        case Gone() if standing.state is WorkloadState.ADMITTED:
            hold = outcome.back_off or standing.hold or Refusal(Reason.EVICTION_IN_PROGRESS)
            past = EvictionHistory(standing.evictions, standing.attempts)
            past = past.once_gone(has_run=outcome.has_run, taken_back=outcome.back_off is not None)
            return replace(standing, state=WorkloadState.PENDING, hold=hold, **past._asdict())
        case Noted() if standing.state is WorkloadState.PENDING:
            return replace(standing, held=outcome.held, reserved=outcome.reserved)
    return standing


def _hold(case: _Case, standing: _Standing) -> Refusal | None:
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
        holds.append(Refusal(Reason.UNCLAIMED))
    if case.binding.suspension is not None and case.binding.suspension.dispatching:
        holds.append(Refusal(Reason.SUSPENDED))
    unknown = _unknown(case)
    if unknown:
        holds.append(Refusal(Reason.DEMAND_UNKNOWN, subject=unknown))
    return min(holds, key=precedence, default=None)


def _unknown(case: _Case) -> str:
    """Return why nobody can say what the workload asks for, or nothing."""
    binding, template = case.binding, case.template
    if template is None:
        return f"{binding.api.kind} {'/'.join(part for part in binding.template[1:] if part)} is not there"
    if template.flaw or binding.flaw:
        return template.flaw or binding.flaw
    return _unmapped(case) or ("" if case.demand is not None else "its size was not counted")


def _unmapped(case: _Case) -> str:
    """Return why nothing counts the devices that its pods claim, or nothing."""
    name = case.unmapped
    return f"its pods claim devices by {name!r}; map it in resourceClaimTemplates of the configuration" if name else ""


def _flaws(case: _Case) -> tuple[Remark, ...]:
    unreadable = case.binding.flaw or (case.template is not None and case.template.flaw)
    return (
        *((Remark.UNREADABLE,) if unreadable else ()),
        *((Remark.UNRECORDED,) if case.binding.record_flaw else ()),
    )


def _unfixed(case: _Case, standing: _Standing) -> tuple[Remark, ...]:
    """Say whether nothing but a label or an annotation says which queue a workload waits in (Q6)."""
    is_own = case.binding.template.kind == VOLCANO_JOB
    waits = standing.state is WorkloadState.PENDING and case.binding.paused and bool(case.queue)
    return (Remark.UNFIXED,) if waits and not is_own and case.binding.record is None else ()


def is_aborted(binding: BindingFacts) -> bool:
    """Say whether it was aborted and taken back for that, or is about to be."""
    return (binding.record is not None and binding.record.aborted) or _aborted(binding) is not None


def _resumed_again(case: _Case, overlay: Overlay) -> tuple[Remark, ...]:
    """Say whether what was aborted is to be tried again: its template has changed, or a Command says so (D8)."""
    record, template = case.binding.record, case.template
    if record is None or not record.aborted or not case.binding.paused:
        return ()
    before = record.aborted_generation
    is_changed = template is not None and before is not None and template.generation > before
    return (Remark.RESUMED,) if is_changed or overlay.resumed else ()


def _runs_once(binding: BindingFacts) -> bool:
    """Say whether a workload is over one day, so that a failure of it is no reason to begin anew for ever."""
    return binding.template.kind in {VOLCANO_JOB, BATCH_JOB}


def _concerns(case: _Case) -> tuple[Remark, ...]:
    """Return what its policy does that its tenant may not expect."""
    copied = case.binding.template.kind == VOLCANO_JOB and is_copied(case.binding.placement)
    return (
        *((Remark.COPIED,) if copied else ()),
        *((Remark.PRESERVED,) if case.binding.preserved else ()),
        *((Remark.FAILS_OVER,) if case.binding.fails_over and _runs_once(case.binding) else ()),
    )


def _since(case: _Case) -> int:
    """Return when its age began: with its template or HyperJob; an evicted one keeps what its record says (O2)."""
    binding, template, record = case.binding, case.template, case.binding.record
    if record is not None and record.waiting_since is not None and (record.evictions or template is None):
        return record.waiting_since
    since = case.membership.since
    if since is not None:
        return since
    return template.since if template else binding.since
