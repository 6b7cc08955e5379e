"""Decisions on their way to the API server: what is sent where, and how to tell whether it was done.

Pure. How a write is carried out, and what follows when it is not, is the
actuator's.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from controller import patches
from controller.api import record as wire
from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from controller.cache.binding_conditions import BindingCondition
from controller.cache.objects import AdmissionRecord, CachedBinding, CachedTemplate
from controller.cache.translate.records import (
    admitted_record,
    confirmed_record,
    evicted_record,
    externally_evicted_record,
    pending_record,
    requeued_record,
)
from controller.cache.translate.units import format_resources, to_datetime
from controller.engine.clusters import ClusterName
from controller.engine.plan import Admit, Decision, Evict, RecordUpdate
from controller.engine.reasons import EvictionReason
from controller.engine.workloads import Workload, WorkloadUid

Effect = Literal["admit", "evict", "resume", "clear", "note", "record", "hold", "pause", "observe", "requeue"]


@dataclass(frozen=True, slots=True)
class Write:
    """One patch of one binding."""

    effect: Effect
    uid: WorkloadUid
    path: str
    """The binding's, in the API."""
    patch: bytes
    resource_version: int
    """The binding's resourceVersion that was decided upon."""
    workload: str
    """What it is about, as messages name it: ``Kind namespace/name``."""
    queue: str = ""
    clusters: tuple[str, ...] = ()
    reason: str = ""
    """Why it is evicted."""
    message: str = ""
    """The same in words, where more is known than the reason tells."""
    for_whom: str = ""
    """Who gets its place, as messages name it; nobody where it goes for its own fault."""
    held: str = ""
    """What is held for it, or where it is admitted with which charge, as its record is to say; empty for nothing."""
    term: str = ""
    """The affinity term that Karmada's scheduler is to begin with."""
    subresource: str = ""
    """``status`` where that is written."""
    wait_seconds: float = 0
    """How long it had waited at the decision, in seconds."""

    def is_done(self, facts: CachedBinding) -> bool:
        """Say whether *facts* show the effect, whoever brought it about."""
        if facts.uid != self.uid:
            return False
        match self.effect:
            case "admit" | "resume":
                return not facts.is_suspended
            case "evict" | "clear" | "pause" | "requeue":
                return facts.is_suspended and (self.effect == "requeue" or not facts.targets)
            case "note":
                record = facts.record
                return record is not None and record.queue == self.queue and not (record.aborted or record.admits)
            case "observe":
                return facts.observed_term == self.term
            case "hold" | "record":
                return (_recorded_capacity if self.effect == "hold" else _recorded_admission)(facts.record) == self.held


def decision_write(
    decision: Decision,
    facts: CachedBinding,
    *,
    template: CachedTemplate | None = None,
    for_whom: str = "",
    excluded_clusters: Mapping[ClusterName, str] = MappingProxyType({}),
) -> Write:
    """Return how *decision* is written to the binding that *facts* tell of.

    *for_whom* it is evicted, in words; the record keeps the clusters *excluded_clusters*.
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
    return _evict_write(decision, facts, record, for_whom=for_whom)


def _admit_write(decision: Admit, facts: CachedBinding, excluded_clusters: Mapping[ClusterName, str]) -> Write:
    workload = decision.workload
    record = admitted_record(
        workload, decision.admission, before=facts.record, plan=decision.plan_id, excluded_clusters=excluded_clusters
    )
    targets = [(target.name, target.replicas) for target in decision.clusters]
    return Write(
        "admit",
        workload.uid,
        _binding_path(facts),
        patches.admit(facts, targets, wire.write_record(record)),
        facts.resource_version,
        workload.path,
        queue=workload.queue,
        clusters=tuple(target.name for target in decision.clusters),
        wait_seconds=(decision.admission.admitted_at - workload.created_at) / 1000,
    )


def _evict_write(decision: Evict, facts: CachedBinding, record: wire.Record, *, for_whom: str) -> Write:
    workload = decision.workload
    return Write(
        "evict",
        workload.uid,
        _binding_path(facts),
        patches.evict(facts, wire.write_record(record), tasks=_eviction_tasks(decision, facts)),
        facts.resource_version,
        workload.path,
        queue=workload.queue,
        reason=decision.reason,
        message=decision.back_off.message if decision.back_off else "",
        for_whom=for_whom,
    )


def _eviction_tasks(decision: Evict, facts: CachedBinding) -> list[patches.EvictionTask]:
    """Return what lets a victim's pods go on for a while; what runs nowhere yet needs no such thing."""
    seconds = decision.grace_ms // 1000
    running = {told.cluster for told in facts.progress} if seconds else set()
    names = [target.name for target in facts.targets if target.name in running]
    return [patches.EvictionTask(name, str(decision.reason), seconds) for name in names]


def nomination_write(note: RecordUpdate, facts: CachedBinding) -> Write:
    """Return how it is recorded what is held for a workload that waits, or that nothing is any more."""
    workload = note.workload
    record = pending_record(workload, note.nomination, note.reservation, before=facts.record)
    return Write(
        "hold",
        workload.uid,
        _binding_path(facts),
        patches.update_pending_record(facts, wire.write_record(record)),
        facts.resource_version,
        workload.path,
        queue=workload.queue,
        held=_recorded_capacity(record),
    )


