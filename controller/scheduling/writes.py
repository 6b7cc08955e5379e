"""Builds the writes that carry decisions to the API server, and checks whether a write has taken effect.

Pure; the actuator sends them.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace as replace_fields

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from controller.cache.objects import BindingCondition, CachedBinding, CachedTemplate
from controller.cache.record import AdmissionRecord, write_record
from controller.cache.unapplied_works import phase_to_record
from controller.engine.plan import Admit, Decision, Evict, RecordUpdate
from controller.engine.reasons import EvictionReason
from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.scheduling import patches
from controller.scheduling.records import (
    aborted_record,
    admitted_record,
    confirmed_record,
    evicted_record,
    externally_evicted_record,
    pending_record,
    requeued_record,
)

Effect = Literal[
    "admit", "evict", "resume", "clear", "note", "abort", "record", "hold", "pause", "observe", "requeue", "touch"
]
"""What a write does to its binding; also a label of the metrics.

``clear`` removes clusters without an admission, ``pause`` suspends a binding that bypassed the webhook, ``requeue``
suspends a placed one to resume it at once; ``hold`` records a nomination or reservation, ``note`` and ``abort`` other
changes of a pending workload, ``record`` those of an admitted one; ``observe`` sets the affinity term, and ``touch``
makes Karmada process the binding again.
"""


class Write(msgspec.Struct, frozen=True):
    """One patch of one binding."""

    effect: Effect
    uid: WorkloadUid
    path: str
    """API path of the binding."""
    patch: bytes
    resource_version: int
    """The binding's resourceVersion that the decision is based on."""
    workload: str
    """The workload in messages: ``Kind namespace/name``."""
    queue: str = ""
    clusters: tuple[str, ...] = ()
    reason: str = ""
    """Reason code of an eviction."""
    message: str = ""
    """The reason in words, if more is known than the code says."""
    preemptor: str = ""
    """The preemptor in messages; empty for an eviction without one."""
    unless_run: bool = False
    """Whether an eviction is obsolete once the workload runs: it is evicted because it did not start where it is."""
    recorded: str = ""
    """What the record will say about nomination, reservation or admission, in a comparable form; empty for nothing."""
    term: str = ""
    """The affinity term that Karmada's scheduler is to observe."""
    subresource: str = ""
    """``status`` if the patch changes the status."""
    wait_seconds: float = 0
    """How long the workload was pending at the decision, in seconds."""
    priority_class: str = ""
    """The priority class of the admitted workload; empty where it has none that exists."""

    def is_done(self, binding: CachedBinding) -> bool:
        """Return whether *binding* shows the effect of this write, even if another client caused it."""
        return binding.uid == self.uid and self._has_effect(binding)

    def _has_effect(self, binding: CachedBinding) -> bool:
        match self.effect:
            case "admit" | "resume":
                return not binding.is_suspended
            case "evict" | "clear" | "pause" | "requeue":
                return binding.is_suspended and (self.effect == "requeue" or not binding.targets)
            case "note" | "abort":
                record, aborts = binding.record, self.effect == "abort"
                return (
                    record is not None
                    and record.queue == self.queue
                    and (record.aborted, record.admits) == (aborts, False)
                )
            case "touch":
                return binding.resource_version > self.resource_version
            case "observe":
                return binding.details.observed_term == self.term
            case "hold" | "record":
                recorded = _recorded_capacity if self.effect == "hold" else _recorded_admission
                return recorded(binding.record) == self.recorded


def decision_write(  # noqa: PLR0913 -- what the record says beside the decision
    decision: Decision,
    binding: CachedBinding,
    *,
    template: CachedTemplate | None = None,
    preemptor: str = "",
    excluded_clusters: Mapping[ClusterName, str] = MappingProxyType({}),
    now: int | None = None,
) -> Write:
    """Return the write that carries *decision*, which was made at *now*, to *binding*.

    *preemptor* names the preemptor of an eviction; the record stores *excluded_clusters*.
    """
    if isinstance(decision, Admit):
        return _admit_write(decision, binding, excluded_clusters)
    generation = template.generation if template else None
    # Where others have moved it, Karmada has placed it: it is not placed once more.
    is_placed = bool(binding.progress) or decision.reason is EvictionReason.CLUSTER_CHANGED
    clusters = () if is_placed else tuple(target.name for target in binding.targets)
    record = evicted_record(
        decision, before=binding.record, excluded_clusters=excluded_clusters, clusters=clusters, generation=generation
    )
    record = replace_fields(record, evicted_at=now if clusters else None)
    return _evict_write(decision, binding, record, preemptor=preemptor)


