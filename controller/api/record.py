"""The admission record: one annotation on the binding, which only the controller and the webhook write.

An unreadable record is ignored and reported. A record with the UID of another binding, from a copy or a restored
backup, does not count.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from controller.api.keys import ADMISSION_ANNOTATION

Amounts = dict[str, str]


class Record(msgspec.Struct, rename="camel", frozen=True, omit_defaults=False):
    """State of a workload that no other object stores (R2)."""

    uid: str
    """UID of its binding."""
    queue: str = ""
    charge: Amounts = msgspec.field(default_factory=dict)
    """Total over all clusters (D6); empty while it is not admitted."""
    clusters: tuple[str, ...] = ()
    admitted_at: datetime | None = None
    waiting_since: datetime | None = None
    reserved_since: datetime | None = None
    reserved_clusters: dict[str, Amounts] | msgspec.UnsetType = msgspec.UNSET
    """The amounts that are reserved on each cluster (O6)."""
    nominated_cluster: str | None = None
    nominated_at: datetime | None = None
    nomination_rank: int | None = None
    nominated_requests: Amounts | None = None
    """Requests for which it was nominated, or for which its capacity is reserved."""
    aborted: bool = False
    aborted_generation: int | msgspec.UnsetType = msgspec.UNSET
    """Generation of the aborted template; a later generation is retried (D8)."""
    evictions: int = 0
    attempts: int = 0
    """How often it was admitted and evicted without having run (R1)."""
    startup_failed_at: datetime | msgspec.UnsetType = msgspec.UNSET
    """When it was last evicted because it had not started itself."""
    back_off_until: datetime | msgspec.UnsetType = msgspec.UNSET
    """Until when it is not considered after a failed start."""
    clusters_changed_at: datetime | msgspec.UnsetType = msgspec.UNSET
    """When others last changed its clusters; the startup timeout starts then."""
    excluded_clusters: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Clusters in which it did not start, each with the cluster's fingerprint at that time."""
    plan_id: str = msgspec.field(default="", name="planID")
    """ID of the plan that admitted it, shared by all parts of a HyperJob (G1)."""


class RecordResult(msgspec.Struct, frozen=True):
    """The record in an annotation, or why the annotation is not a valid record."""

    record: Record | None = None
    error: str = ""


NO_RECORD = RecordResult()

_RECORD = msgspec.json.Decoder(Record)
_ENCODER = msgspec.json.Encoder(order="sorted")
_FIELD_NAMES = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(Record))


def read_record(annotations: Mapping[str, str], uid: str) -> RecordResult:
    """Return the record in *annotations*, if it is the record of the binding *uid*."""
    text = annotations.get(ADMISSION_ANNOTATION)
    if text is None:
        return NO_RECORD
    try:
        record = _RECORD.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return RecordResult(error=f"annotation {ADMISSION_ANNOTATION} is unreadable: {error}")
    violation = _violation(record, uid)
    return RecordResult(error=violation) if violation else RecordResult(record)


def write_record(record: Record) -> str:
    """Return the canonical text of *record*, equal for equal records; times are in UTC."""
    values = ((written, getattr(record, name)) for name, written in _FIELD_NAMES)
    return _ENCODER.encode(
        {name: _format_value(value) for name, value in values if value is not msgspec.UNSET}
    ).decode()


def _violation(record: Record, uid: str) -> str:
    if record.uid != uid:
        return f"annotation {ADMISSION_ANNOTATION} was written for another binding, uid {record.uid[:64]!r}"
    if record.evictions < 0 or record.attempts < 0:
        return f"annotation {ADMISSION_ANNOTATION} has negative counters"
    if any(time.tzinfo is None for time in _times(record)):
        return f"annotation {ADMISSION_ANNOTATION} has a time without a zone; write times like 2006-01-02T15:04:05Z"
    return ""


def _times(record: Record) -> list[datetime]:
    times = (
        *(record.admitted_at, record.waiting_since, record.reserved_since, record.nominated_at),
        *(record.startup_failed_at, record.back_off_until, record.clusters_changed_at),
    )
    return [time for time in times if isinstance(time, datetime)]


def _format_value(value: object) -> object:
    if not isinstance(value, datetime):
        return value
    precision = "milliseconds" if value.microsecond else "seconds"
    return value.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
