"""Decode one object, and where it does not fit its type, all of it that does.

One unreadable field must neither lose the object nor hide the others: it stays
at its default and is named among the object's flaws. A null is a field that is
not set, as it is to Kubernetes.
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

#: What a decoder raises for JSON that does not fit, or that no decoder should follow further.
_DECODE_ERRORS = (ValueError, RecursionError)
#: The API server takes objects that are nested 10,000 deep; to skip a part costs one level of recursion each.
_MAX_RECURSION = 12_000


def decode_deeply_nested(decode: Callable[[R], T], raw: R) -> T:
    """Return what *decode* makes of *raw*, however deep the parts are nested that it only passes over.

    *decode* must be a decoder of msgspec, which needs little stack for each level.
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
    """Return the object in *raw*; what does not fit its type is left at its default and told in ``flaws``.

    Raises `msgspec.DecodeError` only for what is no JSON object at all.
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
        raise msgspec.DecodeError(f"no object of the API server: {bytes(raw[:40])!r}")
    salvaged: W = msgspec.structs.replace(value, flaws=tuple(reader.flaws))
    return salvaged


class _LenientReader:
    """Reads piece by piece and remembers what did not fit."""

    def __init__(self) -> None:
        self.flaws: list[str] = []

    def read(self, kind: Any, raw: msgspec.Raw, path: str) -> Any:
        """Return what *raw* holds of *kind*; ``UNSET`` where nothing of it could be read."""
        try:
            return msgspec.json.decode(raw, type=kind)
        except _DECODE_ERRORS as error:
            return self._pieces(_without_none(kind), raw, path, str(error))

    def _pieces(self, kind: Any, raw: msgspec.Raw, path: str, trouble: str) -> Any:
        opening = bytes(raw)[:1]
        if bytes(raw) == b"null":
            return msgspec.UNSET
        if opening == b"{" and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(kind, raw, path)
        if opening == b"{" and get_origin(kind) is dict:
            return self._mapping(get_args(kind)[1], raw, path)
        if opening == b"[" and get_origin(kind) in {list, tuple}:
            return self._items(kind, raw, path)
        self.flaws.append(f"{path or 'object'}: {trouble}")
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
    """Return the one type that *kind* allows besides ``None``; a wider union as it is."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    others = [other for other in get_args(kind) if other is not NoneType]
    return others[0] if len(others) == 1 else kind
