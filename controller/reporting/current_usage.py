"""Computes the usage of all queues and clusters as it is now, before a plan."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.engine.engine import Engine
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.resources import Resources, add
from controller.engine.state.workloads import WorkloadState


@dataclass(frozen=True, slots=True)
class CurrentUsage:
    """Usage and numbers of workloads before a plan."""

    queues: Mapping[QueueName, Resources]
    """Usage of each queue and of all queues below it."""
    pending: Mapping[QueueName, int]
    admitted: Mapping[QueueName, int]
    """Numbers of workloads of each queue and of all queues below it."""
    admitted_on: Mapping[str, int]
    """Numbers of admitted workloads by cluster."""
    clusters: tuple[ClusterState, ...]


def current_usage(engine: Engine) -> CurrentUsage:
    """Return the usage of queues and clusters as it is, before a plan."""
    counts = {counted: Counter[QueueName]() for counted in (WorkloadState.PENDING, WorkloadState.ADMITTED)}
    admitted_on = Counter[str]()
    for workload in engine.workloads.values():
        if workload.state is WorkloadState.ADMITTED and workload.admission is not None:
            admitted_on.update(charge.cluster for charge in workload.admission.cluster_charges)
        if workload.state in counts:
            counts[workload.state].update(_path(engine, workload.queue))
    usage: dict[QueueName, Resources] = {}
    for queue, amounts in engine.current_usage.items():
        for name in _path(engine, queue):
            usage[name] = add(usage.get(name, {}), amounts)
    clusters = tuple(replace(cluster) for cluster in engine.cluster_usage)
    return CurrentUsage(usage, counts[WorkloadState.PENDING], counts[WorkloadState.ADMITTED], admitted_on, clusters)


def _path(engine: Engine, queue: QueueName) -> tuple[QueueName, ...]:
    """Return *queue* and its ancestors; for a queue that is not connected to the root, itself and the root."""
    node: Node | None = engine.tree().nodes.get(queue)
    return tuple(ancestor.name for ancestor in node.path()) if node else (queue, ROOT)
