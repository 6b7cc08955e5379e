"""Writes the status of Queues after changes, at most once in 10 seconds for each queue."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import structlog

from controller.api.keys import QUEUES
from controller.cache.objects import CachedQueue, WorkloadPhase
from controller.cache.store import Store
from controller.controllers.queue_status.counts import (
    WorkloadCounts,
    count_workloads,
    queue_counts,
    queue_usage,
    status_patch,
)
from controller.engine.engine import Engine
from controller.engine.state.workloads import Workload
from controller.kube.client import Api
from controller.kube.errors import ApiError, Conflict, NotFound
from controller.kube.timing import Backoff, wait_until_idle

#: Minimum interval between two statuses of one queue.
_INTERVAL_SECONDS = 10.0

#: Longest time for which statuses wait until decisions are written.
_MAX_DELAY_SECONDS = 5.0

#: Workloads that are counted without a pause for decisions: some milliseconds.
_SLICE = 5_000

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class QueueStatusDependencies:
    """The parts of the controller that the queue status controller needs."""

    engine: Callable[[], Engine]
    may_write: Callable[[], bool]
    is_enabled: Callable[[], bool]
    """Whether the configuration switches the statuses of queues on."""
    is_busy: Callable[[], bool]
    """Whether decisions wait to be written; they have priority."""


class QueueStatusController:
    """Writes the statuses of queues while ``run`` is running."""

    def __init__(self, api: Api, store: Store, dependencies: QueueStatusDependencies) -> None:
        self._api = api
        self._store = store
        self._dependencies = dependencies
        self._backoff = Backoff(initial=1, maximum=60)
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Compare the statuses again after a plan or a write."""
        self._wake.set()

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        while True:
            await self._wake.wait()
            await wait_until_idle(self._dependencies.is_busy, seconds=_MAX_DELAY_SECONDS)
            self._wake.clear()
            delay = 0.0
            if self._is_active and await self._write_all():
                # Those that were rejected are tried again, after the others.
                self._wake.set()
                delay = self._backoff.next_delay()
            await asyncio.sleep(max(delay, _INTERVAL_SECONDS))

    @property
    def _is_active(self) -> bool:
        needed = self._dependencies
        return needed.may_write() and needed.is_enabled() and self._store.is_complete

    async def _write_all(self) -> int:
        """Write all statuses that have changed; return how many the API server rejected."""
        engine = self._dependencies.engine()
        quota = engine.current_quota
        if quota is None or engine.queue_shares is None:
            return 0
        usage, workloads = engine.current_usage, tuple(engine.workloads.values())
        counted = WorkloadCounts()
        for first in range(0, len(workloads), _SLICE):
            counted += count_workloads(workloads[first : first + _SLICE], self._is_running)
            await asyncio.sleep(0)
        patches = [
            (queue, status_patch(queue, queue_counts(queue.key, counted, queue_usage(queue.key, quota, usage))))
            for queue in sorted(self._store.queues, key=lambda queue: queue.key)
        ]
        rejected = 0
        for queue, patch in patches:
            if patch is not None and self._dependencies.may_write():
                rejected += not await self._write(queue, msgspec.json.encode(patch))
        return rejected

    def _is_running(self, workload: Workload) -> bool:
        binding = self._store.binding(workload.uid)
        progress = binding.progress if binding is not None else ()
        return any(cluster.phase is WorkloadPhase.RUNNING for cluster in progress)

    async def _write(self, queue: CachedQueue, patch: bytes) -> bool:
        """Write one status; return whether the API server did not reject it."""
        try:
            await self._api.patch(f"{QUEUES.item_path('', queue.key)}/status", patch, kind="merge")
        except Conflict:
            self._wake.set()
        except NotFound:
            pass
        except ApiError as error:
            log.warning("queue status not written", queue=queue.key, error=str(error))
            if error.is_rejection:
                return False
            self._wake.set()
            await asyncio.sleep(self._backoff.next_delay(at_least=error.retry_after))
        else:
            self._backoff.reset()
        return True
