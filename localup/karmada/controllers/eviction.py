"""Implements Karmada's evictions: by NoExecute taints, by application failover, and graceful ones.

NoExecute taints, which operators set, evict bindings, also suspended ones, with an eviction task. The task keeps the
work of its cluster until its grace period ends or all current targets are healthy; with purge mode Directly the work
is removed immediately. Application failover does not verify that other clusters fit; failed Volcano Jobs count as
unhealthy.
"""

import time
from typing import Final

import structlog

from localup.karmada.cache import ControlPlaneCache, Store
from localup.karmada.controller import ObjectController
from localup.karmada.feasibility import target_names, tolerates
from localup.karmada.objects import (
    Key,
    Object,
    generation_of,
    key_of,
    seconds_of,
    spec_of,
    status_of,
    timestamp,
    with_spec,
)

DIRECTLY = "Directly"


class GracefulEvictionController(ObjectController):
    """Finishes eviction tasks."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store, *, timeout: float) -> None:
        super().__init__(cache, bindings)
        self._timeout = timeout

    def concerns(self, _: Object | None, new: Object) -> bool:
        """Return whether the binding has tasks."""
        return bool(tasks_of(new))

    async def reconcile_object(self, item: Object) -> None:
        """Remove finished tasks and look again when the next grace period ends."""
        binding, now = item, time.time()
        remaining = unfinished_tasks(binding, timeout=self._timeout, now=now)
        if remaining != tasks_of(binding):
            await self.cache.update(binding, with_spec(binding, gracefulEvictionTasks=remaining or None))
            log.info(
                "eviction tasks updated",
                binding=str(key_of(binding)),
                remaining=[item["fromCluster"] for item in remaining],
            )
        ends = [_deadline(task, self._timeout) for task in remaining if task.get("suppressDeletion") is None]
        if ends:
            self.queue.add_after(key_of(binding), max(0.05, min(ends) - now))


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
    return now > _deadline(task, timeout) or (_is_observed(binding) and _is_healthy(binding))


def _deadline(task: Object, timeout: float) -> float:
    grace = task.get("gracePeriodSeconds")
    return seconds_of(task["creationTimestamp"]) + (timeout if grace is None else grace)


def _is_observed(binding: Object) -> bool:
    """Return whether the scheduler has observed the current generation."""
    return bool(status_of(binding).get("schedulerObservedGeneration", 0) == generation_of(binding))


def _is_healthy(binding: Object) -> bool:
    """Return whether all targets are healthy; true without targets."""
    items = status_of(binding).get("aggregatedStatus") or ()
    health = {item["clusterName"]: item.get("health") for item in items}
    return all(health.get(cluster["name"]) == "Healthy" for cluster in spec_of(binding).get("clusters") or ())


log = structlog.get_logger()


class NoExecuteTaintManager(ObjectController):
    """Evicts bindings from clusters with a NoExecute taint that they do not tolerate."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store) -> None:
        super().__init__(cache, bindings)
        cache.clusters.add_event_handler(self._cluster_changed)

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None or (old is not None and taints_of(old) == taints_of(new)):
            return
        for binding in self.store:
            if key_of(new).name in target_names(binding):
                self.queue.add(key_of(binding))

    def concerns(self, old: Object | None, new: Object) -> bool:
        """Return whether the targets changed."""
        return old is None or target_names(old) != target_names(new)

    async def reconcile_object(self, item: Object) -> None:
        """Evict the binding from clusters with a taint that it does not tolerate."""
        binding = item
        for name in target_names(binding):
            cluster = self.cache.clusters.get(Key("", name))
            if cluster is not None and _has_untolerated_taint(cluster, binding):
                binding = await self.cache.update(binding, evicted(binding, name))
                log.info("binding evicted by taint", binding=str(key_of(binding)), cluster=name)


def taints_of(cluster: Object) -> list[Object]:
    """Return the taints of a cluster."""
    return list(spec_of(cluster).get("taints") or ())


def evicted(
    binding: Object, cluster: str, *, producer: str = "TaintManager", reason: str = "TaintUntolerated"
) -> Object:
    """Return *binding* without the target and with an eviction task."""
    remaining = [item for item in spec_of(binding)["clusters"] if item["name"] != cluster]
    left = next(item for item in spec_of(binding)["clusters"] if item["name"] == cluster)
    task = {"fromCluster": cluster, "producer": producer, "purgeMode": "Gracefully", "reason": reason}
    replicas = {"replicas": left["replicas"]} if left.get("replicas") else {}
    tasks = tasks_of(binding)
    if all(item["fromCluster"] != cluster for item in tasks):
        tasks = [*tasks, {**task, **replicas}]
    return with_spec(binding, clusters=remaining or None, gracefulEvictionTasks=tasks)


def _has_untolerated_taint(cluster: Object, binding: Object) -> bool:
    """Return whether a cluster has a NoExecute taint that a binding does not tolerate."""
    placement = spec_of(binding).get("placement") or {}
    tolerations = placement.get("clusterTolerations") or ()
    repelling = [item for item in taints_of(cluster) if item.get("effect") == "NoExecute"]
    return any(not any(tolerates(toleration, taint) for toleration in tolerations) for taint in repelling)


_TOLERATION_SECONDS: Final = 300


class ApplicationFailoverController(ObjectController):
    """Evicts bindings from clusters in which they are unhealthy longer than tolerated."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store) -> None:
        super().__init__(cache, bindings)
        self._unhealthy_since: dict[tuple[Key, str], float] = {}

    def concerns(self, _: Object | None, new: Object) -> bool:
        """Return whether the binding has application failover."""
        return toleration_of(new) is not None

    async def reconcile_object(self, item: Object) -> None:
        """Evict the binding from clusters, or look again when its toleration ends."""
        binding, key, tolerated = item, key_of(item), toleration_of(item)
        if tolerated is None:
            return
        now, unhealthy = time.time(), unhealthy_in(binding)
        remaining = {name: self._unhealthy_since.pop((key, name), now) for name in unhealthy}
        for known in [item for item in self._unhealthy_since if item[0] == key]:
            del self._unhealthy_since[known]
        for name, since in remaining.items():
            if now - since >= tolerated:
                gone = evicted(binding, name, producer="RBApplicationFailoverController", reason="ApplicationFailure")
                binding = await self.cache.update(binding, gone)
                log.info("unhealthy binding evicted", binding=str(key), cluster=name)
            else:
                self._unhealthy_since[key, name] = since
                self.queue.add_after(key, since + tolerated - now)


def toleration_of(binding: Object) -> float | None:
    """Return how many seconds a binding may be unhealthy; ``None`` without application failover."""
    spec = spec_of(binding)
    application = (spec.get("failover") or {}).get("application")
    if application is None or not spec.get("propagateDeps"):
        return None
    return float((application.get("decisionConditions") or {}).get("tolerationSeconds", _TOLERATION_SECONDS))


def unhealthy_in(binding: Object) -> list[str]:
    """Return the target clusters in which a binding is unhealthy."""
    reported = status_of(binding).get("aggregatedStatus") or ()
    return [
        item["clusterName"]
        for item in reported
        if item.get("health") == "Unhealthy" and item["clusterName"] in target_names(binding)
    ]
