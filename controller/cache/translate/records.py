"""The admission record in the engine's units, and the record that an admission writes."""

import sys
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from controller.api import record as wire
from controller.cache.facts import Record
from controller.cache.translate.amounts import AmountError, amounts, milliseconds, moment, quantities
from controller.engine.clusters import ClusterName
from controller.engine.plan import Evict
from controller.engine.queues import QueueName
from controller.engine.reasons import EvictionReason
from controller.engine.resources import EMPTY, PODS, Resources, positive
from controller.engine.workloads import Admission, EvictionHistory, Nomination, Reservation, Workload

#: Marks the admission of a workload that asks for nothing: an empty charge would say that there is none.
_NOTHING = {PODS: 0}


def record_facts(reading: wire.Reading) -> tuple[Record | None, str]:
    """Return the record that a binding carries, or why what looks like one is none."""
    if reading.record is None:
        return None, reading.flaw
    try:
        return _facts(reading.record), ""
    except AmountError as error:
        return None, str(error)


def _facts(record: wire.Record) -> Record:
    return Record(
        queue=QueueName(record.queue),
        charge=_amounts(record.charge, "charge") or EMPTY,
        clusters=tuple(ClusterName(name) for name in record.clusters),
        admitted_at=milliseconds(record.admitted_at),
        waiting_since=milliseconds(record.waiting_since),
        reserved_since=milliseconds(record.reserved_since),
        held_cluster=ClusterName(record.held_cluster) if record.held_cluster else None,
        held_clusters=_by_cluster(record.held_clusters),
        held_since=milliseconds(record.held_since),
        held_rank=record.held_rank,
        held_demand=_amounts(record.held_demand, "heldDemand"),
        aborted=record.aborted,
        aborted_generation=record.aborted_generation if isinstance(record.aborted_generation, int) else None,
        evictions=record.evictions,
        attempts=record.attempts,
        not_started_at=_time(record.not_started_at),
        back_off_until=_time(record.back_off_until),
        clusters_changed_at=_time(record.clusters_changed_at),
        left_out=_marks(record.left_out),
        plan=record.plan,
    )


def _time(written: datetime | msgspec.UnsetType) -> int | None:
    return milliseconds(written) if isinstance(written, datetime) else None


def _marks(written: Mapping[str, str] | msgspec.UnsetType) -> tuple[tuple[ClusterName, str], ...]:
    marks = {} if isinstance(written, msgspec.UnsetType) else written
    return tuple((ClusterName(sys.intern(name)), mark) for name, mark in sorted(marks.items()))


def _amounts(texts: wire.Amounts | None, where: str) -> Resources | None:
    return None if texts is None else amounts(dict(texts), f"the admission record's {where}")


def _by_cluster(written: Mapping[str, wire.Amounts] | msgspec.UnsetType) -> dict[ClusterName, Resources] | None:
    if isinstance(written, msgspec.UnsetType):
        return None
    found = {ClusterName(name): _amounts(texts, f"heldClusters[{name!r}]") or EMPTY for name, texts in written.items()}
    return found or None


def noting(
    workload: Workload, held: Nomination | None, reserved: Reservation | None = None, *, before: Record | None = None
) -> wire.Record:
    """Return the record of a workload that waits, with what is *held* for it in an exchange, or *reserved* for it.

    What *before* counts is counted on.
    """
    kept = held or reserved
    rooms = reserved.rooms if reserved and not held else ()
    clusters = [held.cluster] if held else [each.cluster for each in rooms]
    several = rooms if len(rooms) > 1 else ()
    return wire.Record(
        uid=workload.uid,
        queue=workload.queue,
        waiting_since=moment(workload.since),
        reserved_since=moment(reserved.since) if reserved else None,
        held_cluster=clusters[0] if len(clusters) == 1 else None,
        held_clusters={each.cluster: quantities(positive(each.charge)) for each in several} or msgspec.UNSET,
        held_since=moment(held.since if held else None),
        held_rank=held.rank if held else None,
        held_demand=quantities(positive(kept.demand)) if kept and kept.demand is not None else None,
        evictions=before.evictions if before else 0,
        attempts=before.attempts if before else 0,
        left_out=_written(dict(before.left_out) if before else {}),
    )


