"""Fills a control plane with suspended bindings and their jobs, as Karmada's detector would."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from controller.api.keys import CLUSTERS, JOBS, QUEUES, RESOURCE_BINDINGS
from controller.kube.client import Api
from tests.clusters import with_models

T = TypeVar("T")

IN_FLIGHT = 32
CLUSTER = "member1"
JOB_CPU = 1
_NAMESPACES = "/api/v1/namespaces"


@dataclass(frozen=True, slots=True)
class Batch:
    """Suspended bindings in a namespace of their own, spread over the queues."""

    namespace: str
    count: int
    queues: int
    """Number of queues; 0 creates bindings without jobs, which are never admitted."""

    def names(self) -> list[str]:
        """Return the names of the jobs; those of the bindings end in ``-job``."""
        return [f"train-{number}" for number in range(self.count)]


async def in_flight(items: Iterable[T], call: Callable[[T], Awaitable[object]], limit: int = IN_FLIGHT) -> None:
    """Make one call for each item, *limit* of them concurrently."""
    rest = iter(items)

    async def worker() -> None:
        for item in rest:
            await call(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(worker())


async def create(api: Api, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Create one object and return it."""
    created: dict[str, Any] = msgspec.json.decode(await api.create(path, msgspec.json.encode(manifest)))
    return created


async def seed_queues(api: Api, count: int) -> None:
    """Create equal queues ``queue-0``, ``queue-1`` and so on."""
    manifests = [
        {
            "apiVersion": QUEUES.api_version,
            "kind": QUEUES.kind,
            "metadata": {"name": f"queue-{n}"},
            "spec": {"weight": 1},
        }
        for n in range(count)
    ]
    await in_flight(manifests, lambda manifest: create(api, QUEUES.path, manifest))


async def seed_batch(api: Api, batch: Batch) -> None:
    """Create the bindings of *batch* and their jobs."""
    await create(api, _NAMESPACES, {"metadata": {"name": batch.namespace}})

    async def one(number: int) -> None:
        name = batch.names()[number]
        uid = "00000000-0000-0000-0000-000000000000"
        if batch.queues:
            created = await create(
                api, _inside(JOBS.path, batch.namespace), job(name, f"queue-{number % batch.queues}")
            )
            uid = created["metadata"]["uid"]
        await create(api, _inside(RESOURCE_BINDINGS.path, batch.namespace), binding(batch.namespace, name, uid))

    await in_flight(range(batch.count), one)


def cluster_manifest(name: str, capacity: Mapping[str, str]) -> dict[str, Any]:
    """Return a ready cluster with *capacity*."""
    status = {
        "apiEnablements": [{"groupVersion": JOBS.api_version, "resources": [{"kind": JOBS.kind, "name": JOBS.plural}]}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "resourceSummary": {"allocatable": dict(capacity)},
    }
    head = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": {"name": name}}
    spec = {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1"}
    return with_models({**head, "spec": spec, "status": status})


async def offer_cluster(api: Api, cpus: int) -> None:
    """Create the cluster with capacity for *cpus*, so that all workloads fit."""
    manifest = cluster_manifest(CLUSTER, {"cpu": str(cpus), "memory": f"{4 * cpus}Gi", "pods": str(cpus)})
    await create(api, CLUSTERS.path, manifest)
    body = msgspec.json.encode({"status": manifest["status"]})
    await api.patch(f"{CLUSTERS.path}/{CLUSTER}/status", body, kind="merge")


async def withdraw_cluster(api: Api) -> None:
    """Delete the cluster."""
    await api.delete(f"{CLUSTERS.path}/{CLUSTER}")


async def pause(api: Api, batch: Batch) -> None:
    """Restore every binding of *batch* to its created state."""
    undone = {
        "metadata": {"annotations": {"volcano-global.io/admission": None}},
        "spec": {"suspension": {"scheduling": True}, "clusters": None},
    }
    body = msgspec.json.encode(undone)
    await in_flight(
        batch.names(),
        lambda name: api.patch(binding_path(batch.namespace, name), body, kind="merge"),
    )


async def finish_job(api: Api, namespace: str, name: str, **metadata: str) -> None:
    """Report that the job *name* has completed."""
    body = msgspec.json.encode({"metadata": metadata, "status": completed(CLUSTER)})
    await api.patch(f"{binding_path(namespace, name)}/status", body, kind="merge")


def completed(cluster: str) -> dict[str, Any]:
    """Return the status of a binding whose job has completed in *cluster*."""
    item = {"clusterName": cluster, "applied": True, "status": {"state": {"phase": "Completed"}}}
    return {"aggregatedStatus": [item]}


def binding_path(namespace: str, name: str) -> str:
    """Return the path of the binding of the job *name*."""
    return RESOURCE_BINDINGS.item_path(namespace, f"{name}-job")


def _inside(path: str, namespace: str) -> str:
    head, _, plural = path.rpartition("/")
    return f"{head}/namespaces/{namespace}/{plural}"


def job(name: str, queue: str) -> dict[str, Any]:
    """Return a job with one pod that requests one CPU."""
    requests = {"cpu": str(JOB_CPU), "memory": "1Gi"}
    container = {"name": "main", "image": "busybox", "command": ["sleep", "60"], "resources": {"requests": requests}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"minAvailable": 1, "queue": queue, "tasks": [{"name": "main", "replicas": 1, "template": template}]}
    return {"apiVersion": JOBS.api_version, "kind": "Job", "metadata": {"name": name}, "spec": spec}


def binding(namespace: str, name: str, uid: str) -> dict[str, Any]:
    """Return the suspended binding of a job, as Karmada creates it and the webhook suspends it."""
    return {
        "apiVersion": RESOURCE_BINDINGS.api_version,
        "kind": RESOURCE_BINDINGS.kind,
        "metadata": {
            "name": f"{name}-job",
            "annotations": {
                "propagationpolicy.karmada.io/name": "jobs",
                "propagationpolicy.karmada.io/namespace": namespace,
            },
            "labels": {
                "propagationpolicy.karmada.io/permanent-id": "d8ed569a-db47-4fc2-9d1a-2fa48eb9aaff",
                "resourcebinding.karmada.io/permanent-id": "478d30d0-70fa-4519-bc9f-8778367cb682",
            },
        },
        "spec": {
            "conflictResolution": "Abort",
            "placement": {
                "clusterAffinity": {"clusterNames": [CLUSTER]},
                "replicaScheduling": {"replicaDivisionPreference": "Aggregated", "replicaSchedulingType": "Divided"},
                "spreadConstraints": [{"maxGroups": 1, "minGroups": 1, "spreadByField": "cluster"}],
            },
            "resource": {
                "apiVersion": JOBS.api_version,
                "kind": "Job",
                "namespace": namespace,
                "name": name,
                "uid": uid,
                "resourceVersion": "1",
            },
            "schedulerName": "default-scheduler",
            "suspension": {"scheduling": True},
        },
    }