def _admit_write(decision: Admit, binding: CachedBinding, excluded_clusters: Mapping[ClusterName, str]) -> Write:
    workload = decision.workload
    record = admitted_record(
        workload, decision.admission, before=binding.record, plan=decision.plan_id, excluded_clusters=excluded_clusters
    )
    # Karmada adds the replicas that an admission names to the capacity of their clusters, and would put too many on the
    # first ones instead of using the overflow clusters.
    divides = workload.requirements.replicas > 0 and binding.placement.divided
    overflows = divides and any(term.overflow for term in binding.placement.terms)
    targets = [] if overflows else [(target.name, target.replicas) for target in decision.clusters]
    return Write(
        "admit",
        workload.uid,
        _binding_path(binding),
        patches.admit(binding, targets, write_record(binding.uid, record)),
        binding.resource_version,
        workload.path,
        queue=workload.queue,
        clusters=tuple(target.name for target in decision.clusters),
        wait_seconds=(decision.admission.admitted_at - workload.created_at) / 1000,
        priority_class="" if workload.details.unknown_class else workload.priority_class,
    )


def _evict_write(decision: Evict, binding: CachedBinding, record: AdmissionRecord, *, preemptor: str) -> Write:
    workload = decision.workload
    return Write(
        "evict",
        workload.uid,
        _binding_path(binding),
        patches.evict(binding, write_record(binding.uid, record), tasks=_eviction_tasks(decision, binding)),
        binding.resource_version,
        workload.path,
        queue=workload.queue,
        reason=decision.reason,
        message=decision.back_off.message if decision.back_off else "",
        preemptor=preemptor,
        unless_run=decision.back_off is not None and decision.back_off.caused_failure,
    )


def _eviction_tasks(decision: Evict, binding: CachedBinding) -> list[patches.EvictionTask]:
    """Return the graceful eviction tasks of a victim, for the clusters where its pods run."""
    seconds = decision.grace_ms // 1000
    running = {progress.cluster for progress in binding.progress} if seconds else set()
    names = [target.name for target in binding.targets if target.name in running]
    return [patches.EvictionTask(name, str(decision.reason), seconds) for name in names]


def record_update_write(update: RecordUpdate, binding: CachedBinding) -> Write:
    """Return the write that records a nomination or reservation of a pending workload, or that it has ended."""
    workload = update.workload
    record = pending_record(workload, update.nomination, update.reservation, before=binding.record)
    return Write(
        "hold",
        workload.uid,
        _binding_path(binding),
        patches.update_pending_record(binding, write_record(binding.uid, record)),
        binding.resource_version,
        workload.path,
        queue=workload.queue,
        recorded=_recorded_capacity(record),
    )


def _recorded_capacity(record: AdmissionRecord | None) -> str:
    """Return the nomination (P5) or reservation (O6) in a record, in a comparable form; empty for none."""
    if record is None or (record.nominated_at is None and record.reserved_since is None):
        return ""
    cluster = record.nominated_cluster or ", ".join(sorted(record.reserved_clusters or ())) or "no cluster"
    return cluster if record.nominated_at is not None else f"{cluster}, reserved"


def affinity_term_write(decision: Admit, binding: CachedBinding, term: str) -> Write:
    """Return the write that makes Karmada's scheduler start with affinity *term*, before the cluster is set (C1).

    Otherwise the scheduler would start with the first term and not confirm the cluster.
    """
    return Write(
        "observe",
        binding.uid,
        _binding_path(binding),
        patches.set_affinity_term(binding, term),
        binding.resource_version,
        decision.workload.path,
        queue=decision.workload.queue,
        term=term,
        subresource="status",
    )


def requeue_writes(binding: CachedBinding) -> tuple[Write, Write]:
    """Return the two writes that make Karmada's scheduler retry a binding at once (R1).

    The scheduler backs off after a failure, but treats a binding that was suspended and resumed as new.
    """
    return _binding_write("requeue", patches.suspend(binding), binding), _resume_write(binding)


def confirmation_write(binding: CachedBinding, workload: Workload) -> Write | None:
    """Return the write that updates the record of an admitted *workload* to its clusters and charge (D7, R1)."""
    if workload.admission is None or binding.record is None or not binding.record.admits or binding.is_suspended:
        return None
    record = confirmed_record(workload, workload.admission, before=binding.record, targets=binding.targets)
    return _record_write(binding, record)


def _record_write(binding: CachedBinding, record: AdmissionRecord) -> Write:
    """Return the write that updates the record of an admitted binding."""
    patch = patches.update_admitted_record(binding, write_record(binding.uid, record))
    made = _binding_write("record", patch, binding, queue=record.queue)
    return replace_fields(made, clusters=tuple(record.clusters), recorded=_recorded_admission(record))


def _recorded_admission(record: AdmissionRecord | None) -> str:
    """Return the clusters, the charge and the last known phase in a record, in a comparable form."""
    if record is None:
        return ""
    return f"{sorted(record.charge.items())} on {sorted(record.clusters)} {record.last_phase}"


