"""Implements Karmada's binding controllers: one Work per cluster of a binding, and their status in the binding.

Works whose dispatching the policy suspends are created but not applied in their cluster.
"""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from controller.kube.errors import Conflict
from localup.karmada.binding import owner_of
from localup.karmada.cache import STATUS, ControlPlaneCache, Store
from localup.karmada.controller import ObjectController, RetryError
from localup.karmada.controllers.eviction import DIRECTLY, tasks_of
from localup.karmada.objects import (
    BINDING_FINALIZER,
    WORK_ID,
    Key,
    Object,
    cluster_of,
    generation_of,
    is_terminating,
    key_of,
    labels_of,
    spec_of,
    status_of,
    uid_of,
)
from localup.karmada.status import aggregate_status, template_status
from localup.karmada.works import binding_key, updated_work, work_for, work_key

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
            made = await self.cache.create(work_for(binding, template, target, permanent_id=self.cache.new_id()))
            log.info("work created", work=str(key_of(made)), cluster=target["name"])
            return
        if is_terminating(existing):
            raise RetryError(f"work {key_of(existing)} is being deleted")
        desired = work_for(binding, template, target, permanent_id=labels_of(existing)[WORK_ID])
        await self.cache.update(existing, updated_work(existing, desired))


class BindingStatusController(ObjectController):
    """Aggregates the status of Works into a binding, and of a binding into its template."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store) -> None:
        super().__init__(cache, bindings)
        cache.works.add_event_handler(self._work_changed)

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or status_of(old) != status_of(new):
            key = binding_key(new or old or {})
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
        # As in Karmada, a pass that writes keeps the template's status; only the next pass clears it.
        status = template_status(template, binding, now=now, stale=binding is not item)
        await self.cache.update(template, status, part=STATUS)


def retained_clusters(binding: Object) -> set[str]:
    """Return the clusters whose works are retained: the targets, and those with a graceful eviction task."""
    leaving = {str(task["fromCluster"]) for task in tasks_of(binding) if task.get("purgeMode") != DIRECTLY}
    return {str(target["name"]) for target in spec_of(binding).get("clusters") or ()} | leaving


def _template_version(binding: Object) -> str:
    return str(binding["spec"]["resource"].get("resourceVersion", ""))
