"""Clusters and workloads with defaults: a Volcano Job of queue ``q`` that runs whole on one cluster."""

from controller.engine.state.clusters import Cluster, ClusterName, Placement, Spread
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)
from tests.workloads import changed

ONE_CLUSTER = Placement(spread=(Spread("cluster", 1, 1),))


def cluster(name: str = "m", **amounts: int) -> Cluster:
    """Return a usable cluster with these amounts and any number of pods."""
    enabled = frozenset({VOLCANO_JOB})
    return Cluster(ClusterName(name), enablements=enabled, allocatable={"pods": 1_000_000, **amounts})


def workload(
    name: str,
    requests: Resources | SchedulingRequirements,
    *,
    queue: str = "q",
    on: str | None = None,
    admitted_at: int = 0,
    **fields: object,
) -> Workload:
    """Return a workload, admitted to the cluster *on*; *fields* are others of the workload or its details."""
    shape = requests
    if not isinstance(shape, SchedulingRequirements):
        shape = SchedulingRequirements(shape, shape, ONE_CLUSTER)
    charge = shape.requests
    made = Workload(
        WorkloadUid(name),
        "ns",
        name,
        "Job",
        QueueName(queue),
        shape,
        state=WorkloadState.ADMITTED if on else WorkloadState.PENDING,
        admission=Admission(charge, (ClusterCharge(ClusterName(on), charge),), admitted_at=admitted_at) if on else None,
    )
    return changed(made, **fields)
