"""Propagates dependencies of templates to the same clusters, and every user namespace to every cluster.

The binding of a dependency has no placement, so it is never scheduled; `requiredBy` lists the dependent bindings and
their clusters. Only ConfigMaps are supported. Without dependents the binding remains, without clusters. The works of
namespaces belong to no binding.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import structlog

from controller.api.keys import binding_name
from localup.karmada.binding import owner, permanent_id_of, reference
from localup.karmada.cache import ControlPlaneCache
from localup.karmada.controller import Controller, RetryError
from localup.karmada.objects import (
    BATCH_JOBS,
    BINDING_FINALIZER,
    BINDING_ID,
    BINDINGS,
    CONFIG_MAPS,
    NAMESPACES,
    REPLICATED,
    WORK_ID,
    Key,
    Object,
    annotations_of,
    cluster_of,
    digest,
    execution_namespace,
    finalizers_of,
    generation_of,
    is_a,
    is_reserved,
    is_terminating,
    key_of,
    labels_of,
    new_object,
    nonempty,
    present,
    spec_of,
    with_metadata,
    with_spec,
    work_name,
)
from localup.karmada.works import new_work

log = structlog.get_logger()

#: Kinds whose dependencies Karmada can interpret; Volcano Job is not among them.
_SUPPORTED_KINDS: Final = (*REPLICATED, BATCH_JOBS)

_DEPENDED_BY: Final = "resourcebinding.karmada.io/depended-by-"
_DEPENDENCIES: Final = "resourcebinding.karmada.io/dependencies"
_FINALIZER: Final = "karmada.io/binding-dependencies-distributor"


class DependenciesDistributor(Controller[Key]):
    """Creates and updates the bindings of dependencies."""

    def __init__(self, cache: ControlPlaneCache) -> None:
        super().__init__(cache)
        self._config_maps = cache.stores[CONFIG_MAPS]
        cache.bindings.add_event_handler(self._binding_changed)
        self._config_maps.add_event_handler(self._needed_changed)

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or generation_of(old) != generation_of(new) or is_terminating(new)):
            says = any(spec_of(item).get("propagateDeps") for item in (old, new) if item)
            if says and (old is not None or spec_of(new).get("clusters")):
                self.queue.add(key_of(new))

    def _needed_changed(self, _: Object | None, new: Object | None) -> None:
        for binding in self.cache.bindings:
            if new is not None and key_of(binding).namespace == key_of(new).namespace:
                self._binding_changed(None, binding)

    async def reconcile(self, key: Key) -> None:
        """Make the bindings of the dependencies of a binding equal to what its template needs."""
        binding: Object | None = self.cache.bindings.get(key)
        if binding is None:
            return
        if is_terminating(binding) or not spec_of(binding).get("propagateDeps"):
            await self._detach_others(binding, frozenset())
            await self.cache.remove_finalizer(binding, _FINALIZER)
            return
        template = self.cache.template_of(binding)
        if template is None or not is_a(template, *_SUPPORTED_KINDS):
            return
        wanted = sorted(dependencies_of(template))
        binding = await self.cache.update(binding, _with_dependencies(binding, wanted))
        await self._detach_others(binding, frozenset(wanted))
        for name in wanted:
            needed = self._config_maps.get(Key(key.namespace, name))
            if needed is not None:
                await self._attach(binding, needed)

    async def _attach(self, binding: Object, needed: Object) -> None:
        bindings, key = self.cache.bindings, key_of(needed)
        desired = dependency_binding(binding, needed, permanent_id=self.cache.new_id())
        existing = bindings.get(Key(key.namespace, binding_name(key.name, CONFIG_MAPS.kind)))
        if existing is None:
            await self.cache.create(desired)
            log.info("dependency binding created", binding=str(key_of(desired)), required_by=str(key_of(binding)))
        elif not is_terminating(existing):
            merged = with_metadata(
                existing, labels={**labels_of(existing), **labels_of(desired), **permanent_id_of(existing)}
            )
            required = [*_other_dependents(existing, key_of(binding)), *spec_of(desired)["requiredBy"]]
            fresh = {"requiredBy": required, "resource": spec_of(desired)["resource"]}
            await self.cache.update(existing, with_spec(merged, **fresh))

    async def _detach_others(self, binding: Object, wanted: frozenset[str]) -> None:
        """Remove *binding* from `requiredBy` of all dependencies except *wanted*."""
        key = key_of(binding)
        label = _depended_by(key)
        for item in list(self.cache.bindings):
            if (
                label in labels_of(item)
                and spec_of(item)["resource"]["name"] not in wanted
                and not is_terminating(item)
            ):
                labels = {name: value for name, value in labels_of(item).items() if name != label}
                free = with_spec(with_metadata(item, labels=labels), requiredBy=_other_dependents(item, key) or None)
                await self.cache.update(item, free)


def dependencies_of(template: Object) -> set[str]:
    """Return the names of ConfigMaps that the pods of a template reference."""
    pod = (spec_of(template).get("template") or {}).get("spec") or {}
    return {name for name in _names(pod) if name}


def dependency_binding(binding: Object, needed: Object, *, permanent_id: str) -> Object:
    """Return the new binding of a dependency of *binding*."""
    key, home = key_of(needed), key_of(binding)
    snapshot = {"namespace": home.namespace, "name": home.name, "clusters": spec_of(binding).get("clusters") or []}
    spec = {
        "conflictResolution": spec_of(binding).get("conflictResolution", "Abort"),
        "preserveResourcesOnDeletion": spec_of(binding).get("preserveResourcesOnDeletion"),
        "requiredBy": [nonempty(snapshot)],
        "resource": reference(needed),
    }
    made = new_object(
        BINDINGS,
        binding_name(key.name, needed["kind"]),
        key.namespace,
        finalizers=[BINDING_FINALIZER],
        labels={_depended_by(home): labels_of(binding).get(BINDING_ID, ""), BINDING_ID: permanent_id},
        ownerReferences=[owner(needed)],
    )
    return {**made, "spec": present(spec)}


def _depended_by(binding: Key) -> str:
    """Return the label of a dependency's binding for a dependent binding."""
    return _DEPENDED_BY + digest(f"{binding.namespace}/{binding.name}")


