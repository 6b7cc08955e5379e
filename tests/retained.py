"""Counts what long-lived objects hold, so that tests find collections that grow without bound."""

import functools
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

_ATOMS = (type, types.ModuleType, types.BuiltinFunctionType, str, bytes, int, float, bool)
_COLLECTIONS = (dict, list, set, frozenset, deque)


def retained(roots: Iterable[object], *, stop: tuple[type, ...] = ()) -> Counter[str]:
    """Return the number of entries of each collection that is reachable from *roots*, by the attribute that holds it.

    Objects of the types *stop* are not entered. A deque with a maximal length counts as full.
    """
    counts, seen = Counter[str](), dict[int, object]()
    queue = deque((root, type(root).__qualname__) for root in roots)
    while queue:
        obj, held_by = queue.popleft()
        if obj is None or isinstance(obj, (*_ATOMS, *stop)) or id(obj) in seen:
            continue
        seen[id(obj)] = obj
        if isinstance(obj, _COLLECTIONS):
            counts[held_by] += len(obj) if getattr(obj, "maxlen", None) is None else obj.maxlen
        queue.extend((child, f"{held_by}{name}" if _is_plain(obj) else name) for name, child in _children(obj))
    return +counts


def _is_plain(obj: object) -> bool:
    return isinstance(obj, (*_COLLECTIONS, tuple))


def _children(obj: Any) -> Iterator[tuple[str, object]]:
    """Yield what *obj* refers to, each with the name of the attribute."""
    if isinstance(obj, dict):
        for key, value in list(obj.items()):
            yield "[key]", key
            yield "[]", value
    elif _is_plain(obj):
        yield from (("[]", item) for item in list(obj))
    elif isinstance(obj, types.FunctionType):
        cells = zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True)
        yield from ((f"{obj.__qualname__}.{name}", _content(cell)) for name, cell in cells)
    elif isinstance(obj, types.MethodType):
        yield "", obj.__self__
    elif isinstance(obj, functools.partial):
        yield from (("partial", item) for item in (obj.func, *obj.args, *obj.keywords.values()))
    else:
        yield from ((f"{type(obj).__qualname__}.{name}", value) for name, value in _attributes(obj))


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _attributes(obj: Any) -> Iterator[tuple[str, object]]:
    yield from list(getattr(obj, "__dict__", {}).items())
    if isinstance(obj, msgspec.Struct):
        yield from ((name, getattr(obj, name)) for name in obj.__struct_fields__)
        return
    for kind in type(obj).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            own = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            yield from ((own, value) for value in (getattr(obj, own, None),) if value is not None)
