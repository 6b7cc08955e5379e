"""Fake of Karmada and member clusters for fault scenarios, with the fewest writes that the controller needs.

Bindings are created as the detector creates them and the webhook changes them. Admitted jobs run, and finish unless
they are endless.
"""

import asyncio
import json
from typing import Any

from controller.api.keys import CLUSTERS, JOBS, PRIORITY_CLASSES, QUEUES, RESOURCE_BINDINGS
from controller.kube.client import Api
from controller.kube.errors import ApiError, NotFound
from tests.benchmarks import seed
from tests.clusters import with_models
from tests.rig.binding_state import BindingState, parse_binding
from tests.rig.history import History

ENDLESS = "rig/endless"


class FakeKarmada:
    """Acts on the control plane in one namespace, in addition to the controller."""

    def __init__(self, api: Api, history: History, namespace: str) -> None:
        self.api = api
        self.history = history
        self.namespace = namespace
        self.classes: dict[str, int] = {}
        """Values of the created PriorityClasses."""
        self._played: dict[str, str] = {}

    # -- objects ----------------------------------------------------------

    async def cluster(self, name: str, **capacity: str) -> None:
        """Create a ready cluster."""
        spec = {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1"}
        await self.create(
            CLUSTERS.path, {**_head(CLUSTERS.api_version, "Cluster", name, labels={"rig/site": name}), "spec": spec}
        )
        await self.set_summary(name, **capacity)

    async def set_summary(self, name: str, *, ready: str = "True", **capacity: str) -> None:
        """Set the summary and readiness of a cluster."""
        status: dict[str, Any] = {
            "apiEnablements": [{"groupVersion": JOBS.api_version, "resources": [{"kind": "Job", "name": "jobs"}]}],
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }
        if capacity:
            status["resourceSummary"] = {"allocatable": {"memory": "1Ti", "pods": "1000", **capacity}}
            status = with_models({"status": status})["status"]
        await self.merge(f"{CLUSTERS.path}/{name}/status", {"status": status})

    async def queue(self, name: str, **spec: Any) -> None:
        """Create a queue."""
        await self.create(QUEUES.path, {**_head(QUEUES.api_version, "Queue", name), "spec": {"weight": 1, **spec}})

    async def priority_class(self, name: str, value: int) -> None:
        """Create a PriorityClass."""
        self.classes[name] = value
        await self.create(
            PRIORITY_CLASSES.path, {**_head(PRIORITY_CLASSES.api_version, "PriorityClass", name), "value": value}
        )

    async def job(self, name: str, queue: str, **more: Any) -> None:
        """Create a job and its binding."""
        await self.bind(name, await self.template(name, queue, **more))

    async def submit(self, manifest: dict[str, Any]) -> None:
        """Create any job and its binding."""
        made = await self.create(self.folder("jobs"), manifest)
        await self.bind(made["metadata"]["name"], made["metadata"]["uid"])

    def folder(self, plural: str) -> str:
        """Return the collection path of the namespace's jobs or bindings."""
        kind = {"jobs": JOBS, "resourcebindings": RESOURCE_BINDINGS}[plural]
        return kind.item_path(self.namespace, "").rstrip("/")

    async def template(self, name: str, queue: str, **more: Any) -> str:
        """Create a job without a binding; return its uid."""
        made = await self.create(self.folder("jobs"), job(name, queue, **more))
        return str(made["metadata"]["uid"])

    async def bind(self, name: str, uid: str, **spec: Any) -> str:
        """Create the suspended binding of a job; return its uid."""
        bound = seed.binding(self.namespace, name, uid)
        bound["spec"]["placement"]["clusterAffinity"] = {}
        bound["spec"] |= spec
        made = await self.create(self.folder("resourcebindings"), bound)
        return str(made["metadata"]["uid"])

    # -- changes ----------------------------------------------------------

    async def phase(self, name: str, phase: str) -> None:
        """Report the phase of a job from its members."""
        binding = self.history.now["resourcebindings"][self.namespace, f"{name}-job"]
        told = [
            {"clusterName": cluster, "applied": True, "status": {"state": {"phase": phase}}}
            for cluster in parse_binding(binding).clusters
        ]
        await self.merge(f"{self.path(name)}/status", {"status": {"aggregatedStatus": told}})

    async def delete_works(self, *names: str) -> None:
        """Remove the statuses of the Works of jobs, as Karmada does when it deletes them."""
        for name in names:
            await self.merge(f"{self.path(name)}/status", {"status": {"aggregatedStatus": []}})

    async def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        try:
            await self.api.delete(path)
        except NotFound:
            return

    def path(self, name: str) -> str:
        """Return the path of a job's binding."""
        return RESOURCE_BINDINGS.item_path(self.namespace, f"{name}-job")

    async def create(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create and return an object."""
        made: dict[str, Any] = json.loads(await self.api.create(path, json.dumps(manifest).encode()))
        return made

    async def merge(self, path: str, patch: dict[str, Any]) -> None:
        """Patch an object."""
        await self.api.patch(path, json.dumps(patch).encode(), kind="merge")

    # -- background -------------------------------------------------------

    async def run(self) -> None:
        """Run admitted jobs and finish those that may end, until cancelled; outages are retried."""
        while True:
            seen = self.history.revision
            if all([await self._advance(binding) for binding in self._admitted()]):
                await self.history.until(lambda now, seen=seen: now.revision > seen, "anything", seconds=3600)
            else:
                await asyncio.sleep(0.1)

    def _admitted(self) -> list[BindingState]:
        found = self.history.now.get("resourcebindings", {})
        sights = [parse_binding(binding) for (namespace, _), binding in found.items() if namespace == self.namespace]
        return [sight for sight in sights if sight.admitted and sight.clusters and not sight.is_finished]

    async def _advance(self, binding: BindingState) -> bool:
        """Report the next phase of a job; return whether that succeeded."""
        template = self.history.now.get("jobs", {}).get(binding.job, {})
        endless = ENDLESS in template.get("metadata", {}).get("annotations", {})
        played = self._played.get(binding.uid, "")
        phase = "Completed" if played and not endless else "Running"
        if phase == played:
            return True
        try:
            await self.phase(binding.job[1], phase)
        except (NotFound, KeyError):
            return True  # deleted meanwhile
        except ApiError:
            return False
        self._played[binding.uid] = phase
        return True


def job(name: str, queue: str, **more: Any) -> dict[str, Any]:
    """Return a job with one task of *replicas* pods with *cpu* each; *endless* jobs never finish."""
    requests = {"cpu": str(more.get("cpu", 1)), "memory": "1Gi"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    replicas = more.get("replicas", 1)
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec: dict[str, Any] = {
        "minAvailable": more.get("minimum", replicas),
        "tasks": [{"name": "main", "replicas": replicas, "template": template}],
        **({"queue": queue} if queue else {}),
    }
    if "priority" in more:
        spec["priorityClassName"] = more["priority"]
    annotations = {ENDLESS: "yes"} if more.get("endless") else {}
    return {**_head(JOBS.api_version, "Job", name, annotations=annotations), "spec": spec}


def _head(version: str, kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}
