"""Identity and metadata of Kubernetes objects as decoded JSON.

Objects are immutable; functions that change one return a copy.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

Object = Mapping[str, Any]


class Key(NamedTuple):
    """Namespace and name of an object; the namespace is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def decode_object(raw: bytes) -> dict[str, Any]:
    """Decode an object without managed fields, which are large and unused."""
    item: dict[str, Any] = msgspec.json.decode(raw)
    item["metadata"].pop("managedFields", None)
    return item


def key_of(item: Object) -> Key:
    """Return the key of *item*."""
    return Key(item["metadata"].get("namespace", ""), item["metadata"]["name"])


def uid_of(item: Object) -> str:
    """Return the uid."""
    return str(item["metadata"]["uid"])


def version_of(item: Object) -> int:
    """Return the resourceVersion as a number."""
    return int(item["metadata"]["resourceVersion"])


def generation_of(item: Object) -> int:
    """Return the generation, 0 for kinds without one."""
    return int(item["metadata"].get("generation", 0))


def labels_of(item: Object) -> dict[str, str]:
    """Return a copy of the labels."""
    return dict(item["metadata"].get("labels") or {})


def annotations_of(item: Object) -> dict[str, str]:
    """Return a copy of the annotations."""
    return dict(item["metadata"].get("annotations") or {})


def finalizers_of(item: Object) -> list[str]:
    """Return a copy of the finalizers."""
    return list(item["metadata"].get("finalizers") or ())


def is_terminating(item: Object) -> bool:
    """Return whether it is being deleted."""
    return "deletionTimestamp" in item["metadata"]


def spec_of(item: Object) -> dict[str, Any]:
    """Return a shallow copy of the spec."""
    return dict(item.get("spec") or {})


def status_of(item: Object) -> dict[str, Any]:
    """Return a shallow copy of the status."""
    return dict(item.get("status") or {})


def with_metadata(item: Object, **fields: Any) -> Object:
    """Return *item* with changed metadata fields; empty ones are removed."""
    metadata = {**item["metadata"], **fields}
    return {**item, "metadata": {name: value for name, value in metadata.items() if value or name not in fields}}


def with_spec(item: Object, **fields: Any) -> Object:
    """Return *item* with changed spec fields; ``None`` removes a field."""
    spec = {**spec_of(item), **fields}
    return {**item, "spec": {name: value for name, value in spec.items() if value is not None}}


def with_status(item: Object, **fields: Any) -> Object:
    """Return *item* with changed status fields; ``None`` removes a field."""
    status = {**status_of(item), **fields}
    return {**item, "status": {name: value for name, value in status.items() if value is not None}}


def same_specification(left: Object, right: Object) -> bool:
    """Return whether two versions differ only in status and resource version."""
    return _specification(left) == _specification(right)


def merge_patch(old: Object, new: Object) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) from *old* to *new*; lists are replaced entirely."""
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
