"""Brings one HyperJob's objects and status to what they should be; the only place of this package that writes.

Each pass looks at what is true and writes what is missing, so that a pass that
was cut off between any two writes is completed by the next one. Objects that
another has made are never touched: where one is in the way of a part, nothing
new is made and the HyperJob says so.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec
import structlog

from controller.api.hyperjobs import HyperJob, hyperjob_resource
from controller.api.hyperjobstatus import HyperJobStatus
from controller.api.keys import HYPERJOB_KIND, JOBS, PROPAGATION_POLICIES, Resource
from controller.cache.objects import ObjectKey
from controller.cache.watch_events import read_meta
from controller.clock import Clock, wall_clock
from controller.hyperjob.children import Manifest
from controller.hyperjob.diff import ObjectChanges, diff_objects
from controller.hyperjob.observed import ObservedChild, ObservedHyperJob, PartPlacement, metadata_of
from controller.hyperjob.part import ObservedParts
from controller.hyperjob.split import CapacitySnapshot
from controller.hyperjob.state import HyperJobState, compute_state
from controller.hyperjob.status import compute_status, to_json
from controller.kube import Api, NotFound

FIELD_MANAGER = "volcano-global-hyperjobs"
#: An object of somebody else's that is in the way carries none of our labels, so nobody tells when it is gone.
_NAME_CONFLICT_RETRY_MS = 5_000

#: So many objects are written or deleted for one HyperJob before it is the next one's turn.
_MAX_WRITES_PER_PASS = 64
#: More new names than this are not looked up one by one.
_MAX_SINGLE_LOOKUPS = 8
#: Of so many HyperJobs it is remembered which parts are as they should be.
_MAX_REMEMBERED = 1000

Versions = tuple[int, int]
"""The resourceVersions of a part's Job and policy."""

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _ReconciledParts:
    """Parts that were found to be as they should be."""

    basis: tuple[object, ...]
    """What their objects were made of."""
    versions: Mapping[str, Versions]