def _with_dependencies(binding: Object, wanted: list[str]) -> Object:
    """Return *binding* with the annotation of its dependencies and the distributor's finalizer."""
    key = key_of(binding)
    dependencies = [
        {"apiVersion": "v1", "kind": "ConfigMap", "namespace": key.namespace, "name": name} for name in wanted
    ]
    annotations = {**annotations_of(binding), _DEPENDENCIES: json.dumps(dependencies)}
    finalizers = list(dict.fromkeys([*finalizers_of(binding), _FINALIZER]))
    return with_metadata(binding, annotations=annotations, finalizers=finalizers)


def _other_dependents(needed: Object, binding: Key) -> list[Object]:
    """Return `requiredBy` without *binding*."""
    required = spec_of(needed).get("requiredBy") or ()
    return [item for item in required if (item["namespace"], item["name"]) != tuple(binding)]


def _names(pod: Mapping[str, Any]) -> Iterator[str]:
    for volume in pod.get("volumes") or ():
        yield (volume.get("configMap") or {}).get("name", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield (source.get("configMap") or {}).get("name", "")
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        for source in container.get("envFrom") or ():
            yield (source.get("configMapRef") or {}).get("name", "")
        for variable in container.get("env") or ():
            yield ((variable.get("valueFrom") or {}).get("configMapKeyRef") or {}).get("name", "")


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
    """Return the work that propagates a namespace."""
    labels, annotations = labels_of(namespace), annotations_of(namespace)
    manifest = new_object(NAMESPACES, key_of(namespace).name, labels=labels, annotations=annotations)
    work = new_work(key, labels={WORK_ID: permanent_id})
    return with_spec(work, suspendDispatching=False, workload={"manifests": [manifest]})
