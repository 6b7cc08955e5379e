"""Metadata and base class of API objects, lists of them, and their lenient decoding.

One unreadable field must not lose the object or hide its other fields: fields that do not match their type get their
defaults and are listed in the object's decode errors.
"""

import re
from collections.abc import Callable
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

#: Kubernetes quantities as in JSON: strings or numbers.
Quantities = dict[str, str | int | float]
T = TypeVar("T")
R = TypeVar("R", bound=bytes | memoryview | msgspec.Raw)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
#: What a decoder raises for JSON that does not match the type, or is nested too deeply.
_DECODE_ERRORS = (ValueError, RecursionError)
#: How deep values may be nested in an object that cannot be decoded otherwise: each level needs a recursion.
_MAX_DEPTH = 500
#: Maximum number of errors of one object that are stored, and of the characters of each path.
_MAX_ERRORS, _MAX_PATH = 20, 500
#: Strings, and the brackets outside of them.
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


class OwnerReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A reference to the owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ConfigMap(msgspec.Struct, frozen=True):
    """The content of a ConfigMap."""

    data: dict[str, str] = msgspec.field(default_factory=dict)


class ObjectMeta(msgspec.Struct, rename="camel", frozen=True):
    """Identity, labels and annotations of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)


class WatchedObject(msgspec.Struct, rename="camel", frozen=True):
    """An object of a watched kind."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    # The API server stores no field with this name, so a tenant cannot set it.
    decode_errors: tuple[str, ...] = msgspec.field(default=(), name="$flaws")
    """The first fields that could not be read and have their defaults instead, each with its path."""


class ListMeta(msgspec.Struct):
    """Metadata of a list that paging needs."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_token: str = msgspec.field(default="", name="continue")
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class Page(msgspec.Struct):
    """One page of a list; its items are raw JSON that is valid while the page exists."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


W = TypeVar("W", bound=WatchedObject)


def decode_deeply_nested(decode: Callable[[R], T], raw: R) -> T:
    """Decode *raw* with *decode*; if it is nested too deeply, without its values below 500 levels.

    The API server stores objects that are nested 10,000 deep, and Python limits recursion differently by its version.
    """
    try:
        return decode(raw)
    except RecursionError:
        return decode(type(raw)(_without_deep_values(raw)))


def _without_deep_values(raw: bytes | memoryview | msgspec.Raw) -> bytes:
    """Return JSON in which the values nested deeper than the maximum are ``null``."""
    text, chunks, depth, begin = memoryview(raw), list[bytes | memoryview](), 0, 0
    for token in _STRUCTURE.finditer(text):
        match token[0][0]:
            case 0x5B | 0x7B:  # [ {
                depth += 1
                if depth == _MAX_DEPTH + 1:
                    chunks += text[begin : token.start()], b"null"
            case 0x5D | 0x7D:  # ] }
                if depth == _MAX_DEPTH + 1:
                    begin = token.end()
                depth -= 1
    return b"".join((*chunks, text[begin:]))


def decode_watched(decoder: msgspec.json.Decoder[W], raw: bytes | memoryview) -> W:
    """Decode an object; fields that do not match their type get their defaults and are listed in ``decode_errors``.

    Raises `msgspec.DecodeError` only if *raw* is not a JSON object.
    """
    try:
        return decoder.decode(raw)
    except (msgspec.ValidationError, RecursionError):
        return _decode_leniently(decoder.type, raw)


def _decode_leniently(kind: type[W], raw: bytes | memoryview) -> W:
    reader = _LenientReader()
    try:
        value = reader.read(kind, msgspec.Raw(raw), "")
    except RecursionError as error:
        raise msgspec.DecodeError("the object is nested too deeply to be read at all") from error
    if value is msgspec.UNSET:
        raise msgspec.DecodeError(f"not a JSON object: {bytes(raw[:40])!r}")
    salvaged: W = msgspec.structs.replace(value, decode_errors=tuple(reader.decode_errors))
    return salvaged


class _LenientReader:
    """Decodes piece by piece and collects the errors."""

    def __init__(self) -> None:
        self.decode_errors: list[str] = []

    def read(self, kind: Any, raw: msgspec.Raw, path: str) -> Any:
        """Decode *raw* as *kind*; ``UNSET`` if nothing of it could be read."""
        try:
            return msgspec.json.decode(raw, type=kind)
        except _DECODE_ERRORS as error:
            return self._pieces(_without_none(kind), raw, path, str(error))

    def _pieces(self, kind: Any, raw: msgspec.Raw, path: str, error: str) -> Any:
        opening = bytes(raw)[:1]
        if bytes(raw) == b"null":
            return msgspec.UNSET
        if opening == b"{" and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(kind, raw, path)
        if opening == b"{" and get_origin(kind) is dict:
            return self._mapping(get_args(kind)[1], raw, path)
        if opening == b"[" and get_origin(kind) in {list, tuple}:
            return self._items(kind, raw, path)
        if len(self.decode_errors) < _MAX_ERRORS:
            self.decode_errors.append(f"{path[:_MAX_PATH] or 'object'}: {error}")
        return msgspec.UNSET

    def _struct(self, kind: type[msgspec.Struct], raw: msgspec.Raw, path: str) -> msgspec.Struct:
        members = decode_deeply_nested(_MEMBERS.decode, raw)
        values = {
            field.name: self.read(field.type, members[field.encode_name], f"{path}.{field.encode_name}".lstrip("."))
            for field in msgspec.structs.fields(kind)
            if field.encode_name in members
        }
        return kind(**{name: value for name, value in values.items() if value is not msgspec.UNSET})

    def _mapping(self, kind: Any, raw: msgspec.Raw, path: str) -> dict[str, Any]:
        values = {
            key: self.read(kind, value, f"{path}[{key}]")
            for key, value in decode_deeply_nested(_MEMBERS.decode, raw).items()
        }
        return {key: value for key, value in values.items() if value is not msgspec.UNSET}

    def _items(self, kind: Any, raw: msgspec.Raw, path: str) -> Any:
        items = decode_deeply_nested(_ITEMS.decode, raw)
        values = [self.read(get_args(kind)[0], item, f"{path}[{place}]") for place, item in enumerate(items)]
        return get_origin(kind)(value for value in values if value is not msgspec.UNSET)


def _without_none(kind: Any) -> Any:
    """Return the single type that *kind* allows other than ``None``; a wider union unchanged."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    others = [other for other in get_args(kind) if other is not NoneType]
    return others[0] if len(others) == 1 else kind
