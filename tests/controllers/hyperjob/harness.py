"""A reconciler that is created for each pass, on an API server in memory, and may crash after any write.

Each pass begins with the objects of the API server, as after a restart. Only the reconciler writes the objects of a
HyperJob; the test simulates the clusters.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS, JOBS, PROPAGATION_POLICIES, Resource
from controller.cache.objects import ObjectKey
from controller.controllers.hyperjob.observed import (
    TERMINAL,
    ObservedChild,
    PartPlacement,
    decode_hyperjob,
    decode_part_job,
    decode_part_policy,
)
from controller.controllers.hyperjob.reconciler import Reconciler
from controller.controllers.hyperjob.split import CapacitySnapshot
from tests.controllers.memory import MemoryControlPlane, Traffic, connect
from tests.deterministic.clock import EPOCH
from tests.deterministic.kinds import SYSTEM
from tests.deterministic.worlds import deletions_of_orphans

NAMESPACE = "ml"
NOW = EPOCH * 1000


class Harness(MemoryControlPlane):
    """A control plane with observed objects and simulated placements."""

    def __init__(self) -> None:
        self.now = NOW
        super().__init__(SYSTEM, lambda: self.now / 1000 - EPOCH)
        self.traffic = Traffic(is_instant=True)
        self.capacity = CapacitySnapshot()
        self.placements: dict[str, PartPlacement] = {}
        self._hyperjobs: dict = {}
        self._seen: dict[Resource, dict[str, ObservedChild]] = {}

    # -- the reconciler's view ----------------------------------------------

    def hyperjob(self, resource: Resource, key: ObjectKey) -> Any:
        return self._hyperjobs.get((resource, key.name))

    def jobs(self, uid: str) -> Mapping[str, ObservedChild]:
        return self._of(JOBS, uid)

    def policies(self, uid: str) -> Mapping[str, ObservedChild]:
        return self._of(PROPAGATION_POLICIES, uid)

    def placement(self, _: str, job: str) -> PartPlacement | None:
        return self.placements.get(job)

    def update(self, resource: Resource, raw: bytes) -> ObservedChild | None:
        if resource.kind == "HyperJob":
            seen = decode_hyperjob(raw, resource)
            self._hyperjobs[resource, seen.key.name] = seen
            return None
        child = decode_part_job(raw) if resource is JOBS else decode_part_policy(raw)
        self._seen[resource][child.key.name] = child
        return child

    def forget(self, resource: Resource, key: ObjectKey, uid: str) -> None:
        raise AssertionError(f"{resource.kind} {key.name} ({uid}) was deleted by somebody else")

    def _of(self, resource: Resource, uid: str) -> dict[str, ObservedChild]:
        return {name: seen for name, seen in self._seen[resource].items() if seen.is_owned_by(uid)}

    # -- passes --------------------------------------------------------------

    def new_reconciler(self) -> Reconciler:
        """Return a reconciler that has listed all objects, as a new process would."""
        self._hyperjobs, self._seen = {}, {JOBS: {}, PROPAGATION_POLICIES: {}}
        for resource in (HYPERJOBS, JOBS, PROPAGATION_POLICIES, BATCH_HYPERJOBS):
            for item in self.items(resource):
                self.update(resource, msgspec.json.encode(item))
        return Reconciler(connect(self.server, self.traffic), self, lambda: self.capacity, lambda: self.now)

    async def run(self, name: str = "llm", resource: Resource = HYPERJOBS) -> int | None:
        """Run one pass in a new reconciler."""
        return await self.new_reconciler().reconcile(resource, ObjectKey(NAMESPACE, name))

    async def reconcile(self, name: str = "llm", resource: Resource = HYPERJOBS) -> list[str]:
        """Run passes until one writes nothing; return all writes."""
        writes: list[str] = []
        for _ in range(12):
            self.traffic.writes = []
            await self.run(name, resource)
            writes += self.traffic.writes
            if not self.traffic.writes:
                return [write.rpartition(f"/namespaces/{NAMESPACE}/")[2] for write in writes]
        raise AssertionError(f"the writes do not end: {writes[-12:]}")

    # -- objects -------------------------------------------------------------

    def submit(self, document: dict[str, Any], resource: Resource = HYPERJOBS) -> dict[str, Any]:
        metadata = {key: value for key, value in document["metadata"].items() if key in {"name", "annotations"}}
        return self.send("POST", self.folder(resource), {**document, "metadata": metadata})

    async def start(self, document: dict[str, Any], resource: Resource = HYPERJOBS) -> list[str]:
        """Create a HyperJob with all its objects; return the writes."""
        self.submit(document, resource)
        return await self.reconcile(document["metadata"]["name"], resource)

    async def change(self, hyperjob: str = "llm", /, **spec: Any) -> None:
        """Change fields of a HyperJob's spec, and reconcile it."""
        self.merge(HYPERJOBS, hyperjob, {"spec": spec})
        await self.reconcile(hyperjob)

    def foreign(self, name: str, *, kind: Resource = JOBS, **metadata: Any) -> None:
        """Create a Job or a policy of somebody else."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **metadata}, "spec": {}}
        self.send("POST", self.folder(kind), body)

    def place(self, *clusters: str) -> None:
        """Admit the parts of ``llm`` to these clusters."""
        self.placements = {f"llm-t-{index}": PartPlacement((name,)) for index, name in enumerate(clusters)}

    def report(self, job: str, phase: str, *, is_reported: bool = True, **counts: int) -> None:
        """Write the status of a Job as Karmada would aggregate it; *is_reported*: from its clusters' reports."""
        if is_reported and job in self.placements:
            reported = {"Terminated": "Failed"}.get(phase, phase if phase in {"Running", *TERMINAL} else "Admitted")
            self.placements[job] = replace(self.placements[job], reported=reported)
        self.send("PATCH", f"{self.path(JOBS, job)}/status", {"status": {"state": {"phase": phase}, **counts}})

    def remove(self, resource: Resource, name: str) -> None:
        """Delete an object, and what the garbage collector deletes then."""
        self.send("DELETE", self.path(resource, name))
        self.collect_garbage()

    def orphan(self, hyperjob: str) -> None:
        """Delete a HyperJob as the garbage collector does after ``kubectl delete --cascade=orphan``."""
        for resource in (JOBS, PROPAGATION_POLICIES):
            for name in self.names(resource):
                self.merge(resource, name, {"metadata": {"ownerReferences": None}})
        self.remove(HYPERJOBS, hyperjob)

    def collect_garbage(self) -> None:
        while requests := list(deletions_of_orphans(self.server)):
            for request in requests:
                self.server.handle(request)

    def get(self, resource: Resource, name: str) -> dict[str, Any]:
        return self.send("GET", self.path(resource, name))

    def status(self, name: str = "llm", resource: Resource = HYPERJOBS) -> dict[str, Any]:
        return self.get(resource, name).get("status", {})

    def phases(self) -> list[str]:
        """Return the phase of each part."""
        return [part["phase"] for part in self.status()["split"]["parts"]]

    def job(self, name: str) -> dict[str, Any]:
        return self.get(JOBS, name)

    def uids(self) -> dict[str, str]:
        """Return the uid of each Job."""
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in self.items(JOBS)}

    def items(self, resource: Resource) -> list[dict[str, Any]]:
        return self.send("GET", self.folder(resource))["items"]

    def names(self, resource: Resource = JOBS) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.items(resource))
