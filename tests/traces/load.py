"""A generated load of queues, clusters and jobs, and its conversion to a trace."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.api.keys import (
    CLUSTERS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RUNTIME_ANNOTATION,
    SUBMIT_ANNOTATION,
    Resource,
)
from controller.cache.translate.units import format_resources
from controller.cli.input.manifests import Location, _parse_manifest
from controller.cli.input.traces import read_trace
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.resources import EMPTY, MILLI, PODS, Resources, scale, total
from controller.engine.state.workloads import VOLCANO_JOB
from controller.simulator.trace import Trace, format_duration

Tasks = tuple["Task", ...]


@dataclass(frozen=True, slots=True)
class Task:
    """A number of equal pods of a job."""

    name: str
    replicas: int
    request: tuple[tuple[str, int], ...]
    """Requests of one pod, sorted by resource name."""


@dataclass(frozen=True, slots=True)
class Job:
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
    jobs: tuple[Job, ...]
    classes: Mapping[str, int] = field(default_factory=dict)
    """The values of the PriorityClasses, by name."""


def resource_amounts(**named: int) -> tuple[tuple[str, int], ...]:
    """Return the requests of a task; *named* are amounts in base units."""
    return tuple(sorted(named.items()))


def empty_cluster(name: str, allocatable: Resources) -> Cluster:
    """Return a cluster without usage that serves Volcano Jobs."""
    amounts = {**allocatable, PODS: 1_000_000 * MILLI}
    return Cluster(ClusterName(name), enablements=frozenset({VOLCANO_JOB}), allocatable=amounts)


def to_trace(load: Load, *, start: int = 0) -> Trace:
    """Return the trace that `volcano-global simulate` reads from the manifests of *load*."""
    objects = [_parse_manifest(Location("load", number), body) for number, body in enumerate(manifests(load), start=1)]
    return read_trace(objects, now=start, runtime=0).trace


_MIN_DURATION = 3_600_000


@dataclass(frozen=True, slots=True)
class LoadSize:
    """Requested size; *load* is the work in percent of the clusters' capacity during the submissions."""

    jobs: int = 500
    queues: int = 6
    clusters: int = 4
    load: int = 120
    seed: int = 0


def clusters_for(jobs: Sequence[Job], node: Resources, size: LoadSize) -> tuple[Cluster, ...]:
    """Return clusters of equal nodes so that *jobs* have the load of *size*; the first fits the largest job.

    Run times count up to the time between the first and the last submission.
    """
    duration = max(jobs[-1].at - jobs[0].at, _MIN_DURATION)
    requests = [total(scale(dict(task.request), task.replicas) for task in job.tasks) for job in jobs]
    work = total(scale(requested, min(job.runtime, duration)) for requested, job in zip(requests, jobs, strict=True))
    nodes = max(_divide_up(work.get(name, 0) * 100, duration * size.load * node[name]) for name in node)
    least = max(_divide_up(requested.get(name, 0), node[name]) for requested in requests for name in node)
    first = max(_divide_up(nodes, size.clusters), least)
    others = size.clusters - 1
    counts = [first, *(max((nodes - first + index) // others, 1) for index in reversed(range(others)))]
    return tuple(empty_cluster(f"member{index}", scale(node, count)) for index, count in enumerate(counts, start=1))


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


Manifest = dict[str, Any]


def manifests(load: Load) -> Iterator[Manifest]:
    """Yield PriorityClasses, queues, clusters and jobs, each in the order of the load."""
    for name, value in load.classes.items():
        yield {**_metadata(PRIORITY_CLASSES, name=name), "value": value}
    yield from map(_queue, load.queues)
    yield from map(_cluster, load.clusters)
    yield from map(_job, load.jobs)


def _metadata(resource: Resource, **metadata: Any) -> Manifest:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _queue(queue: Queue) -> Manifest:
    spec: Manifest = {"weight": queue.weight}
    if queue.parent != ROOT:
        spec["parent"] = queue.parent
    for name, amounts in (("capability", queue.capability), ("deserved", queue.deserved)):
        if amounts:
            spec[name] = format_resources(amounts)
    return {**_metadata(QUEUES, name=queue.name), "spec": spec}


def _cluster(cluster: Cluster) -> Manifest:
    status = {
        "apiEnablements": [{"groupVersion": JOBS.api_version, "resources": [{"kind": JOBS.kind}]}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "resourceSummary": {"allocatable": format_resources(cluster.allocatable or EMPTY)},
    }
    return {**_metadata(CLUSTERS, name=cluster.name), "status": status}


def _job(job: Job) -> Manifest:
    annotations = {SUBMIT_ANNOTATION: format_duration(job.at), RUNTIME_ANNOTATION: format_duration(job.runtime)}
    spec: Manifest = {"queue": job.queue}
    if job.priority_class:
        spec["priorityClassName"] = job.priority_class
    spec["tasks"] = [_task(task) for task in job.tasks]
    return {**_metadata(JOBS, name=job.name, namespace=job.namespace, annotations=annotations), "spec": spec}


def _task(task: Task) -> Manifest:
    return {"name": task.name, "replicas": task.replicas, "template": {"spec": {"containers": [_container(task)]}}}


def _container(task: Task) -> Manifest:
    request: Resources = dict(task.request)
    return {"name": task.name, "resources": {"requests": format_resources(request)}}
