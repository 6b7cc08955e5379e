"""Sends decisions to the API server: one patch per decision, at a limited rate, never two at once for one binding.

A decision stays charged until its outcome is known. Retries of one write are at least a second apart.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from controller.cache.objects import CachedBinding, is_finished
from controller.cache.store import Store
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import WorkloadUid
from controller.kube.client import Api
from controller.kube.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    QuotaExceeded,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from controller.kube.timing import Backoff, Clock, wall_clock
from controller.kube.watch_events import DECODE_ERRORS, read_meta
from controller.reporting.metrics import ControllerMetrics
from controller.scheduling.writes import Write

#: Slots that were missed while the event loop was busy may be used for so long at least, in seconds.
_MIN_BURST_SECONDS = 0.1

#: Maximum number of decisions that are not sent yet; it keeps decisions fresh and cycles short.
_MAX_UNSENT_WRITES = 256
#: At a limited rate only those of about a second, because unsent decisions hold capacity and ignore later priorities,
#: but so many at least.
_MIN_UNSENT_WRITES = 32

#: A decision that the API server does not accept for so long is rolled back and decided again, in seconds.
STALE_SECONDS = 30
_MAX_RETRY_STATES = 10_000
log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of writes; *per_second* 0 means no limit."""

    in_flight: int = 32
    per_second: int = 0
    burst: int = 1
    """How many writes may be sent at once after a pause."""

    @property
    def burst_seconds(self) -> float:
        """For how long unused slots may be used later."""
        return max((self.burst - 1) / self.per_second, _MIN_BURST_SECONDS)


