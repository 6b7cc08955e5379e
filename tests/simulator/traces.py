"""Builders of small traces, with CPUs and seconds; one cluster and one queue by default."""

from collections.abc import Iterable
from dataclasses import replace

from controller.engine.policy import Policy
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import CPU, MILLI, PODS
from controller.engine.state.workloads import (
    WorkloadUid,
)
from controller.simulator.simulation import SimulationResult
from controller.simulator.trace import PodSet, Submission, Trace
from tests.engine import objects

START = 1_000_000_000


def cpus(count: int) -> dict[str, int]:
    return {CPU: count * MILLI}


def cluster(name: str = "m", cpu: int = 8, *, used: int = 0) -> Cluster:
    return replace(objects.cluster(name, **cpus(cpu)), used=cpus(used))


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
) -> Submission:
    """Return a job submitted at second *at* that runs for *runs* seconds; with *on*, it runs there at the start."""
    demand = {**cpus(cpu), PODS: pods * MILLI}
    workload = objects.workload(
        name,
        demand,
        queue=queue,
        on=on,
        uid=WorkloadUid(f"uid-{name}"),
        namespace="ml",
        priority=priority,
        created_at=START + at * 1000,
    )
    if workload.admission:
        workload = replace(workload, admission=replace(workload.admission, reported=True))
    per_pod = {name: amount // pods for name, amount in demand.items()}
    return Submission(workload, runs * 1000, at * 1000, (PodSet(pods, per_pod),))


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
