"""Writes why a Volcano Job is pending into its status, until its cluster reports.

A status is written when the class of the reason changes, at the rate of events and after the decisions; the namespaces
take turns. A reason that the status shows already is not written again, so a new leader writes nothing.
"""

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import structlog

from controller.api.keys import JOBS
from controller.cache.objects import (
    VOLCANO_JOB,
    BindingCondition,
    CachedBinding,
    CachedTemplate,
    StatusReason,
    TemplateKey,
)
from controller.cache.store import Store
from controller.cache.unapplied_works import is_refused_unstarted
from controller.controllers.job_status.pending_status import (
    PendingStatus,
    admitted_status,
    can_publish,
    is_evicted,
    is_settled,
    is_unselected,
    refused_status,
    status_patch,
    unselected_status,
)
from controller.engine.engine import Engine
from controller.engine.plan import Wait
from controller.engine.reasons import Reason
from controller.engine.state.workloads import WorkloadState
from controller.kube.client import Api
from controller.kube.errors import ApiError, Conflict, NotFound
from controller.kube.events import EventMessage, Reference
from controller.kube.timing import Backoff, Clock, wait_until_idle
from controller.scheduling.writes import Write

#: Interval at which jobs without a binding are checked, in seconds.
_UNBOUND_POLL_SECONDS = 5.0

#: Interval at which a job is checked again whose status cannot be written yet, or has changed meanwhile.
_RETRY_MS = 2_000

#: Interval at which a status is tried again that the API server rejects, for example because the job is invalid.
_REJECTED_RETRY_MS = 60_000

#: Minimum interval between two statuses of one job, as for its events.
_MIN_REPEAT_MS = 10_000

#: Longest time for which statuses wait until decisions are written.
_MAX_DELAY_SECONDS = 5.0

_MAX_REMEMBERED = 10_000

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class JobStatusDependencies:
    """The parts of the controller that the job status controller needs."""

    engine: Callable[[], Engine]
    may_write: Callable[[], bool]
    is_enabled: Callable[[], bool]
    """Whether the configuration switches the statuses of pending jobs on."""
    is_busy: Callable[[], bool]
    """Whether decisions wait to be written; they have priority."""
    record_event: Callable[[EventMessage], None]
    per_second: float
    """Statuses per second; 0 disables them."""


