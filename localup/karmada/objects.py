"""Kubernetes objects as decoded JSON, and the names, labels and annotations that Karmada gives them.

Objects are immutable; functions that change one return a copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final, NamedTuple

import msgspec

from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    JOBS,
    PRIORITY_CLASSES,
    PROPAGATION_POLICIES,
    RESOURCE_BINDINGS,
    Resource,
)

Object = Mapping[str, Any]


class Key(NamedTuple):
    """Namespace and name of an object; the namespace is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class StoredObject(dict[str, Any]):
    """Object of the API server, without managed fields, which are large and unused."""

    @classmethod
    def decode(cls, raw: bytes) -> "StoredObject":
        """Decode *raw*."""
        item = cls(msgspec.json.decode(raw))
        item["metadata"].pop("managedFields", None)
        return item

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return key_of(self)

    @property
    def uid(self) -> str:
        """The uid."""
        return uid_of(self)

    @property
    def resource_version(self) -> int:
        """The resourceVersion as a number."""
        return int(self["metadata"]["resourceVersion"])


def key_of(item: Object) -> Key:
    """Return the key of *item*."""
    return Key(item["metadata"].get("namespace", ""), item["metadata"]["name"])


def uid_of(item: Object) -> str:
    """Return the uid."""
    return str(item["metadata"]["uid"])


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


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value other than ``None``."""
    return {name: value for name, value in fields.items() if value is not None}


def nonempty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are neither empty nor zero."""
    return {name: value for name, value in fields.items() if value}


def with_metadata(item: Object, **fields: Any) -> Object:
    """Return *item* with changed metadata fields; empty ones are removed."""
    metadata = {**item["metadata"], **fields}
    return {**item, "metadata": {name: value for name, value in metadata.items() if value or name not in fields}}


def with_spec(item: Object, **fields: Any) -> Object:
    """Return *item* with changed spec fields; ``None`` removes a field."""
    return {**item, "spec": present({**spec_of(item), **fields})}


def with_status(item: Object, **fields: Any) -> Object:
    """Return *item* with changed status fields; ``None`` removes a field."""
    return {**item, "status": present({**status_of(item), **fields})}


def same_specification(left: Object, right: Object) -> bool:
    """Return whether two versions differ only in status and resource version."""
    ignored = {"status": None, "metadata": None}
    versions = [item["metadata"] | {"resourceVersion": None} for item in (left, right)]
    return {**left, **ignored} == {**right, **ignored} and versions[0] == versions[1]


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


