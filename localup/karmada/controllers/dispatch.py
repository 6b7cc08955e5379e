"""Implements Karmada's binding controller: one Work per cluster in `spec.clusters`.

It reconciles a binding when its generation changes. Works whose dispatching the policy suspends are created but not
applied in their cluster.
"""

import uuid

import structlog

from localup.karmada.controller import ObjectController, RetryError
from localup.karmada.controllers.eviction import DIRECTLY, tasks_of
from localup.karmada.names import BINDING_FINALIZER, WORK_ID, cluster_of
from localup.karmada.objects import (
    Key,
    Object,
    generation_of,
    is_terminating,
    key_of,
    labels_of,
    spec_of,
)
from localup.karmada.works import updated_work, work_for, work_key

log = structlog.get_logger()


class BindingController(ObjectController):
    """Creates, updates and deletes works."""

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
            for target in targets_of(binding):
                await self._ensure_work(binding, template, target)

    async def _ensure_work(self, binding: Object, template: Object, target: Object) -> None:
        works = self.cache.works
        existing = works.get(work_key(template, target["name"]))
        if existing is None:
            made = await self.cache.create(work_for(binding, template, target, permanent_id=str(uuid.uuid4())))
            log.info("work created", work=str(key_of(made)), cluster=target["name"])
            return
        if is_terminating(existing):
            raise RetryError(f"work {key_of(existing)} is being deleted")
        desired = work_for(binding, template, target, permanent_id=labels_of(existing)[WORK_ID])
        await self.cache.update(existing, updated_work(existing, desired))


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
