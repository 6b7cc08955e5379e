"""Generates objects with one invalid field: every field of a wire type in turn, from the type itself."""

import copy
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel

MISSING = object()

#: Values of each field, one after the other; some are valid for some fields.
VALUES: tuple[Any, ...] = (None, MISSING, -1, 10**30, "text", [None], {"a": {"b": 1}})
#: Fewer values, for tests that run a command for each object.
FEW_VALUES: tuple[Any, ...] = (None, -1, [{"a": "text"}])

Path = tuple[str | int, ...]


def field_paths(kind: Any) -> Iterator[Path]:
    """Yield the path of every field of *kind*, a msgspec struct or a pydantic model; 0 stands for any list item."""
    yield from _below(kind, (), ())


def _below(kind: Any, path: Path, seen: tuple[Any, ...]) -> Iterator[Path]:
    for alternative in _alternatives(kind):
        origin = get_origin(alternative)
        if origin is dict:
            yield (*path, "a")
            yield from _below(get_args(alternative)[1], (*path, "a"), seen)
        elif origin in {list, tuple}:
            yield (*path, 0)
            yield from _below(get_args(alternative)[0], (*path, 0), seen)
        elif alternative not in seen:
            for name, inner in _members(alternative):
                yield (*path, name)
                yield from _below(inner, (*path, name), (*seen, alternative))


def _alternatives(kind: Any) -> Iterator[Any]:
    if get_origin(kind) in {Union, UnionType}:
        for alternative in get_args(kind):
            if alternative is not NoneType:
                yield from _alternatives(alternative)
    else:
        yield kind


def _members(kind: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield field.encode_name, field.type
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, known in kind.model_fields.items():
            yield known.alias or name, known.annotation


def invalid_variants(
    kind: Any, sound: dict[str, Any], values: tuple[Any, ...] = VALUES
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield variants of *sound* with one field of *kind* set to one of *values*, each with a description."""
    for path in field_paths(kind):
        for value in values:
            description = "missing" if value is MISSING else repr(value)
            yield f"{'.'.join(map(str, path))}={description}", _with(copy.deepcopy(sound), path, value)


def _with(document: Any, path: Path, value: Any) -> Any:
    """Return *document* with *value* at *path*; missing parents are created."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        items = document if isinstance(document, list) and document else [{}]
        return items[1:] if value is MISSING and not rest else [_with(items[0], rest, value), *items[1:]]
    members = document if isinstance(document, dict) else {}
    if value is MISSING and not rest:
        return {name: member for name, member in members.items() if name != step}
    return {**members, step: _with(members.get(step), rest, value)}
