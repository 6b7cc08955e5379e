"""Implements Karmada's binding and namespace controllers: Works of bindings and of namespaces, without overrides.

Works whose dispatching the policy suspends are created but not applied in their cluster. Every user namespace is
propagated to every cluster, by works that belong to no binding.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from controller.api.keys import JOBS
from controller.kube.errors import Conflict
from localup.karmada.cache import STATUS, ControlPlaneCache, Store
from localup.karmada.controller import Controller, ObjectController, RetryError
from localup.karmada.detector import owner_of
from localup.karmada.evictions import DIRECTLY, tasks_of
from localup.karmada.objects import (
    BATCH_JOBS,
    BINDING_FINALIZER,
    BINDING_NAME,
    BINDING_NAMESPACE,
    CLUSTER_BINDING_NAME,
    NAMESPACES,
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
    binding_key,
    cluster_of,
    execution_namespace,
    generation_of,
    is_a,
    is_reserved,
    is_terminating,
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
from localup.karmada.status import aggregate_status, template_status

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


def with_suspended_condition(work: Object, *, now: float) -> Object:
    """Return *work* with the condition that its dispatching is suspended."""
    return with_conditions(work, _SUSPENDED, now=now)


def with_refused_condition(work: Object, refusal: str, *, now: float) -> Object:
    """Return *work* with the condition that its cluster refuses it; the status of its manifest stays."""
    message = f"Failed to apply all manifests (0/1): {refusal}"
    return with_conditions(work, _DISPATCHING, Condition("Applied", "False", "AppliedFailed", message), now=now)


def with_applied_status(work: Object, status: Mapping[str, Any], health: str, *, now: float) -> Object:
    """Return *work* with its manifest reported as applied, with *status* and *health*."""
    reported = {"health": health, "identifier": _identifier(manifest_of(work)), "status": dict(status)}
    return with_status(with_conditions(work, _DISPATCHING, _APPLIED, now=now), manifestStatuses=[reported])


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


log = structlog.get_logger()

_ATTEMPTS: Final = 10
_RETRY_SECONDS: Final = 0.05


class BindingController(ObjectController):
    """Creates, updates and deletes works when the generation of a binding changes."""

    def concerns(self, old: Object | None, new: Object) -> bool:
        """Return whether the generation changed."""
        return old is None or generation_of(old) != generation_of(new)

    async def reconcile(self, key: Key) -> None:
        """Make the works of a binding equal to its clusters."""
        binding = self.store.get(key)
        if binding is None:
            return
        remaining = set() if is_terminating(binding) else retained_clusters(binding)
        for work in self.cache.works_of(binding):
            if cluster_of(key_of(work).namespace) not in remaining:
                await self.cache.delete(work)
                log.info("work removed", work=str(key_of(work)))
        if is_terminating(binding):
            await self.cache.remove_finalizer(binding, BINDING_FINALIZER)
            return
        for task in tasks_of(binding):
            left = self.cache.works.get(work_key(spec_of(binding)["resource"], task["fromCluster"]))
            if task.get("purgeMode") == DIRECTLY and left is not None:
                raise RetryError(f"work {key_of(left)} is being purged")
        template = self.cache.template_of(binding)
        if template is not None:
            for target in spec_of(binding).get("clusters") or ():
                await self._ensure_work(binding, template, target)

    async def _ensure_work(self, binding: Object, template: Object, target: Object) -> None:
        existing = self.cache.works.get(work_key(template, target["name"]))
        if existing is None:
            # As in Karmada, a binding that loses its clusters before the event of this Work leaves it behind.
            wanted = work_for(binding, template, target, permanent_id=self.cache.new_id())
            made = await self.cache.create(wanted, observe=False)
            log.info("work created", work=str(key_of(made)), cluster=target["name"])
            return
        if is_terminating(existing):
            raise RetryError(f"work {key_of(existing)} is being deleted")
        desired = work_for(binding, template, target, permanent_id=labels_of(existing)[WORK_ID])
        await self.cache.update(existing, updated_work(existing, desired))


class BindingStatusController(ObjectController):
    """Aggregates the status of Works into a binding, and of a binding into its template."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store, *, unreported_jobs: bool = False) -> None:
        super().__init__(cache, bindings)
        self._unreported_jobs = unreported_jobs
        cache.works.add_event_handler(self._work_changed)

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        """Aggregate again after a new status or a deletion, not after a creation (`workPredicateFn`)."""
        if old is not None and (new is None or status_of(old) != status_of(new)):
            key = binding_key(old)
            if bool(key.namespace) == (self.store is self.cache.bindings):
                self.queue.add(key)

    def concerns(self, old: Object | None, new: Object) -> bool:
        """Return whether the template of a scheduled binding changed, or the stand-in was restarted."""
        if "lastScheduledTime" not in status_of(new):
            return False
        return old is None or _template_version(old) != _template_version(new)

    async def reconcile(self, key: Key) -> None:
        """Aggregate the status of one binding.

        Conflicts are retried here, because a requeue would clear a stale status.
        """
        for _ in range(_ATTEMPTS):
            with suppress(Conflict):
                await super().reconcile(key)
                return
            await asyncio.sleep(_RETRY_SECONDS)
        raise RetryError(f"binding {key} changed during every attempt")

    async def reconcile_object(self, item: Object) -> None:
        """Write the status of a binding and of its template."""
        now = self.cache.now()
        updated = aggregate_status(item, self.cache.works_of(item), now=now)
        binding = await self.cache.update(item, updated, part=STATUS)
        template = self.cache.template_of(binding)
        if template is None or is_terminating(template) or owner_of(binding) != uid_of(template):
            return
        if self._unreported_jobs and is_a(template, JOBS):
            return
        # As in Karmada, a pass that writes keeps the template's status; only the next pass clears it.
        status = template_status(template, binding, now=now, stale=binding is not item)
        await self.cache.update(template, status, part=STATUS)


