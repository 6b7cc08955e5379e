"""Implements Karmada's evictions: graceful ones, and those by NoExecute taints, which operators set.

A taint evicts bindings, also suspended ones, with an eviction task, unless the scheduled placement tolerates it.
The task keeps the work of its cluster until its grace period ends or all current targets are healthy; with purge mode
Directly, which a policy can ask for (`failover.cluster`), the work is removed immediately.
"""

import json

import structlog

from localup.karmada.cache import ControlPlaneCache, Store
from localup.karmada.controller import ObjectController, RetryError
from localup.karmada.objects import (
    APPLIED_PLACEMENT,
    Key,
    Object,
    annotations_of,
    generation_of,
    key_of,
    seconds_of,
    spec_of,
    status_of,
    target_names,
    timestamp,
    with_spec,
)
from localup.karmada.scheduler import untolerated_taint

DIRECTLY, GRACEFULLY = "Directly", "Gracefully"

log = structlog.get_logger()


class EvictionController(ObjectController):
    """Finishes eviction tasks, and evicts bindings by taints if *by_taints* is set."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store, *, timeout: float, by_taints: bool) -> None:
        super().__init__(cache, bindings)
        self._timeout = timeout
        self._by_taints = by_taints
        if by_taints:
            cache.clusters.add_event_handler(self._cluster_changed)

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None or (old is not None and spec_of(old).get("taints") == spec_of(new).get("taints")):
            return
        for binding in self.store:
            if key_of(new).name in target_names(binding):
                self.queue.add(key_of(binding))

    def concerns(self, old: Object | None, new: Object) -> bool:
        """Return whether the binding has tasks, or targets that may have taints."""
        return bool(tasks_of(new)) or (self._by_taints and (old is None or target_names(old) != target_names(new)))

    async def reconcile_object(self, item: Object) -> None:
        """Evict the binding from tainted clusters, remove finished tasks, and look again when a grace period ends."""
        binding = await self._evict(item) if self._by_taints else item
        now, tasks = self.cache.now(), tasks_of(binding)
        remaining = unfinished_tasks(binding, timeout=self._timeout, now=now)
        if remaining != tasks:
            await self.cache.update(binding, with_spec(binding, gracefulEvictionTasks=remaining or None))
            clusters = [task["fromCluster"] for task in remaining]
            log.info("eviction tasks updated", binding=str(key_of(binding)), remaining=clusters)
        ends = [_deadline(task, self._timeout) for task in remaining if task.get("suppressDeletion") is None]
        if ends:
            self.queue.add(key_of(binding), seconds=max(0.05, min(ends) - now))

    async def _evict(self, binding: Object) -> Object:
        """Evict *binding* from clusters with a NoExecute taint that it does not tolerate."""
        for name in target_names(binding):
            cluster = self.cache.clusters.get(Key("", name))
            if cluster is None or not untolerated_taint(cluster, {}, "NoExecute"):
                continue
            if (applied := annotations_of(binding).get(APPLIED_PLACEMENT)) is None:
                raise RetryError(f"binding {key_of(binding)} has not been scheduled")
            if untolerated_taint(cluster, json.loads(applied), "NoExecute"):
                binding = await self.cache.update(binding, evicted_by_taint(binding, name))
                log.info("binding evicted by taint", binding=str(key_of(binding)), cluster=name)
        return binding


def tasks_of(binding: Object) -> list[Object]:
    """Return the eviction tasks of a binding."""
    return list(spec_of(binding).get("gracefulEvictionTasks") or ())


def unfinished_tasks(binding: Object, *, timeout: float, now: float) -> list[Object]:
    """Return the tasks that are not finished; new ones get a creation timestamp."""
    remaining: list[Object] = []
    for task in tasks_of(binding):
        if "creationTimestamp" not in task:
            remaining.append({**task, "creationTimestamp": timestamp(now)})
        elif not _is_done(task, binding, timeout=timeout, now=now):
            remaining.append(task)
    return remaining


def _is_done(task: Object, binding: Object, *, timeout: float, now: float) -> bool:
    if task.get("suppressDeletion") is not None:
        return not task["suppressDeletion"]
    return now > _deadline(task, timeout) or _is_healthy(binding)


def _deadline(task: Object, timeout: float) -> float:
    grace = task.get("gracePeriodSeconds")
    return seconds_of(task["creationTimestamp"]) + (timeout if grace is None else grace)


def _is_healthy(binding: Object) -> bool:
    """Return whether the scheduler has observed the generation and all targets are healthy; true without targets."""
    status = status_of(binding)
    health = {item["clusterName"]: item.get("health") for item in status.get("aggregatedStatus") or ()}
    is_observed: bool = status.get("schedulerObservedGeneration", 0) == generation_of(binding)
    return is_observed and all(health.get(name) == "Healthy" for name in target_names(binding))


def evicted(binding: Object, cluster: str, **options: object) -> Object:
    """Return *binding* without the target and with an eviction task that has these *options*."""
    spec, tasks = spec_of(binding), tasks_of(binding)
    left = next(item for item in spec["clusters"] if item["name"] == cluster)
    replicas = {"replicas": left["replicas"]} if left.get("replicas") else {}
    if all(item["fromCluster"] != cluster for item in tasks):
        tasks.append({"fromCluster": cluster, **options, **replicas})
    remaining = [item for item in spec["clusters"] if item is not left]
    return with_spec(binding, clusters=remaining or None, gracefulEvictionTasks=tasks)


def evicted_by_taint(binding: Object, cluster: str) -> Object:
    """Return *binding* as Karmada's taint manager evicts it from *cluster*."""
    behavior = (spec_of(binding).get("failover") or {}).get("cluster") or {}
    mode = behavior.get("purgeMode") or GRACEFULLY
    return evicted(binding, cluster, producer="TaintManager", purgeMode=mode, reason="TaintUntolerated")
