"""Corrects the stale status of evicted workloads after they have left their clusters.

Evicted workloads are found by their records, so that a new leader continues. Workloads that others have evicted, or
placed before their admission, are corrected in the same way.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import msgspec
import structlog

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, JOBS, RESOURCE_BINDINGS
from controller.api.meta import decode_deeply_nested
from controller.cache.objects import VOLCANO_JOB, CachedBinding
from controller.cache.store import Store
from controller.controllers.stale_status.patches import (
    binding_status_patch,
    has_left_clusters,
    job_status_patch,
)
from controller.engine.state.workloads import WorkloadUid
from controller.kube.client import Api
from controller.kube.errors import ApiError, Conflict, NotFound
from controller.kube.timing import Backoff, Clock
from controller.scheduling.writes import Write

#: Interval at which workloads that have not left their clusters yet are checked, in seconds.
_POLL_SECONDS = 1.0

#: Interval at which a status is tried again that the API server rejects, for example because the job is invalid.
_REJECTED_RETRY_MS = 60_000

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class StaleStatusController:
    """Corrects the status of evicted workloads while ``run`` is running."""

    def __init__(self, api: Api, store: Store, *, may_write: Callable[[], bool], clock: Clock) -> None:
        self._api = api
        self._store = store
        self._may_write = may_write
        self._clock = clock
        self._to_correct = dict[WorkloadUid, int]()
        """The workloads to correct, and the time before which they are not tried."""
        self._needs_listing = False
        """Whether this process became the leader and has not listed evicted workloads yet."""
        self._backoff = Backoff(initial=1, maximum=60)
        self._wake = asyncio.Event()

    def on_write(self, write: Write, binding: CachedBinding) -> None:
        """Queue the workload that *write* evicts, clears or records as evicted; ignore other writes."""
        if write.effect in {"evict", "clear"} or (write.effect == "note" and _was_evicted(binding)):
            self._to_correct[write.uid] = 0
            self._wake.set()

    def on_leading(self) -> None:
        """Queue all workloads that were evicted before this process became the leader."""
        self._needs_listing = True
        self._wake.set()

    async def run(self) -> NoReturn:
        """Correct stale statuses until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (self._to_correct or self._needs_listing) and self._may_write():
                self._list_evicted()
                await self._reconcile_all()
                await asyncio.sleep(_POLL_SECONDS)

    def _list_evicted(self) -> None:
        """Queue the evicted workloads of earlier leaders, once the cache is complete."""
        if not self._needs_listing or not self._store.is_complete:
            return
        self._needs_listing = False
        for bindings in (self._store.bindings, self._store.cluster_bindings):
            self._to_correct.update((binding.uid, 0) for binding in bindings if _was_evicted(binding))

    async def _reconcile_all(self) -> None:
        """Check every queued workload once; those that are still terminating or were changed meanwhile stay queued."""
        for uid, retry_at in tuple(self._to_correct.items()):
            if not self._may_write():
                return
            binding = self._store.binding(uid)
            if binding is None or not binding.is_suspended or binding.targets:
                del self._to_correct[uid]
            elif not binding.progress and not binding.evicting_from and retry_at <= self._clock():
                await self._reconcile(binding)

    async def _reconcile(self, binding: CachedBinding) -> None:
        # Not dropped at the end: it may be evicted again meanwhile.
        del self._to_correct[binding.uid]
        try:
            is_done = await self._patch_statuses(binding)
        except Conflict:
            is_done = False
        except NotFound:
            return
        except ApiError as error:
            log.warning("stale status not corrected", namespace=binding.namespace, name=binding.name, error=str(error))
            if error.is_rejection:
                self._to_correct.setdefault(binding.uid, self._clock() + _REJECTED_RETRY_MS)
                return
            is_done = False
            await asyncio.sleep(self._backoff.next_delay(at_least=error.retry_after))
        else:
            self._backoff.reset()
        if not is_done:
            self._to_correct.setdefault(binding.uid, 0)

    async def _patch_statuses(self, binding: CachedBinding) -> bool:
        """Correct the statuses of *binding*; return whether it has left its clusters, which the cache may not show."""
        kind = RESOURCE_BINDINGS if binding.namespace else CLUSTER_RESOURCE_BINDINGS
        path, job_path, job = kind.item_path(binding.namespace, binding.name), "", None
        if binding.template.kind == VOLCANO_JOB:
            # Read before the binding: a report after a new admission changes the job's version.
            job_path = JOBS.item_path(binding.template.namespace, binding.template.name)
            with suppress(NotFound):
                job = decode_deeply_nested(msgspec.json.decode, await self._api.get(job_path))
        manifest = decode_deeply_nested(msgspec.json.decode, await self._api.get(path))
        if not has_left_clusters(manifest):
            return False
        await self._patch(path, binding_status_patch(manifest, self._clock()))
        if job is not None:
            await self._patch(job_path, job_status_patch(job, self._clock()))
        return True

    async def _patch(self, path: str, patch: object) -> None:
        if patch is not None and self._may_write():
            await self._api.patch(f"{path}/status", msgspec.json.encode(patch), kind="merge")
            log.info("stale status corrected", path=path)


def _was_evicted(binding: CachedBinding) -> bool:
    """Return whether the binding is pending after an eviction."""
    record = binding.record
    return (
        binding.is_suspended and not binding.targets and record is not None and record.evictions + record.attempts > 0
    )
