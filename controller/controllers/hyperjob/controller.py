"""HyperJob controller: watches HyperJobs and their objects, and reconciles what changed.

One HyperJob at a time is passed to the reconciler, the namespaces in turn, and requeued with backoff if a write is
rejected. If the CRDs are not installed, discovery is retried periodically.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import msgspec
import structlog

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.hyperjobs import HYPERJOB_RESOURCES, PartPhase
from controller.api.keys import HYPERJOB_NAME_LABEL, JOBS, PROPAGATION_POLICIES, Resource, binding_name
from controller.cache.dynamic_informers import listable_path
from controller.cache.objects import (
    VOLCANO_JOB,
    BindingKey,
    CachedBinding,
    CachedHyperJob,
    ObjectKey,
    TemplateKey,
    WorkloadPhase,
    is_finished,
)
from controller.cache.store import Store
from controller.controllers.hyperjob.children import cached_hyperjob_of
from controller.controllers.hyperjob.observed import (
    ObservedChild,
    ObservedHyperJob,
    PartPlacement,
    PendingReason,
    decode_hyperjob,
    decode_part_job,
    decode_part_policy,
    has_moved,
)
from controller.controllers.hyperjob.reconciler import Reconciler
from controller.controllers.hyperjob.split import CapacitySnapshot, capacity_snapshot, pending_reason
from controller.engine.engine import Engine
from controller.engine.state.clusters import ApiKind
from controller.engine.state.workloads import WorkloadUid
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized
from controller.kube.informer import Informer, WatchOptions, audited_informer
from controller.kube.timing import Backoff, Clock, wall_clock
from controller.reporting.redaction import redacted_refusal, same_namespace

#: Minimum time between two resyncs in seconds: bindings and clusters change in bursts of hundreds.
_RESYNC_SECONDS = 0.5
#: After a resync, the next one waits for this multiple of its duration.
_RESYNC_FACTOR = 2
#: After this time in seconds, what has been queued meanwhile is considered, too: passes of one namespace may take
#: minutes.
_MAX_BATCH_SECONDS = 1.0
#: Shortest interval between two passes over a HyperJob whose objects change, in seconds for each part: with each part
#: that starts or ends, its status is written, which has several hundred bytes for each part.
_PASS_INTERVAL_PER_PART = 0.005

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def _ignore(_: str, __: CachedHyperJob | None) -> None:
    """Ignore a HyperJob; the default callback."""


@dataclass(frozen=True, slots=True)
class HyperJobDependencies:
    """What the controller needs from the rest of the process."""

    may_write: Callable[[], bool]
    capacity: Callable[[], CapacitySnapshot | None]
    """Capacity of the clusters; ``None`` before the first cycle."""
    binding: Callable[[BindingKey], CachedBinding | None]
    pending_reason: Callable[[WorkloadUid], PendingReason | None]
    """Why a binding is pending."""
    hyperjob_changed: Callable[[str, CachedHyperJob | None], None] = _ignore
    """Called with the UID and the parts of a changed HyperJob; ``None`` if it has no parts any more."""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A HyperJob to reconcile."""

    resource: Resource
    key: ObjectKey


