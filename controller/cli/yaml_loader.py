"""YAML and JSON texts as plain values, one per document; knows nothing of Kubernetes.

Safer than a stock loader: a key may be there once only, values are those that
JSON has, and neither depth nor aliases make it run away. Times stay text, as
Kubernetes takes them.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

_MAX_DEPTH = 100
_MAX_VALUES = 2_000_000
"""How many values one document may have once its aliases are followed."""

_MAX_NUMBER_LENGTH = 80
"""How many characters a number of 64 bits may take."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"

_BLANK = re.compile(r"\s*")
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
    """A text that is neither YAML nor JSON; the message names the line."""


def load_documents(text: str) -> Iterator[Any]:
    """Yield the value of each document of *text*; an empty document is ``None``.

    Raises `TextError` at the document that cannot be read.
    """
    if text.lstrip()[:1] in {"{", "["}:
        try:
            found = list(_json_values(text))
        except (ValueError, RecursionError):
            found = None  # it may still be YAML in flow style, and that reader names the line
        if found is not None:
            yield from found
            return
    yield from _yaml_values(text)


def _json_values(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique_keys,
        parse_constant=_refuse_number,
        parse_float=_parse_float,
        parse_int=_parse_integer,
    )
    may_lack_its_other_half = _SURROGATE.search(text) is not None
    place = _skip_whitespace(text, 0)
    while place < len(text):
        value, place = decoder.raw_decode(text, place)
        if may_lack_its_other_half:
            json.dumps(value, ensure_ascii=False).encode()
        yield value
        place = _skip_whitespace(text, place)


def _skip_whitespace(text: str, place: int) -> int:
    match = _BLANK.match(text, place)
    return match.end() if match else place


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is there twice")
    return members


def _parse_integer(text: str, base: int = 10) -> int:
    number = int(text.replace("_", ""), base) if len(text) <= _MAX_NUMBER_LENGTH else None
    if number is None or not -(2**63) <= number < 2**63:
        raise ValueError(f"{text[:20]} is no number of 64 bits; write larger ones in quotes")
    return number


def _parse_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number that JSON can hold")


@dataclass(slots=True)
class _OpenCollection:
    """A mapping or a list whose end has not come yet."""

    anchor: str | None
    line: int
    is_mapping: bool
    items: list[Any] = field(default_factory=list)
    """The items of a list; of a mapping its keys and values in turn."""
    size: int = 1


class _DocumentBuilder:
    """Makes one value of the events between a document's start and its end."""

    def __init__(self) -> None:
        self._open: list[_OpenCollection] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self.value: Any = None

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.ScalarEvent():
                self._close(event.anchor, _parse_scalar(event, line), size=1, line=line)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise ParseError(
                        f"line {line}: alias *{event.anchor} stands for nothing that is complete before it"
                    )
                value, size = self._anchors[event.anchor]
                self._close(None, value, size=size, line=line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._open.pop()
                value = _build_mapping(done) if done.is_mapping else done.items
                self._close(done.anchor, value, size=done.size, line=line)

    def _begin(self, event: yaml.CollectionStartEvent, line: int) -> None:
        if len(self._open) == _MAX_DEPTH:
            raise ParseError(f"line {line}: it is nested more than {_MAX_DEPTH} levels deep")
        if event.tag not in {None, "!", f"{_TAG}map", f"{_TAG}seq"}:
            raise ParseError(f"line {line}: tag {event.tag} is not read; remove it")
        self._open.append(_OpenCollection(event.anchor, line, isinstance(event, yaml.MappingStartEvent)))

    def _close(self, anchor: str | None, value: Any, *, size: int, line: int) -> None:
        """Put a complete value where it belongs."""
        if anchor is not None:
            self._anchors[anchor] = value, size
        if not self._open:
            self.value = value
            return
        above = self._open[-1]
        above.items.append((value, line) if above.is_mapping and len(above.items) % 2 == 0 else value)
        above.size += size
        if above.size > _MAX_VALUES:
            raise ParseError(f"line {line}: its aliases make more than {_MAX_VALUES} values of it")


def _yaml_values(text: str) -> Iterator[Any]:
    events = yaml.parse(text, Loader=_LOADER)
    builder = _DocumentBuilder()
    while True:
        try:
            event = next(events, None)
        except yaml.YAMLError as error:
            raise ParseError(_describe_error(error)) from error
        if event is None:
            return
        if isinstance(event, yaml.DocumentStartEvent):
            builder = _DocumentBuilder()
        elif isinstance(event, yaml.DocumentEndEvent):
            yield builder.value
        else:
            builder.take(event)


def _describe_error(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        what = getattr(error, "problem", None) or "it is no YAML"
        return f"line {mark.line + 1}, column {mark.column + 1}: {what}"
    return " ".join(str(error).split())


def _build_mapping(done: _OpenCollection) -> dict[str, Any]:
    found: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for (key, line), value in zip(done.items[::2], done.items[1::2], strict=True):
        if key == _MERGE:
            merged = _merge_mappings(value, line)
            continue
        name = _parse_key(key, line)
        if name in found:
            raise ParseError(f"line {line}: the key {name!r} is there twice")
        found[name] = value
    return {**merged, **found}


def _parse_key(key: Any, line: int) -> str:
    """Return *key* as the text that JSON makes of it."""
    if isinstance(key, str):
        return key
    if isinstance(key, (dict, list)) or key is None:
        raise ParseError(f"line {line}: a key is a word, not {'nothing' if key is None else 'a list or a mapping'}")
    return json.dumps(key)


def _merge_mappings(value: Any, line: int) -> dict[str, Any]:
    """Return what ``<<`` brings in; of several mappings the first counts."""
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise ParseError(f"line {line}: << takes a mapping or a list of them")
    return {key: each for part in reversed(parts) for key, each in part.items()}


def _parse_scalar(event: yaml.ScalarEvent, line: int) -> Any:
    if event.tag in {"!", f"{_TAG}str"} or (event.tag is None and not event.implicit[0]):
        return event.value
    if event.tag not in {None, *(f"{_TAG}{name}" for name in ("int", "float", "bool", "null"))}:
        raise ParseError(f"line {line}: tag {event.tag} is not read; remove it")
    try:
        return _parse_plain_scalar(event.value)
    except ValueError as error:
        raise ParseError(f"line {line}: {error}") from error


def _parse_plain_scalar(text: str) -> Any:
    """Return what an unquoted word stands for."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return _parse_integer(text)
    if _OTHER_BASES.fullmatch(text):
        return _parse_integer(text, 0 if text.lstrip("+-")[1] in "xbo" else 8)
    return _parse_float(text.replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text
