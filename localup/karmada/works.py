"""Builds Works from bindings and templates, and reads their status.

The result equals that of Karmada's binding controller. Overrides are not supported.
"""

from collections.abc import Mapping
from typing import Any, Final

from localup.karmada import names
from localup.karmada.objects import (
    BATCH_JOB,
    DEPLOYMENT,
    STATEFUL_SET,
    WORK,
    Condition,
    Key,
    Object,
    annotations_of,
    generation_of,
    is_a,
    key_of,
    labels_of,
    spec_of,
    status_of,
    uid_of,
    with_condition,
    with_metadata,
    with_spec,
    with_status,
)

#: Fields set by the API server, which are not propagated.
_SERVER_FIELDS: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
_REVISION: Final = "deployment.kubernetes.io/revision"


def work_key(template: Object, cluster: str) -> Key:
    """Return the key of the Work of a template or reference for a cluster."""
    key = key_of(template) if "metadata" in template else Key(template.get("namespace", ""), template["name"])
    return Key(names.execution_namespace(cluster), names.work_name(template["kind"], key.namespace, key.name))


def work_for(binding: Object, template: Object, target: Object, *, permanent_id: str) -> Object:
    """Return the Work for one target of a binding."""
    key = work_key(template, target["name"])
    wanted = spec_of(binding)
    home = key_of(binding)
    label = names.permanent_id_label(home.namespace)
    labels = {label: labels_of(binding).get(label, ""), names.WORK_ID: permanent_id}
    annotations = {
        **_binding_annotations(home),
        names.CONFLICT_RESOLUTION: wanted.get("conflictResolution", "Abort").lower(),
    }
    return {
        "apiVersion": WORK.api_version,
        "kind": WORK.name,
        "metadata": {
            "annotations": annotations,
            "finalizers": [names.WORK_FINALIZER],
            "labels": labels,
            "name": key.name,
            "namespace": key.namespace,
        },
        "spec": {
            "preserveResourcesOnDeletion": bool(wanted.get("preserveResourcesOnDeletion")),
            "suspendDispatching": _is_dispatching_suspended(wanted.get("suspension") or {}, target["name"]),
            "workload": {"manifests": [_manifest(template, target, key, annotations=annotations, labels=labels)]},
        },
    }


def updated_work(existing: Object, desired: Object) -> Object:
    """Return *existing* with the *desired* state; *desired* must have the permanent id of *existing*."""
    merged = with_metadata(
        existing,
        annotations={**annotations_of(existing), **annotations_of(desired)},
        labels={**labels_of(existing), **labels_of(desired)},
    )
    return {**merged, "spec": desired["spec"]}


def manifest_of(work: Object) -> Object:
    """Return the only manifest of a Work."""
    manifest: Object = work["spec"]["workload"]["manifests"][0]
    return manifest


def binding_key(work: Object) -> Key:
    """Return the key of the binding of a Work."""
    annotations = annotations_of(work)
    if names.CLUSTER_BINDING_NAME in annotations:
        return Key("", annotations[names.CLUSTER_BINDING_NAME])
    return Key(annotations.get(names.BINDING_NAMESPACE, ""), annotations.get(names.BINDING_NAME, ""))


def is_suspended(work: Object) -> bool:
    """Return whether dispatching of a Work is suspended."""
    return bool(work["spec"].get("suspendDispatching"))


def with_suspended_condition(work: Object, *, now: float) -> Object:
    """Return *work* with the condition that its dispatching is suspended."""
    said = Condition("Dispatching", "False", "SuspendDispatching", "Work dispatching is in a suspended state.")
    return with_status(work, conditions=with_condition(status_of(work).get("conditions") or (), said, now=now))


def with_applied_status(work: Object, status: Mapping[str, Any], health: str, *, now: float) -> Object:
    """Return *work* with its manifest reported as applied, with *status* and *health*."""
    conditions = status_of(work).get("conditions") or ()
    dispatching = Condition("Dispatching", "True", "Dispatching", "Work is being dispatched to member clusters.")
    applied = Condition("Applied", "True", "AppliedSuccessful", "Manifest has been successfully applied")
    for said in (dispatching, applied):
        conditions = with_condition(conditions, said, now=now)
    reported = {"health": health, "identifier": _identifier(manifest_of(work)), "status": dict(status)}
    return with_status(work, conditions=conditions, manifestStatuses=[reported])


def reported_status(work: Object) -> Object | None:
    """Return the manifest status reported by a Work."""
    reports = status_of(work).get("manifestStatuses") or ()
    return reports[0].get("status") if reports else None


def reported_health(work: Object) -> str:
    """Return the manifest health reported by a Work."""
    reports = status_of(work).get("manifestStatuses") or ()
    return str(reports[0].get("health", "Unknown")) if reports else "Unknown"


def _binding_annotations(binding: Key) -> dict[str, str]:
    if not binding.namespace:
        return {names.CLUSTER_BINDING_NAME: binding.name}
    return {names.BINDING_NAME: binding.name, names.BINDING_NAMESPACE: binding.namespace}


def _is_dispatching_suspended(suspension: Object, cluster: str) -> bool:
    if suspension.get("dispatching"):
        return True
    return cluster in ((suspension.get("dispatchingOnClusters") or {}).get("clusterNames") or ())


def _identifier(manifest: Object) -> dict[str, Any]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    return {
        "group": group,
        "kind": manifest["kind"],
        "name": manifest["metadata"]["name"],
        "namespace": manifest["metadata"].get("namespace", ""),
        "ordinal": 0,
        "resource": "",
        "version": version,
    }


def _manifest(
    template: Object, target: Object, key: Key, *, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> Object:
    all_annotations = {
        **{name: value for name, value in annotations_of(template).items() if name != _REVISION},
        **annotations,
        names.TEMPLATE_GENERATION: str(generation_of(template)),
        names.TEMPLATE_UID: uid_of(template),
        names.WORK_NAME: key.name,
        names.WORK_NAMESPACE: key.namespace,
    }
    marked = {**labels_of(template), **labels, names.MANAGED: "true"}
    all_annotations[names.MANAGED_LABELS] = ",".join(sorted(marked))
    all_annotations[names.MANAGED_ANNOTATIONS] = ",".join(sorted([*all_annotations, names.MANAGED_ANNOTATIONS]))
    bare = {name: value for name, value in template.items() if name != "status"}
    left_out = dict.fromkeys(_SERVER_FIELDS)
    return _with_target_replicas(with_metadata(bare, **left_out, annotations=all_annotations, labels=marked), target)


def _with_target_replicas(manifest: Object, target: Object) -> Object:
    """Return the manifest with the replicas of its target; Jobs lose `ttlSecondsAfterFinished`."""
    if manifest["kind"] == BATCH_JOB.name:
        manifest = with_spec(manifest, ttlSecondsAfterFinished=None)
    if "replicas" not in target:
        return manifest
    if is_a(manifest, DEPLOYMENT) or is_a(manifest, STATEFUL_SET):
        return with_spec(manifest, replicas=target["replicas"])
    return with_spec(manifest, parallelism=target["replicas"]) if is_a(manifest, BATCH_JOB) else manifest