class RateLimiter:
    """Grants permission to send; calls *on_available* when the rate allows the next request."""

    def __init__(self, on_available: Callable[[], None]) -> None:
        self.limits = RateLimits()
        self._on_available = on_available
        self._in_flight = 0
        self._slot_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def try_acquire(self) -> bool:
        """Return whether a request may be sent now, and count it if so."""
        if self._in_flight >= self.limits.in_flight or not self._acquire_slot():
            return False
        self._in_flight += 1
        return True

    def release(self) -> None:
        """Note that a request has ended."""
        self._in_flight -= 1

    def _acquire_slot(self) -> bool:
        if not self.limits.per_second:
            return True
        now = time.monotonic()
        if now < self._slot_at:
            self._start_timer(self._slot_at - now)
            return False
        self._slot_at = max(self._slot_at, now - self.limits.burst_seconds) + 1 / self.limits.per_second
        return True

    def _start_timer(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._on_available()


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A write whose outcome is not known yet."""

    write: Write
    submitted_at: float
    backoff: Backoff
    unknown_until: float | None = None
    """Set while the outcome of the patch is unknown; after this time the server has given it up."""


@dataclass(slots=True)
class RetryState:
    """Backoff of a binding after rejected writes; *until* is in milliseconds."""

    backoff: Backoff
    until: int = 0


class Actuator:
    """Sends submitted writes and retries them until their outcome is known, while ``run`` is running."""

    def __init__(
        self,
        api: Api,
        store: Store,
        *,
        metrics: ControllerMetrics,
        may_write: Callable[[], bool],
        clock: Clock = wall_clock,
    ) -> None:
        self.retries: partial[Backoff] = partial(Backoff, initial=2, maximum=10)
        """Creates the backoff between the requests of one write."""
        self.on_write_confirmed: list[Callable[[Write, CachedBinding], None]] = []
        """Called with every write whose effect was observed; they must not block."""
        self._api = api
        self._store = store
        self._metrics = metrics
        self._may_write = may_write
        self._clock = clock
        self._unsent: deque[PendingWrite] = deque()
        self._in_progress: dict[WorkloadUid, deque[PendingWrite]] = {}
        """The writes in progress by binding, each with the later writes to the same binding."""
        self._rate_limiter = RateLimiter(self._dispatch)
        self._retry_states: dict[WorkloadUid, RetryState] = {}
        """Bindings whose last write was rejected."""
        self._in_flight = 0
        self._unknown_until = float("-inf")
        self._dropped_at = float("-inf")
        """When unsent writes were dropped last, on the monotonic clock."""
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()

    def next_write_at(self, uid: WorkloadUid) -> int | None:
        """Return the earliest time for a new write to *uid*, in milliseconds; ``None`` while a write is in progress."""
        if uid in self._in_progress:
            return None
        return self._retry_states[uid].until if uid in self._retry_states else 0

    @property
    def in_progress(self) -> int:
        """Return the number of bindings with a write in progress."""
        return len(self._in_progress)

    @property
    def backlog(self) -> int:
        """Return the number of writes that were not sent yet."""
        return len(self._unsent)

    @property
    def max_backlog(self) -> int:
        """Return how many writes may wait to be sent."""
        per_second = self._rate_limiter.limits.per_second or _MAX_UNSENT_WRITES
        return min(max(per_second, _MIN_UNSENT_WRITES), _MAX_UNSENT_WRITES)

    @property
    def drained_at(self) -> float:
        """Return the monotonic time after which no request that was sent can still take effect."""
        return math.inf if self._in_flight else self._unknown_until

    @property
    def is_drained(self) -> bool:
        """Return whether no request that was sent can still take effect."""
        return time.monotonic() >= self.drained_at

    @property
    def may_write(self) -> bool:
        """Return whether this process is the leader and may write."""
        return self._may_write()

    def submit(self, write: Write) -> None:
        """Queue *write*; it is sent after earlier writes to the same binding."""
        pending = PendingWrite(write, time.monotonic(), self.retries())
        if write.uid in self._in_progress:
            self._in_progress[write.uid].append(pending)
            return
        self._in_progress[write.uid] = deque()
        self._enqueue(pending)

    def limit(self, limits: RateLimits) -> None:
        """Replace the rate limits."""
        self._rate_limiter.limits = limits
        self._dispatch()

    async def run(self) -> None:
        """Send submitted writes until ``stop`` is called, then wait for requests in flight."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._dispatch()
            await self._stopping.wait()

    def drop_unsent(self) -> None:
        """Forget decisions that were not sent yet, after losing leadership.

        Those that wait for a retry, or for an earlier write to their binding, are dropped when it is their turn.
        """
        self._dropped_at = time.monotonic()
        unsent = [pending for pending in self._unsent if pending.unknown_until is None]
        self._unsent = deque(pending for pending in self._unsent if pending.unknown_until is not None)
        for pending in unsent:
            self._forget(pending)

    def stop(self) -> None:
        """Stop sending writes."""
        self._stopping.set()

    def _enqueue(self, pending: PendingWrite) -> None:
        self._unsent.append(pending)
        self._dispatch()

    def _dispatch(self) -> None:
        """Start as many pending writes as the rate limits allow."""
        while self._group is not None and (pending := self._next_unsent()) is not None:
            self._group.create_task(self._send_writes(pending))

    def _next_unsent(self) -> PendingWrite | None:
        """Return the next write to send now, ``None`` if there is none or the rate limits do not allow it."""
        is_allowed = self._unsent and not self._stopping.is_set() and self._rate_limiter.try_acquire()
        return self._unsent.popleft() if is_allowed else None

    async def _send_writes(self, pending: PendingWrite | None) -> None:
        """Send *pending* and then, in the same task, further writes for as long as there are any to send now."""
        while pending is not None:
            await self._process(pending)
            pending = self._next_unsent()

    async def _process(self, pending: PendingWrite) -> None:
        """Send the next request of *pending*, then schedule a retry or the next write to the binding."""
        try:
            delay = await (self._send(pending) if pending.unknown_until is None else self._resolve_unknown(pending))
        finally:
            self._rate_limiter.release()
        if delay is not None:
            asyncio.get_running_loop().call_later(delay, self._enqueue, pending)
        elif later := self._in_progress.pop(pending.write.uid, None):
            following = later.popleft()
            self._in_progress[following.write.uid] = later
            self._enqueue(following)

    def _forget(self, pending: PendingWrite) -> None:
        """Forget a write that was not sent and all later writes to its binding."""
        self._in_progress.pop(pending.write.uid)
        self._store.roll_back(pending.write.uid, None)

    # -- outcome of one write ----------------------------------------------

    async def _send(self, pending: PendingWrite) -> float | None:
        """Send the patch; return the seconds until a retry, or ``None`` if the write is finished."""
        if not self.may_write or pending.submitted_at <= self._dropped_at or self._is_obsolete(pending.write):
            self._forget(pending)
            return None
        began = time.monotonic()
        self._in_flight += 1
        try:
            binding = await self._patch(pending.write)
        except ApiError as error:
            self._count(pending.write, error.metric_label, began)
            return await self._on_error(pending, error)
        except asyncio.CancelledError:
            self._unknown_until = math.inf
            raise
        finally:
            self._in_flight -= 1
        self._count(pending.write, "done", began)
        self._confirm(pending.write, binding)
        return None

    def _is_obsolete(self, write: Write) -> bool:
        """Return whether the binding has changed so that *write* must not be sent any more.

        A write may wait for the rate limit, an earlier write or a retry. Meanwhile the workload that it evicts has
        finished, and would run again, or has started; or the nomination or reservation that it ends was rejected.
        """
        binding = self._store.binding(write.uid)
        if binding is None:
            return False
        if write.effect == "hold":
            return not write.recorded and write.is_done(binding)
        has_run = write.unless_run and self._store.start_failures.has_run(binding)
        return write.effect == "evict" and (is_finished(binding) or has_run)

    async def _patch(self, write: Write) -> CachedBinding:
        """Patch the binding. This is the only place where decisions are written."""
        if write.subresource:
            raw = await self._api.patch(f"{write.path}/{write.subresource}", write.patch, kind="merge")
            return self._decode(write, raw)
        return self._decode(write, await self._api.patch(write.path, write.patch))

    async def _on_error(self, pending: PendingWrite, error: ApiError) -> float | None:
        match error:
            case TooManyRequests() | Unreachable(sent=False):
                return self._retry(pending, error)
            case ServerError() | Unreachable():
                pending.unknown_until = time.monotonic() + self._api.timeouts.write + self._api.timeouts.grace
                self._unknown_until = pending.unknown_until
                log.warning("patch outcome unknown", workload=pending.write.workload, error=str(error))
                return pending.backoff.next_delay(at_least=error.retry_after)
            case Invalid() | Conflict():
                await self._resolve_conflict(pending.write, error)
            case NotFound():
                self._withdraw(pending.write, "it is gone")
            case QuotaExceeded():
                self._withdraw(pending.write, f"Karmada rejected it: {error.quota}")
            case _:
                self._report_rejected(pending.write, error)
        return None

    def _retry(self, pending: PendingWrite, error: ApiError) -> float | None:
        """Return the delay before an unprocessed request is sent again; its decision stays charged meanwhile."""
        if time.monotonic() - pending.submitted_at > STALE_SECONDS:
            self._withdraw(pending.write, str(error))
            return None
        return pending.backoff.next_delay(at_least=error.retry_after)

    async def _resolve_conflict(self, write: Write, error: ApiError) -> None:
        """Read the binding after a conflict, to distinguish a changed binding from a rejected patch."""
        try:
            binding = await self._read(write)
        except ApiError as unread:
            self._withdraw(write, str(unread))
            return
        if write.is_done(binding):
            self._confirm(write, binding)
        elif binding.uid == write.uid and binding.resource_version == write.resource_version:
            self._report_rejected(write, error)
        else:
            self._metrics.count_conflict()
            self._withdraw(write, "it has changed")

    async def _resolve_unknown(self, pending: PendingWrite) -> float | None:
        """Read the binding after a request without an answer; until then the write counts as done."""
        write = pending.write
        try:
            binding = await self._read(write)
        except NotFound:
            self._withdraw(write, "it is gone")
            return None
        except ApiError as error:
            return pending.backoff.next_delay(at_least=error.retry_after)
        if write.is_done(binding):
            self._confirm(write, binding)
        elif binding.uid == write.uid and time.monotonic() < (pending.unknown_until or 0):
            return pending.backoff.next_delay()
        else:
            self._withdraw(write, "the patch was not carried out")
        return None

    async def _read(self, write: Write) -> CachedBinding:
        binding = self._decode(write, await self._api.get(write.path))
        self._update_cache(binding)
        return binding

    def _decode(self, write: Write, body: bytes) -> CachedBinding:
        known = self._store.binding(write.uid)
        try:
            if (
                known is not None
                and known.resource_version > write.resource_version
                and write.is_done(known)
                and read_meta(body).resource_version == str(known.resource_version)
            ):
                # The event of this write was faster than its response.
                return known
            return self._store.bindings.decode(body)
        except DECODE_ERRORS as error:
            raise Unreachable(write.path, f"the response is not a binding: {error}") from error

    def _update_cache(self, binding: CachedBinding) -> None:
        (self._store.bindings if binding.namespace else self._store.cluster_bindings).upsert(binding)

    def _confirm(self, write: Write, binding: CachedBinding) -> None:
        self._update_cache(binding)
        self._store.confirm(write.uid, binding.resource_version)
        self._retry_states.pop(write.uid, None)
        for handler in self.on_write_confirmed:
            handler(write, binding)
        if write.effect == "admit":
            self._metrics.count_admission(
                write.queue, priority_class=write.priority_class, wait_seconds=write.wait_seconds
            )
            log.info("workload admitted", workload=write.workload, queue=write.queue, clusters=write.clusters)
        elif write.effect == "evict":
            self._metrics.count_eviction(write.queue, write.reason)
            log.info("workload evicted", workload=write.workload, queue=write.queue, reason=write.reason)

    def _report_rejected(self, write: Write, error: ApiError) -> None:
        """Log a rejected write as an error: a permission or a policy must be changed before a retry can succeed."""
        log.error("patch rejected", workload=write.workload, effect=write.effect, error=str(error))
        self._withdraw(write, str(error))

    def _withdraw(self, write: Write, why: str) -> None:
        """Roll back the assumed decision; the workload is retried after a delay that grows with each rejection."""
        retry_state = self._retry_states.setdefault(write.uid, RetryState(Backoff(initial=2, maximum=60)))
        retry_state.until = self._clock() + round(retry_state.backoff.next_delay() * 1000)
        while len(self._retry_states) > _MAX_RETRY_STATES:
            del self._retry_states[next(iter(self._retry_states))]
        log.warning("decision rolled back", workload=write.workload, effect=write.effect, reason=why)
        self._store.roll_back(write.uid, Refusal(Reason.STARTUP_BACKOFF, subject=why, until=retry_state.until))

    def _count(self, write: Write, outcome: str, began: float) -> None:
        self._metrics.count_patch(write.effect, outcome, seconds=time.monotonic() - began)
