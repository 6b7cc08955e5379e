"""Translates admission records into the engine's units, and builds the records that writes store."""

import sys
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from controller.api import record as wire
from controller.cache.objects import AdmissionRecord
from controller.cache.translate.units import (
    AmountError,
    format_resources,
    parse_resources,
    to_datetime,
    to_milliseconds,
)
from controller.engine.plan import Evict
from controller.engine.reasons import EvictionReason
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import EMPTY, PODS, Resources, positive
from controller.engine.state.workloads import Admission, EvictionHistory, Nomination, Reservation, Workload

#: Charge of an admitted workload without requests: an empty charge would mean that it is not admitted.
_ZERO_CHARGE = {PODS: 0}


def translate_record(reading: wire.RecordResult) -> tuple[AdmissionRecord | None, str]:
    """Return the record of a binding, or why its annotation is not a valid record."""
    if reading.record is None:
        return None, reading.error
    try:
        return _translate(reading.record), ""
    except AmountError as error:
        return None, str(error)


def _translate(record: wire.Record) -> AdmissionRecord:
    return AdmissionRecord(
        queue=QueueName(record.queue),
        charge=_parse_resources(record.charge, "charge") or EMPTY,
        clusters=tuple(ClusterName(name) for name in record.clusters),
        admitted_at=to_milliseconds(record.admitted_at),
        waiting_since=to_milliseconds(record.waiting_since),
        reserved_since=to_milliseconds(record.reserved_since),
        nominated_cluster=ClusterName(record.nominated_cluster) if record.nominated_cluster else None,
        reserved_clusters=_by_cluster(record.reserved_clusters),
        nominated_at=to_milliseconds(record.nominated_at),
        nomination_rank=record.nomination_rank,
        nominated_requests=_parse_resources(record.nominated_requests, "nominatedRequests"),
        aborted=record.aborted,
        aborted_generation=record.aborted_generation if isinstance(record.aborted_generation, int) else None,
        evictions=record.evictions,
        attempts=record.attempts,
        startup_failed_at=_optional_milliseconds(record.startup_failed_at),
        back_off_until=_optional_milliseconds(record.back_off_until),
        clusters_changed_at=_optional_milliseconds(record.clusters_changed_at),
        excluded_clusters=_fingerprints(record.excluded_clusters),
        plan_id=record.plan_id,
    )


def _optional_milliseconds(written: datetime | msgspec.UnsetType) -> int | None:
    return to_milliseconds(written) if isinstance(written, datetime) else None


def _fingerprints(written: Mapping[str, str] | msgspec.UnsetType) -> tuple[tuple[ClusterName, str], ...]:
    marks = {} if isinstance(written, msgspec.UnsetType) else written
    return tuple((ClusterName(sys.intern(name)), mark) for name, mark in sorted(marks.items()))


def _parse_resources(texts: wire.Amounts | None, where: str) -> Resources | None:
    return None if texts is None else parse_resources(dict(texts), f"the admission record's {where}")


def _by_cluster(written: Mapping[str, wire.Amounts] | msgspec.UnsetType) -> dict[ClusterName, Resources] | None:
    if isinstance(written, msgspec.UnsetType):
        return None
    found = {
        ClusterName(name): _parse_resources(texts, f"reservedClusters[{name!r}]") or EMPTY
        for name, texts in written.items()
    }
    return found or None


def pending_record(
    workload: Workload,
    nomination: Nomination | None,
    reservation: Reservation | None = None,
    *,
    before: AdmissionRecord | None = None,
) -> wire.Record:
    """Return the record of a pending workload, with its nomination or reservation.

    The counters of *before* continue.
    """
    capacity = nomination or reservation
    charges = reservation.cluster_charges if reservation and not nomination else ()
    return wire.Record(
        uid=workload.uid,
        queue=workload.queue,
        waiting_since=to_datetime(workload.created_at),
        reserved_since=to_datetime(reservation.since) if reservation else None,
        reserved_clusters={charge.cluster: format_resources(positive(charge.charge)) for charge in charges}
        or msgspec.UNSET,
        nominated_cluster=nomination.cluster if nomination else None,
        nominated_at=to_datetime(nomination.since if nomination else None),
        nomination_rank=nomination.rank if nomination else None,
        nominated_requests=format_resources(positive(capacity.requests))
        if capacity and capacity.requests is not None
        else None,
        evictions=before.evictions if before else 0,
        attempts=before.attempts if before else 0,
        excluded_clusters=_format_exclusions(dict(before.excluded_clusters) if before else {}),
    )


