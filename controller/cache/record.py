"""The admission record: one annotation on the binding, which only the controller and the webhook write.

An unreadable record is ignored and reported. A record with the UID of another binding, from a copy or a restored
backup, does not count.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.translate.units import (
    AmountError,
    format_resources,
    parse_resources,
    to_milliseconds,
)
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import EMPTY, Resources

_FIELDS = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder(order="sorted")
_TIMES = (
    "admittedAt",
    "waitingSince",
    "reservedSince",
    "promisedStart",
    "nominatedAt",
    "startupFailedAt",
    "backOffUntil",
    "clustersChangedAt",
)
_AMOUNTS = ("charge", "nominatedRequests")
#: Fields that are written only where they are set.
_OPTIONAL = frozenset(
    {
        "reservedClusters",
        "promisedStart",
        "abortedGeneration",
        "startupFailedAt",
        "backOffUntil",
        "clustersChangedAt",
        "excludedClusters",
    }
)


class AdmissionRecord(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """State of a workload that no other object stores (R2), in the engine's units; times in milliseconds."""

    queue: QueueName = QueueName("")
    charge: Resources = EMPTY
    """Total over all clusters (D6); empty while it is not admitted."""
    clusters: tuple[ClusterName, ...] = ()
    admitted_at: int | None = None
    waiting_since: int | None = None
    reserved_since: int | None = None
    reserved_clusters: Mapping[ClusterName, Resources] | None = None
    """The amounts that are reserved on each cluster (O6)."""
    promised_start: int | None = None
    """When it starts at the latest, as known when capacity was reserved (O9)."""
    nominated_cluster: ClusterName | None = None
    nominated_at: int | None = None
    nomination_rank: int | None = None
    nominated_requests: Resources | None = None
    """Requests for which it was nominated, or for which its capacity is reserved."""
    aborted: bool = False
    aborted_generation: int | None = None
    """Generation of the aborted template; a later generation is retried (D8)."""
    evictions: int = 0
    attempts: int = 0
    """How often it was admitted and evicted without having run (R1)."""
    startup_failed_at: int | None = None
    """When it was last evicted because it had not started itself."""
    back_off_until: int | None = None
    """Until when it is not considered after a failed start."""
    clusters_changed_at: int | None = None
    """When others last changed its clusters; the startup timeout starts then."""
    excluded_clusters: Mapping[ClusterName, str] = MappingProxyType({})
    """Clusters in which it did not start, each with the cluster's fingerprint at that time."""
    plan_id: str = msgspec.field(default="", name="planID")
    """ID of the plan that admitted it, shared by all parts of a HyperJob (G1)."""

    @property
    def admits(self) -> bool:
        """Whether the record says that the workload is admitted; an eviction empties the charge."""
        return bool(self.charge)


def read_record(annotations: Mapping[str, str], uid: str) -> tuple[AdmissionRecord | None, str]:
    """Return the record of the binding *uid* in *annotations*, or why the annotation is not a valid record."""
    text = annotations.get(ADMISSION_ANNOTATION)
    if text is None:
        return None, ""
    try:
        fields = _FIELDS.decode(text)
        owner = msgspec.convert(fields.get("uid"), str)
        if owner != uid:
            return None, f"annotation {ADMISSION_ANNOTATION} was written for another binding, uid {owner[:64]!r}"
        record = _parse(fields)
    except AmountError as error:
        return None, str(error)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return None, f"annotation {ADMISSION_ANNOTATION} is unreadable: {error}"
    if record.evictions < 0 or record.attempts < 0:
        return None, f"annotation {ADMISSION_ANNOTATION} has negative counters"
    return record, ""


def _parse(fields: dict[str, Any]) -> AdmissionRecord:
    for name in _TIMES:
        if fields.get(name) is not None:
            fields[name] = _parse_time(fields[name])
    for name in _AMOUNTS:
        if fields.get(name) is not None:
            fields[name] = _parse_amounts(fields[name], name)
    if reserved := fields.pop("reservedClusters", None):
        fields["reservedClusters"] = {
            name: _parse_amounts(amounts, f"reservedClusters[{name!r}]")
            for name, amounts in msgspec.convert(reserved, dict[str, Any]).items()
        }
    if excluded := fields.pop("excludedClusters", None):
        marks = msgspec.convert(excluded, dict[str, str])
        fields["excludedClusters"] = {sys.intern(name): marks[name] for name in sorted(marks)}
    fields["nominatedCluster"] = fields.get("nominatedCluster") or None
    record = msgspec.convert(fields, AdmissionRecord)
    return msgspec.structs.replace(record, charge=_shared_amounts(tuple(record.charge.items())))


@lru_cache(maxsize=4096)
def _shared_amounts(amounts: tuple[tuple[str, int], ...]) -> Resources:
    """Return *amounts* by name; equal charges share one value."""
    return dict(amounts)


def _parse_time(text: object) -> int | None:
    time = msgspec.convert(text, datetime)
    if time.tzinfo is None:
        raise ValueError("it has a time without a zone; write times like 2006-01-02T15:04:05Z")
    return to_milliseconds(time)


def _parse_amounts(quantities: object, where: str) -> Resources:
    return parse_resources(msgspec.convert(quantities, dict[str, str]), f"the admission record's {where}")


@lru_cache(maxsize=4096)
def _format_time(milliseconds: int) -> str:
    """Return a time in UTC; cached, because all decisions of a plan have the same one."""
    time = datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)
    precision = "milliseconds" if time.microsecond else "seconds"
    return time.isoformat(timespec=precision).replace("+00:00", "Z")


def _format_amounts_by_cluster(amounts: Mapping[ClusterName, Resources]) -> dict[str, dict[str, str]]:
    return {cluster: format_resources(reserved) for cluster, reserved in amounts.items()}


_FORMATS: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(_TIMES, _format_time),
    **dict.fromkeys(_AMOUNTS, format_resources),
    "reservedClusters": _format_amounts_by_cluster,
    "excludedClusters": dict,
}
_DEFAULTS = msgspec.structs.astuple(AdmissionRecord())
_FIELDS_WRITTEN = tuple(
    (field.encode_name, _FORMATS.get(field.encode_name), default, field.encode_name in _OPTIONAL)
    for field, default in zip(msgspec.structs.fields(AdmissionRecord), _DEFAULTS, strict=True)
)
#: The fields of a record without any value; most fields of most records are so.
_UNSET = {
    name: default if convert is None or default is None else convert(default)
    for name, convert, default, is_optional in _FIELDS_WRITTEN
    if not is_optional
}


def write_record(uid: str, record: AdmissionRecord) -> str:
    """Return the canonical text of *record* of the binding *uid*, equal for equal records; times are in UTC."""
    fields: dict[str, object] = {"uid": uid, **_UNSET}
    for (name, convert, default, is_optional), value in zip(
        _FIELDS_WRITTEN, msgspec.structs.astuple(record), strict=True
    ):
        if value is not default and (value or value == 0 or not is_optional):
            fields[name] = value if convert is None or value is None else convert(value)
    return _ENCODER.encode(fields).decode()
