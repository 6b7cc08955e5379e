"""Test environment on a real control plane: clusters, queues and jobs of one test, and an observer."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from controller.api.keys import CLUSTERS, JOBS, PRIORITY_CLASSES, QUEUES, RESOURCE_BINDINGS
from controller.api.quantity import parse_quantity
from controller.kube.client import Api
from controller.kube.errors import Conflict, NotFound
from tests.e2e.observer import Observer
from tests.waiting import LIMIT_SECONDS

POLICIES = "/apis/policy.karmada.io/v1alpha1/namespaces/{}/propagationpolicies"
ALLOCATABLE = "standin.volcano-global.io/allocatable"
RUNTIME = "volcano-global.io/runtime"
#: Volcano rejects its deletion, so it remains for later tests.
DEFAULT_QUEUE = "default"


class Environment:
    """Objects of one test; all are deleted at its end."""

    def __init__(self, api: Api, namespace: str, observer: Observer) -> None:
        self.api = api
        self.namespace = namespace
        self.observer = observer
        self.made: list[str] = []

    async def cluster(self, name: str, **capacity: str) -> None:
        """Create a member cluster and wait for its summary; capacity as quantities, ``gpu`` for nvidia.com/gpu."""
        amounts = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in capacity.items()}
        allocatable = json.dumps({"memory": "1Ti", "pods": "1000", **amounts})
        head = {"name": name, "annotations": {ALLOCATABLE: allocatable}}
        spec = {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1"}
        manifest = {"apiVersion": CLUSTERS.api_version, "kind": "Cluster", "metadata": head, "spec": spec}
        await self.create(CLUSTERS.path, manifest)
        # The first summary of a real Karmada may be that of an earlier member with the same name.
        async with asyncio.timeout(LIMIT_SECONDS):
            while await self._cpus(name) != parse_quantity("cpu", capacity["cpu"]):  # noqa: ASYNC110 -- a status is polled
                await asyncio.sleep(0.1)

    async def _cpus(self, name: str) -> int | None:
        """Return the allocatable CPUs in a cluster's summary, in thousandths."""
        status = json.loads(await self.api.get(f"{CLUSTERS.path}/{name}")).get("status") or {}
        cpus = (status.get("resourceSummary") or {}).get("allocatable", {}).get("cpu")
        return None if cpus is None else parse_quantity("cpu", cpus)

    async def queue(self, name: str, **spec: Any) -> None:
        """Create a queue."""
        head = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}}
        try:
            await self.create(QUEUES.path, {**head, "spec": {"weight": 1, **spec}})
        except Conflict:
            if name != DEFAULT_QUEUE:
                raise

    async def priority_class(self, name: str, value: int) -> None:
        """Create a PriorityClass."""
        head = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "metadata": {"name": name}}
        await self.create(PRIORITY_CLASSES.path, {**head, "value": value})

    async def policy(self, **suspension: bool) -> None:
        """Propagate all Volcano Jobs of the namespace, each to one cluster."""
        spec: dict[str, Any] = {
            "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": "Job"}],
            "placement": {
                "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
            },
        }
        if suspension:
            spec["suspension"] = suspension
        head = {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "jobs"}}
        await self.create(POLICIES.format(self.namespace), {**head, "spec": spec})

    async def job(self, name: str, queue: str, *, runtime: str = "1s", **more: Any) -> None:
        """Submit a job with *replicas* pods of *cpu* each, *gpu* as limits only, and *minimum* as gang minimum."""
        await self.manifest(job(name, queue, runtime=runtime, **more))

    async def manifest(self, manifest: Mapping[str, Any]) -> None:
        """Submit any job."""
        await self.create(self._jobs, manifest)

    @property
    def _jobs(self) -> str:
        return f"{JOBS.path.rpartition('/')[0]}/namespaces/{self.namespace}/jobs"

    async def uid(self, name: str) -> str:
        """Return the uid of a job's binding."""
        raw = await self.api.get(RESOURCE_BINDINGS.item_path(self.namespace, f"{name}-job"))
        uid: str = msgspec.json.decode(raw)["metadata"]["uid"]
        return uid

    async def create(self, path: str, manifest: Mapping[str, Any]) -> None:
        """Create an object, which is deleted at the end."""
        created = msgspec.json.decode(await self.api.create(path, msgspec.json.encode(manifest)))
        self.made.append(f"{path}/{created['metadata']['name']}")

    async def clear(self) -> None:
        """Delete all objects and wait until no binding is left."""
        for path in reversed(self.made):
            if path == f"{QUEUES.path}/{DEFAULT_QUEUE}":
                continue
            try:
                await self.api.delete(path)
            except NotFound:
                continue
        await self.observer.until(lambda seen: not seen.now, "all bindings gone")
        for path in self.made:
            if path.startswith(CLUSTERS.path):
                await self._gone(path)

    async def _gone(self, path: str) -> None:
        """Wait for a deletion; a real Karmada removes clusters slowly."""
        with suppress(NotFound):
            async with asyncio.timeout(LIMIT_SECONDS):
                while True:
                    await self.api.get(path)
                    await asyncio.sleep(0.1)


def job(name: str, queue: str, *, runtime: str = "1s", **more: Any) -> dict[str, Any]:
    """Return a Volcano Job of one task."""
    resources: dict[str, Any] = {"requests": {"cpu": str(more.get("cpu", 1)), "memory": "1Gi"}}
    if "gpu" in more:
        resources["limits"] = {"nvidia.com/gpu": str(more["gpu"])}
    container = {"name": "main", "image": "busybox", "resources": resources}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    replicas = more.get("replicas", 1)
    spec: dict[str, Any] = {
        "minAvailable": more.get("minimum", replicas),
        "schedulerName": "volcano",
        "queue": queue,
        "tasks": [{"name": "main", "replicas": replicas, "template": template}],
    }
    if "priority" in more:
        spec["priorityClassName"] = more["priority"]
    head = {"name": name, "annotations": {RUNTIME: runtime}}
    return {"apiVersion": JOBS.api_version, "kind": "Job", "metadata": head, "spec": spec}


@asynccontextmanager
async def open_environment(api: Api, namespace: str) -> AsyncIterator[Environment]:
    """Yield an environment in *namespace* with an observer, and clear it at the end."""
    observer = Observer(namespace)
    environment = Environment(api, namespace, observer)
    try:
        async with observer.watching(api):
            yield environment
            await environment.clear()
    finally:
        # The transport of the closed watch needs an iteration of the event loop.
        await asyncio.sleep(0.05)