class JobStatusController:
    """Writes the statuses of pending Volcano Jobs while ``run`` is running."""

    def __init__(self, api: Api, store: Store, dependencies: JobStatusDependencies, *, clock: Clock) -> None:
        self._api = api
        self._store = store
        self._dependencies = dependencies
        self._clock = clock
        self._was_enabled = dependencies.is_enabled()
        self._statuses: dict[TemplateKey, PendingStatus] = {}
        """Statuses that are not written yet."""
        self._due: list[tuple[int, TemplateKey]] = []
        """Heap of the later times at which they are written."""
        self._turns: OrderedDict[str, deque[tuple[int, TemplateKey]]] = OrderedDict()
        """Entries whose time has come, by namespace; the first one has its turn."""
        self._due_at: dict[TemplateKey, int] = {}
        """Current entry of each job; other entries of the job are obsolete."""
        self._retry_at: dict[TemplateKey, int] = {}
        """Earliest next attempt of each job with a rejected write."""
        self._reported: dict[str, bool] = {}
        """Jobs without a policy whose event was recorded, by uid, and whether their status was queued."""
        self._written_at: OrderedDict[TemplateKey, int] = OrderedDict()
        self._backoff = Backoff(initial=2, maximum=30)
        self._wake = asyncio.Event()
        store.on_conditions.append(self._on_conditions)
        store.on_status_removed.append(self._on_status_removed)

    def configure(self) -> None:
        """Queue all pending reasons if the configuration has just enabled the statuses: the engine repeats none."""
        was_enabled, self._was_enabled = self._was_enabled, self._dependencies.is_enabled()
        if was_enabled or not self._is_active:
            return
        self._reported = dict.fromkeys(self._reported, False)
        self.on_leading()
        engine = self._dependencies.engine()
        pending = (workload for workload in engine.workloads.values() if workload.state is WorkloadState.PENDING)
        for queue in sorted({workload.queue for workload in pending}):
            waits = enumerate(engine.pending_workloads(queue), start=1)
            self.on_waits(
                Wait(workload, refusal, position)
                for position, workload in waits
                if (refusal := engine.refusal(workload.uid)) is not None
            )

    def on_waits(self, waits: Iterable[Wait]) -> None:
        """Queue the pending reasons that the statuses do not show yet."""
        if not self._is_active:
            return
        now = self._clock()
        for wait in waits:
            binding = self._store.binding(wait.workload.uid)
            if binding is not None and binding.template.kind == VOLCANO_JOB:
                self._queue(binding.template, PendingStatus(wait.refusal.reason, wait, now))

    def on_write(self, write: Write, binding: CachedBinding) -> None:
        """Queue that *binding* is admitted: its cluster reports after seconds."""
        if self._is_active and write.effect == "admit" and binding.template.kind == VOLCANO_JOB:
            self._queue(binding.template, admitted_status(binding, self._clock()))

    def _on_conditions(self, binding: CachedBinding, conditions: frozenset[BindingCondition]) -> None:
        """Queue why an admitted job does not start, if a cluster refuses it."""
        if BindingCondition.WORK_NOT_APPLIED not in conditions or binding.template.kind != VOLCANO_JOB:
            return
        if self._is_active and is_refused_unstarted(binding):
            self._queue(binding.template, refused_status(binding, self._clock()))

    def _on_status_removed(self, key: TemplateKey) -> None:
        """Queue the pending reason again: with each change of a job that ran before, Karmada removes its status.

        Its stale status may have been corrected after the reason was dropped, for example where others placed the job.
        """
        binding, engine = self._store.binding_of(key), self._dependencies.engine()
        workload = engine.workloads.get(binding.uid) if binding is not None else None
        if workload is None or workload.state is not WorkloadState.PENDING:
            return
        refusal = engine.refusal(workload.uid)
        if refusal is not None:
            self.on_waits([Wait(workload, refusal, 0)])  # the status does not show the position

    def on_leading(self) -> None:
        """Queue the statuses of admitted jobs that clusters refuse: the store repeats no condition."""
        for uid, conditions in self._store.conditions.items():
            binding = self._store.binding(uid)
            if binding is not None:
                self._on_conditions(binding, conditions)

    def clear(self) -> None:
        """Drop queued statuses after losing leadership."""
        self._statuses.clear()
        self._due.clear()
        self._turns.clear()
        self._due_at.clear()
        self._retry_at.clear()
        self._reported = dict.fromkeys(self._reported, False)

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_unselected())
            while True:
                await self._wait_until_due()
                key = self._pop_due()
                if key in self._statuses:
                    await self._reconcile(key)
        raise AssertionError("the job status controller runs until it is cancelled")

    @property
    def _is_active(self) -> bool:
        needed = self._dependencies
        return bool(needed.per_second) and needed.is_enabled() and needed.may_write()

    def _queue(self, key: TemplateKey, status: PendingStatus) -> None:
        job = self._store.jobs.get(key)
        if job is not None and job.published_reason == status.reason:
            self._statuses.pop(key, None)
            return
        known = self._statuses.get(key)
        self._statuses[key] = status
        if status.reason == StatusReason.ADMITTED:
            self._push(status.since, key)
        elif known is None or status.is_admitted:
            # Karmada removes the status of a job that is refused, after it has reported the refusal.
            since = status.since + (_RETRY_MS if status.is_admitted else 0)
            self._push(max(since, self._written_at.get(key, -_MIN_REPEAT_MS) + _MIN_REPEAT_MS), key)

    def _push(self, at: int, key: TemplateKey) -> None:
        at = max(at, self._retry_at.get(key, at))
        self._due_at[key] = at
        if at <= self._clock():
            self._begin_turn(at, key)
        else:
            heapq.heappush(self._due, (at, key))
        self._wake.set()

    def _retry(self, key: TemplateKey, delay: int) -> None:
        """Write the status of a job again, not before *delay* milliseconds."""
        self._retry_at[key] = self._clock() + delay
        self._push(self._retry_at[key], key)

    async def _wait_until_due(self) -> None:
        """Wait until a status is due, and while decisions are written."""
        while True:
            self._wake.clear()
            while self._due and self._due[0][0] <= self._clock():
                self._begin_turn(*heapq.heappop(self._due))
            if self._turns:
                break
            seconds = (self._due[0][0] - self._clock()) / 1000 if self._due else None
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue
        await wait_until_idle(self._dependencies.is_busy, seconds=_MAX_DELAY_SECONDS)

    def _begin_turn(self, at: int, key: TemplateKey) -> None:
        self._turns.setdefault(key.namespace, deque()).append((at, key))

    def _pop_due(self) -> TemplateKey | None:
        """Return the next job that is due; none for an obsolete entry, or where leadership was lost meanwhile."""
        if not self._turns:
            return None
        namespace, entries = self._turns.popitem(last=False)
        at, key = entries.popleft()
        if entries:
            self._turns[namespace] = entries
        if self._due_at.get(key) != at:
            return None
        del self._due_at[key]
        self._retry_at.pop(key, None)
        return key

    async def _reconcile(self, key: TemplateKey) -> None:
        """Write the status of one job, or keep it queued where it cannot be written yet."""
        job, binding, status = self._store.jobs.get(key), self._store.binding_of(key), self._statuses[key]
        if (
            job is None
            or not self._is_active
            or job.published_reason == status.reason
            or self._is_obsolete(status, key)
        ):
            del self._statuses[key]
        elif can_publish(job, binding, status.reason) and is_settled(status, binding):
            await self._write(job, status)
            await asyncio.sleep(1 / self._dependencies.per_second)
        elif binding is not None and (is_evicted(binding) or not is_settled(status, binding)):
            # It has not left its clusters, its stale status is not corrected, or the written decision is not observed.
            self._push(self._clock() + _RETRY_MS, key)
        else:
            del self._statuses[key]

    def _is_obsolete(self, status: PendingStatus, key: TemplateKey) -> bool:
        """Return whether the job was admitted or evicted, or has got a binding, since the status was queued."""
        binding = self._store.binding_of(key)
        if binding is None:
            return status.reason != Reason.NO_MATCHING_POLICY
        workload = self._dependencies.engine().workloads.get(binding.uid)
        expected = WorkloadState.ADMITTED if status.is_admitted else WorkloadState.PENDING
        return workload is None or workload.state is not expected

    async def _write(self, job: CachedTemplate, status: PendingStatus) -> None:
        path = f"{JOBS.item_path(job.key.namespace, job.key.name)}/status"
        try:
            await self._api.patch(path, msgspec.json.encode(status_patch(job, status)), kind="merge")
        except Conflict:
            self._retry(job.key, _RETRY_MS)
            return
        except NotFound:
            pass
        except ApiError as error:
            log.warning("job status not written", namespace=job.key.namespace, name=job.key.name, error=str(error))
            if error.is_rejection:
                self._retry(job.key, _REJECTED_RETRY_MS)
                return
            delay = self._backoff.next_delay(at_least=error.retry_after)
            self._retry(job.key, int(delay * 1000))
            await asyncio.sleep(delay)
            return
        self._backoff.reset()
        self._written_at[job.key] = self._clock()
        self._written_at.move_to_end(job.key)
        if len(self._written_at) > _MAX_REMEMBERED:
            self._written_at.popitem(last=False)
        if self._statuses.get(job.key) == status:
            del self._statuses[job.key]
        elif job.key in self._statuses:
            self._push(self._clock() + _MIN_REPEAT_MS, job.key)

    async def _report_unselected(self) -> NoReturn:
        """Report jobs that no policy selects, once each."""
        while True:
            await asyncio.sleep(_UNBOUND_POLL_SECONDS)
            if self._dependencies.may_write() and self._store.is_complete:
                now, unbound = self._clock(), self._store.unbound_jobs
                jobs = [job for key in unbound if (job := self._store.jobs.get(key)) is not None]
                self._reported = {job.uid: self._reported[job.uid] for job in jobs if job.uid in self._reported}
                for job in jobs:
                    if can_publish(job, None) and is_unselected(job, unbound, now):
                        self._report(job, unselected_status(now))

    def _report(self, job: CachedTemplate, status: PendingStatus) -> None:
        """Record the event once, and queue the status once the statuses are enabled."""
        if job.published_reason == status.reason:
            return
        is_queued = self._reported.get(job.uid)
        if is_queued is None:
            about = Reference(JOBS.api_version, JOBS.kind, job.key.namespace, job.key.name, job.uid)
            self._dependencies.record_event(
                EventMessage(job.uid, "warned", "Wait", status.reason, (about,), status.message, "Warning")
            )
        if not is_queued and self._is_active:
            self._queue(job.key, status)
        self._reported[job.uid] = is_queued or self._is_active
