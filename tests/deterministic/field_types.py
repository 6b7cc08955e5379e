"""Types of fields for server-side apply: the fields of an object, their comparison, merge and removal.

These functions give the results of sigs.k8s.io/structured-merge-diff, special cases of empty and null values included,
for objects of the declared types whose lists repeat no item. A path has one element for each step: ``f:name`` for a
member of an object, ``k:{"uid":"u1"}`` for an item of a list with keys, and ``v:"x"`` for an item of a set, as in
``managedFields``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

Path = tuple[str, ...]
Paths = frozenset[Path]


class _Absent(Enum):
    ABSENT = 0


ABSENT: Final = _Absent.ABSENT
"""In place of a value that one of two objects lacks; null is a value."""


@dataclass(eq=False)
class MapType:
    """An object with declared members; other members have the type *element*."""

    fields: Mapping[str, "Type"]
    element: "Type | None"
    atomic: bool = False

    def member(self, name: str) -> "Type":
        member = self.fields.get(name, self.element)
        assert member, f"field {name} is not declared"
        return member


@dataclass(eq=False)
class ListType:
    """A list; unless it is atomic, its items are found by *key*, or are a set without one."""

    element: "Type"
    atomic: bool = True
    key: str = ""

    def path_element(self, item: Any) -> str:
        return f"k:{_json({self.key: item.get(self.key, '')})}" if self.key else f"v:{_json(item)}"


Form = MapType | ListType | Literal["scalar"]


@dataclass(eq=False)
class Type:
    """The forms that a value may have."""

    map: MapType | None = None
    list: ListType | None = None
    scalar: Literal["scalar"] | None = None

    def form(self, value: Any) -> tuple[Form, bool]:
        """Return the form of *value*, and whether it is known; for null and a wrong value it is the first one."""
        matching: Form | None = None
        if isinstance(value, dict):
            matching = self.map
        elif isinstance(value, list):
            matching = self.list
        elif value is not None and value is not ABSENT:
            matching = self.scalar
        if matching:
            return matching, True
        first = self.map or self.scalar or self.list
        assert first
        return first, [self.map, self.list, self.scalar].count(None) == 2


def free_form() -> Type:
    """Return the type of JSON without a declared type: its objects are merged, its lists are replaced."""
    atomic = Type(MapType({}, None, atomic=True), None, "scalar")
    atomic.list = ListType(atomic)
    assert atomic.map
    atomic.map.element = atomic
    free = Type(MapType({}, None), ListType(atomic), "scalar")
    assert free.map
    free.map.element = free
    return free


SCALAR = Type(scalar="scalar")
FREE = free_form()
FREE_OBJECT = Type(MapType({}, FREE))
MAP = Type(MapType({}, SCALAR))


def struct(**fields: Type) -> Type:
    """Return the type of an object that has only *fields*."""
    return Type(MapType(fields, None))


METADATA = struct(
    name=SCALAR,
    namespace=SCALAR,
    uid=SCALAR,
    resourceVersion=SCALAR,
    generation=SCALAR,
    creationTimestamp=SCALAR,
    deletionTimestamp=SCALAR,
    deletionGracePeriodSeconds=SCALAR,
    labels=MAP,
    annotations=MAP,
    finalizers=Type(list=ListType(SCALAR, atomic=False)),
    ownerReferences=Type(list=ListType(Type(MapType({}, FREE, atomic=True)), atomic=False, key="uid")),
)


_HEAD = {"apiVersion": SCALAR, "kind": SCALAR, "metadata": METADATA}
CUSTOM_OBJECT = Type(MapType({**_HEAD, "spec": FREE_OBJECT, "status": FREE_OBJECT}, FREE))
"""A custom resource whose schema is not known."""


def declared_object(**fields: Type) -> Type:
    """Return the type of an object that has metadata and *fields*."""
    return struct(**_HEAD, **fields)


class Comparison(NamedTuple):
    """Fields by what happens to them from one object to another."""

    removed: Paths
    modified: Paths
    added: Paths


def fields_of(of: Type, value: Any) -> Paths:
    """Return the fields that an apply of *value* owns."""
    return frozenset(_walk(of, value, ()))


def _walk(of: Type, value: Any, path: Path) -> Iterator[Path]:
    form, _ = of.form(value)
    if isinstance(form, str) or form.atomic:
        if path:
            yield path
    elif isinstance(form, MapType) and value is not None:
        for name, member in value.items():
            yield from _walk(form.member(name), member, (*path, f"f:{name}"))
            if member in (None, {}) or name not in form.fields:
                yield (*path, f"f:{name}")
    elif isinstance(form, ListType) and value is not None:
        for item in value:
            element = form.path_element(item)
            yield from _walk(form.element, item, (*path, element))
            yield (*path, element)


def compare(of: Type, before: Any, after: Any) -> Comparison:
    """Return the fields that differ between two objects of one type."""
    differences: tuple[set[Path], set[Path], set[Path]] = set(), set(), set()
    _compare(of, before, after, (), differences)
    return Comparison(*(frozenset(paths - {()}) for paths in differences))


def _compare(
    of: Type, before: Any, after: Any, path: Path, differences: tuple[set[Path], set[Path], set[Path]]
) -> None:
    if before is after or (type(before) is type(after) and before == after and not isinstance(before, dict | list)):
        return
    leaf = False
    for form in _forms(of, before, after):
        leaf = False
        if _is_leaf(form, before, after):
            leaf = True
            if before is ABSENT or after is ABSENT or not _equal(before, after):
                differences[2 if before is ABSENT else 0 if after is ABSENT else 1].add(path)
        elif isinstance(form, MapType):
            for name, (old, new) in _members(before, after):
                _compare(form.member(name), old, new, (*path, f"f:{name}"), differences)
        elif isinstance(form, ListType):
            _compare_items(form, before, after, path, differences)
    if not leaf and ABSENT in (before, after):
        differences[2 if before is ABSENT else 0].add(path)


def _compare_items(
    form: ListType, before: Any, after: Any, path: Path, differences: tuple[set[Path], set[Path], set[Path]]
) -> None:
    old, new = _by_element(form, before), _by_element(form, after)
    for element in {**old, **new}:
        _compare(form.element, old.get(element, ABSENT), new.get(element, ABSENT), (*path, element), differences)


def merge(of: Type, live: Any, applied: Any) -> Any:
    """Return *live* with the *applied* fields set; nothing is removed."""
    result: Any = ABSENT
    for form in _forms(of, live, applied):
        result = ABSENT
        if _is_leaf(form, live, applied):
            result = live if applied is ABSENT else applied
        elif isinstance(form, MapType):
            members = {name: merge(form.member(name), old, new) for name, (old, new) in _members(live, applied)}
            result = {name: member for name, member in members.items() if member is not ABSENT} or ABSENT
        elif isinstance(form, ListType):
            result = _merge_items(form, _items(live), _items(applied)) or ABSENT
    return result


def _merge_items(form: ListType, live: list[Any], applied: list[Any]) -> list[Any]:
    """Return the items of both lists; the real server orders them by several *applied* ones."""
    assert len(applied) <= 1, applied
    old, new = _by_element(form, live), _by_element(form, applied)
    return [merge(form.element, old.get(key, ABSENT), new.get(key, ABSENT)) for key in {**old, **new}]


def remove(of: Type, value: Any, paths: Iterable[Path]) -> Any:
    """Return *value* without the fields at *paths*; an object or list that becomes empty is null."""
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node[""] = {}
    return _remove(of, value, tree)


def _remove(of: Type, value: Any, tree: Mapping[str, Any]) -> Any:
    form, _ = of.form(value)
    if isinstance(form, str):
        return value
    if form.atomic or not value:
        return None
    if isinstance(form, MapType):
        if not isinstance(value, dict):
            return None
        members = {}
        for name, member in value.items():
            inner = tree.get(f"f:{name}", {})
            if "" not in inner:
                members[name] = _remove(form.member(name), member, inner) if inner else member
        return members or None
    if not isinstance(value, list):
        return None
    items = []
    for item in value:
        inner = tree.get(form.path_element(item), {})
        if "" not in inner:
            items.append(_remove(form.element, item, inner) if inner else item)
    return items or None


def with_declared(of: Type, paths: Paths) -> Paths:
    """Return *paths* and the declared members that contain some of them."""
    return paths | {path[:end] for path in paths for end in _declared(of, path)}


def _declared(of: Type, path: Path) -> Iterator[int]:
    at: Type | None = of
    for end, element in enumerate(path[:-1], 1):
        if at is None:
            return
        kind, name = element[0], element[2:]
        if kind == "f" and at.map:
            if name in at.map.fields:
                yield end
            at = at.map.fields.get(name, at.map.element)
        else:
            at = at.list.element if kind == "k" and at.list else None


def shown(path: Path) -> str:
    """Return *path* as messages show it."""
    show: Mapping[str, Callable[[str], str]] = {
        "f": lambda text: f".{text}",
        "v": lambda text: f"[={text}]",
        "k": lambda text: "[" + ",".join(f"{key}={_json(value)}" for key, value in json.loads(text).items()) + "]",
    }
    return "".join(show[element[0]](element[2:]) for element in path)


def _forms(of: Type, left: Any, right: Any) -> Iterator[Form]:
    """Yield the forms in which two values are walked: both, if a value changes its form; the last one counts."""
    (left_form, left_known), (right_form, right_known) = of.form(left), of.form(right)
    if right is ABSENT:
        yield left_form
    elif left is ABSENT or (left_form is right_form and left_known == right_known):
        yield right_form
    else:
        yield left_form
        yield right_form


def _is_leaf(form: Form, left: Any, right: Any) -> bool:
    if isinstance(form, str) or form.atomic:
        return True
    wanted = dict if isinstance(form, MapType) else list
    # Empty objects and lists are fields of their own.
    return not any(isinstance(value, wanted) and value for value in (left, right))


def _members(left: Any, right: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    left, right = (value if isinstance(value, dict) else {} for value in (left, right))
    for name in {**left, **right}:
        yield name, (left.get(name, ABSENT), right.get(name, ABSENT))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _by_element(form: ListType, value: Any) -> dict[str, Any]:
    return {form.path_element(item): item for item in _items(value)}


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
