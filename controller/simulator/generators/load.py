"""A generated load of queues, clusters and jobs, and its conversion to a trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.engine.state.clusters import Cluster, ClusterName, Placement, Spread
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.requests import (
    Container,
    JobTemplate,
    PodTemplate,
    gang_minimum,
    pod_request,
    pod_requests,
    total_requests,
)
from controller.engine.state.requests import Task as TaskTemplate
from controller.engine.state.resources import MILLI, PODS, Resources
from controller.engine.state.workloads import VOLCANO_JOB, SchedulingRequirements, Workload, WorkloadUid
from controller.simulator.trace import PodSet, Submission, Trace

ANY_ONE_CLUSTER = Placement(spread=(Spread("cluster", 1, 1),))

Tasks = tuple["GeneratedTask", ...]


@dataclass(frozen=True, slots=True)
class GeneratedTask:
    """A number of equal pods of a job."""

    name: str
    replicas: int
    request: tuple[tuple[str, int], ...]
    """Requests of one pod, sorted by resource name."""


@dataclass(frozen=True, slots=True)
class GeneratedJob:
    """One generated job, all pods of which form a gang."""

    namespace: str
    name: str
    queue: QueueName
    tasks: Tasks
    at: int
    """Submission time in milliseconds from the start."""
    runtime: int
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """A generated load."""

    queues: tuple[Queue, ...]
    clusters: tuple[Cluster, ...]
    jobs: tuple[GeneratedJob, ...]
    classes: Mapping[str, int] = field(default_factory=dict)
    """The values of the PriorityClasses, by name."""


def resource_amounts(**named: int) -> tuple[tuple[str, int], ...]:
    """Return the requests of a task; *named* are amounts in base units."""
    return tuple(sorted(named.items()))


def empty_cluster(name: str, allocatable: Resources, pods: int = 1_000_000) -> Cluster:
    """Return a cluster without usage that serves Volcano Jobs."""
    amounts = {**allocatable, PODS: pods * MILLI}
    return Cluster(ClusterName(name), enablements=frozenset({VOLCANO_JOB}), allocatable=amounts)


def to_trace(load: Load, *, start: int = 0) -> Trace:
    """Return the trace of *load*, equal to that read from its manifests."""
    forms: dict[Tasks, tuple[SchedulingRequirements, tuple[PodSet, ...]]] = {}
    submissions = []
    for job in sorted(load.jobs, key=lambda job: (job.at, job.namespace, job.name)):
        if job.tasks not in forms:
            forms[job.tasks] = _requirements(job.tasks)
        shape, pods = forms[job.tasks]
        workload = Workload(
            uid=WorkloadUid(f"Job/{job.namespace}/{job.name}"),
            namespace=job.namespace,
            name=job.name,
            kind=VOLCANO_JOB.kind,
            queue=job.queue,
            requirements=shape,
            priority=load.classes.get(job.priority_class, 0),
            priority_class=job.priority_class,
            created_at=start + job.at,
        )
        submissions.append(Submission(workload, job.runtime, job.at, pods))
    return Trace(load.queues, load.clusters, tuple(submissions), start=start)


def _requirements(tasks: Tasks) -> tuple[SchedulingRequirements, tuple[PodSet, ...]]:
    """Return the shape of a job with *tasks*, and its pods."""
    pods = [PodTemplate((Container(dict(task.request)),)) for task in tasks]
    job = JobTemplate(tuple(TaskTemplate(task.name, task.replicas, pod) for task, pod in zip(tasks, pods, strict=True)))
    shape = SchedulingRequirements(
        total_requests(job), gang_minimum(job, lambda _: 0), ANY_ONE_CLUSTER, pods=pod_requests(job)
    )
    return shape, tuple(PodSet(task.replicas, pod_request(pod)) for task, pod in zip(tasks, pods, strict=True))
