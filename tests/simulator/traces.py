"""Builders of small traces, with CPUs and seconds; one cluster and one queue by default."""

from collections.abc import Iterable

from controller.engine.policy import Policy
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import CPU, MILLI, PODS
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)
from controller.simulator.simulation import SimulationResult
from controller.simulator.trace import PodSet, Submission, Trace
from tests.traces.load import ANY_ONE_CLUSTER

START = 1_000_000_000


def cpus(count: int) -> dict[str, int]:
    return {CPU: count * MILLI}


def cluster(name: str = "m", cpu: int = 8, *, used: int = 0) -> Cluster:
    return Cluster(
        ClusterName(name),
        enablements=frozenset({VOLCANO_JOB}),
        allocatable={**cpus(cpu), PODS: 1_000_000},
        used=cpus(used),
    )


def queue(name: str = "q", **more) -> Queue:
    return Queue(QueueName(name), **more)


def job(
    name: str,
    cpu: int = 1,
    *,
    at: int = 0,
    runs: int = 10,
    queue: str = "q",
    priority: int = 0,
    pods: int = 1,
    on: str | None = None,
    shown: bool = True,
) -> Submission:
    """Return a job submitted at second *at* that runs for *runs* seconds; with *on*, it runs there at the start."""
    demand = {**cpus(cpu), PODS: pods * MILLI}
    admission = Admission(demand, (ClusterCharge(ClusterName(on), demand),), reported=shown) if on else None
    workload = Workload(
        uid=WorkloadUid(f"uid-{name}"),
        namespace="ml",
        name=name,
        kind="Job",
        queue=QueueName(queue),
        requirements=SchedulingRequirements(demand, demand, ANY_ONE_CLUSTER),
        priority=priority,
        created_at=START + at * 1000,
        state=WorkloadState.ADMITTED if on else WorkloadState.PENDING,
        admission=admission,
    )
    each = {name: amount // pods for name, amount in demand.items()}
    return Submission(workload, runs * 1000, at * 1000, (PodSet(pods, each),))


def trace(
    *jobs: Submission,
    clusters: Iterable[Cluster] = (cluster(),),
    queues: Iterable[Queue] = (queue(),),
    policy: Policy | None = None,
    **more,
) -> Trace:
    return Trace(tuple(queues), tuple(clusters), jobs, policy=policy or Policy(), start=START, **more)


def events_of(result: SimulationResult) -> list[tuple[float, str, str]]:
    """Return seconds, action and job of all events except waits."""
    return [
        (entry.at / 1000, entry.action.value, entry.workload.name)
        for entry in result.log
        if entry.action.value != "Wait"
    ]
