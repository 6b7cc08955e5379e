"""Kubernetes' events (events.k8s.io/v1) as they are written.

Pure. An event's name is made from what it says, so that whoever says the same
again, also after a restart, finds it and adds to its series.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controller.api.events import decode_event
from controller.api.keys import EVENTS
from controller.events.message import EventMessage, Reference

REPORTING_CONTROLLER = "volcano-global.io/controller"

#: What the API server takes of each, in bytes.
_MAX_NOTE_BYTES = 1024
_MAX_NAME_BYTES = 253
_MAX_INSTANCE_BYTES = 128
_HASH_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that is said of one object."""

    namespace: str
    name: str
    manifest: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """Return where it is created."""
        return EVENTS.item_path(self.namespace, "").rstrip("/")

    @property
    def path(self) -> str:
        """Return where it is found."""
        return EVENTS.item_path(self.namespace, self.name)


def build_events(news: EventMessage, instance: str, now: int) -> list[Event]:
    """Return the events of *news*, one for each object it is told of; *now* in milliseconds."""
    note = _truncate(news.note(), _MAX_NOTE_BYTES)
    return [_build_event(news, each, note=note, instance=instance, now=now) for each in news.regarding]


def series_patch(count: int, now: int) -> dict[str, Any]:
    """Return the merge patch that says of an event that it has happened *count* times."""
    return {"series": {"count": count, "lastObservedTime": _format_time(now)}}


def observed_count(raw: bytes) -> int:
    """Return how often an event has happened, as the API server has it."""
    return max(decode_event(raw).count, 1)


def _build_event(news: EventMessage, about: Reference, *, note: str, instance: str, now: int) -> Event:
    namespace = about.namespace or "default"
    said = f"{about.uid} {about.kind} {news.kind} {news.action} {news.reason} {note}"
    digest = hashlib.sha256(said.encode()).hexdigest()[:_HASH_DIGITS]
    name = f"{about.name[: _MAX_NAME_BYTES - _HASH_DIGITS - 1].rstrip('.-')}.{digest}"
    manifest = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": _format_time(now),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": _truncate(instance, _MAX_INSTANCE_BYTES),
        "action": news.action,
        "reason": news.reason,
        "regarding": _object_reference(about),
        "related": next((_object_reference(each) for each in news.regarding if each != about), None),
        "note": note,
        "type": news.kind,
    }
    return Event(namespace, name, {name: value for name, value in manifest.items() if value is not None})


def _object_reference(about: Reference) -> dict[str, str]:
    told = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    return {**told, "namespace": about.namespace} if about.namespace else told


def _format_time(now: int) -> str:
    return datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _truncate(text: str, most: int) -> str:
    """Return *text*, or as much of it as *most* bytes hold."""
    return text if len(text.encode()) <= most else text.encode()[: most - 4].decode(errors="ignore") + " ..."
