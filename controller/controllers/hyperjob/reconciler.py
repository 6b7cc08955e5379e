"""Reconciles one HyperJob: compares its objects with their desired state, and writes them and its status.

A pass that was interrupted between two writes is completed by the next one. Deletions come first, then for each part
its policy and then its Job: without the policy, another policy might match the Job. Karmada may see the Job first all
the same, and does not change the policy of a Job by itself, so a Job with another policy is released from it. Objects
of other owners are never changed: if one has the name of a part's object, nothing new is created and the HyperJob's
status says so.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import msgspec
import structlog

from controller.api.hyperjobs import FINISHED, HyperJob, HyperJobStatus, PartStatus, hyperjob_resource
from controller.api.keys import (
    HYPERJOB_KIND,
    JOBS,
    POLICY_ANNOTATIONS,
    POLICY_LABELS,
    PROPAGATION_POLICIES,
    Resource,
)
from controller.cache.objects import ObjectKey
from controller.controllers.hyperjob.children import Manifest, PartObjects, build_parts
from controller.controllers.hyperjob.observed import (
    TERMINAL,
    ObservedChild,
    ObservedHyperJob,
    ObservedParts,
    PartPlacement,
    has_all_fields,
    has_moved,
)
from controller.controllers.hyperjob.split import CapacitySnapshot
from controller.controllers.hyperjob.state import HyperJobState, compute_state
from controller.controllers.hyperjob.status import compute_status, shorten, to_json
from controller.kube.client import Api
from controller.kube.errors import ApiError, Conflict, NotFound, TooManyRequests, Unauthorized, Unreachable
from controller.kube.timing import Backoff, Clock, wall_clock
from controller.kube.watch_events import read_meta

ObjectsByName = Mapping[str, ObservedChild]
"""Objects of one kind that belong to a HyperJob, by name."""

FIELD_MANAGER = "volcano-global-hyperjobs"
#: Errors that say nothing about the object, and end by themselves.
_RETRIED = (Conflict, NotFound, TooManyRequests, Unauthorized, Unreachable)
#: Delays in seconds before a taken name is looked up again: the object of another owner has none of our labels, so its
#: deletion is not watched.
_FIRST_LOOKUP_DELAY = 5
_MAX_LOOKUP_DELAY = 60
#: Maximum number of writes for one HyperJob in one pass, so that others are not delayed.
_MAX_WRITES_PER_PASS = 64
#: Up to this number of new names, each is looked up with its own request.
_MAX_SINGLE_LOOKUPS = 8
#: Interval at which a Job is released again from another policy, in milliseconds: that one may precede the part's own.
_RELEASE_INTERVAL = 60_000
#: Maximum number of HyperJobs with remembered up-to-date parts, and with a rejected part, and of released Jobs.
_MAX_REMEMBERED = 1000
#: Longest message of a rejected part in the status.
_MAX_REJECTION = 1000

Versions = tuple[int, int]
"""The resourceVersions of a part's Job and policy."""

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """Writes in order: all of *remove*, then all of *apply*, then all of *release*."""

    remove: tuple[ObservedChild, ...] = ()
    apply: tuple[Manifest, ...] = ()
    release: tuple[ObservedChild, ...] = ()
    """Jobs with another policy than their own."""
    up_to_date: frozenset[str] = frozenset()
    """The parts with all objects in their desired state."""


@dataclass(frozen=True, slots=True)
class ObservedChildren:
    """The Jobs, policies and placements of a HyperJob's parts."""

    jobs: ObjectsByName
    policies: ObjectsByName
    placement: Mapping[str, PartPlacement]


