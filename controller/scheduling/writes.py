"""Builds the writes that carry decisions to the API server, and checks whether a write has taken effect.

Pure; the actuator sends them.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from controller.cache.objects import BindingCondition, CachedBinding, CachedTemplate
from controller.cache.record import AdmissionRecord, write_record
from controller.cache.translate.records import (
    admitted_record,
    confirmed_record,
    evicted_record,
    externally_evicted_record,
    pending_record,
    requeued_record,
)
from controller.engine.plan import Admit, Decision, Evict, RecordUpdate
from controller.engine.reasons import EvictionReason
from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.scheduling import patches

Effect = Literal["admit", "evict", "resume", "clear", "note", "record", "hold", "pause", "observe", "requeue", "touch"]


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
    held: str = ""
    """What the record will say about nomination, reservation or admission, in a comparable form; empty for nothing."""
    term: str = ""
    """The affinity term that Karmada's scheduler is to observe."""
    subresource: str = ""
    """``status`` if the patch changes the status."""
    wait_seconds: float = 0
    """How long the workload was pending at the decision, in seconds."""
    priority_class: str = ""
    """The priority class of the admitted workload; empty where it has none that exists."""

    def is_done(self, facts: CachedBinding) -> bool:
        """Return whether *facts* show the effect of this write, even if another client caused it."""
        return facts.uid == self.uid and self._has_effect(facts)

    def _has_effect(self, facts: CachedBinding) -> bool:
        match self.effect:
            case "admit" | "resume":
                return not facts.is_suspended
            case "evict" | "clear" | "pause" | "requeue":
                return facts.is_suspended and (self.effect == "requeue" or not facts.targets)
            case "note":
                record = facts.record
                return record is not None and record.queue == self.queue and not (record.aborted or record.admits)
            case "touch":
                return facts.resource_version > self.resource_version
            case "observe":
                return facts.details.observed_term == self.term
            case "hold" | "record":
                return (_recorded_capacity if self.effect == "hold" else _recorded_admission)(facts.record) == self.held


def decision_write(
    decision: Decision,
    facts: CachedBinding,
    *,
    template: CachedTemplate | None = None,
    preemptor: str = "",
    excluded_clusters: Mapping[ClusterName, str] = MappingProxyType({}),
) -> Write:
    """Return the write that carries *decision* to the binding in *facts*.

    *preemptor* names the preemptor of an eviction; the record stores *excluded_clusters*.
    """
    if isinstance(decision, Admit):
        return _admit_write(decision, facts, excluded_clusters)
    generation = template.generation if template else None
    # Where others have moved it, Karmada has placed it: it is not placed once more.
    is_placed = bool(facts.progress) or decision.reason is EvictionReason.CLUSTER_CHANGED
    clusters = () if is_placed else tuple(target.name for target in facts.targets)
    record = evicted_record(
        decision, before=facts.record, excluded_clusters=excluded_clusters, clusters=clusters, generation=generation
    )
    return _evict_write(decision, facts, record, preemptor=preemptor)


def _admit_write(decision: Admit, facts: CachedBinding, excluded_clusters: Mapping[ClusterName, str]) -> Write:
    workload = decision.workload
    record = admitted_record(
        workload, decision.admission, before=facts.record, plan=decision.plan_id, excluded_clusters=excluded_clusters
    )
    # Karmada adds the replicas that an admission names to the capacity of their clusters, and would put too many on the
    # first ones instead of using the overflow clusters.
    divides = workload.requirements.replicas > 0 and facts.placement.divided
    overflows = divides and any(term.overflow for term in facts.placement.terms)
    targets = [] if overflows else [(target.name, target.replicas) for target in decision.clusters]
    return Write(
        "admit",
        workload.uid,
        _binding_path(facts),
        patches.admit(facts, targets, write_record(facts.uid, record)),
        facts.resource_version,
        workload.path,
        queue=workload.queue,
        clusters=tuple(target.name for target in decision.clusters),
        wait_seconds=(decision.admission.admitted_at - workload.created_at) / 1000,
        priority_class="" if workload.details.unknown_class else workload.priority_class,
    )


def _evict_write(decision: Evict, facts: CachedBinding, record: AdmissionRecord, *, preemptor: str) -> Write:
    workload = decision.workload
    return Write(
        "evict",
        workload.uid,
        _binding_path(facts),
        patches.evict(facts, write_record(facts.uid, record), tasks=_eviction_tasks(decision, facts)),
        facts.resource_version,
        workload.path,
        queue=workload.queue,
        reason=decision.reason,
        message=decision.back_off.message if decision.back_off else "",
        preemptor=preemptor,
    )


def _eviction_tasks(decision: Evict, facts: CachedBinding) -> list[patches.EvictionTask]:
    """Return the graceful eviction tasks of a victim, for the clusters where its pods run."""
    seconds = decision.grace_ms // 1000
    running = {progress.cluster for progress in facts.progress} if seconds else set()
    names = [target.name for target in facts.targets if target.name in running]
    return [patches.EvictionTask(name, str(decision.reason), seconds) for name in names]


def nomination_write(note: RecordUpdate, facts: CachedBinding) -> Write:
    """Return the write that records a nomination or reservation of a pending workload, or that it has ended."""
    workload = note.workload
    record = pending_record(workload, note.nomination, note.reservation, before=facts.record)
    return Write(
        "hold",
        workload.uid,
        _binding_path(facts),
        patches.update_pending_record(facts, write_record(facts.uid, record)),
        facts.resource_version,
        workload.path,
        queue=workload.queue,
        held=_recorded_capacity(record),
    )


