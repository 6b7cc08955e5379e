"""Propagates dependencies of templates to the same clusters, and every user namespace to every cluster.

The binding of a dependency has no placement, so it is never scheduled; `requiredBy` lists the dependent bindings and
their clusters. Only ConfigMaps are supported. Without dependents the binding remains, without clusters. The works of
namespaces belong to no binding.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import structlog

from localup.karmada import names
from localup.karmada.binding import owner, reference
from localup.karmada.cache import ControlPlaneCache
from localup.karmada.controller import Controller, RetryError
from localup.karmada.objects import (
    BATCH_JOB,
    BINDING,
    CONFIG_MAP,
    DEPLOYMENT,
    STATEFUL_SET,
    WORK,
    Key,
    Object,
    annotations_of,
    finalizers_of,
    generation_of,
    is_a,
    is_terminating,
    key_of,
    labels_of,
    spec_of,
    with_metadata,
    with_spec,
)

log = structlog.get_logger()

#: Kinds whose dependencies Karmada can interpret; Volcano Job is not among them.
_SUPPORTED_KINDS: Final = (DEPLOYMENT, STATEFUL_SET, BATCH_JOB)


class DependenciesDistributor(Controller[Key]):
    """Creates and updates the bindings of dependencies."""

    def __init__(self, cache: ControlPlaneCache) -> None:
        super().__init__(cache)
        self._config_maps = cache.stores[CONFIG_MAP]
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
        binding = self.cache.bindings.get(key)
        if binding is None:
            return
        if is_terminating(binding) or not spec_of(binding).get("propagateDeps"):
            await self._detach_others(binding, frozenset())
            await self.cache.remove_finalizer(binding, names.DEPENDENTS_FINALIZER)
            return
        template = self.cache.template_of(binding)
        if template is None or not any(is_a(template, kind) for kind in _SUPPORTED_KINDS):
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
        desired = dependency_binding(binding, needed)
        existing = bindings.get(Key(key.namespace, names.binding_name(CONFIG_MAP.name, key.name)))
        if existing is None:
            await self.cache.create(desired)
            log.info("dependency binding created", binding=str(key_of(desired)), required_by=str(key_of(binding)))
        elif not is_terminating(existing):
            merged = with_metadata(existing, labels={**labels_of(existing), **labels_of(desired), **_own_id(existing)})
            required = [*_other_dependents(existing, key_of(binding)), *spec_of(desired)["requiredBy"]]
            fresh = {"requiredBy": required, "resource": spec_of(desired)["resource"]}
            await self.cache.update(existing, with_spec(merged, **fresh))

    async def _detach_others(self, binding: Object, wanted: frozenset[str]) -> None:
        """Remove *binding* from `requiredBy` of all dependencies except *wanted*."""
        key = key_of(binding)
        label = names.depended_by(key.namespace, key.name)
        for item in self.cache.bindings:
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


def dependency_binding(binding: Object, needed: Object) -> dict[str, Any]:
    """Return the new binding of a dependency of *binding*."""
    key, home = key_of(needed), key_of(binding)
    snapshot = {"namespace": home.namespace, "name": home.name, "clusters": spec_of(binding).get("clusters") or []}
    spec = {
        "conflictResolution": spec_of(binding).get("conflictResolution", "Abort"),
        "preserveResourcesOnDeletion": spec_of(binding).get("preserveResourcesOnDeletion"),
        "requiredBy": [{name: value for name, value in snapshot.items() if value}],
        "resource": reference(needed),
    }
    label = names.depended_by(home.namespace, home.name)
    return {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.name,
        "metadata": {
            "finalizers": [names.BINDING_FINALIZER],
            "labels": {label: labels_of(binding).get(names.BINDING_ID, ""), names.BINDING_ID: str(uuid.uuid4())},
            "name": names.binding_name(needed["kind"], key.name),
            "namespace": key.namespace,
            "ownerReferences": [owner(needed)],
        },
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


def _with_dependencies(binding: Object, wanted: list[str]) -> Object:
    """Return *binding* with the annotation of its dependencies and the distributor's finalizer."""
    key = key_of(binding)
    dependencies = [
        {"apiVersion": "v1", "kind": "ConfigMap", "namespace": key.namespace, "name": name} for name in wanted
    ]
    annotations = {**(binding["metadata"].get("annotations") or {}), names.DEPENDENCIES: json.dumps(dependencies)}
    finalizers = list(dict.fromkeys([*finalizers_of(binding), names.DEPENDENTS_FINALIZER]))
    return with_metadata(binding, annotations=annotations, finalizers=finalizers)


def _own_id(binding: Object) -> dict[str, str]:
    return {name: value for name, value in labels_of(binding).items() if name == names.BINDING_ID}


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


_KIND = "Namespace"


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
        if names.cluster_of(key.name):  # the cluster's execution namespace exists now
            self._cluster_changed(None, self.cache.clusters.get(Key("", names.cluster_of(key.name))))
        elif not names.is_reserved(key.name):
            for cluster in self.cache.clusters:
                self.queue.add(Key(key_of(cluster).name, key.name))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None and new is not None:
            for namespace in self.cache.namespaces:
                if not names.is_reserved(key_of(namespace).name):
                    self.queue.add(Key(key_of(new).name, key_of(namespace).name))

    async def reconcile(self, key: Key) -> None:
        """Create or delete the work of a namespace in a cluster."""
        namespace_name = names.execution_namespace(key.namespace)
        if (
            self.cache.namespaces.get(Key("", namespace_name)) is None
            or self.cache.clusters.get(Key("", key.namespace)) is None
        ):
            return
        namespace = self.cache.namespaces.get(Key("", key.name))
        work = self.cache.works.get(Key(namespace_name, names.work_name(_KIND, "", key.name)))
        if namespace is None or is_terminating(namespace):
            if work is not None and not is_terminating(work):
                await self.cache.delete(work)
        elif work is None:
            await self.cache.create(work_of(namespace, namespace_name))
        elif is_terminating(work):
            raise RetryError(f"work {key_of(work)} is being deleted")


def work_of(namespace: Object, namespace_name: str) -> dict[str, Any]:
    """Return the work that propagates a namespace to the cluster with the execution namespace *home*."""
    name = key_of(namespace).name
    remaining = {"name": name, "labels": labels_of(namespace), "annotations": annotations_of(namespace)}
    manifest = {
        "apiVersion": "v1",
        "kind": _KIND,
        "metadata": {field: value for field, value in remaining.items() if value},
    }
    return {
        "apiVersion": WORK.api_version,
        "kind": WORK.name,
        "metadata": {
            "finalizers": [names.WORK_FINALIZER],
            "labels": {names.WORK_ID: str(uuid.uuid4())},
            "name": names.work_name(_KIND, "", name),
            "namespace": namespace_name,
        },
        "spec": {"suspendDispatching": False, "workload": {"manifests": [manifest]}},
    }
