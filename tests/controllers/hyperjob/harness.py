"""A reconciler that is created for each pass, on a real API server, and may crash between any two writes.

Each pass begins with the objects of the API server, as after a restart. Only the reconciler writes the objects of a
HyperJob; the test simulates the clusters.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS, JOBS, PROPAGATION_POLICIES, Resource
from controller.cache.objects import ObjectKey
from controller.controllers.hyperjob.observed import (
    ObservedChild,
    PartPlacement,
    decode_hyperjob,
    decode_part_job,
    decode_part_policy,
)
from controller.controllers.hyperjob.reconciler import Reconciler
from controller.controllers.hyperjob.split import CapacitySnapshot
from controller.kube.client import Api

NOW = 1_800_000_000_000


class CrashError(Exception):
    """The simulated crash of the process."""


class CrashingApi:
    """An API client that counts writes and crashes before or after a given one."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.writes: list[str] = []
        self.crash_before: int | None = None
        self.crash_after: int | None = None

    async def get(self, path: str) -> bytes:
        return await self.api.get(path)

    def list_items(self, path: str, **more: Any) -> AsyncIterator[bytes]:
        return self.api.list_items(path, **more)

    async def apply(self, path: str, body: bytes, **more: Any) -> bytes:
        return await self._write("apply", path, lambda: self.api.apply(path, body, **more))

    async def delete(self, path: str, body: bytes | None = None) -> bytes:
        return await self._write("delete", path, lambda: self.api.delete(path, body))

    async def _write(self, verb: str, path: str, call: Any) -> bytes:
        if self.crash_before == len(self.writes):
            raise CrashError
        self.writes.append(f"{verb} {'/'.join(path.split('/')[6:])}")
        answer: bytes = await call()
        if self.crash_after == len(self.writes) - 1:
            raise CrashError
        return answer


class Harness:
    """One namespace with its observed objects and simulated placements."""

    def __init__(self, api: Api, admin: Api, namespace: str) -> None:
        self.api = CrashingApi(api)
        self.admin = admin
        self.namespace = namespace
        self.capacity = CapacitySnapshot()
        self.placements: dict[str, PartPlacement] = {}
        self.now = NOW
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

    # -- actions of tests ----------------------------------------------------

    async def submit(self, document: dict[str, Any], resource: Resource = HYPERJOBS) -> dict[str, Any]:
        metadata = {key: value for key, value in document["metadata"].items() if key in {"name", "annotations"}}
        made = {**document, "metadata": metadata}
        return msgspec.json.decode(await self.admin.create(self._path(resource), msgspec.json.encode(made)))

    async def change(self, name: str, spec: dict[str, Any], resource: Resource = HYPERJOBS) -> None:
        await self.admin.patch(f"{self._path(resource)}/{name}", msgspec.json.encode({"spec": spec}), kind="merge")

    async def relist(self) -> None:
        """List all objects, as a new process would."""
        self._hyperjobs, self._seen = {}, {JOBS: {}, PROPAGATION_POLICIES: {}}
        for resource in (HYPERJOBS, JOBS, PROPAGATION_POLICIES, BATCH_HYPERJOBS):
            for item in await self.items(resource):
                self.update(resource, msgspec.json.encode(item))

    async def run(self, name: str, resource: Resource = HYPERJOBS) -> int | None:
        """Run one pass in a new reconciler."""
        await self.relist()
        reconciler = Reconciler(self.api, self, lambda: self.capacity, lambda: self.now)
        return await reconciler.reconcile(resource, ObjectKey(self.namespace, name))

    async def reconcile_until_stable(self, name: str, resource: Resource = HYPERJOBS) -> list[str]:
        """Run passes until one writes nothing; return all writes."""
        writes: list[str] = []
        for _ in range(12):
            self.api.writes = []
            await self.run(name, resource)
            writes += self.api.writes
            if not self.api.writes:
                return writes
        raise AssertionError(f"the writes do not end: {writes[-12:]}")

    async def report(self, job: str, phase: str, **counts: int) -> None:
        """Write the status of a Job as Karmada would aggregate it."""
        status = {"status": {"state": {"phase": phase}, **counts}}
        path = f"{JOBS.item_path(self.namespace, job)}/status"
        await self.admin.patch(path, msgspec.json.encode(status), kind="merge")

    async def status(self, name: str, resource: Resource = HYPERJOBS) -> dict[str, Any]:
        raw = await self.admin.get(resource.item_path(self.namespace, name))
        return msgspec.json.decode(raw).get("status", {})

    async def phases(self, name: str = "llm") -> list[str]:
        """Return the phase of each part."""
        return [part["phase"] for part in (await self.status(name))["split"]["parts"]]

    async def items(self, resource: Resource) -> list[dict[str, Any]]:
        raw = await self.admin.get(self._path(resource))
        return msgspec.json.decode(raw)["items"]

    async def names(self, resource: Resource = JOBS) -> list[str]:
        return sorted(item["metadata"]["name"] for item in await self.items(resource))

    async def job(self, name: str) -> dict[str, Any]:
        return msgspec.json.decode(await self.admin.get(JOBS.item_path(self.namespace, name)))

    async def policy(self, name: str) -> dict[str, Any]:
        return msgspec.json.decode(await self.admin.get(PROPAGATION_POLICIES.item_path(self.namespace, name)))

    async def remove(self, job: str) -> None:
        await self.admin.delete(JOBS.item_path(self.namespace, job))

    def _path(self, resource: Resource) -> str:
        return resource.item_path(self.namespace, "").rstrip("/")
