"""Karmada's namespace controller: every namespace of users is sent to every cluster, whatever goes there.

Its works belong to no binding.
"""

import uuid
from typing import Any

from localup.karmada import names
from localup.karmada.client import Client
from localup.karmada.informers import Informers
from localup.karmada.kinds import WORK
from localup.karmada.objects import Key, Object, annotations_of, is_terminating, key_of, labels_of
from localup.karmada.workqueue import RetryError, WorkQueue

_KIND = "Namespace"


class NamespaceSyncController:
    """Makes and removes the works of namespaces; a key is a cluster and a namespace."""

    def __init__(self, mirror: Informers, writer: Client) -> None:
        self.queue = WorkQueue[Key]("namespaces", self._reconcile)
        self._mirror = mirror
        self._writer = writer
        mirror.namespaces.listen(self._namespace_changed)
        mirror.clusters.listen(self._cluster_changed)

    def _namespace_changed(self, old: Object | None, new: Object | None) -> None:
        key = key_of(new or old or {})
        if new is not None and old is not None and is_terminating(old) == is_terminating(new):
            return
        if names.cluster_of(key.name):  # the cluster's own namespace is there now
            self._cluster_changed(None, self._mirror.clusters.get(Key("", names.cluster_of(key.name))))
        elif not names.is_reserved(key.name):
            for cluster in self._mirror.clusters:
                self.queue.add(Key(key_of(cluster).name, key.name))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None and new is not None:
            for namespace in self._mirror.namespaces:
                if not names.is_reserved(key_of(namespace).name):
                    self.queue.add(Key(key_of(new).name, key_of(namespace).name))

    async def _reconcile(self, key: Key) -> None:
        home = names.execution_namespace(key.namespace)
        if (
            self._mirror.namespaces.get(Key("", home)) is None
            or self._mirror.clusters.get(Key("", key.namespace)) is None
        ):
            return
        namespace = self._mirror.namespaces.get(Key("", key.name))
        work = self._mirror.works.get(Key(home, names.work_name(_KIND, "", key.name)))
        if namespace is None or is_terminating(namespace):
            if work is not None and not is_terminating(work):
                await self._writer.delete(self._mirror.works, work)
        elif work is None:
            await self._writer.create(self._mirror.works, work_of(namespace, home))
        elif is_terminating(work):
            raise RetryError(f"work {key_of(work)} is being deleted")


def work_of(namespace: Object, home: str) -> dict[str, Any]:
    """Return the work that carries a namespace to the cluster whose works are in *home*."""
    name = key_of(namespace).name
    kept = {"name": name, "labels": labels_of(namespace), "annotations": annotations_of(namespace)}
    manifest = {"apiVersion": "v1", "kind": _KIND, "metadata": {field: value for field, value in kept.items() if value}}
    return {
        "apiVersion": WORK.api_version,
        "kind": WORK.name,
        "metadata": {
            "finalizers": [names.WORK_FINALIZER],
            "labels": {names.WORK_ID: str(uuid.uuid4())},
            "name": names.work_name(_KIND, "", name),
            "namespace": home,
        },
        "spec": {"suspendDispatching": False, "workload": {"manifests": [manifest]}},
    }
