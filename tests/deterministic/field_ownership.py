"""Field ownership for server-side apply: which manager set which field of an object, and when.

These functions decide as the field manager of kube-apiserver does (k8s.io/apimachinery, `util/managedfields`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.deterministic.field_types import (
    Path,
    Paths,
    Type,
    compare,
    fields_of,
    merge,
    remove,
    with_declared,
)

_UNOWNED = {("f:apiVersion",), ("f:kind",), ("f:metadata",)} | {
    ("f:metadata", f"f:{name}")
    for name in ("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion")
}


@dataclass(frozen=True)
class Manager:
    """A writer of fields; applies and updates of one name are two managers."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        shown = f'"{self.name}"' + (f' with subresource "{self.subresource}"' if self.subresource else "")
        return shown if self.operation == "Apply" else f"{shown} using {self.api_version}"

    @property
    def identifier(self) -> str:
        """The text by which conflicts are sorted."""
        entry = {"manager": self.name, "operation": self.operation}
        entry |= {"apiVersion": self.api_version} if self.operation == "Update" else {}
        entry |= {"subresource": self.subresource} if self.subresource else {}
        return json.dumps(entry, separators=(",", ":"))


class Owned(NamedTuple):
    """The fields of one manager, and the time at which it last changed the object, empty if it never did."""

    paths: Paths
    time: str


Ownership = Mapping[Manager, Owned]


@dataclass(frozen=True)
class Schema:
    """The type of an object at an endpoint, and the top-level fields that writes to this endpoint do not change."""

    type: Type
    ignored: frozenset[str] = frozenset()

    def filtered(self, paths: Paths) -> Paths:
        if not self.ignored:
            return paths
        return frozenset(path for path in paths if path[0].removeprefix("f:") not in self.ignored)


class ApplyConflictError(Exception):
    """Other managers own fields that an apply would change."""

    def __init__(self, conflicts: list[tuple[Manager, Path]]) -> None:
        super().__init__("apply conflicts")
        self.conflicts = conflicts


@dataclass(frozen=True)
class Write:
    """A manager that writes to an endpoint at the time *now*."""

    schema: Schema
    by: Manager
    now: str


def after_update(write: Write, ownership: Ownership, before: Mapping[str, Any], after: Mapping[str, Any]) -> Ownership:
    """Return the owners after an object changed from *before* to *after* without apply."""
    schema, by = write.schema, write.by
    removed, modified, added = (schema.filtered(paths) for paths in compare(schema.type, before, after))
    changed = modified | added
    owned = {manager: Owned(paths - removed - changed, time) for manager, (paths, time) in ownership.items()}
    if taken := changed - _UNOWNED:
        previous = owned[by].paths if by in owned else frozenset()
        owned[by] = Owned(previous | taken, write.now)
    return {manager: entry for manager, entry in owned.items() if entry.paths}


def apply_fields(
    write: Write, live: Mapping[str, Any], applied: Mapping[str, Any], ownership: Ownership, *, force: bool
) -> tuple[dict[str, Any] | None, Ownership]:
    """Return *live* with the *applied* fields set, or ``None`` if it stays equal, and the owners after that.

    Fields that the manager applied before, and now omits, are removed unless another manager owns them.
    Raises ``ApplyConflictError`` if *force* is not set and a field changes that another manager owns.
    """
    schema, by = write.schema, write.by
    result = merge(schema.type, live, applied)
    paths = schema.filtered(fields_of(schema.type, applied))
    last, time = ownership.get(by, (frozenset(), ""))
    owned = {**ownership, by: Owned(paths, time)}
    if last:
        result = _pruned(schema.type, result, last, frozenset().union(*(entry.paths for entry in owned.values())))
    removed, modified, added = (schema.filtered(paths) for paths in compare(schema.type, live, result))
    conflicts = {manager: entry.paths & (modified | added) for manager, entry in ownership.items() if manager != by}
    if not force and any(conflicts.values()):
        raise ApplyConflictError(
            [
                (manager, path)
                for manager in sorted(conflicts, key=lambda manager: manager.identifier)
                for path in sorted(conflicts[manager], key=_set_order)
            ]
        )
    for manager, lost in conflicts.items():
        owned[manager] = Owned(owned[manager].paths - lost - removed, owned[manager].time)
    equal = result == live
    owned[by] = Owned(paths - _UNOWNED, time if equal else write.now)
    return None if equal else result, {manager: entry for manager, entry in owned.items() if entry.paths}


def _pruned(of: Type, merged: Any, last: Paths, owned: Paths) -> Any:
    """Remove the fields in *last* from *merged* that are not in *owned*, and nothing else."""
    every, last = with_declared(of, fields_of(of, merged)), with_declared(of, last)
    pruned = remove(of, merged, last)
    left = with_declared(of, fields_of(of, pruned))
    pruned = remove(of, merged, every - (left | with_declared(of, owned)))
    left = with_declared(of, fields_of(of, pruned))
    return remove(of, merged, (every - left) & last)


def listed(ownership: Ownership) -> list[tuple[Manager, Paths]]:
    """Return the owners in the order of the entries in ``managedFields``."""
    order = sorted(
        ownership,
        key=lambda manager: (
            manager.operation,
            ownership[manager].time,
            manager.name,
            manager.api_version,
            manager.subresource,
        ),
    )
    return [(manager, ownership[manager].paths) for manager in order]


def managed_fields(ownership: Ownership) -> list[dict[str, Any]]:
    """Return *ownership* as the ``managedFields`` of an object, without times."""
    entries = []
    for manager, paths in listed(ownership):
        fields: dict[str, Any] = {}
        for path in paths:
            node = fields
            for element in path:
                node = node.setdefault(element, {})
        for path in paths:
            node = fields
            for element in path:
                node = node[element]
            if node:
                node["."] = {}
        entry: dict[str, Any] = {"manager": manager.name, "operation": manager.operation}
        entry |= {"apiVersion": manager.api_version, "fieldsType": "FieldsV1", "fieldsV1": fields}
        entries.append(entry | ({"subresource": manager.subresource} if manager.subresource else {}))
    return entries


def _set_order(path: Path) -> list[tuple[bool, str]]:
    """Sort the members of an object before what is inside of them, as the real server does."""
    return [(index < len(path) - 1, key) for index, key in enumerate(path)]
