"""Builds the admission records that writes store."""

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import msgspec

from controller.cache.record import AdmissionRecord
from controller.engine.plan import Evict
from controller.engine.reasons import EvictionReason
from controller.engine.state.clusters import Assignment, ClusterName
from controller.engine.state.resources import (
    EMPTY,
    PODS,
    Resources,
    elementwise_max,
    elementwise_min,
    positive,
    scale,
)
from controller.engine.state.workloads import Admission, EvictionHistory, Nomination, Reservation, Workload

#: Charge of an admitted workload without requests: an empty charge would mean that it is not admitted.
_ZERO_CHARGE = {PODS: 0}


def pending_record(
    workload: Workload,
    nomination: Nomination | None,
    reservation: Reservation | None = None,
    *,
    before: AdmissionRecord | None = None,
) -> AdmissionRecord:
    """Return the record of a pending workload, with its nomination or reservation.

    The counters of *before* continue.
    """
    capacity = nomination or reservation
    charges = reservation.cluster_charges if reservation and not nomination else ()
    return AdmissionRecord(
        queue=workload.queue,
        waiting_since=workload.created_at,
        reserved_since=reservation.since if reservation else None,
        reserved_clusters={charge.cluster: positive(charge.charge) for charge in charges} or None,
        promised_start=reservation.promised_start if reservation else None,
        nominated_cluster=nomination.cluster if nomination else None,
        nominated_at=nomination.since if nomination else None,
        nomination_rank=nomination.rank if nomination else None,
        nominated_requests=positive(capacity.requests) if capacity and capacity.requests is not None else None,
        evictions=before.evictions if before else 0,
        attempts=before.attempts if before else 0,
        excluded_clusters=before.excluded_clusters if before else {},
    )


def requeued_record(record: AdmissionRecord) -> AdmissionRecord:
    """Return the record of a workload that becomes pending again, without nomination or reservation.

    Clusters where Karmada may still place it after an eviction stay (P5).
    """
    return AdmissionRecord(
        queue=record.queue,
        waiting_since=record.waiting_since,
        evictions=record.evictions,
        attempts=record.attempts,
        clusters=() if record.admits else record.clusters,
        excluded_clusters=record.excluded_clusters,
        evicted_at=record.evicted_at,
    )


def aborted_record(workload: Workload, *, before: AdmissionRecord | None, generation: int | None) -> AdmissionRecord:
    """Return the record of a pending workload that is aborted; *generation* is that of its template."""
    before = before or AdmissionRecord(workload.queue, waiting_since=workload.created_at)
    return msgspec.structs.replace(requeued_record(before), aborted=True, aborted_generation=generation)


def confirmed_record(
    workload: Workload, admission: Admission, *, before: AdmissionRecord, targets: Sequence[Assignment]
) -> AdmissionRecord:
    """Return the record of an admitted workload with its current clusters and charge.

    Others have changed its clusters, or its resize was accepted.
    """
    return AdmissionRecord(
        queue=workload.queue,
        charge=positive(_charge_to_record(workload, admission, before=before, targets=targets)) or _ZERO_CHARGE,
        clusters=tuple(charge.cluster for charge in admission.cluster_charges),
        admitted_at=before.admitted_at,
        waiting_since=before.waiting_since,
        evictions=before.evictions,
        attempts=before.attempts,
        clusters_changed_at=workload.details.placed_at or None,
        excluded_clusters=before.excluded_clusters,
        raised_by=before.raised_by,
        plan_id=before.plan_id,
        last_phase=before.last_phase,
    )


def _charge_to_record(
    workload: Workload, admission: Admission, *, before: AdmissionRecord, targets: Sequence[Assignment]
) -> Resources:
    """Return the total charge; of a kind with replicas only that of its replicas.

    Its surplus replicas, and those of a divided workload on clusters that it is leaving, are charged only while these
    report them.
    """
    requirements = workload.requirements
    if not requirements.replicas:
        return admission.charge
    counts = [target.replicas for target in targets if target.replicas is not None]
    if requirements.is_divided:
        placed = scale(requirements.replica_requests, sum(counts)) if counts else requirements.requests
        # The targets may be newer than the admission.
        return elementwise_min(elementwise_max(before.charge, placed), admission.charge)
    placed = scale(requirements.replica_requests, max(counts)) if counts else requirements.requests
    largest = reduce(elementwise_max, (charge.charge for charge in admission.cluster_charges), EMPTY)
    copy = elementwise_min(elementwise_max(before.charge_of_copy, placed), largest)
    return scale(copy, len(admission.cluster_charges))


def externally_evicted_record(
    record: AdmissionRecord, *, is_placeable: bool, now: int | None = None
) -> AdmissionRecord:
    """Return the record of a workload that others evicted; *is_placeable*: Karmada may still place it (P5)."""
    return AdmissionRecord(
        queue=record.queue,
        waiting_since=record.waiting_since,
        evictions=record.evictions + 1,
        attempts=record.attempts,
        clusters=record.clusters if is_placeable else (),
        excluded_clusters=record.excluded_clusters,
        evicted_at=now if is_placeable else None,
    )


def evicted_record(
    decision: Evict,
    *,
    before: AdmissionRecord | None,
    excluded_clusters: Mapping[ClusterName, str],
    clusters: tuple[ClusterName, ...] = (),
    generation: int | None = None,
) -> AdmissionRecord:
    """Return the record that an eviction writes; Karmada might still place the workload in *clusters*.

    The counters of *before* continue; failed starts count only since its last run. *generation* is that of the aborted
    template.
    """
    workload, back_off = decision.workload, decision.back_off
    is_aborted = decision.reason is EvictionReason.ABORTED
    past = EvictionHistory(before.evictions, before.attempts) if before else EvictionHistory()
    past = past.after_eviction(
        has_run=decision.has_run, taken_back=back_off is not None, self_caused=decision.reason.is_self_caused
    )
    return AdmissionRecord(
        queue=workload.queue,
        waiting_since=workload.created_at,
        evictions=past.evictions,
        attempts=past.failed_starts,
        clusters=clusters,
        aborted=is_aborted,
        aborted_generation=generation if is_aborted else None,
        startup_failed_at=back_off.since if back_off and back_off.caused_failure else None,
        back_off_until=back_off.until if back_off else None,
        excluded_clusters=excluded_clusters,
    )


def admitted_record(
    workload: Workload,
    admission: Admission,
    *,
    before: AdmissionRecord | None = None,
    plan: str = "",
    excluded_clusters: Mapping[ClusterName, str] = MappingProxyType({}),
) -> AdmissionRecord:
    """Return the record that the admission of *workload* writes; the counters of *before* continue."""
    return AdmissionRecord(
        queue=workload.queue,
        charge=positive(admission.charge) or _ZERO_CHARGE,
        clusters=tuple(charge.cluster for charge in admission.cluster_charges),
        admitted_at=admission.admitted_at,
        waiting_since=workload.created_at,
        evictions=before.evictions if before else 0,
        attempts=before.attempts if before else 0,
        excluded_clusters=excluded_clusters,
        raised_by=admission.raised_by,
        plan_id=plan,
    )
