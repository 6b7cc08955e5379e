"""Types of fields for server-side apply: the fields of an object, their comparison, merge and removal.

These functions give the results of sigs.k8s.io/structured-merge-diff, special cases of empty, null and repeated values
included. A path has one element for each step: ``f:name`` for a member of an object, ``k:{"uid":"u1"}`` for an item of
a list with keys, and ``v:"x"`` for an item of a set, as in ``managedFields``.
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
        if member is None:
            raise FieldTypeError(f".{name}: field not declared in schema")
        return member


@dataclass(eq=False)
class ListType:
    """A list; unless it is atomic, its items are found by *key*, or are a set without one."""

    element: "Type"
    atomic: bool = True
    key: str = ""

    def path_element(self, item: Any) -> str:
        return f"k:{_json({self.key: item.get(self.key, '')})}" if self.key else f"v:{_json(item)}"


Scalar = Literal["numeric", "string", "boolean", "untyped"]
Form = MapType | ListType | Scalar


@dataclass(eq=False)
class Type:
    """The forms that a value may have."""

    map: MapType | None = None
    list: ListType | None = None
    scalar: Scalar | None = None

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


class FieldTypeError(Exception):
    """A value is not of its declared type."""


def free_form() -> Type:
    """Return the type of JSON without a declared type: its objects are merged, its lists are replaced."""
    atomic = Type(MapType({}, None, atomic=True), None, "untyped")
    atomic.list = ListType(atomic)
    assert atomic.map
    atomic.map.element = atomic
    free = Type(MapType({}, None), ListType(atomic), "untyped")
    assert free.map
    free.map.element = free
    return free


STRING, NUMBER, BOOLEAN = Type(scalar="string"), Type(scalar="numeric"), Type(scalar="boolean")
FREE = free_form()
FREE_OBJECT = Type(MapType({}, FREE))
STRINGS = Type(MapType({}, STRING))


def struct(**fields: Type) -> Type:
    """Return the type of an object that has only *fields*."""
    return Type(MapType(fields, None))


METADATA = struct(
    name=STRING,
    generateName=STRING,
    namespace=STRING,
    selfLink=STRING,
    uid=STRING,
    resourceVersion=STRING,
    generation=NUMBER,
    creationTimestamp=STRING,
    deletionTimestamp=STRING,
    deletionGracePeriodSeconds=NUMBER,
    labels=STRINGS,
    annotations=STRINGS,
    finalizers=Type(list=ListType(STRING, atomic=False)),
    ownerReferences=Type(list=ListType(Type(MapType({}, FREE, atomic=True)), atomic=False, key="uid")),
    managedFields=Type(list=ListType(FREE)),
)


_HEAD = {"apiVersion": STRING, "kind": STRING, "metadata": METADATA}
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


def check_type(of: Type, value: Any, *, repeated: bool, at: str = "") -> None:
    """Raise ``FieldTypeError`` if *value* is of another type; unless *repeated*, items of sets must differ."""
    form, _ = of.form(value)
    if value is None or of is FREE:
        return
    if isinstance(form, MapType):
        if not isinstance(value, dict):
            raise FieldTypeError(f"{at}: expected map, got {_go(value)}")
        for name, member in value.items():
            if name not in form.fields and form.element is None:
                raise FieldTypeError(f"{at}.{name}: field not declared in schema")
            check_type(form.member(name), member, repeated=repeated, at=f"{at}.{name}")
    elif isinstance(form, ListType):
        if not isinstance(value, list):
            raise FieldTypeError(f"{at}: expected list, got {_go(value)}")
        _check_items(form, value if not form.atomic else [], repeated=repeated, at=at)
    elif not _is_scalar(form, value):
        wanted = {"numeric": "numeric (int or float)", "untyped": "any scalar"}.get(form, form)
        raise FieldTypeError(f"{at}: expected {wanted}, got {_go_type(value) if form == 'numeric' else _go(value)}")


def _check_items(form: ListType, items: list[Any], *, repeated: bool, at: str) -> None:
    seen = set()
    for item in items:
        check_type(form.element, item, repeated=repeated, at=at)
        element = form.path_element(item)
        if element in seen and not repeated:
            raise FieldTypeError(f"{at}: duplicate entries for key {shown((element,))}")
        seen.add(element)


def known_fields(of: Type, value: Any, at: str = "") -> tuple[Any, list[str]]:
    """Return *value* without members that are not declared, and their paths."""
    if not isinstance(value, dict) or not of.map or of is FREE:
        return value, []
    known, unknown = {}, []
    for name, member in value.items():
        declared = of.map.fields.get(name, of.map.element)
        if declared is None:
            unknown.append(f"{at}{name}")
        else:
            known[name], inner = known_fields(declared, member, f"{at}{name}.")
            unknown += inner
    return known if unknown else value, unknown


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
        elements = [form.path_element(item) for item in value]
        for element, item in zip(elements, value, strict=True):
            if elements.count(element) == 1:
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
    """Compare items with equal keys; repeated items are compared as one atomic field."""
    old, new = _by_element(form, before), _by_element(form, after)
    removed, modified, added = differences
    for element in {**old, **new}:
        was, now, at = old.get(element, []), new.get(element, []), (*path, element)
        if len(was) > 1 and len(now) > 1:
            if was != now:
                modified.add(at)
        elif len(was) > 1:
            if now:
                _compare(form.element, ABSENT, now[0], at, differences)
            removed.add(at)
        elif len(now) > 1:
            if was:
                _compare(form.element, was[0], ABSENT, at, differences)
            added.add(at)
        else:
            _compare(form.element, was[0] if was else ABSENT, now[0] if now else ABSENT, at, differences)


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
    """Return the items of both lists in the order of *applied*; others stay before the next shared one."""
    left_keys, right_keys = ([form.path_element(item) for item in items] for items in (live, applied))
    # Repeated items are not merged with the applied one.
    old = {key: None if left_keys.count(key) > 1 else item for key, item in zip(left_keys, live, strict=True)}
    new = dict(zip(right_keys, applied, strict=True))
    shared = [key for key in right_keys if key in old]
    merged: list[Any] = []
    taken: set[str] = set()
    left = right = 0

    def take(key: str) -> None:
        taken.add(key)
        merged.append(merge(form.element, old.get(key, ABSENT), new[key]))

    while left < len(live) or right < len(applied):
        if left < len(live) and right < len(applied):
            key = left_keys[left]
            if key == right_keys[right]:
                take(key)
                left, right, shared = left + 1, right + 1, shared[1:]
                continue
            if key in new and shared and shared[0] != key:
                left += 1
                continue
        if left < len(live):
            key = left_keys[left]
            if key not in new:
                merged.append(live[left])
                left += 1
                continue
            if key in taken:
                left += 1
        if right < len(applied):
            key = right_keys[right]
            take(key)
            right += 1
            shared = shared[1:] if shared and shared[0] == key else shared
    return merged


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


def _by_element(form: ListType, value: Any) -> dict[str, list[Any]]:
    by_element: dict[str, list[Any]] = {}
    for item in _items(value):
        by_element.setdefault(form.path_element(item), []).append(item)
    return by_element


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _is_scalar(form: Scalar, value: Any) -> bool:
    if isinstance(value, dict | list):
        return False
    if form == "untyped":
        return True
    if form == "numeric":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str if form == "string" else bool)


def _go(value: Any) -> str:
    return f"&{{{value}}}"


def _go_type(value: Any) -> str:
    names = {dict: "map[string]interface {}", list: "[]interface {}"}
    return names.get(type(value), {str: "string", bool: "bool"}.get(type(value), "float64"))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