class HyperJobController:
    """Watches HyperJobs and their objects, and reconciles them."""

    def __init__(
        self, api: Api, dependencies: HyperJobDependencies, *, watch_options: WatchOptions, clock: Clock = wall_clock
    ) -> None:
        self.discovery_interval_seconds = 30.0
        """Interval at which missing CRDs are looked up again."""
        self.synced = asyncio.Event()
        """Set when the HyperJobs are known, or that there can be none; no decision is made before (G1)."""
        self._api = api
        self._dependencies = dependencies
        self._watch_options = watch_options
        self._clock = clock
        self._hyperjobs = {resource: self._new_collection(resource) for resource in HYPERJOB_RESOURCES}
        self._jobs = Collection(decode_part_job, self._child_changed)
        self._policies = Collection(decode_part_policy, self._child_changed)
        self._known: dict[str, WorkItem] = {}
        """HyperJobs by UID."""
        self._children: dict[tuple[str, str], dict[tuple[str, str], ObservedChild]] = {}
        """Objects by namespace and UID of their owner, then by kind and name."""
        self._queue: dict[WorkItem, None] = {}
        self._last_passes: dict[str, float] = {}
        """Time of the last pass in each namespace with queued items, on the monotonic clock."""
        self._requeue_at: dict[WorkItem, int] = {}
        self._backoffs: dict[WorkItem, Backoff] = {}
        self._next_pass_at: dict[WorkItem, float] = {}
        """Earliest next pass over HyperJobs that only a change of their objects has queued, on the monotonic clock."""
        self._wake = asyncio.Event()
        self._queued = asyncio.Event()
        """Set while an item is queued by a change of its own objects."""
        self._must_resync = False
        self._resyncing: set[WorkItem] = set()
        """Items of the resync in progress that are not processed yet."""
        self._resync_began: float | None = None
        self._resync_at = float("-inf")
        """When the next resync may begin, on the monotonic clock."""
        self._informers: dict[Resource, Informer[Any]] = {}
        self.caches: dict[str, Informer[Any]] = {}
        """The informers of HyperJobs, by plural and group; no decision is made while one is not in sync."""
        self._reconciler = Reconciler(api, self, self._capacity, clock, dependencies.may_write)

    async def run(self) -> NoReturn:
        """Watch and reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._discover(group))
            while True:
                await self._until_synced()
                await self._process_queue()
                await self._wait()
        raise AssertionError("the controller runs until it is cancelled")

    def on_leading(self) -> None:
        """Reconcile only once the last writes of the former leader are known; it may have retried a part."""
        for informer in self._informers.values():
            informer.catch_up()

    def wake(self) -> None:
        """Requeue the HyperJobs that changes of bindings, clusters or queues may concern."""
        self._must_resync = True
        self._wake.set()

    def phases(self) -> Mapping[str, int]:
        """Return the number of HyperJobs in each phase; one without a status is pending."""
        return Counter(known.status.phase or "Pending" for own in self._hyperjobs.values() for known in own)

    # -- observed objects, for the reconciler ----------------------------------

    def hyperjob(self, resource: Resource, key: ObjectKey) -> ObservedHyperJob | None:
        """Return a HyperJob."""
        return self._hyperjobs[resource].get(key)

    def jobs(self, uid: str) -> Mapping[str, ObservedChild]:
        """Return the Jobs of the HyperJob *uid*, by name."""
        return self._children_of(uid, JOBS)

    def policies(self, uid: str) -> Mapping[str, ObservedChild]:
        """Return the PropagationPolicies of the HyperJob *uid*, by name."""
        return self._children_of(uid, PROPAGATION_POLICIES)

    def placement(self, namespace: str, job: str) -> PartPlacement | None:
        """Return the placement of a Job's binding, ``None`` if it has none."""
        binding = self._dependencies.binding(BindingKey(namespace, binding_name(job, JOBS.kind)))
        if binding is None or binding.template != TemplateKey(VOLCANO_JOB, namespace, job):
            return None
        known = self._jobs.get(ObjectKey(namespace, job))
        if known is not None and binding.template_uid not in {"", known.uid}:
            # The binding belongs to an earlier Job of this name; Karmada deletes it once the cluster has answered.
            return None
        # Others may have suspended it before it finished; it is not resumed any more.
        if not binding.targets or (binding.is_suspended and not is_finished(binding)):
            return PartPlacement(pending_reason=self._dependencies.pending_reason(binding.uid))
        clusters = tuple(target.name for target in binding.targets)
        return PartPlacement(clusters, reported=_reported_phase(binding))

    def update(self, resource: Resource, raw: bytes) -> ObservedChild | None:
        """Add an object that the API server has just returned; objects of no HyperJob are not cached."""
        if resource in self._hyperjobs:
            self._hyperjobs[resource].upsert(decode_hyperjob(raw, resource))
            return None
        collection = self._jobs if resource is JOBS else self._policies
        observed = collection.decode(raw)
        if observed.owner in self._known:
            collection.upsert(observed)
        return observed

    def forget(self, resource: Resource, key: ObjectKey, uid: str) -> None:
        """Remove an object that does not exist any more; the event of its deletion may be late."""
        children = self._jobs if resource is JOBS else self._policies
        collection: Collection[Any] = self._hyperjobs.get(resource, children)
        known = collection.get(key)
        if known is not None and known.uid == uid:
            collection.forget(*key)

    def _children_of(self, uid: str, resource: Resource) -> dict[str, ObservedChild]:
        # An object in another namespace, such as a copy of a Job, has no owner there, whatever it says.
        children = self._children.get((self._known[uid].key.namespace, uid), {}) if uid in self._known else {}
        return {name: child for (kind, name), child in children.items() if kind == resource.plural}

    def _capacity(self) -> CapacitySnapshot:
        return self._dependencies.capacity() or CapacitySnapshot()

    # -- event handlers of the informers ---------------------------------------

    def _new_collection(self, resource: Resource) -> Collection[ObservedHyperJob]:
        return Collection(partial(decode_hyperjob, resource=resource), partial(self._hyperjob_changed, resource))

    def _hyperjob_changed(
        self, resource: Resource, before: ObservedHyperJob | None, after: ObservedHyperJob | None
    ) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._known.pop(before.uid, None)
            self._reconciler.forget(before.uid)
            self._dependencies.hyperjob_changed(before.uid, None)
        if after is not None:
            self._dependencies.hyperjob_changed(after.uid, cached_hyperjob_of(after))
            item = WorkItem(resource, after.key)
            self._known[after.uid] = item
            self._enqueue(item)
        elif before is not None:
            self._dequeue(WorkItem(resource, before.key))

    def _child_changed(self, before: ObservedChild | None, after: ObservedChild | None) -> None:
        for observed, is_there in ((before, False), (after, True)):
            if observed is None or not observed.owner:
                continue
            owner = observed.key.namespace, observed.owner
            own = self._children.setdefault(owner, {})
            if is_there:
                own[observed.resource.plural, observed.key.name] = observed
            else:
                own.pop((observed.resource.plural, observed.key.name), None)
            if not own:
                del self._children[owner]
            item = self._known.get(observed.owner)
            if item is not None and item.key.namespace == observed.key.namespace:
                self._enqueue(item)

    def _enqueue(self, item: WorkItem) -> None:
        self._queue[item] = None
        self._queued.set()
        self._wake.set()

    def _dequeue(self, item: WorkItem) -> None:
        """Forget a deleted HyperJob; a standby would keep it in its queue, which it does not process."""
        self._queue.pop(item, None)
        self._requeue_at.pop(item, None)
        self._backoffs.pop(item, None)
        self._next_pass_at.pop(item, None)
        self._resyncing.discard(item)
        self._end_resync()

    # -- discovery -----------------------------------------------------------

    async def _discover(self, group: asyncio.TaskGroup) -> None:
        """Watch each API group once it is served; Jobs and policies once the first one is."""
        missing, backoff = list(HYPERJOB_RESOURCES), Backoff(initial=0.5, maximum=15)
        while missing:
            answers = {resource: await self._is_served(resource) for resource in missing}
            served = [resource for resource, is_served in answers.items() if is_served]
            missing = [resource for resource in missing if resource not in served]
            for resource in served:
                self._watch(group, resource, self._hyperjobs[resource], selectors={})
            if served and JOBS not in self._informers:
                selectors = {"labelSelector": HYPERJOB_NAME_LABEL}
                self._watch(group, JOBS, self._jobs, selectors=selectors)
                self._watch(group, PROPAGATION_POLICIES, self._policies, selectors=selectors)
            self._wake.set()
            if None in answers.values():
                await asyncio.sleep(backoff.next_delay())
                continue
            for resource in HYPERJOB_RESOURCES:
                if resource in self._informers:
                    await self._informers[resource].synced.wait()
            self.synced.set()
            if missing:
                await asyncio.sleep(self.discovery_interval_seconds)

    def _watch(
        self, group: asyncio.TaskGroup, resource: Resource, sink: Collection[Any], *, selectors: dict[str, str]
    ) -> None:
        informer = audited_informer(
            self._api, resource.path, sink, options=self._watch_options, selectors=selectors, is_optional=True
        )
        self._informers[resource] = informer
        if resource in HYPERJOB_RESOURCES:
            self.caches[f"{resource.plural}.{resource.group}"] = informer
        group.create_task(informer.run())
        log.info("watch started", resource=resource.plural, group=resource.group)

    async def _is_served(self, resource: Resource) -> bool | None:
        """Return whether HyperJobs of a group can be watched, ``None`` if that is unknown."""
        try:
            return bool(await listable_path(self._api, ApiKind(resource.api_version, resource.kind)))
        except (ApiError, msgspec.MsgspecError) as error:
            log.warning("discovery failed", group=resource.group, error=str(error))
            # Without permission to list them, they must not block the admission.
            return False if isinstance(error, Forbidden | NotFound | Unauthorized) else None

    async def _until_synced(self) -> None:
        for informer in tuple(self._informers.values()):
            await informer.synced.wait()

    # -- work queue ----------------------------------------------------------

    @property
    def _can_work(self) -> bool:
        """Whether the clusters' capacity is known and this process is the leader."""
        dependencies = self._dependencies
        return bool(self._informers) and dependencies.may_write() and dependencies.capacity() is not None

    async def _process_queue(self) -> None:
        """Reconcile the due items once, as many as the time of a batch allows."""
        self._wake.clear()
        self._queued.clear()
        if not self._can_work:
            return
        began = time.monotonic()
        is_resync = self._must_resync and self._resync_began is None and began >= self._resync_at
        if is_resync:
            self._requeue_concerned()
        batch = self._in_turns(self._ready(self._clock()))
        if is_resync:
            self._resyncing, self._resync_began = set(batch), began
            self._end_resync()
        for item in batch:
            if not self._can_work:
                return
            if time.monotonic() >= began + _MAX_BATCH_SECONDS:
                self._wake.set()
                self._queued.set()
                return
            self._queue.pop(item, None)
            self._requeue_at.pop(item, None)
            await self._reconcile(item)
            self._last_passes[item.key.namespace] = time.monotonic()
            self._resyncing.discard(item)
            self._end_resync()
            # Where nothing is written, nothing else waits: the lease and the cycles must run between two HyperJobs.
            await asyncio.sleep(0)

    def _in_turns(self, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Return *items* with the namespaces in turn, beginning with the one whose last pass is the oldest."""
        namespaces = {item.key.namespace for item in items}
        self._last_passes = {name: at for name, at in self._last_passes.items() if name in namespaces}
        turns: Counter[str] = Counter()
        ranks: dict[WorkItem, tuple[int, float]] = {}
        for item in items:
            ranks[item] = turns[item.key.namespace], self._last_passes.get(item.key.namespace, 0.0)
            turns[item.key.namespace] += 1
        return sorted(items, key=ranks.__getitem__)

    def _end_resync(self) -> None:
        """End the resync in progress once all its items are processed."""
        if self._resync_began is not None and not self._resyncing:
            ended = time.monotonic()
            self._resync_at = ended + max(_RESYNC_FACTOR * (ended - self._resync_began), _RESYNC_SECONDS)
            self._resync_began = None

    def _ready(self, now: int) -> list[WorkItem]:
        blocked = {item for item, at in self._requeue_at.items() if at > now and item in self._backoffs}
        clock = time.monotonic()
        blocked |= {item for item in self._queue if self._next_pass_at.get(item, 0) > clock}
        due = [item for item in self._queue if item not in blocked]
        queued = frozenset(due)
        return due + [item for item, at in self._requeue_at.items() if at <= now and item not in queued]

    def _requeue_concerned(self) -> None:
        """Queue all unfinished HyperJobs after a change of bindings, and finished ones of which a part has moved."""
        self._must_resync = False
        for resource, collection in self._hyperjobs.items():
            for observed in collection:
                if not observed.status.is_finished or self._has_moved_part(observed):
                    self._queue[WorkItem(resource, observed.key)] = None

    def _has_moved_part(self, observed: ObservedHyperJob) -> bool:
        """Return whether the Job of a part would run again, because its binding left the cluster where it finished."""
        jobs, split = self.jobs(observed.uid), observed.status.split
        return any(
            has_moved(part, self.placement(observed.key.namespace, part.name))
            for part in (split.parts if split is not None else ())
            if part.name in jobs and not jobs[part.name].deleting
        )

    async def _reconcile(self, item: WorkItem) -> None:
        try:
            again_at = await self._reconciler.reconcile(item.resource, item.key)
        except (Conflict, NotFound) as error:
            log.info("hyperjob requeued", name=item.key.name, reason=str(error))
            self._requeue_with_backoff(item)
        except ApiError as error:
            log.warning("hyperjob not reconciled", namespace=item.key.namespace, name=item.key.name, error=str(error))
            self._requeue_with_backoff(item)
        except Exception:
            # The one outer guard: an error of one HyperJob must not stop the others or the admission.
            log.exception("hyperjob failed", namespace=item.key.namespace, name=item.key.name)
            self._requeue_with_backoff(item)
        else:
            self._backoffs.pop(item, None)
            if again_at is not None:
                self._requeue_at[item] = again_at
            observed = self.hyperjob(item.resource, item.key)
            if observed is not None:
                interval = _PASS_INTERVAL_PER_PART * (observed.status.split_count or 0)
                self._next_pass_at[item] = time.monotonic() + interval

    def _requeue_with_backoff(self, item: WorkItem) -> None:
        self._next_pass_at.pop(item, None)
        backoff = self._backoffs.setdefault(item, Backoff(initial=2, maximum=30))
        self._requeue_at[item] = self._clock() + int(backoff.next_delay() * 1000)

    async def _wait(self) -> None:
        """Wait for a change, or until the next item or a postponed resync is due."""
        if not self._can_work:
            # The lease may be confirmed again without a change of the leader, which wakes nothing.
            if await _is_set_within(self._wake, 0.5 if self._known else 60.0):
                await asyncio.sleep(_RESYNC_SECONDS if self._must_resync else 0)
            return
        rest = min(self._seconds_to_next_item(), self._seconds_to_resync() if self._must_resync else 60.0)
        if await _is_set_within(self._wake, rest) and self._must_resync:
            await _is_set_within(self._queued, min(self._seconds_to_next_item(), self._seconds_to_resync()))

    def _seconds_to_next_item(self) -> float:
        now, clock = self._clock(), time.monotonic()
        seconds = [(at - now) / 1000 for at in self._requeue_at.values()]
        seconds += [self._next_pass_at[item] - clock for item in self._queue if item in self._next_pass_at]
        return min(max(min(seconds, default=60.0), 0.02), 60.0)

    def _seconds_to_resync(self) -> float:
        return max(self._resync_at - time.monotonic(), 0.02)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for *event*, at most that long; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def hyperjob_dependencies(
    store: Store,
    engine: Callable[[], Engine],
    configuration: Callable[[], VolcanoGlobalConfiguration],
    *,
    may_write: Callable[[], bool],
) -> HyperJobDependencies:
    """Return the dependencies, from the engine's clusters and queues and from *store*."""
    return HyperJobDependencies(
        may_write=may_write,
        capacity=lambda: capacity_snapshot(engine(), configuration(), store.hyperjob_data),
        binding=store.bindings.get,
        pending_reason=lambda uid: _part_reason(engine(), uid),
        hyperjob_changed=store.hyperjob_changed,
    )


def _reported_phase(binding: CachedBinding) -> PartPhase:
    """Return the phase of a placed part by the reports of its clusters."""
    placed = {target.name for target in binding.targets}
    reported = [progress for progress in binding.progress if progress.cluster in placed]
    if is_finished(binding):
        return "Failed" if any(progress.failed for progress in reported) else "Completed"
    return "Running" if any(progress.phase is WorkloadPhase.RUNNING for progress in reported) else "Admitted"


def _part_reason(engine: Engine, uid: WorkloadUid) -> PendingReason | None:
    """Return why a part is pending, without the names of workloads of other namespaces."""
    refusal = engine.refusal(uid)
    if refusal is None:
        return None
    return pending_reason(redacted_refusal(refusal, same_namespace(engine.workloads[uid].namespace)))
