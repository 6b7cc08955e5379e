"""Validates the fields of an object; each violation has a field path and a remedy.

The wire types define which fields are read and their types. The controller ignores
unreadable fields of live objects, but in files they are most likely mistakes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from functools import cache, lru_cache, partial
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

import msgspec

from controller.api import bindings, clusters, jobs, queues
from controller.api.quantity import QuantityError, parse_quantity
from controller.cli.input.default_bindings import ReplicatedSpec, ResourceSelector
from controller.cli.input.manifests import abbreviate
from controller.engine.state.clusters import Operator

_QUANTITY = frozenset({str, int, float})
_INT32 = 2**31 - 1

#: Bounds of numbers, as in the CRDs. Volcano treats weight 0 as 1.
_BOUNDS: Mapping[tuple[type, str], tuple[int, int]] = MappingProxyType(
    {
        (queues.QueueSpec, "weight"): (0, 65535),
        (queues.QueueSpec, "priority"): (0, _INT32),
        (jobs.JobSpec, "minAvailable"): (0, _INT32),
        (jobs.Task, "replicas"): (0, _INT32),
        (jobs.Task, "minAvailable"): (0, _INT32),
        (ReplicatedSpec, "replicas"): (0, _INT32),
        (ReplicatedSpec, "parallelism"): (0, _INT32),
        (ReplicatedSpec, "completions"): (0, _INT32),
        (bindings.BindingSpec, "replicas"): (0, _INT32),
        (bindings.Component, "replicas"): (0, _INT32),
        (bindings.TargetCluster, "replicas"): (0, _INT32),
        (bindings.SpreadConstraint, "minGroups"): (0, _INT32),
        (bindings.SpreadConstraint, "maxGroups"): (0, _INT32),
        (bindings.StaticClusterWeight, "weight"): (0, _INT32),
        (clusters.GradeCount, "count"): (0, _INT32),
    }
)
#: Allowed values of enumerations; an empty text means that the field is not set.
_CHOICES: Mapping[tuple[type, str], tuple[str, ...]] = MappingProxyType(
    {
        (queues.QueueSpec, "dequeueStrategy"): ("fifo", "traverse"),
        (bindings.SpreadConstraint, "spreadByField"): ("cluster", "region", "zone", "provider"),
        (bindings.ReplicaScheduling, "replicaSchedulingType"): ("Divided", "Duplicated"),
        (bindings.ReplicaScheduling, "replicaDivisionPreference"): ("Aggregated", "Weighted"),
        (bindings.WeightPreference, "dynamicWeight"): ("AvailableReplicas",),
        (bindings.ClusterToleration, "operator"): ("Equal", "Exists"),
        (bindings.Expression, "operator"): get_args(Operator),
        (clusters.Taint, "effect"): ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    }
)
_LIMITED = frozenset(_BOUNDS) | frozenset(_CHOICES)
_REQUIRED: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        bindings.ObjectReference: ("apiVersion", "kind", "name"),
        bindings.TargetCluster: ("name",),
        clusters.Taint: ("key", "effect"),
        bindings.Expression: ("key", "operator"),
        ResourceSelector: ("apiVersion", "kind"),
    }
)
_EXAMPLES = MappingProxyType({"cpu": "500m or 4", "memory": "512Mi or 64Gi"})
_BYTES = "1 or 16"

#: Answers about values and names that are cached: those of many objects are the same.
_MAX_CACHED = 4096

#: Minimum similarity of a misspelled name with the meant one.
_SIMILAR = 0.8
#: Fields of the APIs that are not read and resemble fields that are.
_OTHER_FIELDS = frozenset({"apiVersion", "kind", "minSuccess", "maxRetry", "selfLink", "initContainer", "condition"})


class FieldMessages(NamedTuple):
    """What is wrong with the fields of an object; each message begins with the field path."""

    violations: Sequence[str] = ()
    misspelled: Sequence[str] = ()
    """Fields that are not read and resemble one that is. The APIs have more fields than are read, so other unknown
    fields are not reported."""


def check_fields(struct: type[msgspec.Struct], body: object) -> FieldMessages:
    """Return the messages about the fields of *body*, an object of the type *struct*."""
    if _test_of(struct)(body, ""):
        return FieldMessages()
    return FieldMessages(list(_validate(struct, body, "")), list(_misspelled(struct, body, "")))


def unread_field(struct: type[msgspec.Struct], path: Iterable[str | int]) -> str:
    """Return the part of the field *path* that leads to a field that is not read, with the field that may be meant.

    The text is empty where objects of the type *struct* are read with that field.
    """
    kind: Any = struct
    done = ""
    for step in path:
        members = [member for member in get_args(kind) if member is not NoneType]
        if get_origin(kind) in {Union, UnionType} and len(members) == 1:
            kind = members[0]
        origin, known = get_origin(kind), {}
        done = f"{done}[{step}]" if isinstance(step, int) else _field_path(done, step)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            known = dict(_fields(kind))
            if step not in known:
                meant = _meant_field(kind, str(step))
                return f"{done}; did you mean {meant}?" if meant else done
            kind = known[str(step)]
        elif origin in {dict, list, tuple}:
            kind = get_args(kind)[1 if origin is dict else 0]
        else:
            return ""
    return ""


@cache
def _test_of(kind: Any) -> Callable[[Any, str], bool]:
    """Return a fast test whether a value of *kind* has no messages; it also takes the last part of the field path.

    Nearly all objects pass, and only for others the messages are computed. The test may fail without need.
    """
    origin = get_origin(kind)
    test: Callable[[Any, str], bool]
    if kind in {Any, msgspec.Raw}:
        return lambda _value, _name: True
    if origin in {Union, UnionType}:
        others = [other for other in get_args(kind) if other is not NoneType]
        return _is_quantity if frozenset(others) == _QUANTITY else _test_of(others[0])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        test = partial(_passes_struct, kind)
    elif origin is dict:
        test = partial(_passes_mapping, _test_of(get_args(kind)[1]))
    elif origin in {list, tuple}:
        test = partial(_passes_list, _test_of(get_args(kind)[0]))
    else:
        test = partial(_passes_scalar, kind)
    return test


@cache
def _member_tests(kind: type[msgspec.Struct]) -> Mapping[str, Callable[[Any, str], bool]]:
    """Return the test of each field; types may be recursive, so it is called when a value is tested."""
    return {name: _test_of(member) for name, member in _fields(kind)}


def _passes_struct(kind: type[msgspec.Struct], value: Any, _name: str) -> bool:
    if not isinstance(value, dict):
        return value is None
    for name in _REQUIRED.get(kind, ()):
        if value.get(name) in (None, ""):
            return False
    tests = _member_tests(kind)
    for name, member in value.items():
        test = tests.get(name)
        if test is None:
            if _meant_field(kind, name):
                return False
        elif not test(member, name) or ((kind, name) in _LIMITED and any(_validate_range(kind, name, member, ""))):
            return False
    return True


def _passes_mapping(test: Callable[[Any, str], bool], value: Any, _name: str) -> bool:
    if not isinstance(value, dict):
        return value is None
    return all(test(member, key) for key, member in value.items())


def _passes_list(test: Callable[[Any, str], bool], value: Any, _name: str) -> bool:
    if not isinstance(value, list):
        return value is None
    return all(test(item, "") for item in value)


def _passes_scalar(kind: type, value: Any, _name: str) -> bool:
    return value is None or (_is_time(value) if kind is datetime else type(value) is kind)


def _is_quantity(value: Any, name: str) -> bool:
    return value is None or (type(value) in _QUANTITY and not _quantity_message(name, value))


def _misspelled(kind: Any, value: Any, path: str) -> Iterator[str]:
    origin = get_origin(kind)
    if origin in {Union, UnionType}:
        members = [member for member in get_args(kind) if member is not NoneType]
        if len(members) == 1:
            yield from _misspelled(members[0], value, path)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
        known = dict(_fields(kind))
        for name, member in value.items():
            member_path = _field_path(path, name)
            if name in known:
                yield from _misspelled(known[name], member, member_path)
            elif meant := _meant_field(kind, name):
                yield f"{member_path}: unknown field; did you mean {meant}?"
    elif origin in {list, tuple} and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _misspelled(get_args(kind)[0], item, f"{path}[{index}]")


@lru_cache(maxsize=_MAX_CACHED)
def _meant_field(kind: type[msgspec.Struct], name: str) -> str:
    """Return the field of *kind* that the unknown field *name* resembles, or an empty text."""
    if name in _OTHER_FIELDS:
        return ""
    return next(iter(get_close_matches(name, dict(_fields(kind)), n=1, cutoff=_SIMILAR)), "")


def _validate(kind: Any, value: Any, path: str) -> Iterator[str]:
    """Yield the violations in *value* and its members; null means that the field is not set."""
    if value is None or kind in {Any, msgspec.Raw}:
        return
    origin = get_origin(kind)
    if origin in {Union, UnionType}:
        others = [other for other in get_args(kind) if other is not NoneType]
        yield from (
            _validate_quantity(value, path) if frozenset(others) == _QUANTITY else _validate(others[0], value, path)
        )
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _validate_struct(kind, value, path)
    elif origin is dict:
        yield from _validate_mapping(get_args(kind)[1], value, path)
    elif origin in {list, tuple}:
        yield from _validate_list(get_args(kind)[0], value, path)
    else:
        yield from _validate_scalar(kind, value, path)


def _validate_struct(kind: type[msgspec.Struct], value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: {abbreviate(value)} is not a mapping"
        return
    for name in _REQUIRED.get(kind, ()):
        if value.get(name) in (None, ""):
            yield f"{_field_path(path, name)}: it is missing"
    for name, member_kind in _fields(kind):
        if name in value:
            member_path = _field_path(path, name)
            violations = list(_validate(member_kind, value[name], member_path))
            yield from violations or _validate_range(kind, name, value[name], member_path)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.encode_name, field.type) for field in msgspec.structs.fields(kind))


def _validate_mapping(kind: Any, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: {abbreviate(value)} is not a mapping"
        return
    for key, member in value.items():
        yield from _validate(kind, member, _field_path(path, key))


def _validate_list(kind: Any, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: {abbreviate(value)} is not a list"
        return
    for index, item in enumerate(value):
        yield from _validate(kind, item, f"{path}[{index}]")


def _validate_scalar(kind: type, value: Any, path: str) -> Iterator[str]:
    if kind is datetime:
        if not _is_time(value):
            yield f"{path}: {abbreviate(value)} is not a time; write it like 2006-01-02T15:04:05Z"
    elif type(value) is not kind:
        expected, hint = _EXPECTED.get(kind, ("readable", ""))
        yield f"{path}: {abbreviate(value)} is not {expected}{hint if not isinstance(value, (dict, list)) else ''}"


_EXPECTED = MappingProxyType(
    {
        str: ("text", "; write it in quotes"),
        int: ("a whole number", ""),
        bool: ("true or false", ""),
    }
)


def _is_time(value: object) -> bool:
    try:
        msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return False
    return True


def _validate_quantity(value: Any, path: str) -> Iterator[str]:
    resource = path[path.rfind("[") + 1 :].rstrip("]") if path.endswith("]") else path.rpartition(".")[2]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        message = f"{abbreviate(value)} is not a quantity; write for example {_EXAMPLES.get(resource, _BYTES)}"
    else:
        message = _quantity_message(resource, value)
    if message:
        yield f"{path}: {message}"


@lru_cache(maxsize=_MAX_CACHED, typed=True)
def _quantity_message(resource: str, value: str | float) -> str:
    """Return why *value* is not an amount of *resource*, or an empty text if it is one."""
    try:
        amount = parse_quantity(resource, value)
    except QuantityError as error:
        reason = str(error).removeprefix(f"{resource}: ")
        example = _EXAMPLES.get(resource, _BYTES)
        malformed = f"{abbreviate(value)} is not a quantity; write for example {example}"
        return malformed if "is not a quantity" in reason else reason
    return f"{abbreviate(value)} is below zero; write zero or more" if amount < 0 else ""


def _validate_range(kind: type, name: str, value: Any, path: str) -> Iterator[str]:
    """Yield the violations of bounds and enumerations for a value of the right type."""
    low, high = _BOUNDS.get((kind, name), (None, None))
    if low is not None and high is not None and value is not None and not low <= value <= high:
        yield f"{path}: {value} is not between {low} and {high}"
    choices = _CHOICES.get((kind, name))
    if choices and value and value not in choices:
        yield f"{path}: {abbreviate(value)} is not {' or '.join(choices)}"


def _field_path(path: str, key: str) -> str:
    """Return the path of the member *key*; a key with dots or slashes is put in brackets."""
    if "." in key or "/" in key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key