def requeued_record(uid: str, record: AdmissionRecord) -> wire.Record:
    """Return the record of a workload that becomes pending again, without nomination or reservation."""
    return wire.Record(
        uid=uid,
        queue=record.queue,
        waiting_since=to_datetime(record.waiting_since),
        evictions=record.evictions,
        attempts=record.attempts,
        excluded_clusters=_format_exclusions(dict(record.excluded_clusters)),
    )


def confirmed_record(workload: Workload, admission: Admission, *, before: AdmissionRecord) -> wire.Record:
    """Return the record of an admitted workload with its current clusters and charge.

    Others have changed its clusters, or its resize was accepted.
    """
    return wire.Record(
        uid=workload.uid,
        queue=workload.queue,
        charge=format_resources(positive(admission.charge) or _ZERO_CHARGE),
        clusters=tuple(booking.cluster for booking in admission.cluster_charges),
        admitted_at=to_datetime(before.admitted_at),
        waiting_since=to_datetime(before.waiting_since),
        evictions=before.evictions,
        attempts=before.attempts,
        clusters_changed_at=_optional_datetime(workload.placed_at),
        excluded_clusters=_format_exclusions(dict(before.excluded_clusters)),
        plan_id=before.plan_id,
    )


def externally_evicted_record(uid: str, record: AdmissionRecord, *, is_placeable: bool) -> wire.Record:
    """Return the record of a workload that others evicted; *is_placeable*: Karmada may still place it (P5)."""
    return wire.Record(
        uid=uid,
        queue=record.queue,
        waiting_since=to_datetime(record.waiting_since),
        evictions=record.evictions + 1,
        attempts=record.attempts,
        clusters=tuple(record.clusters) if is_placeable else (),
        excluded_clusters=_format_exclusions(dict(record.excluded_clusters)),
    )


def evicted_record(
    decision: Evict,
    *,
    before: AdmissionRecord | None,
    excluded_clusters: Mapping[ClusterName, str],
    clusters: tuple[ClusterName, ...] = (),
    generation: int | None = None,
) -> wire.Record:
    """Return the record that an eviction writes; Karmada might still place the workload in *clusters*.

    The counters of *before* continue; failed starts count only since its last run. *generation* is that of the aborted
    template.
    """
    workload, back_off = decision.workload, decision.back_off
    is_aborted = decision.reason is EvictionReason.ABORTED
    past = EvictionHistory(before.evictions, before.attempts) if before else EvictionHistory()
    past = past.after_eviction(has_run=workload.has_run, taken_back=back_off is not None)
    return wire.Record(
        uid=workload.uid,
        queue=workload.queue,
        waiting_since=to_datetime(workload.created_at),
        evictions=past.evictions,
        attempts=past.failed_starts,
        clusters=clusters,
        aborted=is_aborted,
        aborted_generation=generation if is_aborted and generation is not None else msgspec.UNSET,
        startup_failed_at=_optional_datetime(back_off.since if back_off and back_off.caused_failure else None),
        back_off_until=_optional_datetime(back_off.until if back_off else None),
        excluded_clusters=_format_exclusions(excluded_clusters),
    )


def _optional_datetime(time: int | None) -> datetime | msgspec.UnsetType:
    return to_datetime(time) or msgspec.UNSET


def _format_exclusions(excluded_clusters: Mapping[ClusterName, str]) -> dict[str, str] | msgspec.UnsetType:
    return {str(name): mark for name, mark in excluded_clusters.items()} or msgspec.UNSET


def admitted_record(
    workload: Workload,
    admission: Admission,
    *,
    before: AdmissionRecord | None = None,
    plan: str = "",
    excluded_clusters: Mapping[ClusterName, str] = MappingProxyType({}),
) -> wire.Record:
    """Return the record that the admission of *workload* writes; the counters of *before* continue."""
    return wire.Record(
        uid=workload.uid,
        queue=workload.queue,
        charge=format_resources(positive(admission.charge) or _ZERO_CHARGE),
        clusters=tuple(booking.cluster for booking in admission.cluster_charges),
        admitted_at=to_datetime(admission.admitted_at),
        waiting_since=to_datetime(workload.created_at),
        evictions=before.evictions if before else 0,
        attempts=before.attempts if before else 0,
        excluded_clusters=_format_exclusions(excluded_clusters),
        plan_id=plan,
    )
