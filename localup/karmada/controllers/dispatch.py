"""Implements Karmada's binding controller: one Work per cluster in `spec.clusters`.

It reconciles a binding when its generation changes. Works whose dispatching the policy suspends are created but not
applied in their cluster.
"""

import uuid

import structlog

from localup.karmada.cache import Client, Informers, Store
from localup.karmada.controller import RetryError, WorkQueue
from localup.karmada.controllers.eviction import DIRECTLY, tasks_of
from localup.karmada.names import BINDING_FINALIZER, WORK_ID, cluster_of
from localup.karmada.objects import (
    Key,
    Object,
    finalizers_of,
    generation_of,
    is_terminating,
    key_of,
    labels_of,
    spec_of,
    with_metadata,
)
from localup.karmada.works import updated_work, work_for, work_key

log = structlog.get_logger()


class BindingController:
    """Creates, updates and deletes works."""

    def __init__(self, informers: Informers, bindings: Store, client: Client) -> None:
        self._informers = informers
        self._bindings = bindings
        self._client = client
        self.queue = WorkQueue[Key]("dispatcher", self._reconcile)
        bindings.add_event_handler(self._binding_changed)

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or generation_of(old) != generation_of(new)):
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        binding = self._bindings.get(key)
        if binding is None:
            return
        remaining = set() if is_terminating(binding) else retained_clusters(binding)
        for work in self._informers.works_of(binding):
            if cluster_of(key_of(work).namespace) not in remaining:
                await self._client.delete(self._informers.works, work)
                log.info("work removed", work=str(key_of(work)))
        if is_terminating(binding):
            await self._remove_finalizer(binding)
            return
        self._wait_for_purge(binding)
        template = self._informers.template_of(binding)
        if template is not None:
            for target in targets_of(binding):
                await self._ensure_work(binding, template, target)

    def _wait_for_purge(self, binding: Object) -> None:
        """Raise RetryError while the work of an eviction task with purge mode Directly exists."""
        for task in tasks_of(binding):
            work = self._informers.works.get(work_key(spec_of(binding)["resource"], task["fromCluster"]))
            if task.get("purgeMode") == DIRECTLY and work is not None:
                raise RetryError(f"work {key_of(work)} is being purged")

    async def _ensure_work(self, binding: Object, template: Object, target: Object) -> None:
        works = self._informers.works
        existing = works.get(work_key(template, target["name"]))
        if existing is None:
            made = await self._client.create(works, work_for(binding, template, target, permanent_id=str(uuid.uuid4())))
            log.info("work created", work=str(key_of(made)), cluster=target["name"])
            return
        if is_terminating(existing):
            raise RetryError(f"work {key_of(existing)} is being deleted")
        desired = work_for(binding, template, target, permanent_id=labels_of(existing)[WORK_ID])
        await self._client.update(works, existing, updated_work(existing, desired))

    async def _remove_finalizer(self, binding: Object) -> None:
        remaining = [finalizer for finalizer in finalizers_of(binding) if finalizer != BINDING_FINALIZER]
        if remaining != finalizers_of(binding):
            await self._client.update(self._bindings, binding, with_metadata(binding, finalizers=remaining))


def targets_of(binding: Object) -> list[Object]:
    """Return a binding's targets: its own and those of the bindings that require it."""
    targets = {
        cluster["name"]: cluster
        for needed in spec_of(binding).get("requiredBy") or ()
        for cluster in needed["clusters"]
    }
    targets = {name: {"name": name} for name in targets}
    return list((targets | {cluster["name"]: cluster for cluster in spec_of(binding).get("clusters") or ()}).values())


def retained_clusters(binding: Object) -> set[str]:
    """Return the clusters whose works are retained: the targets, and those with a graceful eviction task."""
    leaving = {str(task["fromCluster"]) for task in tasks_of(binding) if task.get("purgeMode") != DIRECTLY}
    return {str(target["name"]) for target in targets_of(binding)} | leaving