def waiting(uid: str, record: Record) -> wire.Record:
    """Return the record of one that waits like any other from now on, whatever it was before."""
    return wire.Record(
        uid=uid,
        queue=record.queue,
        waiting_since=moment(record.waiting_since),
        evictions=record.evictions,
        attempts=record.attempts,
        left_out=_written(dict(record.left_out)),
    )


def confirming(workload: Workload, admission: Admission, *, before: Record) -> wire.Record:
    """Return the record of an admitted workload with the clusters and the charge that it has now.

    Others have changed its clusters, or its growth was accepted.
    """
    return wire.Record(
        uid=workload.uid,
        queue=workload.queue,
        charge=quantities(positive(admission.charge) or _NOTHING),
        clusters=tuple(booking.cluster for booking in admission.bookings),
        admitted_at=moment(before.admitted_at),
        waiting_since=moment(before.waiting_since),
        evictions=before.evictions,
        attempts=before.attempts,
        clusters_changed_at=_moment(workload.placed_at),
        left_out=_written(dict(before.left_out)),
        plan=before.plan,
    )


def revoked(uid: str, record: Record, *, is_placeable: bool) -> wire.Record:
    """Return the record of one that others have evicted; where *is_placeable*, Karmada may still place it (P5)."""
    return wire.Record(
        uid=uid,
        queue=record.queue,
        waiting_since=moment(record.waiting_since),
        evictions=record.evictions + 1,
        attempts=record.attempts,
        clusters=tuple(record.clusters) if is_placeable else (),
        left_out=_written(dict(record.left_out)),
    )


def evicting(
    decision: Evict,
    *,
    before: Record | None,
    left_out: Mapping[ClusterName, str],
    clusters: tuple[ClusterName, ...] = (),
    generation: int | None = None,
) -> wire.Record:
    """Return the record that goes with an eviction; Karmada might still place it in *clusters*.

    What *before* counts is counted on; of starts that failed only those since
    it has last run. *generation* is that of a template that was aborted.
    """
    workload, back_off = decision.workload, decision.back_off
    is_aborted = decision.reason is EvictionReason.ABORTED
    past = EvictionHistory(before.evictions, before.attempts) if before else EvictionHistory()
    past = past.once_gone(has_run=workload.has_run, taken_back=back_off is not None)
    return wire.Record(
        uid=workload.uid,
        queue=workload.queue,
        waiting_since=moment(workload.since),
        evictions=past.evictions,
        attempts=past.attempts,
        clusters=clusters,
        aborted=is_aborted,
        aborted_generation=generation if is_aborted and generation is not None else msgspec.UNSET,
        not_started_at=_moment(back_off.since if back_off and back_off.is_at_fault else None),
        back_off_until=_moment(back_off.until if back_off else None),
        left_out=_written(left_out),
    )


def _moment(time: int | None) -> datetime | msgspec.UnsetType:
    return moment(time) or msgspec.UNSET


def _written(left_out: Mapping[ClusterName, str]) -> dict[str, str] | msgspec.UnsetType:
    return {str(name): mark for name, mark in left_out.items()} or msgspec.UNSET


def admitting(
    workload: Workload,
    admission: Admission,
    *,
    before: Record | None = None,
    plan: str = "",
    left_out: Mapping[ClusterName, str] = MappingProxyType({}),
) -> wire.Record:
    """Return the record that goes with the admission of *workload*; what *before* counts is counted on."""
    return wire.Record(
        uid=workload.uid,
        queue=workload.queue,
        charge=quantities(positive(admission.charge) or _NOTHING),
        clusters=tuple(booking.cluster for booking in admission.bookings),
        admitted_at=moment(admission.admitted_at),
        waiting_since=moment(workload.since),
        evictions=before.evictions if before else 0,
        attempts=before.attempts if before else 0,
        left_out=_written(left_out),
        plan=plan,
    )
