"""Kubernetes objects as decoded JSON: kinds and paths, metadata, and conditions.

Objects are immutable; functions that change one return a copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

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


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind in one API version with its plural."""

    api_version: str
    name: str
    plural: str

    @property
    def path(self) -> str:
        """Return the path of all objects in all namespaces."""
        return f"{self._root}/{self.plural}"

    def collection(self, namespace: str) -> str:
        """Return the path for creating objects in a namespace, empty for cluster-scoped kinds."""
        return f"{self._root}/namespaces/{namespace}/{self.plural}" if namespace else self.path

    def path_of(self, key: Key) -> str:
        """Return the path of an object."""
        return f"{self.collection(key.namespace)}/{key.name}"

    @property
    def _root(self) -> str:
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"


VOLCANO_JOB: Final = Kind("batch.volcano.sh/v1alpha1", "Job", "jobs")

BATCH_JOB: Final = Kind("batch/v1", "Job", "jobs")

DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments")

STATEFUL_SET: Final = Kind("apps/v1", "StatefulSet", "statefulsets")

PRIORITY_CLASS: Final = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")

CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")

#: Kinds of templates that can be propagated, by command line name.
TEMPLATES: Final[Mapping[str, Kind]] = {
    "volcano-job": VOLCANO_JOB,
    "deployment": DEPLOYMENT,
    "statefulset": STATEFUL_SET,
    "batch-job": BATCH_JOB,
    "priority-class": PRIORITY_CLASS,
}

#: Kinds with pods.
WORKLOADS: Final = (VOLCANO_JOB, DEPLOYMENT, STATEFUL_SET, BATCH_JOB)

BINDING: Final = Kind("work.karmada.io/v1alpha2", "ResourceBinding", "resourcebindings")

CLUSTER_BINDING: Final = Kind("work.karmada.io/v1alpha2", "ClusterResourceBinding", "clusterresourcebindings")

WORK: Final = Kind("work.karmada.io/v1alpha1", "Work", "works")

POLICY: Final = Kind("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies")

CLUSTER_POLICY: Final = Kind("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies")

CLUSTER: Final = Kind("cluster.karmada.io/v1alpha1", "Cluster", "clusters")

NAMESPACE: Final = Kind("v1", "Namespace", "namespaces")


def is_a(item: Object, kind: Kind) -> bool:
    """Return whether *item* (an object, reference or selector) is of *kind*."""
    return item.get("apiVersion") == kind.api_version and item.get("kind") == kind.name


def kind_of(item: Object) -> Kind | None:
    """Return the kind of a template, of a dependency, or of a reference to one."""
    return next((kind for kind in (*TEMPLATES.values(), CONFIG_MAP) if is_a(item, kind)), None)


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition without its transition time, which `with_condition` sets."""

    type: str
    status: str
    reason: str
    message: str = ""


def with_condition(conditions: Sequence[Object], new: Condition, *, now: float) -> list[Object]:
    """Return *conditions* with the condition of the same type replaced, or appended if new.

    The transition time changes only with the status, so setting an equal condition is a no-op.
    """
    before = condition(conditions, new.type)
    since = before["lastTransitionTime"] if before and before["status"] == new.status else timestamp(now)
    fresh = {
        "lastTransitionTime": since,
        "message": new.message,
        "reason": new.reason,
        "status": new.status,
        "type": new.type,
    }
    if before is None:
        return [*conditions, fresh]
    return [fresh if item["type"] == new.type else item for item in conditions]


def true_conditions(types: Sequence[str], reason: str, *, now: float) -> list[Object]:
    """Return true conditions of *types* with the same reason and time."""
    conditions: list[Object] = []
    for item in types:
        conditions = with_condition(conditions, Condition(item, "True", reason), now=now)
    return conditions


def condition(conditions: Sequence[Object], type_: str) -> Object | None:
    """Return the condition of a type, ``None`` if absent."""
    return next((item for item in conditions if item["type"] == type_), None)


def is_true(conditions: Sequence[Object], type_: str) -> bool:
    """Return whether the condition of a type is present and true."""
    found = condition(conditions, type_)
    return found is not None and found["status"] == "True"


def timestamp(seconds: float) -> str:
    """Format a time as Kubernetes does, in seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(time: str) -> float:
    """Parse a Kubernetes timestamp into seconds."""
    return datetime.fromisoformat(time).timestamp()