def diff_objects(
    hyperjob: HyperJob,
    state: HyperJobState,
    observed: ObservedChildren,
    *,
    up_to_date: Collection[str] = frozenset(),
) -> ObjectChanges:
    """Return the writes for *hyperjob*, empty once all objects have their desired state.

    Parts that were *up_to_date* and have not changed since are not compared again.
    """
    if not state.is_valid:
        return ObjectChanges()
    if state.phase in FINISHED or state.phase == "Suspended":
        up_to_date, desired = frozenset(), {}
    else:
        finished = {part.name for part in state.parts if part.phase in TERMINAL}
        up_to_date = frozenset(up_to_date).difference(finished)
        desired = {child.name: child for child in build_parts(hyperjob, state.parts, finished.union(up_to_date))}
    jobs, policies = observed.jobs, observed.policies
    retained = _retained(hyperjob, state, observed.placement)
    old = [
        job
        for name, job in sorted(jobs.items())
        if name not in up_to_date and not _is_current(job, desired.get(name), retained)
    ]
    stays = {*desired, *retained, *up_to_date}
    stale = [policy for name, policy in sorted(policies.items()) if name not in stays]
    in_the_way = {job.key.name for job in old}
    missing = (child for child in desired.values() if child.name not in in_the_way)
    remove = tuple(child for child in (*old, *stale) if not child.deleting)
    apply = tuple(_manifests_to_apply(missing, jobs, policies))
    written = {manifest["metadata"]["name"] for manifest in apply}
    unchanged = {name for name in desired if name in jobs and name in policies and name not in in_the_way | written}
    desired_state = frozenset(unchanged.union(up_to_date))
    release = tuple(
        job
        for name, job in sorted(jobs.items())
        if job.is_claimed_by_other and name in desired_state and not policies[name].deleting
    )
    return ObjectChanges(remove, apply, release, desired_state)


def _retained(
    hyperjob: HyperJob, state: HyperJobState, placement: Mapping[str, PartPlacement]
) -> Mapping[str, PartStatus]:
    """Return the finished parts whose objects stay, so that users can inspect them.

    The Job of a part that has left the cluster where it finished would run again, and its pods there no longer exist.
    That of a part that another one has completed still runs.
    """
    if state.phase in FINISHED and hyperjob.spec.cleanup_policy == "All":
        return {}
    finished = (part for part in state.parts if part.phase in TERMINAL and not part.completed_by)
    return {part.name: part for part in finished if not has_moved(part, placement.get(part.name))}


def _is_current(job: ObservedChild, child: PartObjects | None, retained: Mapping[str, PartStatus]) -> bool:
    if job.deleting:
        return False
    if child is None:
        return job.key.name in retained
    if job.revision.attempt != child.part.attempt:
        return False
    # Volcano rejects all changes except of the size, both in the control plane and in the member clusters.
    return job.revision.template in {"", child.template}


def _manifests_to_apply(
    desired: Iterable[PartObjects], jobs: ObjectsByName, policies: ObjectsByName
) -> Iterator[Manifest]:
    for child in desired:
        policy, job = policies.get(child.name), jobs.get(child.name)
        if policy is not None and policy.deleting:
            continue
        for manifest, seen in ((child.policy, policy), (child.job, job)):
            if seen is None or not has_all_fields(seen, manifest):
                yield manifest


@dataclass(frozen=True, slots=True)
class _ReconciledParts:
    """Parts with all objects in their desired state."""

    basis: tuple[object, ...]
    """The inputs from which their objects were built."""
    versions: Mapping[str, Versions]


@dataclass(frozen=True, slots=True)
class _Rejection:
    """Why the API server does not store an object of a part."""

    message: str
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class _NameConflict:
    """An object of another owner with the name of an object to be created."""

    kind: str
    name: str
    is_orphan: bool
    """Whether the object was a part's and has lost its owner."""
    retry_at: int
    """When the name is looked up again."""
    backoff: Backoff

    def concerns(self, manifest: Manifest) -> bool:
        """Return whether *manifest* has the name."""
        return (self.kind, self.name) == (manifest["kind"], manifest["metadata"]["name"])

    def message(self, namespace: str) -> str:
        """Return the message for the status of the HyperJob."""
        about = f"{self.kind} {namespace}/{self.name}"
        if self.is_orphan:
            return f"{about} is a part without controlling owner; restore its ownerReferences to keep it, or delete it"
        return f"{about} belongs to another owner; delete it, or rename the HyperJob"


