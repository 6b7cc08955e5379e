"""Propagates every user namespace to every cluster, by works that belong to no binding."""

from localup.karmada.cache import ControlPlaneCache
from localup.karmada.controller import Controller, RetryError
from localup.karmada.objects import (
    NAMESPACES,
    WORK_ID,
    Key,
    Object,
    annotations_of,
    cluster_of,
    execution_namespace,
    is_reserved,
    is_terminating,
    key_of,
    labels_of,
    new_object,
    with_spec,
    work_name,
)
from localup.karmada.works import new_work


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
