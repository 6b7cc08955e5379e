"""Entries of a decision log, inputs of the engine and its decisions, as one JSON object per line.

Pure. Scheduling requirements are written once per file, before the first workload that has them, and referenced by
number, because many workloads share them. The line of a plan contains a digest of all lines before it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, Final

import msgspec

from controller.engine.checkpoint import History
from controller.engine.policy import Policy
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadDetails, WorkloadUid
from controller.reporting.decision_log.records import Fields

#: Version of the line format; other versions are rejected.
SCHEMA = 1

_REQUIREMENTS: Final = "requirements"
_DETAILS: Final = "details"
_DIGEST: Final = "digest"
_DIGEST_DIGITS: Final = 16
#: Maximum number of requirements that are referenced by number; after that numbering starts again, to bound memory.
_MAX_REQUIREMENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Header:
    """Start of a file: an empty state, or a state with content up to a `CheckpointEntry`."""

    policy: Policy
    at: int
    version: str = ""
    """Version of the program that writes."""
    identity: str = ""
    """Identity of the process that writes."""
    is_whole: bool = True
    """Whether the state is empty; otherwise its content follows."""
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The operator's policy has changed."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """A queue was created or changed."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """A queue was deleted."""

    name: QueueName


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """A cluster was created or changed."""

    cluster: Cluster
    now: int


@dataclass(frozen=True, slots=True)
class ClusterRemoved:
    """A cluster was deleted."""

    name: ClusterName


@dataclass(frozen=True, slots=True)
class ClusterEstimated:
    """A scheduler estimator has answered a query, or failed to."""

    estimate: Estimate
    now: int


@dataclass(frozen=True, slots=True)
class WorkloadChanged:
    """A workload was created or changed."""

    workload: Workload
    now: int


@dataclass(frozen=True, slots=True)
class WorkloadRemoved:
    """A workload was deleted, or released: it needs no admission any more."""

    uid: WorkloadUid
    now: int
    is_released: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The rest of the state at the start of the file, after its queues and workloads."""

    memory: History
    now: int


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A plan was made; its decisions follow."""

    number: int
    now: int
    most: int | None
    """The maximum number of admissions of this plan."""
    revision: str
    verdicts: int


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """A decision of the preceding plan."""

    fields: Fields


StateChange = (
    PolicyChanged
    | QueueChanged
    | QueueRemoved
    | ClusterChanged
    | ClusterRemoved
    | ClusterEstimated
    | WorkloadChanged
    | WorkloadRemoved
)

Entry = Header | StateChange | CheckpointEntry | PlanEntry | DecisionEntry

_TYPES: Final[dict[str, type[Any]]] = {
    "begin": Header,
    "policy": PolicyChanged,
    "queue": QueueChanged,
    "queue-gone": QueueRemoved,
    "cluster": ClusterChanged,
    "cluster-gone": ClusterRemoved,
    "estimate": ClusterEstimated,
    "workload": WorkloadChanged,
    "workload-gone": WorkloadRemoved,
    "memory": CheckpointEntry,
    "plan": PlanEntry,
    "decision": DecisionEntry,
}

_NAMES: Final = {kind: name for name, kind in _TYPES.items()}

#: Types of lines with a digest of the lines before them.
_DIGESTED: Final = frozenset({_NAMES[PlanEntry], _DIGEST})


def _default_value(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


_WORKLOAD_DEFAULTS: Final = {
    field.name: _default_value(field) for field in fields(Workload) if field.name not in (_REQUIREMENTS, _DETAILS)
}

#: A line has the details of a workload in addition to its other fields.
_DETAILS_DEFAULTS: Final = {field.name: _default_value(field) for field in fields(WorkloadDetails)}


class LineError(ValueError):
    """A line that is not part of a decision log; the message says why."""


class EntryEncoder:
    """Encodes the lines of one file."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_encode_mapping)
        self._requirements: dict[int, tuple[int, SchedulingRequirements]] = {}
        """Number of each requirements object by its id; the reference keeps the id unique."""
        self._numbered = 0
        self._digest = hashlib.sha256()
        self._is_digested = True

    def digest_line(self) -> Iterator[bytes]:
        """Yield a line with the digest of all lines before it, unless there are no new ones."""
        if not self._is_digested:
            yield self._line({"type": _DIGEST, _DIGEST: self._digest.hexdigest()[:_DIGEST_DIGITS]})
            self._is_digested = True

    def encode(self, entry: Entry) -> Iterator[bytes]:
        """Yield the lines of *entry*."""
        if isinstance(entry, WorkloadChanged):
            requirements = entry.workload.requirements
            if id(requirements) not in self._requirements:
                yield self._line({"type": _REQUIREMENTS, "number": self._numbered, _REQUIREMENTS: requirements})
                self._number_requirements(requirements)
            number = self._requirements[id(requirements)][0]
            yield self._line(
                {"type": "workload", "now": entry.now, "workload": _encode_workload(entry.workload, number)}
            )
        elif isinstance(entry, DecisionEntry):
            yield self._line({"type": "decision", **entry.fields})
        else:
            values = {field.name: getattr(entry, field.name) for field in fields(entry)}
            digest = {_DIGEST: self._digest.hexdigest()[:_DIGEST_DIGITS]} if isinstance(entry, PlanEntry) else {}
            yield self._line({"type": _NAMES[type(entry)], **values, **digest})

    def _number_requirements(self, requirements: SchedulingRequirements) -> None:
        if len(self._requirements) >= _MAX_REQUIREMENTS:
            self._requirements.clear()
        self._requirements[id(requirements)] = self._numbered, requirements
        self._numbered += 1

    def _line(self, value: dict[str, Any]) -> bytes:
        line = self._encoder.encode(value) + b"\n"
        self._digest.update(line)
        self._is_digested = False
        return line


