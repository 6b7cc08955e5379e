"""Parses YAML and JSON into plain values, one for each document.

Stricter than `yaml.safe_load`: duplicate keys and values that JSON cannot hold are
errors, and nesting and alias expansion are limited. Times remain text, as in Kubernetes.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NoReturn

import yaml

from controller.api.yaml_errors import describe_yaml_error

_MAX_DEPTH = 100
_MAX_VALUES = 2_000_000
"""Maximum number of values in one document after alias expansion."""

_MAX_NUMBER_LENGTH = 80
"""Maximum number of characters of an integer, checked before conversion."""

_PROGRESS_INTERVAL = 20_000
"""Number of parser events between two reports of progress."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"
_BLANK = re.compile(r"\s*")
_NOT_LINE_BREAK = re.compile(r"[^\n]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_OTHER_BASES = re.compile(r"[-+]?0(?:o?[0-7_]+|x[0-9a-fA-F_]+|b[01_]+)")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}


class ParseError(ValueError):
    """Text that is neither YAML nor JSON; the message names the line."""


def _ignore(_position: int) -> None:
    """Ignore how much was read."""


def load_documents(text: str, on_progress: Callable[[int], None] = _ignore) -> Iterator[Any]:
    """Yield the value of each document of *text*; an empty document is ``None``.

    *on_progress* is called with the number of characters of YAML that were read.

    Raises `ParseError` at the first document that cannot be parsed.
    """
    if text.lstrip()[:1] in {"{", "["}:
        documents, end = _json_values(text)
        if end == len(text):
            yield from documents
            return
        # The rest may be YAML in flow style; the YAML parser names the line of an error.
        if text[end] in "{[":
            yield from documents
            text = _NOT_LINE_BREAK.sub(" ", text[:end]) + text[end:]
    yield from _yaml_values(text, on_progress)


def _json_values(text: str) -> tuple[list[Any], int]:
    """Return the JSON values at the beginning of *text*, and the position of what follows them."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique_keys,
        parse_constant=_refuse_number,
        parse_float=_parse_float,
        parse_int=_parse_integer,
    )
    may_have_lone_surrogate = _SURROGATE.search(text) is not None
    values, position = [], _skip_whitespace(text, 0)
    try:
        while position < len(text):
            value, end = decoder.raw_decode(text, position)
            if may_have_lone_surrogate:
                json.dumps(value, ensure_ascii=False).encode()
            values.append(value)
            position = _skip_whitespace(text, end)
    except (ValueError, RecursionError):
        pass  # what follows is no JSON
    return values, position


def _skip_whitespace(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members


def _parse_integer(text: str, base: int = 10) -> int:
    number = int(text.replace("_", ""), base) if len(text) <= _MAX_NUMBER_LENGTH else None
    if number is None or not -(2**63) <= number < 2**63:
        raise ValueError(f"{text[:20]} does not fit in 64 bits; write larger numbers in quotes")
    return number


def _parse_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is a number that JSON cannot hold")


@dataclass(slots=True)
class _OpenCollection:
    """A mapping or list whose end event has not been read."""

    anchor: str | None
    line: int
    is_mapping: bool
    items: list[Any] = field(default_factory=list)
    """The items of a list, or the alternating keys and values of a mapping."""
    size: int = 1


class _DocumentBuilder:
    """Builds the value of one document from parser events."""

    def __init__(self) -> None:
        self._open: list[_OpenCollection] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self.value: Any = None

    def handle(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.ScalarEvent():
                self._add_value(event.anchor, _parse_scalar(event, line), size=1, line=line)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise ParseError(f"line {line}: alias *{event.anchor} has no complete anchor before it")
                value, size = self._anchors[event.anchor]
                self._add_value(None, value, size=size, line=line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open_collection(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._open.pop()
                value = _build_mapping(done) if done.is_mapping else done.items
                self._add_value(done.anchor, value, size=done.size, line=line)

    def _open_collection(self, event: yaml.CollectionStartEvent, line: int) -> None:
        if len(self._open) == _MAX_DEPTH:
            raise ParseError(f"line {line}: more than {_MAX_DEPTH} levels of nesting")
        if event.tag not in {None, "!", f"{_TAG}map", f"{_TAG}seq"}:
            raise ParseError(f"line {line}: tag {event.tag} is not supported; remove it")
        self._open.append(_OpenCollection(event.anchor, line, isinstance(event, yaml.MappingStartEvent)))

    def _add_value(self, anchor: str | None, value: Any, *, size: int, line: int) -> None:
        """Append a complete value to the innermost open collection, or make it the document's value."""
        if anchor is not None:
            self._anchors[anchor] = value, size
        if not self._open:
            self.value = value
            return
        parent = self._open[-1]
        parent.items.append((value, line) if parent.is_mapping and len(parent.items) % 2 == 0 else value)
        parent.size += size
        if parent.size > _MAX_VALUES:
            raise ParseError(f"line {line}: more than {_MAX_VALUES} values after alias expansion")


def _yaml_values(text: str, on_progress: Callable[[int], None]) -> Iterator[Any]:
    events = yaml.parse(text, Loader=_LOADER)
    builder = _DocumentBuilder()
    for number in count(1):
        try:
            event = next(events, None)
        except yaml.YAMLError as error:
            raise ParseError(describe_yaml_error(error)) from error
        if event is None:
            return
        if number % _PROGRESS_INTERVAL == 0 and event.start_mark:
            on_progress(event.start_mark.index)
        if isinstance(event, yaml.DocumentStartEvent):
            builder = _DocumentBuilder()
        elif isinstance(event, yaml.DocumentEndEvent):
            yield builder.value
        else:
            builder.handle(event)


def _build_mapping(done: _OpenCollection) -> dict[str, Any]:
    members: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for (key, line), value in zip(done.items[::2], done.items[1::2], strict=True):
        if key == _MERGE:
            merged = _merge_mappings(value, line)
            continue
        name = _parse_key(key, line)
        if name in members:
            raise ParseError(f"line {line}: duplicate key {name!r}")
        members[name] = value
    return {**merged, **members}


def _parse_key(key: Any, line: int) -> str:
    """Return *key* converted to text as JSON does."""
    if isinstance(key, str):
        return key
    if isinstance(key, (dict, list)) or key is None:
        raise ParseError(f"line {line}: a key must be text, not {'empty' if key is None else 'a list or a mapping'}")
    return json.dumps(key)


def _merge_mappings(value: Any, line: int) -> dict[str, Any]:
    """Return the members that ``<<`` merges; the first of several mappings takes precedence."""
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise ParseError(f"line {line}: << needs a mapping or a list of mappings")
    return {key: member for part in reversed(parts) for key, member in part.items()}


def _parse_scalar(event: yaml.ScalarEvent, line: int) -> Any:
    if event.tag in {"!", f"{_TAG}str"} or (event.tag is None and not event.implicit[0]):
        return event.value
    if event.tag not in {None, *(f"{_TAG}{name}" for name in ("int", "float", "bool", "null"))}:
        raise ParseError(f"line {line}: tag {event.tag} is not supported; remove it")
    try:
        return _parse_plain_scalar(event.value)
    except ValueError as error:
        raise ParseError(f"line {line}: {error}") from error


def _parse_plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return _parse_integer(text)
    if _OTHER_BASES.fullmatch(text):
        return _parse_integer(text, 0 if text.lstrip("+-")[1] in "xbo" else 8)
    return _parse_float(text.replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text