def _recorded_capacity(record: AdmissionRecord | None) -> str:
    """Return the nomination (P5) or reservation (O6) in a record, in a comparable form; empty for none."""
    if record is None or (record.nominated_at is None and record.reserved_since is None):
        return ""
    cluster = record.nominated_cluster or ", ".join(sorted(record.reserved_clusters or ())) or "no cluster"
    return cluster if record.nominated_at is not None else f"{cluster}, reserved"


def affinity_term_write(decision: Admit, facts: CachedBinding, term: str) -> Write:
    """Return the write that makes Karmada's scheduler start with affinity *term*, before the cluster is set (C1).

    Otherwise the scheduler would start with the first term and not confirm the cluster.
    """
    return Write(
        "observe",
        facts.uid,
        _binding_path(facts),
        patches.set_affinity_term(facts, term),
        facts.resource_version,
        decision.workload.path,
        queue=decision.workload.queue,
        term=term,
        subresource="status",
    )


def requeue_writes(facts: CachedBinding) -> tuple[Write, Write]:
    """Return the two writes that make Karmada's scheduler retry a binding at once (R1).

    The scheduler backs off after a failure, but treats a binding that was suspended and resumed as new.
    """
    return _binding_write("requeue", patches.suspend(facts), facts), _resume_write(facts)


def confirmation_write(facts: CachedBinding, workload: Workload) -> Write | None:
    """Return the write that updates the record of an admitted *workload* to its clusters and charge (D7, R1)."""
    if workload.admission is None or facts.record is None or not facts.record.admits or facts.is_suspended:
        return None
    record = confirmed_record(workload, workload.admission, before=facts.record, targets=facts.targets)
    patch = patches.update_admitted_record(facts, write_record(facts.uid, record))
    clusters, held = tuple(record.clusters), _recorded_admission(record)
    made = _binding_write("record", patch, facts, queue=workload.queue)
    return msgspec.structs.replace(made, clusters=clusters, held=held)


def _recorded_admission(record: AdmissionRecord | None) -> str:
    """Return the clusters and charge in a record, in a comparable form."""
    if record is None:
        return ""
    return f"{sorted(record.charge.items())} on {sorted(record.clusters)}"


def repair_write(
    conditions: Collection[BindingCondition],
    facts: CachedBinding,
    workload: Workload | None = None,
    *,
    repairs: bool = False,
) -> Write | None:
    """Return the write that repairs the binding conditions in *remarks*, or ``None`` if no repair is needed.

    A binding that bypassed the webhook is suspended only if *repairs* is set (D10).
    """
    if BindingCondition.PLACED_WITHOUT_ADMISSION in conditions:
        return _binding_write("clear", patches.clear_clusters(facts), facts)
    if (
        BindingCondition.RESUSPENDED_AFTER_ADMISSION in conditions
        or BindingCondition.SUSPENDED_BUT_NOT_MANAGED in conditions
    ):
        return _resume_write(facts)
    if BindingCondition.NOT_SUSPENDED in conditions and repairs:
        return _binding_write("pause", patches.suspend_unplaced(facts), facts)
    if (repair := _record_repair(conditions, facts, workload)) is not None:
        return repair
    if BindingCondition.WORK_NOT_REMOVED in conditions:
        return _binding_write("touch", patches.reprocess(facts), facts)
    return None


def _record_repair(
    conditions: Collection[BindingCondition], facts: CachedBinding, workload: Workload | None
) -> Write | None:
    """Return the write that repairs the record of a pending binding, and suspends it where it is not."""
    if BindingCondition.EVICTED_BY_OTHERS in conditions and facts.record is not None:
        record = externally_evicted_record(facts.record, is_placeable=not facts.progress)
        return _binding_write(
            "note", patches.revoke_admission(facts, write_record(facts.uid, record)), facts, queue=record.queue
        )
    if BindingCondition.ADMITTED_WITHOUT_POLICY in conditions and facts.record is not None:
        text = write_record(facts.uid, requeued_record(facts.record))
        return _binding_write("clear", patches.suspend_unplaced(facts, text), facts, queue=facts.record.queue)
    if BindingCondition.RETRY_REQUESTED in conditions and facts.record is not None:
        record = requeued_record(facts.record)
        return _binding_write(
            "note", patches.update_pending_record(facts, write_record(facts.uid, record)), facts, queue=record.queue
        )
    if BindingCondition.QUEUE_NOT_RECORDED in conditions and workload is not None:
        record = AdmissionRecord(workload.queue, waiting_since=workload.created_at)
        return _binding_write(
            "note", patches.update_pending_record(facts, write_record(facts.uid, record)), facts, queue=workload.queue
        )
    return None


def _resume_write(facts: CachedBinding) -> Write:
    """Return the write that resumes a binding where it is placed, unless it has lost its clusters."""
    placed_on = facts.targets[0].name if facts.targets else ""
    return _binding_write("resume", patches.resume(facts, placed_on=placed_on), facts)


def _binding_write(effect: Effect, patch: bytes, facts: CachedBinding, *, queue: str = "") -> Write:
    kind, namespace, name = facts.api.kind, facts.template.namespace, facts.template.name
    path = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    return Write(effect, facts.uid, _binding_path(facts), patch, facts.resource_version, path, queue=queue)


def _binding_path(facts: CachedBinding) -> str:
    kind = RESOURCE_BINDINGS if facts.namespace else CLUSTER_RESOURCE_BINDINGS
    return kind.item_path(facts.namespace, facts.name)
