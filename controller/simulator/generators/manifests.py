"""Converts a load to manifests."""

from collections.abc import Iterator
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
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import ROOT, Queue
from controller.engine.state.resources import EMPTY, Resources
from controller.simulator.durations import format_duration
from controller.simulator.generators.load import GeneratedJob, GeneratedTask, Load

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


def _job(job: GeneratedJob) -> Manifest:
    annotations = {SUBMIT_ANNOTATION: format_duration(job.at), RUNTIME_ANNOTATION: format_duration(job.runtime)}
    spec: Manifest = {"queue": job.queue}
    if job.priority_class:
        spec["priorityClassName"] = job.priority_class
    spec["tasks"] = [_task(task) for task in job.tasks]
    return {**_metadata(JOBS, name=job.name, namespace=job.namespace, annotations=annotations), "spec": spec}


def _task(task: GeneratedTask) -> Manifest:
    return {"name": task.name, "replicas": task.replicas, "template": {"spec": {"containers": [_container(task)]}}}


def _container(task: GeneratedTask) -> Manifest:
    request: Resources = dict(task.request)
    return {"name": task.name, "resources": {"requests": format_resources(request)}}
