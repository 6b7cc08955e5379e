"""The admission record: one annotation on the binding, which only the controller writes.

An unreadable record is ignored and reported. A record with the UID of another binding, from a copy or a restored
backup, does not count.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

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
    "evictedAt",
)
#: Characters of the names of amounts that are cached.
_MAX_CACHED_NAMES = 1024
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
        "raisedBy",
        "lastPhase",
        "evictedAt",
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
    raised_by: int = 0
    """By how much its job priority was raised when it was admitted, where older workloads raised it, too (O10)."""
    plan_id: str = msgspec.field(default="", name="planID")
    """ID of the plan that admitted it, shared by all parts of a HyperJob (G1)."""
    last_phase: str = ""
    """Its last known phase, while its Work cannot be applied: Waiting, Running or Finished (R1)."""
    evicted_at: int | None = None
    """When it was evicted before Karmada had placed it on its clusters; it may still do so (P5)."""

    @property
    def admits(self) -> bool:
        """Whether the record says that the workload is admitted; an eviction empties the charge."""
        return bool(self.charge)

    @property
    def charge_of_copy(self) -> Resources:
        """The charge of each copy of a workload that is not divided, rounded up."""
        copies = max(len(self.clusters), 1)
        return {name: -(-amount // copies) for name, amount in self.charge.items()}


def read_record(annotations: Mapping[str, str], uid: str) -> tuple[AdmissionRecord | None, str]:
    """Return the record of the binding *uid* in *annotations*, or why the annotation is not a valid record."""
    text = annotations.get(ADMISSION_ANNOTATION)
    if text is None:
        return None, ""
    try:
        document = _DOCUMENTS.decode(text)
        owner, *values = msgspec.structs.astuple(document)
        if owner != uid:
            return None, f"annotation {ADMISSION_ANNOTATION} was written for another binding, uid {owner[:64]!r}"
        for place, parse, default in _PARSED:
            if values[place] is not default:
                values[place] = parse(values[place])
    except AmountError as error:
        return None, str(error)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return None, f"annotation {ADMISSION_ANNOTATION} is unreadable: {error}"
    record = AdmissionRecord(*values)
    if record.evictions < 0 or record.attempts < 0:
        return None, f"annotation {ADMISSION_ANNOTATION} has negative counters"
    return record, ""


def _parse_amounts(quantities: Mapping[str, str], where: str) -> Resources:
    shared = _shared_amounts if _are_short((where, *quantities)) else _shared_amounts.__wrapped__
    return shared(tuple(quantities.items()), where)


@lru_cache(maxsize=4096)
def _shared_amounts(quantities: tuple[tuple[str, str], ...], where: str) -> Resources:
    """Return *quantities* in base units, by name; equal charges share one value."""
    return parse_resources(dict(quantities), f"the admission record's {where}")


def _format_amounts(amounts: Resources) -> Mapping[str, str]:
    return (_shared_quantities if _are_short(amounts) else _shared_quantities.__wrapped__)(tuple(amounts.items()))


@lru_cache(maxsize=4096)
def _shared_quantities(amounts: tuple[tuple[str, int], ...]) -> Mapping[str, str]:
    return format_resources(dict(amounts))


def _are_short(names: Iterable[str]) -> bool:
    """Return whether amounts with these names may be cached; thousands of very long ones would exhaust the memory."""
    return sum(map(len, names)) <= _MAX_CACHED_NAMES


def _parse_reserved(amounts: Mapping[str, Mapping[str, str]]) -> dict[str, Resources] | None:
    return {name: _parse_amounts(reserved, f"reservedClusters[{name!r}]") for name, reserved in amounts.items()} or None


def _format_reserved(amounts: Mapping[ClusterName, Resources]) -> dict[str, Mapping[str, str]]:
    return {cluster: _format_amounts(reserved) for cluster, reserved in amounts.items()}


def _parse_excluded(fingerprints: Mapping[str, str]) -> dict[str, str]:
    return {sys.intern(name): fingerprints[name] for name in sorted(fingerprints)}


@lru_cache(maxsize=4096)
def _format_time(milliseconds: int) -> str:
    """Return a time in UTC; cached, because all decisions of a plan have the same one."""
    time = datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)
    precision = "milliseconds" if time.microsecond else "seconds"
    return time.isoformat(timespec=precision).replace("+00:00", "Z")


class _Form(NamedTuple):
    """How the annotation writes a field whose value is not that of the record."""

    type: Any
    parse: Callable[[Any], object]
    format: Callable[[Any], object]


_FORMS: Mapping[str, _Form] = {
    **dict.fromkeys(_TIMES, _Form(Annotated[datetime, msgspec.Meta(tz=True)] | None, to_milliseconds, _format_time)),
    "charge": _Form(dict[str, str], partial(_parse_amounts, where="charge"), _format_amounts),
    "nominatedRequests": _Form(
        dict[str, str] | None, partial(_parse_amounts, where="nominatedRequests"), _format_amounts
    ),
    "reservedClusters": _Form(dict[str, dict[str, str]] | None, _parse_reserved, _format_reserved),
    "excludedClusters": _Form(dict[str, str], _parse_excluded, dict),
    "nominatedCluster": _Form(ClusterName | None, lambda name: name or None, str),
}
_FIELDS = msgspec.structs.fields(AdmissionRecord)
_DEFAULTS = msgspec.structs.astuple(AdmissionRecord())
_RECORD_FIELDS = tuple(
    (field.encode_name, _FORMS.get(field.encode_name), default)
    for field, default in zip(_FIELDS, _DEFAULTS, strict=True)
)
"""The fields of a record in their order: name in the annotation, form and default."""
_DOCUMENT_FIELDS = [
    (field.name, form.type if form else field.type, msgspec.field(default=default, name=name))
    for field, (name, form, default) in zip(_FIELDS, _RECORD_FIELDS, strict=True)
]
_DOCUMENTS = msgspec.json.Decoder(msgspec.defstruct("_Document", [("uid", str), *_DOCUMENT_FIELDS]))
_PARSED = tuple((place, form.parse, default) for place, (_, form, default) in enumerate(_RECORD_FIELDS) if form)
_UNSET = {
    name: default if form is None or default is None else form.format(default)
    for name, form, default in _RECORD_FIELDS
    if name not in _OPTIONAL
}
"""The fields of a record without any value; most fields of most records are so."""


def write_record(uid: str, record: AdmissionRecord) -> str:
    """Return the canonical text of *record* of the binding *uid*, equal for equal records; times are in UTC."""
    fields: dict[str, object] = {"uid": uid, **_UNSET}
    for (name, form, default), value in zip(_RECORD_FIELDS, msgspec.structs.astuple(record), strict=True):
        if value is not default and (value or value == 0 or name not in _OPTIONAL):
            fields[name] = value if form is None or value is None else form.format(value)
    return _ENCODER.encode(fields).decode()