def labels_match(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects *labels*; an absent or empty one selects all."""
    wanted = (selector or {}).get("matchLabels") or {}
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        requirement_holds(item, [labels[item["key"]]] if item["key"] in labels else [])
        for item in (selector or {}).get("matchExpressions") or ()
    )


def requirement_holds(requirement: Object, values: Sequence[str]) -> bool:
    """Return whether a selector's requirement holds for *values*: none, one, or several for zones."""
    disjoint = set(requirement.get("values") or ()).isdisjoint(values)
    results = {"In": not disjoint, "NotIn": disjoint, "Exists": bool(values), "DoesNotExist": not values}
    return results.get(requirement["operator"], False)


BATCH_JOBS: Final = Resource("batch", "v1", "jobs", "Job")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
WORKS: Final = Resource("work.karmada.io", "v1alpha1", "works", "Work")
POLICIES: Final = PROPAGATION_POLICIES
CLUSTER_POLICIES: Final = Resource(
    "policy.karmada.io", "v1alpha1", "clusterpropagationpolicies", "ClusterPropagationPolicy", namespaced=False
)
BINDINGS, CLUSTER_BINDINGS = RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS

#: Kinds of templates that can be propagated, by command line name.
TEMPLATES: Final[Mapping[str, Resource]] = {
    "volcano-job": JOBS,
    "deployment": DEPLOYMENTS,
    "statefulset": STATEFUL_SETS,
    "batch-job": BATCH_JOBS,
    "priority-class": PRIORITY_CLASSES,
}

#: Kinds whose pods have a replica count.
REPLICATED: Final = (DEPLOYMENTS, STATEFUL_SETS)

#: Kinds that the stand-in watches in addition to templates.
WATCHED: Final = (POLICIES, CLUSTER_POLICIES, BINDINGS, CLUSTER_BINDINGS, WORKS, CLUSTERS, NAMESPACES)


def is_a(item: Object, *resources: Resource) -> bool:
    """Return whether *item* (an object, reference or selector) is of one of these kinds."""
    kind = item.get("apiVersion"), item.get("kind")
    return any(kind == (resource.api_version, resource.kind) for resource in resources)


def new_object(resource: Resource, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    """Return an object with identity and metadata; *fields* are further metadata fields, empty ones are omitted."""
    metadata = {**fields, "name": name, "namespace": namespace}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": nonempty(metadata)}


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
    fresh = {name: getattr(new, name) for name in ("message", "reason", "status", "type")}
    fresh = {"lastTransitionTime": since, **fresh}
    if before is None:
        return [*conditions, fresh]
    return [fresh if item["type"] == new.type else item for item in conditions]


def with_conditions(item: Object, *new: Condition, now: float) -> Object:
    """Return *item* with these conditions set in its status."""
    start = list(status_of(item).get("conditions") or ())
    return with_status(item, conditions=reduce(lambda all_, one: with_condition(all_, one, now=now), new, start))


def condition(conditions: Sequence[Object], type_: str) -> Object | None:
    """Return the condition of a type, ``None`` if absent."""
    return next((item for item in conditions if item["type"] == type_), None)


def is_true(conditions: Sequence[Object], type_: str) -> bool:
    """Return whether the condition of a type is present and true."""
    return any(item["type"] == type_ and item["status"] == "True" for item in conditions)


def timestamp(seconds: float) -> str:
    """Format a time as Kubernetes does, in seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(time: str) -> float:
    """Parse a Kubernetes timestamp into seconds."""
    return datetime.fromisoformat(time).timestamp()


POLICY_ID: Final = "propagationpolicy.karmada.io/permanent-id"
POLICY_NAME: Final = "propagationpolicy.karmada.io/name"
POLICY_NAMESPACE: Final = "propagationpolicy.karmada.io/namespace"
CLUSTER_POLICY_ID: Final = "clusterpropagationpolicy.karmada.io/permanent-id"
CLUSTER_POLICY_NAME: Final = "clusterpropagationpolicy.karmada.io/name"
BINDING_ID: Final = "resourcebinding.karmada.io/permanent-id"
BINDING_NAME: Final = "resourcebinding.karmada.io/name"
BINDING_NAMESPACE: Final = "resourcebinding.karmada.io/namespace"
CLUSTER_BINDING_ID: Final = "clusterresourcebinding.karmada.io/permanent-id"
CLUSTER_BINDING_NAME: Final = "clusterresourcebinding.karmada.io/name"
WORK_ID: Final = "work.karmada.io/permanent-id"
APPLIED_PLACEMENT: Final = "policy.karmada.io/applied-placement"
TEMPLATE_GENERATION: Final = "resourcetemplate.karmada.io/generation"
TEMPLATE_UID: Final = "resourcetemplate.karmada.io/uid"
BINDING_FINALIZER: Final = "karmada.io/binding-controller"
WORK_FINALIZER: Final = "karmada.io/execution-controller"
_EXECUTION: Final = "karmada-es-"
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


def work_name(kind: str, namespace: str, name: str) -> str:
    """Return the name of a template's works, which is equal in every cluster."""
    plain = name.replace(":", ".").lower()
    full = f"{namespace}-{plain}-{kind}" if namespace else f"{plain}-{kind}"
    return f"{plain}-{digest(full.lower())}"


def permanent_id_label(namespace: str) -> str:
    """Return the label with the permanent id of a binding in *namespace*, or of a cluster-scoped one."""
    return BINDING_ID if namespace else CLUSTER_BINDING_ID


def execution_namespace(cluster: str) -> str:
    """Return the namespace of a cluster's works."""
    return _EXECUTION + cluster


def cluster_of(namespace: str) -> str:
    """Return the cluster of an execution namespace, or an empty string for other namespaces."""
    return namespace.removeprefix(_EXECUTION) if namespace.startswith(_EXECUTION) else ""


def is_reserved(namespace: str) -> bool:
    """Return whether objects in *namespace* are never propagated."""
    return namespace in {"karmada-system", "karmada-cluster"} or namespace.startswith((_EXECUTION, "kube-"))


def digest(text: str) -> str:
    """Return the hash that Karmada puts into names: FNV-1a, 32 bits, with a safe alphabet."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(value))


def binding_key(work: Object) -> Key:
    """Return the key of the binding of a Work."""
    annotations = annotations_of(work)
    if CLUSTER_BINDING_NAME in annotations:
        return Key("", annotations[CLUSTER_BINDING_NAME])
    return Key(annotations.get(BINDING_NAMESPACE, ""), annotations.get(BINDING_NAME, ""))


def target_names(binding: Object) -> list[str]:
    """Return the cluster names in `spec.clusters`."""
    return [str(cluster["name"]) for cluster in spec_of(binding).get("clusters") or ()]
