"""Builds the ResourceBinding for a template and the policy that propagates it.

The result equals that of Karmada's detector. Fields written by others (`spec.clusters`, `suspension.scheduling`,
labels and annotations) survive later passes of the detector (facts, no. 9).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from localup.karmada import names
from localup.karmada.kinds import BATCH_JOB, BINDING, CLUSTER_BINDING, DEPLOYMENT, STATEFUL_SET, VOLCANO_JOB, is_a
from localup.karmada.objects import (
    Object,
    annotations_of,
    finalizers_of,
    key_of,
    labels_of,
    spec_of,
    uid_of,
    with_metadata,
    with_spec,
)
from localup.karmada.pods import replica_requirements
from localup.karmada.policies import Claim, with_claim, without_claim

#: Fields that the detector overwrites at each pass.
_DETECTOR_FIELDS: Final = (
    "components",
    "conflictResolution",
    "failover",
    "placement",
    "preserveResourcesOnDeletion",
    "propagateDeps",
    "replicaRequirements",
    "replicas",
    "resource",
    "schedulerName",
)
_COPIED_FROM_POLICY: Final = ("failover", "preserveResourcesOnDeletion", "propagateDeps")
_DISPATCHING: Final = ("dispatching", "dispatchingOnClusters")


def binding_for(template: Object, policy: Object, *, permanent_id: str, multi_template: bool = False) -> Object:
    """Return the binding as created, before other webhooks than Karmada's own have changed it.

    With *multi_template* (feature gate MultiplePodTemplatesScheduling) bindings of Volcano Jobs have components.
    """
    wanted = spec_of(policy)
    key = key_of(template)
    spec = {
        **_size_fields(template, multi_template=multi_template),
        **{name: wanted[name] for name in _COPIED_FROM_POLICY if wanted.get(name)},
        "conflictResolution": wanted.get("conflictResolution") or "Abort",
        "placement": _placement(wanted.get("placement") or {}),
        "resource": reference(template),
        "schedulerName": wanted.get("schedulerName") or "default-scheduler",
        "suspension": dict(wanted.get("suspension") or {}) or None,
    }
    kind = BINDING if key.namespace else CLUSTER_BINDING
    bare = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {
            "finalizers": [names.BINDING_FINALIZER],
            "labels": {names.permanent_id_label(key.namespace): permanent_id},
            "name": names.binding_name(template["kind"], key.name),
            **({"namespace": key.namespace} if key.namespace else {}),
            "ownerReferences": [owner(template)],
        },
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    return with_claim(bare, Claim.of(policy))


def updated_binding(existing: Object, desired: Object) -> Object:
    """Return *existing* with the *desired* state of the detector's fields."""
    free = without_claim(existing)
    merged = with_metadata(
        existing,
        annotations={**annotations_of(free), **annotations_of(desired)},
        finalizers=list(dict.fromkeys([*finalizers_of(existing), *finalizers_of(desired)])),
        labels={**labels_of(free), **labels_of(desired), **_permanent_id(existing)},
        ownerReferences=desired["metadata"]["ownerReferences"],
    )
    spec = spec_of(desired)
    suspension = _suspension(spec_of(existing).get("suspension"), spec.get("suspension"))
    return with_spec(merged, **{name: spec.get(name) for name in _DETECTOR_FIELDS}, suspension=suspension)


def owner_of(binding: Object) -> str:
    """Return the uid of the owning template; another template may require the same binding name (facts, §1)."""
    owners: Iterable[Object] = binding["metadata"].get("ownerReferences") or ()
    return next((str(item["uid"]) for item in owners if item.get("controller")), "")


def _suspension(existing: Object | None, wanted: Object | None) -> Object | None:
    """Return `scheduling` from the existing binding and the rest from the policy; ``None`` if both are empty."""
    remaining = {name: value for name, value in (existing or {}).items() if name not in _DISPATCHING}
    return {**remaining, **(wanted or {})} or None


def _permanent_id(binding: Object) -> dict[str, str]:
    ids = {names.BINDING_ID, names.CLUSTER_BINDING_ID}
    return {name: value for name, value in labels_of(binding).items() if name in ids}


def reference(template: Object) -> dict[str, Any]:
    """Return the binding's reference to *template*."""
    key = key_of(template)
    return {
        "apiVersion": template["apiVersion"],
        "kind": template["kind"],
        "name": key.name,
        **({"namespace": key.namespace} if key.namespace else {}),
        "resourceVersion": template["metadata"]["resourceVersion"],
        "uid": uid_of(template),
    }


def owner(template: Object) -> dict[str, Any]:
    """Return the owner reference to *template*, for garbage collection."""
    return {
        "apiVersion": template["apiVersion"],
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": template["kind"],
        "name": template["metadata"]["name"],
        "uid": uid_of(template),
    }


def _placement(placement: Object) -> dict[str, Any]:
    """Return a placement with the defaults that Karmada's webhook sets in policies."""
    constraints = placement.get("spreadConstraints")
    strategy = placement.get("replicaScheduling")
    filled = dict(placement)
    if constraints:
        filled["spreadConstraints"] = [_constraint(constraint) for constraint in constraints]
    if strategy:
        filled["replicaScheduling"] = _strategy(strategy)
    return filled


def _constraint(constraint: Object) -> dict[str, Any]:
    field = {} if constraint.get("spreadByLabel") else {"spreadByField": "cluster"}
    return {**field, **constraint, "minGroups": constraint.get("minGroups") or 1}


def _strategy(strategy: Object) -> dict[str, Any]:
    filled = {"replicaSchedulingType": "Divided", **strategy}
    if filled["replicaSchedulingType"] == "Divided":
        filled.setdefault("replicaDivisionPreference", "Weighted")
    return filled


def _size_fields(template: Object, *, multi_template: bool) -> dict[str, Any]:
    """Return the size fields that Karmada reads from a template: none for a Volcano Job (facts, no. 5)."""
    spec = spec_of(template)
    if is_a(template, VOLCANO_JOB):
        return (
            {"components": [_component(item) for item in enumerate(spec.get("tasks") or ())]} if multi_template else {}
        )
    replicas = _replicas(template, spec)
    if replicas is None:
        return {}
    return {"replicas": replicas or None, "replicaRequirements": replica_requirements(spec.get("template") or {})}


def _component(numbered: tuple[int, Object]) -> dict[str, Any]:
    """Return a task's component with the undercount of Karmada's interpreter (no. 6).

    The replicas are `minAvailable` or 1, never the task's replicas.
    """
    index, task = numbered
    component = {
        "name": task.get("name") or f"task-{index}",
        "replicaRequirements": replica_requirements(task.get("template") or {}),
        "replicas": int(task.get("minAvailable", 1)),
    }
    return {name: value for name, value in component.items() if value is not None}


def _replicas(template: Object, spec: Mapping[str, Any]) -> int | None:
    if is_a(template, DEPLOYMENT) or is_a(template, STATEFUL_SET):
        return int(spec.get("replicas", 1))
    if is_a(template, BATCH_JOB):
        parallelism = int(spec.get("parallelism", 1))
        return min(parallelism, int(spec.get("completions", parallelism)))
    return None
