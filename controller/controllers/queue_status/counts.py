"""Counts the workloads and the usage of each queue for its status, as Volcano does in one cluster (W4).

Pure. Volcano counts the PodGroups that name a queue; here a workload stands for its PodGroup.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from controller.cache.objects import CachedQueue, QueueCounts
from controller.cache.translate.units import format_resources
from controller.engine.state.hierarchy import QueueName, QueueState
from controller.engine.state.quota import Quota
from controller.engine.state.resources import CPU, MEMORY, Resources
from controller.engine.state.workloads import Workload, WorkloadState

#: The number of the status in which a workload of each state counts; an admitted one runs or is still `inqueue`.
_FIELDS: Mapping[WorkloadState, str] = {
    WorkloadState.PENDING: "pending",
    WorkloadState.FINISHED: "completed",
    WorkloadState.ADMITTED: "inqueue",
}

WorkloadCounts = Counter[tuple[QueueName, str]]
"""The number of workloads by queue and field of the status."""


def count_workloads(workloads: Iterable[Workload], is_running: Callable[[Workload], bool]) -> WorkloadCounts:
    """Return the number of workloads by queue and field of the status."""
    counts = WorkloadCounts()
    for workload in workloads:
        field = _FIELDS[workload.state]
        if field == "inqueue" and is_running(workload):
            field = "running"
        counts[workload.queue, field] += 1
    return counts


def queue_counts(name: QueueName, counted: Mapping[tuple[QueueName, str], int], usage: Resources) -> QueueCounts:
    """Return the counts of the queue *name*; CPU and memory are always part of its usage."""
    used = {resource: amount for resource, amount in usage.items() if amount}
    return QueueCounts(
        pending=counted.get((name, "pending"), 0),
        inqueue=counted.get((name, "inqueue"), 0),
        running=counted.get((name, "running"), 0),
        completed=counted.get((name, "completed"), 0),
        allocated=format_resources({CPU: 0, MEMORY: 0, **used}),
    )


def queue_usage(name: QueueName, quota: Quota, current_usage: Mapping[QueueName, Resources]) -> Resources:
    """Return the usage of a queue with all queues below it, or its own where it is not connected to the root."""
    return quota.allocated[name] if name in quota.tree.nodes else current_usage.get(name, {})


def status_patch(queue: CachedQueue, counts: QueueCounts) -> Mapping[str, Any] | None:
    """Return the merge patch that shows *counts*, ``None`` where the status shows them already.

    The API server rejects it if the queue has changed.
    """
    if queue.counts == counts and queue.has_state:
        return None
    removed = {name: None for name in (queue.counts.allocated if queue.counts else {}) if name not in counts.allocated}
    status = {
        "pending": counts.pending,
        "inqueue": counts.inqueue,
        "running": counts.running,
        "unknown": counts.unknown,
        "completed": counts.completed,
        "allocated": {**counts.allocated, **removed},
        **({} if queue.has_state else {"state": QueueState.OPEN}),
    }
    return {"metadata": {"uid": queue.uid, "resourceVersion": str(queue.resource_version)}, "status": status}
