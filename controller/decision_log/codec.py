"""How entries are written, one JSON object a line, and read again.

Pure. A shape is written once in each file, before the first workload that has
it, and known by its number from then on: a hundred thousand workloads have few.
The line of a plan bears a digest of all lines before it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any, Final

import msgspec

from controller.decision_log.entries import (
    CheckpointEntry,
    ClusterChanged,
    ClusterEstimated,
    ClusterRemoved,
    DecisionEntry,
    Entry,
    Header,
    PlanEntry,
    PolicyChanged,
    QueueChanged,
    QueueRemoved,
    WorkloadChanged,
    WorkloadRemoved,
)
from controller.engine.workloads import SchedulingRequirements, Workload

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
_REQUIREMENTS: Final = "requirements"
_DIGEST: Final = "digest"
_DIGEST_DIGITS: Final = 16
#: So many shapes are known by their numbers at a time; after that they are written anew, and not kept for nobody.
_MAX_SHAPES: Final = 10_000


def _default_value(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


_WORKLOAD_DEFAULTS: Final = {each.name: _default_value(each) for each in fields(Workload) if each.name != _REQUIREMENTS}


class LineError(ValueError):
    """A line that is none of ours; the message says why."""


class EntryEncoder:
    """Writes the lines of one file."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_encode_mapping)
        self._shapes: dict[int, tuple[int, SchedulingRequirements]] = {}
        """The number of each shape by its id, which stays its own while it is kept here."""
        self._numbered = 0
        self._digest = hashlib.sha256()

    def encode(self, entry: Entry) -> Iterator[bytes]:
        """Yield what *entry* is written as."""
        if isinstance(entry, WorkloadChanged):
            shape = entry.workload.requirements
            if id(shape) not in self._shapes:
                yield self._line({"type": _REQUIREMENTS, "number": self._numbered, _REQUIREMENTS: shape})
                self._number_shape(shape)
            number = self._shapes[id(shape)][0]
            yield self._line(
                {"type": "workload", "now": entry.now, "workload": _encode_workload(entry.workload, number)}
            )
        elif isinstance(entry, DecisionEntry):
            yield self._line({"type": "decision", **entry.fields})
        else:
            values = {each.name: getattr(entry, each.name) for each in fields(entry)}
            digest = {_DIGEST: self._digest.hexdigest()[:_DIGEST_DIGITS]} if isinstance(entry, PlanEntry) else {}
            yield self._line({"type": _NAMES[type(entry)], **values, **digest})

    def _number_shape(self, shape: SchedulingRequirements) -> None:
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[id(shape)] = self._numbered, shape
        self._numbered += 1

    def _line(self, value: dict[str, Any]) -> bytes:
        line = self._encoder.encode(value) + b"\n"
        self._digest.update(line)
        return line


def _encode_workload(workload: Workload, shape: int) -> dict[str, Any]:
    """Return all of *workload* that is not as usual."""
    found: dict[str, Any] = {_REQUIREMENTS: shape}
    for name, usual in _WORKLOAD_DEFAULTS.items():
        value = getattr(workload, name)
        if value != usual:
            found[name] = value
    return found


def _encode_mapping(value: object) -> object:
    """Return what JSON can hold in place of a mapping that is no dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be written")


class EntryDecoder:
    """Reads the lines of one file."""

    def __init__(self) -> None:
        self.is_intact = True
        """Whether all is as it was written, as far as plans have told."""
        self._shapes: dict[int, SchedulingRequirements] = {}
        self._digest = hashlib.sha256()

    def decode(self, line: bytes) -> Entry | None:
        """Return what *line* says, ``None`` for a shape; raise ``LineError`` for what is no line of ours."""
        try:
            value = msgspec.json.decode(line)
            if not isinstance(value, dict):
                raise LineError("it is no JSON object")
            if value.get("type") == _NAMES[PlanEntry]:
                self.is_intact &= value.get(_DIGEST) == self._digest.hexdigest()[:_DIGEST_DIGITS]
            self._digest.update(line)
            return self._entry(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise LineError(str(error)) from error

    def _entry(self, value: dict[str, Any]) -> Entry | None:
        name = value.pop("type", None)
        if name == _REQUIREMENTS:
            self._shapes[msgspec.convert(value.get("number"), int)] = msgspec.convert(
                value.get(_REQUIREMENTS), SchedulingRequirements
            )
            return None
        if not isinstance(name, str) or name not in _TYPES:
            raise LineError(f"type {name!r} is not known")
        if name == "decision":
            return DecisionEntry(value)
        if name == "workload":
            return self._workload(value)
        found: Entry = msgspec.convert(value, _TYPES[name])
        return found

    def _workload(self, value: dict[str, Any]) -> WorkloadChanged:
        encoded = value.get("workload")
        number = encoded.pop(_REQUIREMENTS, None) if isinstance(encoded, dict) else None
        shape = self._shapes.get(number) if isinstance(number, int) else None
        if shape is None or not isinstance(encoded, dict):
            raise LineError(f"shape {number!r} was not told before")
        decoded: WorkloadChanged = msgspec.convert(
            {**value, "workload": {**encoded, _REQUIREMENTS: {}}}, WorkloadChanged
        )
        return WorkloadChanged(replace(decoded.workload, requirements=shape), decoded.now)
