"""Implements Karmada's application failover: evicts workloads from clusters in which they stay unhealthy.

A policy asks for it (`failover.application`, with `propagateDeps`). The task has the policy's purge mode; one with
`Never` keeps the work until a user confirms its deletion.
"""

import structlog

from localup.karmada.cache import ControlPlaneCache, Store
from localup.karmada.controller import ObjectController
from localup.karmada.evictions import GRACEFULLY, evicted, tasks_of
from localup.karmada.objects import Key, Object, key_of, spec_of, status_of, target_names

NEVER = "Never"
_DEFAULT_SECONDS = 300

log = structlog.get_logger()


class ApplicationFailoverController(ObjectController):
    """Evicts a binding from each cluster in which it has been unhealthy for longer than its policy tolerates."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store) -> None:
        super().__init__(cache, bindings)
        self._unhealthy_since: dict[Key, dict[str, float]] = {}

    async def reconcile(self, key: Key) -> None:
        """Reconcile the binding; forget one that does not exist."""
        if self.store.get(key) is None:
            self._unhealthy_since.pop(key, None)
        await super().reconcile(key)

    async def reconcile_object(self, item: Object) -> None:
        """Evict the binding where its toleration has passed, and look again when the next one passes."""
        key, now, behavior = key_of(item), self.cache.now(), _behavior(item)
        before = self._unhealthy_since.pop(key, {})
        if behavior is None:
            return
        since = {name: before.get(name, now) for name in unhealthy_clusters(item)}
        self._unhealthy_since[key] = since
        seconds = (behavior.get("decisionConditions") or {}).get("tolerationSeconds", _DEFAULT_SECONDS)
        binding = item
        for name, begin in since.items():
            if now <= begin + seconds:
                self.queue.add(key, seconds=begin + seconds - now + 1)
            elif name in target_names(binding):
                binding = evicted(binding, name, **_task_options(behavior))
                log.info("binding evicted by failover", binding=str(key), cluster=name)
        await self.cache.update(item, binding)


def unhealthy_clusters(binding: Object) -> list[str]:
    """Return the clusters that report *binding* as unhealthy, and that it is not being evicted from."""
    leaving = {task["fromCluster"] for task in tasks_of(binding)}
    items = status_of(binding).get("aggregatedStatus") or ()
    return [
        str(item["clusterName"])
        for item in items
        if item.get("health") == "Unhealthy" and item["clusterName"] not in leaving
    ]


def _behavior(binding: Object) -> Object | None:
    """Return what the policy of *binding* asks for, ``None`` where there is no failover."""
    spec = spec_of(binding)
    return (spec.get("failover") or {}).get("application") if spec.get("propagateDeps") else None


def _task_options(behavior: Object) -> dict[str, object]:
    mode = behavior.get("purgeMode") or GRACEFULLY
    options: dict[str, object] = {"producer": "resource-binding-application-failover-controller"}
    options |= {"reason": "ApplicationFailure", "purgeMode": mode}
    if mode == GRACEFULLY and (seconds := behavior.get("gracePeriodSeconds")) is not None:
        options["gracePeriodSeconds"] = seconds
    return {**options, "suppressDeletion": True} if mode == NEVER else options
