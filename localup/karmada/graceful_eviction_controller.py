"""Implements Karmada's graceful eviction: each task keeps the work of its cluster until the task is finished.

A task finishes when its grace period ends or all current targets are healthy. Tasks with purge mode Directly do not
keep the work but finish in the same way.
"""

import time

import structlog

from localup.karmada.client import Client
from localup.karmada.conditions import seconds_of, timestamp
from localup.karmada.objects import Key, Object, generation_of, is_terminating, key_of, spec_of, status_of, with_spec
from localup.karmada.store import Store
from localup.karmada.workqueue import WorkQueue

log = structlog.get_logger()

DIRECTLY = "Directly"


class GracefulEvictionController:
    """Finishes eviction tasks."""

    def __init__(self, bindings: Store, client: Client, *, timeout: float) -> None:
        self.queue = WorkQueue[Key]("graceful eviction", self._reconcile)
        self._bindings = bindings
        self._client = client
        self._timeout = timeout
        bindings.add_event_handler(self._binding_changed)

    def _binding_changed(self, _: Object | None, new: Object | None) -> None:
        if new is not None and tasks_of(new):
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        binding = self._bindings.get(key)
        if binding is None or is_terminating(binding):
            return
        now = time.time()
        remaining = unfinished_tasks(binding, timeout=self._timeout, now=now)
        if remaining != tasks_of(binding):
            await self._client.update(
                self._bindings, binding, with_spec(binding, gracefulEvictionTasks=list(remaining) or None)
            )
            log.info("eviction tasks updated", binding=str(key), remaining=[item["fromCluster"] for item in remaining])
        ends = [_deadline(task, self._timeout) for task in remaining if task.get("suppressDeletion") is None]
        if ends:
            self.queue.add_after(key, max(0.05, min(ends) - now))


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
