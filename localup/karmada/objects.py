"""Kubernetes objects as decoded JSON: their identity and metadata, whatever their kind.

Objects are never changed in place: what makes another one of them makes a copy.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

Object = Mapping[str, Any]


class Key(NamedTuple):
    """What an object is known by among those of its kind; the namespace is empty where there is none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def decode_object(raw: bytes) -> dict[str, Any]:
    """Decode an object, without the record of who wrote which field: it is long and tells us nothing."""
    item: dict[str, Any] = msgspec.json.decode(raw)
    item["metadata"].pop("managedFields", None)
    return item


def key_of(item: Object) -> Key:
    """Return the key of *item*."""
    return Key(item["metadata"].get("namespace", ""), item["metadata"]["name"])


def uid_of(item: Object) -> str:
    """Return its uid."""
    return str(item["metadata"]["uid"])


def version_of(item: Object) -> int:
    """Return its resourceVersion as the number that it is."""
    return int(item["metadata"]["resourceVersion"])


def generation_of(item: Object) -> int:
    """Return its generation, 0 for kinds that have none."""
    return int(item["metadata"].get("generation", 0))


def labels_of(item: Object) -> dict[str, str]:
    """Return a copy of its labels."""
    return dict(item["metadata"].get("labels") or {})


def annotations_of(item: Object) -> dict[str, str]:
    """Return a copy of its annotations."""
    return dict(item["metadata"].get("annotations") or {})


def finalizers_of(item: Object) -> list[str]:
    """Return a copy of its finalizers."""
    return list(item["metadata"].get("finalizers") or ())


def is_terminating(item: Object) -> bool:
    """Say whether it is being deleted."""
    return "deletionTimestamp" in item["metadata"]


def spec_of(item: Object) -> dict[str, Any]:
    """Return a copy of its spec, one level deep."""
    return dict(item.get("spec") or {})


def status_of(item: Object) -> dict[str, Any]:
    """Return a copy of its status, one level deep."""
    return dict(item.get("status") or {})


def with_metadata(item: Object, **fields: Any) -> Object:
    """Return *item* with other fields of metadata; those that are empty are left out."""
    metadata = {**item["metadata"], **fields}
    return {**item, "metadata": {name: value for name, value in metadata.items() if value or name not in fields}}


def with_spec(item: Object, **fields: Any) -> Object:
    """Return *item* with other fields of its spec; those that are ``None`` are left out."""
    spec = {**spec_of(item), **fields}
    return {**item, "spec": {name: value for name, value in spec.items() if value is not None}}


def with_status(item: Object, **fields: Any) -> Object:
    """Return *item* with other fields of its status; those that are ``None`` are left out."""
    status = {**status_of(item), **fields}
    return {**item, "status": {name: value for name, value in status.items() if value is not None}}


def same_specification(left: Object, right: Object) -> bool:
    """Say whether two versions of an object differ in nothing but status and bookkeeping."""
    return _specification(left) == _specification(right)


def merge_patch(old: Object, new: Object) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) that turns *old* into *new*; lists are replaced whole."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(before, value):
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch


def _specification(item: Object) -> dict[str, Any]:
    metadata = {name: value for name, value in item["metadata"].items() if name != "resourceVersion"}
    return {**{name: value for name, value in item.items() if name != "status"}, "metadata": metadata}