def _encode_workload(workload: Workload, number: int) -> dict[str, Any]:
    """Return the fields of *workload* that differ from their defaults."""
    encoded: dict[str, Any] = {_REQUIREMENTS: number}
    for source, defaults in ((workload, _WORKLOAD_DEFAULTS), (workload.details, _DETAILS_DEFAULTS)):
        for name, default in defaults.items():
            value = getattr(source, name)
            if value != default:
                encoded[name] = value
    return encoded


def _encode_mapping(value: object) -> object:
    """Return a dict for a mapping of another type."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be written")


class EntryDecoder:
    """Decodes the lines of one file."""

    def __init__(self) -> None:
        self.is_intact = True
        """Whether all digests so far match their lines."""
        self._requirements: dict[int, SchedulingRequirements] = {}
        self._digest = hashlib.sha256()

    def decode(self, line: bytes) -> Entry | None:
        """Return the entry in *line*, ``None`` for requirements and digests; raise ``LineError`` if it is invalid."""
        try:
            value = msgspec.json.decode(line)
            if not isinstance(value, dict):
                raise LineError("it is not a JSON object")
            if isinstance(value.get("type"), str) and value["type"] in _DIGESTED:
                self.is_intact &= value.get(_DIGEST) == self._digest.hexdigest()[:_DIGEST_DIGITS]
            self._digest.update(line)
            return self._entry(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            is_invalid_field = isinstance(error, msgspec.ValidationError)
            raise LineError(str(error) if is_invalid_field else "it is not JSON") from error

    def _entry(self, value: dict[str, Any]) -> Entry | None:
        name = value.pop("type", None)
        if name is None:
            raise LineError("it has no type, so this is no decision log of a controller")
        if name == _DIGEST:
            return None
        if name == _REQUIREMENTS:
            self._requirements[msgspec.convert(value.get("number"), int)] = msgspec.convert(
                value.get(_REQUIREMENTS), SchedulingRequirements
            )
            return None
        if not isinstance(name, str) or name not in _TYPES:
            raise LineError(f"type {name!r} is not known")
        if name == "decision":
            return DecisionEntry(value)
        if name == "workload":
            return self._workload(value)
        entry: Entry = msgspec.convert(value, _TYPES[name])
        return entry

    def _workload(self, value: dict[str, Any]) -> WorkloadChanged:
        encoded = value.get("workload")
        number = encoded.pop(_REQUIREMENTS, None) if isinstance(encoded, dict) else None
        requirements = self._requirements.get(number) if isinstance(number, int) else None
        if requirements is None or not isinstance(encoded, dict):
            raise LineError(f"requirements {number!r} are not defined before this line")
        details = {name: encoded.pop(name) for name in _DETAILS_DEFAULTS if name in encoded}
        decoded: WorkloadChanged = msgspec.convert(
            {**value, "workload": {**encoded, _REQUIREMENTS: {}, _DETAILS: details}}, WorkloadChanged
        )
        workload = decoded.workload
        workload = replace(workload, requirements=requirements, details=workload.details.shared())
        return WorkloadChanged(workload, decoded.now)