def _recorded_capacity(record: AdmissionRecord | wire.Record | None) -> str:
    """Return what a record says is held (P5) or kept (O6), so that two may be compared; empty for nothing."""
    if record is None or (record.nominated_at is None and record.reserved_since is None):
        return ""
    cluster = record.nominated_cluster or ", ".join(sorted(record.nominated_clusters or ())) or "no cluster"
    return cluster if record.nominated_at is not None else f"{cluster}, reserved"


def affinity_term_write(decision: Admit, facts: CachedBinding, term: str) -> Write:
    """Return how Karmada's scheduler is told with which ordered affinity to begin, before its cluster is named (C1).

    Without it, it would begin with the first one, and not confirm our choice.
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
    """Return the two writes that have Karmada's scheduler look at a binding again at once (R1).

    It puts off what it could not schedule, but takes what was paused and resumed as new.
    """
    return _binding_write("requeue", patches.suspend(facts), facts), _resume_write(facts)


def confirmation_write(facts: CachedBinding, workload: Workload) -> Write | None:
    """Return how the record of an admitted *workload* is given the clusters and the charge that it has now (D7, R1)."""
    if workload.admission is None or facts.record is None or not facts.record.admits or facts.is_suspended:
        return None
    record = confirmed_record(workload, workload.admission, before=facts.record)
    patch = patches.update_admitted_record(facts, wire.write_record(record))
    clusters, held = tuple(record.clusters), _recorded_admission(record)
    made = _binding_write("record", patch, facts, queue=workload.queue)
    return replace(made, clusters=clusters, held=held)


def _recorded_admission(record: AdmissionRecord | wire.Record | None) -> str:
    """Return where and with which charge a record admits its workload, so that two may be compared."""
    if record is None:
        return ""
    charge = record.charge if isinstance(record, wire.Record) else format_resources(record.charge)
    return f"{sorted(charge.items())} on {sorted(record.clusters)}"


def repair_write(
    remarks: Collection[BindingCondition],
    facts: CachedBinding,
    workload: Workload | None = None,
    *,
    repairs: bool = False,
) -> Write | None:
    """Return what puts right what *remarks* say of a binding, and the *workload* it is; ``None``: nothing must be.

    What slipped past the webhook is paused only where the operator wants *repairs* (D10).
    """
    if BindingCondition.PLACED_WITHOUT_ADMISSION in remarks:
        return _binding_write("clear", patches.clear_clusters(facts), facts)
    if BindingCondition.RESUSPENDED_AFTER_ADMISSION in remarks or BindingCondition.SUSPENDED_BUT_NOT_MANAGED in remarks:
        return _resume_write(facts)
    if BindingCondition.NOT_SUSPENDED in remarks and repairs:
        return _binding_write("pause", patches.suspend_unplaced(facts), facts)
    return _record_repair(remarks, facts, workload)


def _record_repair(
    remarks: Collection[BindingCondition], facts: CachedBinding, workload: Workload | None
) -> Write | None:
    """Return how the record of a binding that waits is put right by what *remarks* say."""
    if BindingCondition.EVICTED_BY_OTHERS in remarks and facts.record is not None:
        record = externally_evicted_record(facts.uid, facts.record, is_placeable=not facts.progress)
        return _binding_write(
            "note", patches.revoke_admission(facts, wire.write_record(record)), facts, queue=record.queue
        )
    if BindingCondition.RETRY_REQUESTED in remarks and facts.record is not None:
        record = requeued_record(facts.uid, facts.record)
        return _binding_write(
            "note", patches.update_pending_record(facts, wire.write_record(record)), facts, queue=record.queue
        )
    if BindingCondition.QUEUE_NOT_RECORDED in remarks and workload is not None:
        record = wire.Record(workload.uid, queue=workload.queue, waiting_since=to_datetime(workload.created_at))
        return _binding_write(
            "note", patches.update_pending_record(facts, wire.write_record(record)), facts, queue=workload.queue
        )
    return None


def _resume_write(facts: CachedBinding) -> Write:
    """Return how a binding goes on where it is; one that has lost its clusters meanwhile would jump the queue."""
    placed_on = facts.targets[0].name if facts.targets else ""
    return _binding_write("resume", patches.resume(facts, placed_on=placed_on), facts)


def _binding_write(effect: Effect, patch: bytes, facts: CachedBinding, *, queue: str = "") -> Write:
    kind, namespace, name = facts.api.kind, facts.template.namespace, facts.template.name
    path = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    return Write(effect, facts.uid, _binding_path(facts), patch, facts.resource_version, path, queue=queue)


def _binding_path(facts: CachedBinding) -> str:
    kind = RESOURCE_BINDINGS if facts.namespace else CLUSTER_RESOURCE_BINDINGS
    return kind.item_path(facts.namespace, facts.name)