def retained_clusters(binding: Object) -> set[str]:
    """Return the clusters whose works are retained: the targets, and those with a graceful eviction task."""
    leaving = {str(task["fromCluster"]) for task in tasks_of(binding) if task.get("purgeMode") != DIRECTLY}
    return {str(target["name"]) for target in spec_of(binding).get("clusters") or ()} | leaving


def _template_version(binding: Object) -> str:
    return str(binding["spec"]["resource"].get("resourceVersion", ""))


class NamespaceSyncController(Controller[Key]):
    """Creates and deletes the works of namespaces; a key is a cluster and a namespace."""

    def __init__(self, cache: ControlPlaneCache) -> None:
        super().__init__(cache)
        cache.namespaces.add_event_handler(self._namespace_changed)
        cache.clusters.add_event_handler(self._cluster_changed)

    def _namespace_changed(self, old: Object | None, new: Object | None) -> None:
        key = key_of(new or old or {})
        if new is not None and old is not None and is_terminating(old) == is_terminating(new):
            return
        if cluster_of(key.name):  # the cluster's execution namespace exists now
            self._cluster_changed(None, self.cache.clusters.get(Key("", cluster_of(key.name))))
        elif not is_reserved(key.name):
            for cluster in self.cache.clusters:
                self.queue.add(Key(key_of(cluster).name, key.name))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None and new is not None:
            for namespace in self.cache.namespaces:
                if not is_reserved(key_of(namespace).name):
                    self.queue.add(Key(key_of(new).name, key_of(namespace).name))

    async def reconcile(self, key: Key) -> None:
        """Create or delete the work of a namespace in a cluster."""
        home = Key("", execution_namespace(key.namespace))
        if self.cache.namespaces.get(home) is None or self.cache.clusters.get(Key("", key.namespace)) is None:
            return
        namespace = self.cache.namespaces.get(Key("", key.name))
        work_key = Key(home.name, work_name(NAMESPACES.kind, "", key.name))
        work = self.cache.works.get(work_key)
        if namespace is None or is_terminating(namespace):
            if work is not None and not is_terminating(work):
                await self.cache.delete(work)
        elif work is None:
            await self.cache.create(_namespace_work(namespace, work_key, permanent_id=self.cache.new_id()))
        elif is_terminating(work):
            raise RetryError(f"work {key_of(work)} is being deleted")


def _namespace_work(namespace: Object, key: Key, *, permanent_id: str) -> Object:
    labels, annotations = labels_of(namespace), annotations_of(namespace)
    manifest = new_object(NAMESPACES, key_of(namespace).name, labels=labels, annotations=annotations)
    work = new_work(key, labels={WORK_ID: permanent_id})
    return with_spec(work, suspendDispatching=False, workload={"manifests": [manifest]})
