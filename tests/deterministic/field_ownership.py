"""Field ownership for server-side apply: which manager set which field of an object."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.deterministic.objects import copied

Path = tuple[str, ...]

_SERVER_FIELDS = {
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink",
}  # fmt: skip


_MAPS = {("metadata", name) for name in ("labels", "annotations", "finalizers", "ownerReferences")} | {("data",)}


@dataclass(frozen=True, order=True)
class Manager:
    """A writer of fields; applies and updates of one name are two managers."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        shown = f'"{self.name}"' + (f' with subresource "{self.subresource}"' if self.subresource else "")
        return shown if self.operation == "Apply" else f"{shown} using {self.api_version}"


Ownership = Mapping[Manager, frozenset[Path]]


class ApplyConflictError(Exception):
    """Other managers own fields that an apply would change."""

    def __init__(self, conflicts: list[tuple[Manager, Path]]) -> None:
        super().__init__("apply conflicts")
        self.conflicts = conflicts


def fields_of(obj: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the fields of *obj* that managers own, with their values; a container of others has the value ``None``."""
    return {path: value for path, value in _walk(_unfold(obj), ()) if path[0] not in {"apiVersion", "kind"}}


def after_update(ownership: Ownership, before: Mapping[str, Any], after: Mapping[str, Any], by: Manager) -> Ownership:
    """Return the owners after *by* changed an object from *before* to *after* without apply."""
    old, new = fields_of(before), fields_of(after)
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    removed = (frozenset(old) - frozenset(new)) | (_maps(old) - _maps(new))
    changed |= _maps(new) - _maps(old)
    owned = {
        manager: paths - removed - (changed if manager != by else frozenset()) for manager, paths in ownership.items()
    }
    owned[by] = owned.get(by, frozenset()) | changed
    return {manager: paths for manager, paths in owned.items() if paths}


def apply_fields(
    current: Mapping[str, Any], applied: Mapping[str, Any], ownership: Ownership, by: Manager, *, force: bool
) -> tuple[dict[str, Any], Ownership]:
    """Return *current* with the *applied* fields set, and the owners after that.

    Fields that *by* applied before, and now omits, are removed unless another manager owns them.
    Raises ``ApplyConflictError`` if *force* is not set and a field changes that another manager owns.
    """
    live, wanted = fields_of(current), fields_of(applied)
    others = {manager: paths for manager, paths in ownership.items() if manager != by}
    changed = {path for path, value in wanted.items() if value not in (None, {}) and live.get(path, ()) != value}
    # An object that was empty, and so a field of its own, is no longer one.
    changed |= _containers(wanted) - _containers(live)
    conflicts = [
        (manager, path) for manager in sorted(others) for path in sorted(others[manager] & changed, key=_set_order)
    ]
    if conflicts and not force:
        raise ApplyConflictError(conflicts)
    result = _unfold(current)
    for path, value in wanted.items():
        _set(result, path, value)
    remaining = frozenset().union(*others.values()) | frozenset(wanted)
    before = ownership.get(by, frozenset())
    for path in sorted(before - remaining, key=lambda path: (-len(path), path)):
        _remove(result, path)
    for path in sorted(_containers(before) - _containers(remaining) - remaining - {("metadata",)}):
        if path[0] == "metadata":
            # Elements without an owner, such as the finalizers of a deletion, go with the list.
            result["metadata"].pop(path[1], None)
    _order_elements(result, live=_unfold(current), applied=_unfold(applied))
    merged = _fold(result)
    finalizers, before_apply = (obj.get("metadata", {}).get("finalizers") or [] for obj in (merged, current))
    if not applied.get("metadata", {}).get("finalizers") and sorted(finalizers) == sorted(before_apply):
        # Repeated finalizers keep their places where none is applied.
        merged["metadata"] |= {"finalizers": before_apply} if before_apply else {}
    removed = frozenset(live) - frozenset(fields_of(merged))
    owned = {manager: paths - changed - removed for manager, paths in others.items()}
    owned[by] = frozenset(wanted)
    return merged, {manager: paths for manager, paths in owned.items() if paths}


def _order_elements(result: dict[str, Any], *, live: Mapping[str, Any], applied: Mapping[str, Any]) -> None:
    """Put the elements of lists with keys into the order of what was applied, between those that only *live* has."""
    metadata = result["metadata"]
    for name in ("finalizers", "ownerReferences"):
        if isinstance(metadata.get(name), dict):
            keys = _merged_order(*(list(obj.get("metadata", {}).get(name) or {}) for obj in (live, applied)))
            metadata[name] = {key: metadata[name][key] for key in keys if key in metadata[name]}


def _merged_order(live: list[str], applied: list[str]) -> list[str]:
    """Return the keys of both lists: elements of *live* alone keep their place before the next shared one."""
    shared = [key for key in applied if key in live]
    order: list[str] = []
    left, right = 0, 0
    while left < len(live) or right < len(applied):
        if left < len(live) and right < len(applied):
            if live[left] == applied[right]:
                order.append(live[left])
                left, right, shared = left + 1, right + 1, shared[1:]
                continue
            if live[left] in applied and shared and shared[0] != live[left]:
                left += 1
                continue
        if left < len(live):
            if live[left] not in applied:
                order.append(live[left])
                left += 1
                continue
            if live[left] in order:
                left += 1
        if right < len(applied):
            order.append(applied[right])
            shared = shared[1:] if shared and shared[0] == applied[right] else shared
            right += 1
    return order


def _containers(paths: Iterable[Path]) -> set[Path]:
    return {path[:end] for path in paths for end in range(1, len(path))}


def _maps(paths: Iterable[Path]) -> set[Path]:
    """Return the maps and sets that hold some of *paths*; an update owns those that it creates, an apply does not."""
    return _containers(paths) & _MAPS


def _set_order(path: Path) -> list[tuple[bool, str]]:
    """Sort the members of an object before what is inside of them, as the real server does."""
    return [(index < len(path) - 1, key) for index, key in enumerate(path)]


def _unfold(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy whose lists with keys are objects, so that each element is a field."""
    unfolded = copied(dict(obj))
    metadata = {key: value for key, value in unfolded.get("metadata", {}).items() if key not in _SERVER_FIELDS}
    if metadata.get("finalizers"):
        names = metadata["finalizers"]
        metadata["finalizers"] = {name: [name] * names.count(name) for name in names}
    if metadata.get("ownerReferences"):
        metadata["ownerReferences"] = {owner["uid"]: [owner] for owner in metadata["ownerReferences"]}
    return {**unfolded, "metadata": metadata}


def _fold(unfolded: dict[str, Any]) -> dict[str, Any]:
    metadata = unfolded["metadata"]
    if "finalizers" in metadata:
        metadata["finalizers"] = [name for names in (metadata["finalizers"] or {}).values() for name in names]
    if "ownerReferences" in metadata:
        metadata["ownerReferences"] = [owner for (owner,) in (metadata["ownerReferences"] or {}).values()]
    return unfolded


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if not isinstance(value, dict) or (not value and path):
        if path != ("metadata",):
            yield path, value
        return
    if len(path) > 1 and path[0] != "metadata":
        yield path, None
    for key, item in value.items():
        yield from _walk(item, (*path, key))


def _set(target: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(target.get(key), dict):
            target[key] = {}
        target = target[key]
    if (value is None or value == {}) and isinstance(target.get(path[-1]), dict):
        return
    target[path[-1]] = {} if value is None else value


def _remove(target: dict[str, Any], path: Path) -> None:
    """Remove the field with all inside; a top-level object that becomes empty is null, as the real server leaves it."""
    *parents, last = path
    containers = [target]
    for key in parents:
        if not isinstance(containers[-1].get(key), dict):
            return
        containers.append(containers[-1][key])
    if not parents and containers[-1].get(last):
        return
    containers[-1].pop(last, None)
    if not containers[-1] and len(path) > 1:
        if path[0] == "metadata":
            containers[-2].pop(parents[-1], None)
        elif len(path) == 2:
            containers[-2][parents[-1]] = None
