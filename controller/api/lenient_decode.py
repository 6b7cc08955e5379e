"""Decodes objects leniently: fields that do not match their type get their defaults and are reported.

One unreadable field must not lose the object or hide its other fields; it is listed in the object's decode errors. A
null is an unset field, as in Kubernetes.
"""

import sys
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from controller.api.meta import WatchedObject

W = TypeVar("W", bound=WatchedObject)
T = TypeVar("T")
R = TypeVar("R", bound=bytes | memoryview | msgspec.Raw)

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])

#: What a decoder raises for JSON that does not match the type, or is nested too deeply.
_DECODE_ERRORS = (ValueError, RecursionError)
#: The API server accepts objects nested 10,000 deep; skipping a value needs one recursion per level.
_MAX_RECURSION = 12_000


def decode_deeply_nested(decode: Callable[[R], T], raw: R) -> T:
    """Decode *raw* with *decode*, even if values that it skips are nested very deeply.

    *decode* must be a decoder of msgspec, which needs little stack per level.
    """
    try:
        return decode(raw)
    except RecursionError:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(max(_MAX_RECURSION, usual))
        try:
            return decode(raw)
        finally:
            sys.setrecursionlimit(usual)


def decode(decoder: msgspec.json.Decoder[W], raw: bytes | memoryview) -> W:
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
        self.decode_errors.append(f"{path or 'object'}: {error}")
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
