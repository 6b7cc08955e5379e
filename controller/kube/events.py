"""Messages about objects, and the Kubernetes events (events.k8s.io/v1) that are built from them.

Pure. A note is rendered when its event is written, because most messages are replaced before that. The name of an event
is a hash of its content, so that a repetition, also after a restart, updates the series of the existing event.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from controller.api.events import decode_event
from controller.api.keys import EVENTS

EventType = Literal["Normal", "Warning"]

Topic = Literal["waits", "admitted", "evicted", "warned"]

REPORTING_CONTROLLER = "volcano-global.io/controller"
#: Limits of the API server, in bytes.
_MAX_NOTE_BYTES = 1024
_MAX_NAME_BYTES = 253
_MAX_INSTANCE_BYTES = 128
_HASH_DIGITS = 16


class Reference(msgspec.Struct, frozen=True):
    """The object that an event regards."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class EventMessage(msgspec.Struct, frozen=True):
    """A change of one workload, or another condition to report."""

    uid: str
    """The subject; of one topic only the latest message is written."""
    topic: Topic
    action: str
    reason: str
    regarding: tuple[Reference, ...]
    note: Callable[[], str]
    kind: EventType = "Normal"
    is_current: Callable[[], bool] = lambda: True
    """Whether the message still holds; a deferred one is dropped otherwise."""

    @property
    def key(self) -> tuple[str, str]:
        """Return the key under which a later message replaces this one."""
        return self.uid, f"{self.topic}:{self.reason}" if self.topic == "warned" else self.topic

    @property
    def namespace(self) -> str:
        """Return the namespace of the object that it is about, empty for none."""
        return self.regarding[0].namespace if self.regarding else ""


@dataclass(frozen=True, slots=True)
class Event:
    """One event about one object."""

    namespace: str
    name: str
    manifest: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """Return the API path of its collection."""
        return EVENTS.path_in(self.namespace)

    @property
    def path(self) -> str:
        """Return its API path."""
        return EVENTS.item_path(self.namespace, self.name)


def build_events(message: EventMessage, instance: str, now: int) -> list[Event]:
    """Return one event for each object that *message* regards; *now* is in milliseconds."""
    note = truncate(message.note(), _MAX_NOTE_BYTES)
    return [_build_event(message, about, note=note, instance=instance, now=now) for about in message.regarding]


def series_patch(count: int, now: int) -> dict[str, Any]:
    """Return the merge patch that sets how often an event has happened."""
    return {"series": {"count": count, "lastObservedTime": _format_time(now)}}


def observed_count(raw: bytes) -> int:
    """Return how often an event has happened, as stored by the API server."""
    return max(decode_event(raw).count, 1)


def _build_event(message: EventMessage, about: Reference, *, note: str, instance: str, now: int) -> Event:
    namespace = about.namespace or "default"
    content = f"{about.uid} {about.kind} {message.kind} {message.action} {message.reason} {note}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:_HASH_DIGITS]
    name = f"{about.name[: _MAX_NAME_BYTES - _HASH_DIGITS - 1].rstrip('.-')}.{digest}"
    manifest = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": _format_time(now),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": truncate(instance, _MAX_INSTANCE_BYTES),
        "action": message.action,
        "reason": message.reason,
        "regarding": _object_reference(about),
        "related": next((_object_reference(other) for other in message.regarding if other != about), None),
        "note": note,
        "type": message.kind,
    }
    return Event(namespace, name, {name: value for name, value in manifest.items() if value is not None})


def _object_reference(about: Reference) -> dict[str, str]:
    reference = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    return {**reference, "namespace": about.namespace} if about.namespace else reference


def _format_time(now: int) -> str:
    return datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def truncate(text: str, most: int) -> str:
    """Return *text*, truncated to *most* bytes."""
    return text if len(text.encode()) <= most else text.encode()[: most - 4].decode(errors="ignore") + " ..."