def repair_write(  # noqa: PLR0913 -- what the record says beside the conditions
    conditions: Collection[BindingCondition],
    binding: CachedBinding,
    workload: Workload | None = None,
    *,
    template: CachedTemplate | None = None,
    repairs: bool = False,
    now: int | None = None,
) -> Write | None:
    """Return the write that repairs the binding conditions in *conditions* at *now*, or ``None`` if none is needed.

    A binding that bypassed the webhook is suspended only if *repairs* is set (D10).
    """
    if BindingCondition.PLACED_WITHOUT_ADMISSION in conditions:
        return _binding_write("clear", patches.clear_clusters(binding), binding)
    if (
        BindingCondition.RESUSPENDED_AFTER_ADMISSION in conditions
        or BindingCondition.SUSPENDED_BUT_NOT_MANAGED in conditions
    ):
        return _resume_write(binding)
    if BindingCondition.NOT_SUSPENDED in conditions and repairs:
        return _binding_write("pause", patches.suspend_unplaced(binding), binding)
    repair = _record_repair(conditions, binding, workload, template, now=now)
    repair = repair or _phase_repair(conditions, binding, workload)
    if repair is not None:
        return repair
    if BindingCondition.WORK_NOT_REMOVED in conditions:
        return _binding_write("touch", patches.reprocess(binding), binding)
    return None


def _record_repair(
    conditions: Collection[BindingCondition],
    binding: CachedBinding,
    workload: Workload | None,
    template: CachedTemplate | None,
    *,
    now: int | None,
) -> Write | None:
    """Return the write that repairs the record of a pending binding, and suspends it where it is not."""
    if BindingCondition.EVICTED_BY_OTHERS in conditions and binding.record is not None:
        record = externally_evicted_record(binding.record, is_placeable=not binding.progress, now=now)
        return _binding_write(
            "note", patches.revoke_admission(binding, write_record(binding.uid, record)), binding, queue=record.queue
        )
    if BindingCondition.ADMITTED_WITHOUT_POLICY in conditions and binding.record is not None:
        text = write_record(binding.uid, requeued_record(binding.record))
        return _binding_write("clear", patches.suspend_unplaced(binding, text), binding, queue=binding.record.queue)
    if BindingCondition.ABORT_REQUESTED in conditions and workload is not None and not _holds_capacity(workload):
        generation = template.generation if template else None
        record = aborted_record(workload, before=binding.record, generation=generation)
        return _note_write(binding, record, "abort")
    if BindingCondition.RETRY_REQUESTED in conditions and binding.record is not None:
        return _note_write(binding, requeued_record(binding.record))
    if BindingCondition.QUEUE_NOT_RECORDED in conditions and workload is not None:
        return _note_write(binding, AdmissionRecord(workload.queue, waiting_since=workload.created_at))
    return None


def _holds_capacity(workload: Workload) -> bool:
    """Return whether a nomination or reservation of a pending workload has not ended: its end is written first."""
    return workload.nomination is not None or workload.reservation is not None


def _note_write(binding: CachedBinding, record: AdmissionRecord, effect: Literal["note", "abort"] = "note") -> Write:
    """Return the write that updates the record of a pending binding."""
    patch = patches.update_pending_record(binding, write_record(binding.uid, record))
    return _binding_write(effect, patch, binding, queue=record.queue)


def _phase_repair(
    conditions: Collection[BindingCondition], binding: CachedBinding, workload: Workload | None
) -> Write | None:
    """Return the write that records the last known phase of a workload whose Work cannot be applied, or clears it."""
    if BindingCondition.PHASE_NOT_RECORDED not in conditions or workload is None:
        return None
    if binding.record is None or not binding.record.admits or binding.is_suspended:
        return None
    record = replace_fields(binding.record, last_phase=phase_to_record(binding, has_run=workload.has_run))
    return _record_write(binding, record)


def _resume_write(binding: CachedBinding) -> Write:
    """Return the write that resumes a binding where it is placed, unless it has lost its clusters."""
    placed_on = binding.targets[0].name if binding.targets else ""
    return _binding_write("resume", patches.resume(binding, placed_on=placed_on), binding)


def _binding_write(effect: Effect, patch: bytes, binding: CachedBinding, *, queue: str = "") -> Write:
    kind, namespace, name = binding.api.kind, binding.template.namespace, binding.template.name
    path = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    return Write(effect, binding.uid, _binding_path(binding), patch, binding.resource_version, path, queue=queue)


def _binding_path(binding: CachedBinding) -> str:
    kind = RESOURCE_BINDINGS if binding.namespace else CLUSTER_RESOURCE_BINDINGS
    return kind.item_path(binding.namespace, binding.name)
