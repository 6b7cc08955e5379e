"""Implements Karmada's namespace controller: propagates every user namespace to every cluster.

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
    """Creates and deletes the works of namespaces; a key is a cluster and a namespace."""

    def __init__(self, informers: Informers, client: Client) -> None:
        self.queue = WorkQueue[Key]("namespaces", self._reconcile)
        self._informers = informers
        self._client = client
        informers.namespaces.add_event_handler(self._namespace_changed)
        informers.clusters.add_event_handler(self._cluster_changed)

    def _namespace_changed(self, old: Object | None, new: Object | None) -> None:
        key = key_of(new or old or {})
        if new is not None and old is not None and is_terminating(old) == is_terminating(new):
            return
        if names.cluster_of(key.name):  # the cluster's execution namespace exists now
            self._cluster_changed(None, self._informers.clusters.get(Key("", names.cluster_of(key.name))))
        elif not names.is_reserved(key.name):
            for cluster in self._informers.clusters:
                self.queue.add(Key(key_of(cluster).name, key.name))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None and new is not None:
            for namespace in self._informers.namespaces:
                if not names.is_reserved(key_of(namespace).name):
                    self.queue.add(Key(key_of(new).name, key_of(namespace).name))

    async def _reconcile(self, key: Key) -> None:
        namespace_name = names.execution_namespace(key.namespace)
        if (
            self._informers.namespaces.get(Key("", namespace_name)) is None
            or self._informers.clusters.get(Key("", key.namespace)) is None
        ):
            return
        namespace = self._informers.namespaces.get(Key("", key.name))
        work = self._informers.works.get(Key(namespace_name, names.work_name(_KIND, "", key.name)))
        if namespace is None or is_terminating(namespace):
            if work is not None and not is_terminating(work):
                await self._client.delete(self._informers.works, work)
        elif work is None:
            await self._client.create(self._informers.works, work_of(namespace, namespace_name))
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
