"""One line of a watch, as far as every kind has it; the object stays the JSON that came."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from controller.api.salvage import deeply
from controller.api_errors import error_for, read_status
from controller.kube import Unreachable

Change = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class Meta(msgspec.Struct):
    """The name and the version of an object of whatever kind."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    namespace: str = ""
    name: str = ""

    @property
    def path(self) -> str:
        """Return ``namespace/name``, as messages name it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Object(msgspec.Struct):
    metadata: Meta


class _Line(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_objects = msgspec.json.Decoder(_Object)
_lines = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class Event:
    """What a line tells."""

    change: Change
    raw: bytes
    """The object; for a bookmark next to nothing of one."""
    version: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Return the object's ``namespace/name``, as messages name it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def read_event(watch: str, line: bytes) -> Event:
    """Return what *line* of *watch* tells; raise the error it tells of, or that it is none."""
    try:
        read = deeply(_lines.decode, line)
        raw = bytes(read.object)
        if read.type == "ERROR":
            status = read_status(raw)
            raise error_for(status.code)(watch, status.code, status.message, retry_after=status.retry_after)
        meta = read_meta(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unreachable(watch, f"an event cannot be read: {error}") from error
    return Event(read.type, raw, meta.resource_version, meta.namespace, meta.name)


def read_meta(raw: bytes) -> Meta:
    """Return the name and the version of an object; raise ``MsgspecError`` for what is none."""
    return deeply(_objects.decode, raw).metadata


def is_before(version: str, other: str) -> bool:
    """Compare two resourceVersions; what is no number is not compared."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)