class ObservedObjects(Protocol):
    """Read access to the observed objects; also takes the responses to writes."""

    def hyperjob(self, resource: Resource, key: ObjectKey) -> ObservedHyperJob | None:
        """Return a HyperJob."""

    def jobs(self, uid: str) -> Mapping[str, ObservedChild]:
        """Return the Jobs of the HyperJob *uid*, by name."""

    def policies(self, uid: str) -> Mapping[str, ObservedChild]:
        """Return the PropagationPolicies of the HyperJob *uid*, by name."""

    def placement(self, namespace: str, job: str) -> PartPlacement | None:
        """Return the placement of a Job's binding, ``None`` if it has none."""

    def update(self, resource: Resource, raw: bytes) -> ObservedChild | None:
        """Add an object that the API server has just returned."""

    def forget(self, resource: Resource, key: ObjectKey, uid: str) -> None:
        """Remove an object that does not exist any more; the event of its deletion may be late."""


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Reconciles HyperJobs with the API server."""

    api: Api
    observed: ObservedObjects
    capacity: Callable[[], CapacitySnapshot]
    clock: Clock = wall_clock
    may_write: Callable[[], bool] = lambda: True
    """Whether this process is still the leader; a pass of many writes may take longer than its lease."""
    known: dict[str, _ReconciledParts] = field(default_factory=dict)
    """Parts with all objects in their desired state, by UID of their HyperJob."""
    rejections: dict[str, _Rejection] = field(default_factory=dict)
    """What the API server has rejected last, by UID of the HyperJob."""
    conflicts: dict[str, _NameConflict] = field(default_factory=dict)
    """Names that were taken when they were looked up last, by UID of the HyperJob."""
    released: dict[str, int] = field(default_factory=dict)
    """When Jobs were released from another policy, by UID of the Job."""

    def forget(self, uid: str) -> None:
        """Forget a deleted HyperJob: its annotations and parts may be large."""
        for remembered in (self.known, self.rejections, self.conflicts):
            remembered.pop(uid, None)

    async def reconcile(self, resource: Resource, key: ObjectKey) -> int | None:
        """Reconcile one HyperJob; return when to reconcile it again without a change, in milliseconds.

        Raises `ApiError` if a write was rejected.
        """
        seen = self.observed.hyperjob(resource, key)
        if seen is None or seen.deleting:
            return None
        if seen.hyperjob is None:
            await self._report_unreadable(seen)
            return None
        if self._has_expired(seen.hyperjob):
            # Only in this version: its TTL may have been changed since.
            await self._delete(resource, key, seen.uid, resourceVersion=str(seen.resource_version))
            return None
        return await self._reconcile(seen, seen.hyperjob)

    async def _reconcile(self, seen: ObservedHyperJob, hyperjob: HyperJob) -> int | None:
        jobs, policies = self.observed.jobs(seen.uid), self.observed.policies(seen.uid)
        placed = {name: place for name in jobs if (place := self.observed.placement(seen.key.namespace, name))}
        children = ObservedChildren(jobs, policies, placed)
        own = {name: job for name, job in jobs.items() if not job.deleting}
        state = compute_state(hyperjob, ObservedParts(own, placed), self.capacity())
        basis = _inputs_key(hyperjob, state)
        versions = {name: (job, policies[name].resource_version) for name, job in _versions(jobs) if name in policies}
        up_to_date = self._up_to_date(seen.uid, basis, versions)
        changes = diff_objects(hyperjob, state, children, up_to_date=up_to_date)
        self._store_up_to_date(seen.uid, _ReconciledParts(basis, {name: versions[name] for name in changes.up_to_date}))
        obstacle = await self._name_conflict(hyperjob, changes, children)
        if obstacle is not None:
            message = obstacle.message(hyperjob.metadata.namespace)
            state, changes = replace(state, message=message, reason="NameTaken"), ObjectChanges(changes.remove)
        rejection = self.rejections.get(seen.uid)
        if rejection is not None and rejection.is_repeated and state.phase not in FINISHED and not obstacle:
            state = replace(state, message=rejection.message, reason="PartRejected")
        if not self.may_write():
            return self.clock()
        await self._report(seen, hyperjob.status, compute_status(hyperjob, state, own, self.clock()))
        try:
            is_done, applied = await self._write(changes)
        except _RETRIED:
            raise
        except ApiError as error:
            self._store_rejection(seen.uid, error)
            raise
        if is_done:
            self._add_applied(seen.uid, children, applied)
        if not is_done or self.rejections.pop(seen.uid, None) is not None:
            return self.clock()
        return obstacle.retry_at if obstacle is not None else self._expires_at(hyperjob)

    async def _write(self, changes: ObjectChanges) -> tuple[bool, Sequence[ObservedChild]]:
        """Execute the next writes; return whether all are done, and what the API server has stored.

        A large HyperJob is written in several passes.
        """
        writes: list[Callable[[], Awaitable[ObservedChild | None]]] = [
            *(partial(self._delete, child.resource, child.key, child.uid) for child in changes.remove),
            *(partial(self._apply, manifest) for manifest in changes.apply),
            *(partial(self._release, job) for job in changes.release if self._may_release(job)),
        ]
        applied: list[ObservedChild] = []
        for write in writes[:_MAX_WRITES_PER_PASS]:
            if not self.may_write():
                return False, applied
            stored = await write()
            applied += [stored] if stored is not None else []
        return len(writes) <= _MAX_WRITES_PER_PASS, applied

    def _up_to_date(self, uid: str, basis: tuple[object, ...], versions: Mapping[str, Versions]) -> frozenset[str]:
        """Return the parts with objects that had their desired state and have not changed since."""
        known = self.known.get(uid)
        if known is None or known.basis != basis:
            return frozenset()
        return frozenset(name for name, before in known.versions.items() if versions.get(name) == before)

    def _store_up_to_date(self, uid: str, known: _ReconciledParts) -> None:
        self.known.pop(uid, None)
        self.known[uid] = known
        if len(self.known) > _MAX_REMEMBERED:
            del self.known[next(iter(self.known))]

    def _add_applied(self, uid: str, children: ObservedChildren, applied: Sequence[ObservedChild]) -> None:
        """Add the parts of *applied* objects to the up-to-date ones, in the versions that the API server returned.

        A webhook of others may change an object with each apply, for example its images; it is not applied again until
        it changes otherwise.
        """
        known = self.known.get(uid)
        if known is None:
            return
        jobs, policies = (
            {**own, **{child.key.name: child for child in applied if child.resource is resource}}
            for resource, own in ((JOBS, children.jobs), (PROPAGATION_POLICIES, children.policies))
        )
        made = {
            name: (jobs[name].resource_version, policies[name].resource_version)
            for name in {child.key.name for child in applied}
            if name in jobs and name in policies
        }
        self._store_up_to_date(uid, _ReconciledParts(known.basis, {**known.versions, **made}))

    def _store_rejection(self, uid: str, error: ApiError) -> None:
        """Store what was rejected, so that the status says it from the second time on; the first may be an outage."""
        before = self.rejections.pop(uid, None)
        self.rejections[uid] = _Rejection(
            f"the API server rejects a part: {error}"[:_MAX_REJECTION], before is not None
        )
        if len(self.rejections) > _MAX_REMEMBERED:
            del self.rejections[next(iter(self.rejections))]

    # -- name conflicts ------------------------------------------------------

    async def _name_conflict(
        self, hyperjob: HyperJob, changes: ObjectChanges, children: ObservedChildren
    ) -> _NameConflict | None:
        """Return which object of another owner has the name of an object to be created, ``None`` if none.

        All names are checked before the first object is created, so that no HyperJob is created partially. A name that
        was taken is looked up again with a growing delay: resyncs may follow each other at once.
        """
        uid = hyperjob.metadata.uid
        known = {JOBS.kind: children.jobs, PROPAGATION_POLICIES.kind: children.policies}
        new = [manifest for manifest in changes.apply if manifest["metadata"]["name"] not in known[manifest["kind"]]]
        before = self.conflicts.get(uid)
        if before is not None and self.clock() < before.retry_at and any(map(before.concerns, new)):
            return before
        taken = await self._first_taken(hyperjob, new)
        self.conflicts.pop(uid, None)
        if taken is None:
            return None
        backoff = before.backoff if before else Backoff(_FIRST_LOOKUP_DELAY, _MAX_LOOKUP_DELAY)
        retry_at = self.clock() + int(backoff.next_delay() * 1000)
        is_orphan = not taken.owner and bool(taken.revision.digest)
        conflict = _NameConflict(taken.resource.kind, taken.key.name, is_orphan, retry_at, backoff)
        self.conflicts[uid] = conflict
        if len(self.conflicts) > _MAX_REMEMBERED:
            del self.conflicts[next(iter(self.conflicts))]
        return conflict

    async def _first_taken(self, hyperjob: HyperJob, new: Sequence[Manifest]) -> ObservedChild | None:
        """Return the first object that is not the HyperJob's and has the name of an object to be created."""
        is_listed = len(new) > _MAX_SINGLE_LOOKUPS
        present = await self._list_names(hyperjob.metadata.namespace) if is_listed else frozenset()
        for manifest in new:
            name = manifest["metadata"]["name"]
            if is_listed and (manifest["kind"], name) not in present:
                continue
            existing = await self._get_object(_resource(manifest), ObjectKey(hyperjob.metadata.namespace, name))
            if existing is not None and not existing.is_owned_by(hyperjob.metadata.uid):
                return existing
        return None

    async def _list_names(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Return kind and name of all Jobs and policies in *namespace*: a few lists instead of one request per name."""
        names: set[tuple[str, str]] = set()
        for resource in (JOBS, PROPAGATION_POLICIES):
            async for raw in self.api.list_items(resource.path_in(namespace), metadata_only=True):
                names.add((resource.kind, read_meta(raw).name))
        return frozenset(names)

    async def _get_object(self, resource: Resource, key: ObjectKey) -> ObservedChild | None:
        try:
            raw = await self.api.get(resource.item_path(*key))
        except NotFound:
            return None
        return self.observed.update(resource, raw)

    # -- writes -------------------------------------------------------------

    async def _apply(self, manifest: Manifest) -> ObservedChild | None:
        """Apply the owned fields of an object, and return it as stored.

        One that another client creates concurrently is not overwritten.
        """
        resource, metadata = _resource(manifest), manifest["metadata"]
        known = self.observed.jobs if resource is JOBS else self.observed.policies
        seen = known(metadata["ownerReferences"][0]["uid"]).get(metadata["name"])
        if seen is not None:
            manifest = {**manifest, "metadata": {**metadata, "uid": seen.uid}}
        path = resource.item_path(metadata["namespace"], metadata["name"])
        raw = await self.api.apply(
            path, msgspec.json.encode(manifest), field_manager=FIELD_MANAGER, force=seen is not None
        )
        log.info("part applied", kind=manifest["kind"], namespace=metadata["namespace"], name=metadata["name"])
        return self.observed.update(resource, raw)

    def _may_release(self, job: ObservedChild) -> bool:
        """Return whether a Job was not released a short time ago; a tenant's policy may claim it again at once."""
        before = self.released.get(job.uid)
        return before is None or self.clock() >= before + _RELEASE_INTERVAL

    async def _release(self, job: ObservedChild) -> ObservedChild | None:
        """Remove the claim of another policy from a Job, so that Karmada matches it with its own policy."""
        self.released.pop(job.uid, None)
        self.released[job.uid] = self.clock()
        if len(self.released) > _MAX_REMEMBERED:
            del self.released[next(iter(self.released))]
        claim = {"labels": dict.fromkeys(POLICY_LABELS), "annotations": dict.fromkeys(POLICY_ANNOTATIONS)}
        body = {"metadata": {"uid": job.uid, "resourceVersion": str(job.resource_version), **claim}}
        raw = await self.api.patch(JOBS.item_path(*job.key), msgspec.json.encode(body), kind="merge")
        log.info("part released from another policy", namespace=job.key.namespace, name=job.key.name)
        return self.observed.update(JOBS, raw)

    async def _delete(self, resource: Resource, key: ObjectKey, uid: str, **preconditions: str) -> None:
        options = {"preconditions": {"uid": uid, **preconditions}, "propagationPolicy": "Background"}
        try:
            await self.api.delete(resource.item_path(*key), msgspec.json.encode(options))
        except NotFound:
            self.observed.forget(resource, key, uid)
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
        """Report why a spec cannot be read; its parts, and that it has finished, are not forgotten meanwhile."""
        before = seen.status
        if before.is_finished:
            return
        status = HyperJobStatus(
            phase="Pending",
            message=shorten(f"it cannot be read: {seen.decode_error}"),
            observed_generation=seen.generation,
            replicated_jobs_status=before.replicated_jobs_status,
            split_count=before.split_count,
            split=before.split,
        )
        await self._report(seen, before, status)

    # -- time ---------------------------------------------------------------

    def _expires_at(self, hyperjob: HyperJob) -> int | None:
        ttl, finished = hyperjob.spec.ttl_seconds_after_finished, hyperjob.status.finished_at
        return None if ttl is None or finished is None else int(finished.timestamp() * 1000) + ttl * 1000

    def _has_expired(self, hyperjob: HyperJob) -> bool:
        expires = self._expires_at(hyperjob)
        return expires is not None and expires <= self.clock()


def _versions(objects: Mapping[str, ObservedChild]) -> Iterator[tuple[str, int]]:
    return ((name, child.resource_version) for name, child in objects.items() if not child.deleting)


def _inputs_key(hyperjob: HyperJob, state: HyperJobState) -> tuple[object, ...]:
    """Return the inputs of all objects of *hyperjob* except its spec: generation, annotations and parts."""
    meta = hyperjob.metadata
    progress = {"phase", "running_on", "retries", "reason"}
    parts = tuple(tuple(part.model_dump(exclude=progress).values()) for part in state.parts)
    return meta.generation, tuple(sorted(meta.annotations.items())), parts


def _resource(manifest: Manifest) -> Resource:
    return JOBS if manifest["kind"] == JOBS.kind else PROPAGATION_POLICIES