class ObservedObjects(Protocol):
    """What is known of the objects that matter, and takes the answers to our writes."""

    def hyperjob(self, resource: Resource, key: ObjectKey) -> ObservedHyperJob | None:
        """Return a HyperJob."""

    def jobs(self, uid: str) -> Mapping[str, ObservedChild]:
        """Return the Jobs that the HyperJob *uid* has made, by name."""

    def policies(self, uid: str) -> Mapping[str, ObservedChild]:
        """Return the PropagationPolicies that the HyperJob *uid* has made, by name."""

    def placement(self, namespace: str, job: str) -> PartPlacement | None:
        """Return where a Job's binding is, ``None`` while there is none."""

    def update(self, resource: Resource, raw: bytes) -> ObservedChild | None:
        """Take an object as the API server has just told it."""


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Knows where to look and where to write."""

    api: Api
    observed: ObservedObjects
    capacity: Callable[[], CapacitySnapshot]
    clock: Clock = wall_clock
    known: dict[str, _ReconciledParts] = field(default_factory=dict)
    """By the uid of their HyperJob, parts that were found to be as they should be."""

    async def reconcile(self, resource: Resource, key: ObjectKey) -> int | None:
        """Do what is to be done for one HyperJob; return when to look again unasked, in milliseconds.

        Raises `ApiError` where a write was refused.
        """
        seen = self.observed.hyperjob(resource, key)
        if seen is None or seen.deleting:
            return None
        if seen.hyperjob is None:
            await self._report_unreadable(seen)
            return None
        if self._has_expired(seen.hyperjob):
            await self._delete(resource, key, seen.uid)
            return None
        return await self._reconcile(seen, seen.hyperjob)

    async def _reconcile(self, seen: ObservedHyperJob, hyperjob: HyperJob) -> int | None:
        jobs, policies = self.observed.jobs(seen.uid), self.observed.policies(seen.uid)
        placed = {name: place for name in jobs if (place := self.observed.placement(seen.key.namespace, name))}
        own = {name: job for name, job in jobs.items() if not job.deleting}
        state = compute_state(hyperjob, ObservedParts(own, placed), self.capacity())
        basis = _inputs_key(hyperjob, state)
        versions = {name: (job, policies[name].resource_version) for name, job in _versions(jobs) if name in policies}
        changes = diff_objects(hyperjob, state, jobs, policies, up_to_date=self._up_to_date(seen.uid, basis, versions))
        self._store_up_to_date(seen.uid, _ReconciledParts(basis, {name: versions[name] for name in changes.up_to_date}))
        obstacle = await self._name_conflict(hyperjob, changes, jobs=jobs, policies=policies)
        if obstacle:
            state, changes = replace(state, message=obstacle, reason="NameTaken"), ObjectChanges(changes.remove)
        await self._report(seen, hyperjob.status, compute_status(hyperjob, state, own, self.clock()))
        is_done = await self._write(changes)
        if not is_done:
            return self.clock()
        return self.clock() + _NAME_CONFLICT_RETRY_MS if obstacle else self._expires_at(hyperjob)

    async def _write(self, changes: ObjectChanges) -> bool:
        """Take the next steps; say whether they were all, so that a large HyperJob leaves others their turn."""
        remove = changes.remove[:_MAX_WRITES_PER_PASS]
        for child in remove:
            await self._delete(child.resource, child.key, child.uid)
        apply = changes.apply[: _MAX_WRITES_PER_PASS - len(remove)] if len(remove) == len(changes.remove) else ()
        for manifest in apply:
            await self._apply(manifest)
        return len(remove) + len(apply) == len(changes.remove) + len(changes.apply)

    def _up_to_date(self, uid: str, basis: tuple[object, ...], versions: Mapping[str, Versions]) -> frozenset[str]:
        """Return the parts that were found to be as they should be and have not changed since."""
        known = self.known.get(uid)
        if known is None or known.basis != basis:
            return frozenset()
        return frozenset(name for name, before in known.versions.items() if versions.get(name) == before)

    def _store_up_to_date(self, uid: str, known: _ReconciledParts) -> None:
        self.known.pop(uid, None)
        self.known[uid] = known
        if len(self.known) > _MAX_REMEMBERED:
            del self.known[next(iter(self.known))]

    # -- what is in the way -------------------------------------------------

    async def _name_conflict(
        self,
        hyperjob: HyperJob,
        changes: ObjectChanges,
        *,
        jobs: Mapping[str, ObservedChild],
        policies: Mapping[str, ObservedChild],
    ) -> str:
        """Return what of somebody else's bears the name of an object that is to be made, or nothing.

        All names are looked up before the first object is made, so that nothing is half made.
        """
        known = {JOBS.kind: jobs, PROPAGATION_POLICIES.kind: policies}
        new = [manifest for manifest in changes.apply if manifest["metadata"]["name"] not in known[manifest["kind"]]]
        is_listed = len(new) > _MAX_SINGLE_LOOKUPS
        present = await self._list_names(hyperjob.metadata.namespace) if is_listed else frozenset()
        for manifest in new:
            name = manifest["metadata"]["name"]
            if is_listed and (manifest["kind"], name) not in present:
                continue
            found = await self._get_object(_resource(manifest), ObjectKey(hyperjob.metadata.namespace, name))
            if found is not None and not found.is_owned_by(hyperjob.metadata.uid):
                kind, path = manifest["kind"], f"{hyperjob.metadata.namespace}/{name}"
                return f"{kind} {path} belongs to another owner; delete it, or rename the HyperJob"
        return ""

    async def _list_names(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Return kind and name of all Jobs and policies in *namespace*: a few lists in place of a look-up for each."""
        found: set[tuple[str, str]] = set()
        for resource in (JOBS, PROPAGATION_POLICIES):
            token = ""
            while True:
                path = resource.item_path(namespace, "").rstrip("/")
                page = await self.api.list_page(path, token=token, metadata_only=True)
                found.update((resource.kind, read_meta(bytes(raw)).name) for raw in page.items or ())
                token = page.metadata.continue_token
                if not token:
                    break
        return frozenset(found)

    async def _get_object(self, resource: Resource, key: ObjectKey) -> ObservedChild | None:
        try:
            raw = await self.api.get(resource.item_path(*key))
        except NotFound:
            return None
        return self.observed.update(resource, raw)

    # -- writes -------------------------------------------------------------

    async def _apply(self, manifest: Manifest) -> None:
        """Apply what we own of an object; one that somebody else makes at the same moment is left to him."""
        resource, metadata = _resource(manifest), manifest["metadata"]
        known = self.observed.jobs if resource is JOBS else self.observed.policies
        seen = known(metadata["ownerReferences"][0]["uid"]).get(metadata["name"])
        if seen is not None:
            manifest = {**manifest, "metadata": {**metadata, "uid": seen.uid}}
        path = resource.item_path(metadata["namespace"], metadata["name"])
        raw = await self.api.apply(
            path, msgspec.json.encode(manifest), field_manager=FIELD_MANAGER, force=seen is not None
        )
        self.observed.update(resource, raw)
        log.info("part applied", kind=manifest["kind"], namespace=metadata["namespace"], name=metadata["name"])

    async def _delete(self, resource: Resource, key: ObjectKey, uid: str) -> None:
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self.api.delete(resource.item_path(*key), msgspec.json.encode(options))
        except NotFound:
            return
        log.info("object deleted", kind=resource.kind, namespace=key.namespace, name=key.name)

    async def _report(self, seen: ObservedHyperJob, before: HyperJobStatus, status: HyperJobStatus) -> None:
        if to_json(status) == to_json(before):
            return
        body = {
            "apiVersion": seen.api_version,
            "kind": HYPERJOB_KIND,
            "metadata": {"name": seen.key.name, "namespace": seen.key.namespace, "uid": seen.uid},
            "status": to_json(status),
        }
        resource = hyperjob_resource(seen.api_version)
        path = f"{resource.item_path(*seen.key)}/status"
        raw = await self.api.apply(path, msgspec.json.encode(body), field_manager=FIELD_MANAGER)
        self.observed.update(resource, raw)
        if status.phase != before.phase:
            log.info(
                "hyperjob changed",
                namespace=seen.key.namespace,
                name=seen.key.name,
                phase=status.phase,
                message=status.message,
            )

    async def _report_unreadable(self, seen: ObservedHyperJob) -> None:
        metadata = metadata_of(seen)
        message = f"it cannot be read: {seen.decode_error}"
        status = HyperJobStatus(phase="Pending", message=message, observed_generation=metadata.generation)
        await self._report(seen, seen.status, status)

    # -- time ---------------------------------------------------------------

    def _expires_at(self, hyperjob: HyperJob) -> int | None:
        ttl, finished = hyperjob.spec.ttl_seconds_after_finished, hyperjob.status.finished_at
        return None if ttl is None or finished is None else int(finished.timestamp() * 1000) + ttl * 1000

    def _has_expired(self, hyperjob: HyperJob) -> bool:
        expires = self._expires_at(hyperjob)
        return expires is not None and expires <= self.clock()


def _versions(objects: Mapping[str, ObservedChild]) -> Iterator[tuple[str, int]]:
    return ((name, each.resource_version) for name, each in objects.items() if not each.deleting)


def _inputs_key(hyperjob: HyperJob, state: HyperJobState) -> tuple[object, ...]:
    """Return what all objects of *hyperjob* follow from besides its spec of this generation."""
    meta = hyperjob.metadata
    progress = {"phase", "running_on", "retries", "reason"}
    parts = tuple(tuple(part.model_dump(exclude=progress).values()) for part in state.parts)
    return meta.generation, tuple(sorted(meta.annotations.items())), parts


def _resource(manifest: Manifest) -> Resource:
    return JOBS if manifest["kind"] == JOBS.kind else PROPAGATION_POLICIES
