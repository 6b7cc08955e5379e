"""Creates and changes the objects of one test on a real API server."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller.api.keys import CLUSTERS, JOBS, PRIORITY_CLASSES, PROPAGATION_POLICIES, QUEUES, Resource
from controller.api.quantity import parse_quantity
from controller.kube.client import Api
from controller.kube.errors import NotFound
from tests.rig.binding_state import BindingState, parse_binding
from tests.rig.history import History
from tests.waiting import LIMIT_SECONDS, poll

ALLOCATABLE = "standin.volcano-global.io/allocatable"
RUNTIME = "volcano-global.io/runtime"


class NamespaceObjects:
    """Objects of one namespace, and cluster-scoped ones."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.made: list[str] = []
        """Paths of the created objects, the oldest first."""

    def folder(self, resource: Resource) -> str:
        """Return the path of a collection of the namespace."""
        return resource.item_path(self.namespace, "").rstrip("/")

    async def read(self, path: str) -> Any:
        """Return an object or a list."""
        return json.loads(await self.api.get(path))

    async def create(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create and return an object."""
        made: dict[str, Any] = json.loads(await self.api.create(path, json.dumps(manifest).encode()))
        self.made.append(f"{path}/{made['metadata']['name']}")
        return made

    async def merge(self, path: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        """Patch an object and return it."""
        changed: dict[str, Any] = json.loads(await self.api.patch(path, json.dumps(patch).encode(), kind="merge"))
        return changed

    async def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        try:
            await self.api.delete(path)
        except NotFound:
            return

    async def delete_made(self) -> None:
        """Delete the created objects, the newest first."""
        for path in reversed(self.made):
            await self.delete(path)

    async def queue(self, name: str, **spec: Any) -> None:
        """Create a queue."""
        await self.create(QUEUES.path, new_object(QUEUES, name, spec={"weight": 1, **spec}))

    async def priority_class(self, name: str, value: int) -> None:
        """Create a PriorityClass."""
        await self.create(PRIORITY_CLASSES.path, new_object(PRIORITY_CLASSES, name, value=value))

    async def policy(self, **suspension: bool) -> None:
        """Propagate all Volcano Jobs of the namespace, each to one cluster."""
        spec = {
            "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": "Job"}],
            "placement": {
                "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
            },
            **({"suspension": suspension} if suspension else {}),
        }
        await self.create(self.folder(PROPAGATION_POLICIES), new_object(PROPAGATION_POLICIES, "jobs", spec=spec))

    async def member(self, name: str, **capacity: str) -> None:
        """Create a simulated member cluster and wait for its summary; ``gpu`` stands for nvidia.com/gpu."""
        amounts = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in capacity.items()}
        allocatable = json.dumps({"memory": "1Ti", "pods": "1000", **amounts})
        await self.create(CLUSTERS.path, cluster(name, annotations={ALLOCATABLE: allocatable}))

        async def cpus() -> int | None:
            status = (await self.read(f"{CLUSTERS.path}/{name}")).get("status") or {}
            shown = (status.get("resourceSummary") or {}).get("allocatable", {}).get("cpu")
            return None if shown is None else parse_quantity("cpu", shown)

        # The first summary of a real Karmada may be that of an earlier member with the same name.
        await poll(cpus, f"summary of {name}", until=lambda seen: seen == parse_quantity("cpu", capacity["cpu"]))


class ObservedObjects(NamespaceObjects):
    """Objects of one namespace, whose bindings are read from the history of the store."""

    def __init__(self, api: Api, namespace: str, history: History) -> None:
        super().__init__(api, namespace)
        self.history = history

    def stored_bindings(self) -> dict[str, dict[str, Any]]:
        """Return the stored bindings by name."""
        stored = self.history.now.get("resourcebindings", {})
        return {name: item for (namespace, name), item in stored.items() if namespace == self.namespace}

    def bindings(self) -> dict[str, BindingState]:
        """Return the current bindings by job."""
        return {state.job[1]: state for state in map(parse_binding, self.stored_bindings().values())}

    def binding_states(self) -> Iterator[BindingState]:
        """Yield every state of every binding, in order."""
        for change in self.history.of("resourcebindings"):
            if change.after is not None and change.key[0] == self.namespace:
                yield parse_binding(change.after)

    async def until(
        self,
        question: Callable[[Mapping[str, BindingState]], bool],
        what: str,
        *,
        seconds: float = LIMIT_SECONDS,
    ) -> None:
        """Wait until the condition of the bindings by job holds; the error shows all of them."""
        try:
            await self.history.until(lambda _: question(self.bindings()), what, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; now { {name: str(seen) for name, seen in self.bindings().items()} }"
            ) from error


def new_object(
    resource: Resource, name: str, *, annotations: Mapping[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a manifest with head and *more*."""
    metadata = {"name": name, **({"annotations": dict(annotations)} if annotations else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **more}


def cluster(name: str, **more: Any) -> dict[str, Any]:
    """Return a cluster without a status."""
    return new_object(CLUSTERS, name, **more, spec={"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1"})


def volcano_job(
    name: str,
    queue: str = "",
    *,
    replicas: int = 1,
    minimum: int | None = None,
    cpu: str | int = 1,
    memory: str = "1Gi",
    gpu: int = 0,
    priority: str = "",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a Volcano Job with one task of *replicas* pods; GPUs are limits only; *minimum* is the gang minimum."""
    requests = {"cpu": str(cpu), **({"memory": memory} if memory else {})}
    limits = {"limits": {"nvidia.com/gpu": str(gpu)}} if gpu else {}
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests, **limits}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return new_object(
        JOBS,
        name,
        annotations=annotations,
        spec={
            "minAvailable": replicas if minimum is None else minimum,
            "schedulerName": "volcano",
            "tasks": [{"name": "main", "replicas": replicas, "template": template}],
            **({"queue": queue} if queue else {}),
            **({"priorityClassName": priority} if priority else {}),
            **spec,
        },
    )
