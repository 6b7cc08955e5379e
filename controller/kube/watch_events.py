"""Decodes the events of a watch; the object stays raw JSON."""

from typing import Literal

import msgspec

from controller.api.meta import decode_deeply_nested
from controller.kube.errors import Unreachable, error_for, read_status

Change = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

#: What decoding may raise. Tenants write the objects, so an error in decoding one must not block the others.
DECODE_ERRORS = Exception


class ObjectIdentity(msgspec.Struct):
    """Namespace, name and resourceVersion of an object of any kind."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    namespace: str = ""
    name: str = ""

    @property
    def path(self) -> str:
        """``namespace/name``, as messages name the object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Object(msgspec.Struct):
    metadata: ObjectIdentity


class _WatchLine(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_OBJECTS = msgspec.json.Decoder(_Object)
_LINES = msgspec.json.Decoder(_WatchLine)


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch."""

    change: Change
    raw: bytes
    """The object; of a bookmark only its metadata."""
    meta: ObjectIdentity


def read_event(watch: str, line: bytes) -> WatchEvent:
    """Decode a *line* of *watch*; raise the error that it reports, or ``Unreachable`` if it is not an event."""
    try:
        read = decode_deeply_nested(_LINES.decode, line)
        raw = bytes(read.object)
        if read.type == "ERROR":
            status = read_status(raw)
            raise error_for(status.code)(watch, status.code, status.message, retry_after=status.retry_after)
        return WatchEvent(read.type, raw, read_meta(raw))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unreachable(watch, f"an event cannot be read: {error}") from error


def read_meta(raw: bytes) -> ObjectIdentity:
    """Return the name and the version of an object; raise ``MsgspecError`` if it has none."""
    return decode_deeply_nested(_OBJECTS.decode, raw).metadata


def is_older(version: str, other: str) -> bool:
    """Whether *version* is an older resourceVersion than *other*; false where either is not a number."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)
