"""Builds Works from bindings and templates, and reads their status.

The result equals that of Karmada's binding controller. Overrides are not supported.
"""

from collections.abc import Mapping
from typing import Any, Final

from localup.karmada.objects import (
    BATCH_JOBS,
    BINDING_NAME,
    BINDING_NAMESPACE,
    CLUSTER_BINDING_NAME,
    REPLICATED,
    TEMPLATE_GENERATION,
    TEMPLATE_UID,
    WORK_FINALIZER,
    WORK_ID,
    WORKS,
    Condition,
    Key,
    Object,
    annotations_of,
    execution_namespace,
    generation_of,
    is_a,
    key_of,
    labels_of,
    new_object,
    permanent_id_label,
    spec_of,
    status_of,
    uid_of,
    with_conditions,
    with_metadata,
    with_spec,
    with_status,
    work_name,
)

#: Fields set by the API server, which are not propagated.
_SERVER_FIELDS: Final = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation"),
    *("managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"),
)
_REVISION: Final = "deployment.kubernetes.io/revision"
_CONFLICT_RESOLUTION: Final = "work.karmada.io/conflict-resolution"
_WORK_NAME, _WORK_NAMESPACE = "work.karmada.io/name", "work.karmada.io/namespace"
_MANAGED: Final = "karmada.io/managed"
_MANAGED_ANNOTATIONS: Final = "resourcetemplate.karmada.io/managed-annotations"
_MANAGED_LABELS: Final = "resourcetemplate.karmada.io/managed-labels"
_SUSPENDED: Final = Condition("Dispatching", "False", "SuspendDispatching", "Work dispatching is in a suspended state.")
_DISPATCHING: Final = Condition("Dispatching", "True", "Dispatching", "Work is being dispatched to member clusters.")
_APPLIED: Final = Condition("Applied", "True", "AppliedSuccessful", "Manifest has been successfully applied")


def work_key(template: Object, cluster: str) -> Key:
    """Return the key of the Work of a template or reference for a cluster."""
    key = key_of(template) if "metadata" in template else Key(template.get("namespace", ""), template["name"])
    return Key(execution_namespace(cluster), work_name(template["kind"], key.namespace, key.name))


def work_for(binding: Object, template: Object, target: Object, *, permanent_id: str) -> Object:
    """Return the Work for one target of a binding."""
    key, home, wanted = work_key(template, target["name"]), key_of(binding), spec_of(binding)
    label = permanent_id_label(home.namespace)
    labels = {label: labels_of(binding).get(label, ""), WORK_ID: permanent_id}
    reference = {BINDING_NAME: home.name, BINDING_NAMESPACE: home.namespace}
    annotations = {
        **(reference if home.namespace else {CLUSTER_BINDING_NAME: home.name}),
        _CONFLICT_RESOLUTION: wanted.get("conflictResolution", "Abort").lower(),
    }
    work = new_work(key, annotations=annotations, labels=labels)
    suspension = wanted.get("suspension") or {}
    on_clusters = (suspension.get("dispatchingOnClusters") or {}).get("clusterNames") or ()
    return with_spec(
        work,
        preserveResourcesOnDeletion=bool(wanted.get("preserveResourcesOnDeletion")),
        suspendDispatching=bool(suspension.get("dispatching")) or target["name"] in on_clusters,
        workload={"manifests": [_manifest(template, target, key, annotations=annotations, labels=labels)]},
    )


def new_work(key: Key, **metadata: Any) -> Object:
    """Return a Work without manifest."""
    return new_object(WORKS, key.name, key.namespace, finalizers=[WORK_FINALIZER], **metadata)


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
    if CLUSTER_BINDING_NAME in annotations:
        return Key("", annotations[CLUSTER_BINDING_NAME])
    return Key(annotations.get(BINDING_NAMESPACE, ""), annotations.get(BINDING_NAME, ""))


def with_suspended_condition(work: Object, *, now: float) -> Object:
    """Return *work* with the condition that its dispatching is suspended."""
    return with_conditions(work, _SUSPENDED, now=now)


def with_applied_status(work: Object, status: Mapping[str, Any], health: str, *, now: float) -> Object:
    """Return *work* with its manifest reported as applied, with *status* and *health*."""
    reported = {"health": health, "identifier": _identifier(manifest_of(work)), "status": dict(status)}
    return with_status(with_conditions(work, _DISPATCHING, _APPLIED, now=now), manifestStatuses=[reported])


def reported_status(work: Object) -> Object | None:
    """Return the manifest status reported by a Work."""
    reports = status_of(work).get("manifestStatuses") or ()
    return reports[0].get("status") if reports else None


def reported_health(work: Object) -> str:
    """Return the manifest health reported by a Work."""
    reports = status_of(work).get("manifestStatuses") or ()
    return str(reports[0].get("health", "Unknown")) if reports else "Unknown"


def _identifier(manifest: Object) -> dict[str, Any]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    names = {"name": manifest["metadata"]["name"], "namespace": manifest["metadata"].get("namespace", "")}
    return {"group": group, "kind": manifest["kind"], **names, "ordinal": 0, "resource": "", "version": version}


def _manifest(
    template: Object, target: Object, key: Key, *, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> Object:
    all_annotations = {
        **{name: value for name, value in annotations_of(template).items() if name != _REVISION},
        **annotations,
        TEMPLATE_GENERATION: str(generation_of(template)),
        TEMPLATE_UID: uid_of(template),
        _WORK_NAME: key.name,
        _WORK_NAMESPACE: key.namespace,
    }
    marked = {**labels_of(template), **labels, _MANAGED: "true"}
    all_annotations[_MANAGED_LABELS] = ",".join(sorted(marked))
    all_annotations[_MANAGED_ANNOTATIONS] = ",".join(sorted([*all_annotations, _MANAGED_ANNOTATIONS]))
    bare = {name: value for name, value in template.items() if name != "status"}
    left_out = dict.fromkeys(_SERVER_FIELDS)
    return _with_target_replicas(with_metadata(bare, **left_out, annotations=all_annotations, labels=marked), target)


def _with_target_replicas(manifest: Object, target: Object) -> Object:
    """Return the manifest with the replicas of its target; Jobs lose `ttlSecondsAfterFinished`."""
    if manifest["kind"] == BATCH_JOBS.kind:
        manifest = with_spec(manifest, ttlSecondsAfterFinished=None)
    field = "replicas" if is_a(manifest, *REPLICATED) else "parallelism" if is_a(manifest, BATCH_JOBS) else ""
    return with_spec(manifest, **{field: target["replicas"]}) if field and "replicas" in target else manifest
