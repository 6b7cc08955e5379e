"""Carries decisions out: one patch each, so many at once, and none twice for one binding.

What was decided stays charged until it is known what became of it. It never
asks more often than once a second about one binding, and decides nothing.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from controller.api_errors import QuotaExceeded
from controller.backoff import Backoff
from controller.cache.objects import CachedBinding
from controller.clock import Clock, wall_clock
from controller.engine.reasons import Reason, Refusal
from controller.engine.workloads import WorkloadUid
from controller.kube import (
    Api,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from controller.metrics import Metrics
from controller.rate_limiter import RateLimiter, RateLimits
from controller.write_queue import AssumedState, PendingWrite, RetryState
from controller.writes import Write

#: How long a decision may wait for a server that takes no writes before it is taken back and made anew.
STALE_SECONDS = 30

_MAX_RETRY_STATES = 10_000

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Actuator:
    """Takes writes and sees them through; ``run`` must be running."""

    def __init__(
        self,
        api: Api,
        books: AssumedState,
        *,
        metrics: Metrics,
        may_write: Callable[[], bool],
        clock: Clock = wall_clock,
    ) -> None:
        self.retries: partial[Backoff] = partial(Backoff, first=2, most=10)
        """How long an errand waits between its steps."""
        self.on_settled: Callable[[Write, CachedBinding], None] = _ignore_settled
        """Hears of each write whose effect is there; it is not to wait itself."""
        self._api = api
        self._books = books
        self._metrics = metrics
        self._may_write = may_write
        self._clock = clock
        self._waiting: deque[PendingWrite] = deque()
        self._under_way: dict[WorkloadUid, deque[Write]] = {}
        """By binding, what must wait until the errand for it is over."""
        self._throttle = RateLimiter(self._pump)
        self._refused: dict[WorkloadUid, RetryState] = {}
        """Whose write was refused, since it last worked."""
        self._in_flight = 0
        self._unknown_until = float("-inf")
        self._group: asyncio.TaskGroup | None = None
        self._finishing = asyncio.Event()

    def free_at(self, uid: WorkloadUid) -> int | None:
        """Return from when on a new write for *uid* makes sense; ``None`` while one is under way."""
        if uid in self._under_way:
            return None
        return self._refused[uid].until if uid in self._refused else 0

    @property
    def pending(self) -> int:
        """Return for how many bindings there is something under way."""
        return len(self._under_way)

    @property
    def backlog(self) -> int:
        """Return how many writes are not begun yet."""
        return len(self._waiting)

    @property
    def settled_at(self) -> float:
        """Return from when on nothing that was sent can take effect any more, on the monotonic clock."""
        return math.inf if self._in_flight else self._unknown_until

    @property
    def is_settled(self) -> bool:
        """Say whether nothing that was sent can take effect any more."""
        return time.monotonic() >= self.settled_at

    @property
    def may_write(self) -> bool:
        """Say whether it is our turn to write."""
        return self._may_write()

    def submit(self, write: Write) -> None:
        """Take *write*; it is sent after what is under way for the same binding."""
        if write.uid in self._under_way:
            self._under_way[write.uid].append(write)
            return
        self._under_way[write.uid] = deque()
        self._begin(write)

    def limit(self, limits: RateLimits) -> None:
        """Use *limits* from now on."""
        self._throttle.limits = limits
        self._pump()

    async def run(self) -> None:
        """Carry out what is submitted until told to finish, and wait for what is then in flight."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._pump()
            await self._finishing.wait()

    def abandon(self) -> None:
        """Take back what was not sent yet: somebody else decides now."""
        unsent = [errand for errand in self._waiting if errand.unknown_until is None]
        self._waiting = deque(errand for errand in self._waiting if errand.unknown_until is not None)
        for errand in unsent:
            self._drop(errand)

    def finish(self) -> None:
        """Send nothing more."""
        self._finishing.set()

    def _begin(self, write: Write) -> None:
        self._enqueue(PendingWrite(write, time.monotonic(), self.retries()))

    def _enqueue(self, errand: PendingWrite) -> None:
        self._waiting.append(errand)
        self._pump()

    def _pump(self) -> None:
        """Start as many errands as the limits allow."""
        if self._group is None or self._finishing.is_set():
            return
        while self._waiting and self._throttle.take():
            self._group.create_task(self._attend(self._waiting.popleft()))

    async def _attend(self, errand: PendingWrite) -> None:
        """Take the next step of *errand*, and see to what comes after it."""
        try:
            delay = await (self._send(errand) if errand.unknown_until is None else self._look(errand))
        finally:
            self._throttle.give_back()
        if delay is not None:
            asyncio.get_running_loop().call_later(delay, self._enqueue, errand)
        elif later := self._under_way.pop(errand.write.uid, None):
            following = later.popleft()
            self._under_way[following.uid] = later
            self._begin(following)
        self._pump()

    def _drop(self, errand: PendingWrite) -> None:
        """Forget an errand that was not begun, with all that would follow it; the decision is void."""
        self._under_way.pop(errand.write.uid)
        self._books.withdraw(errand.write.uid, None)

    # -- what becomes of one ----------------------------------------------

    async def _send(self, errand: PendingWrite) -> float | None:
        """Send the patch; return after how many seconds to come back, ``None`` when all is over."""
        if not self.may_write:
            self._drop(errand)
            return None
        began = time.monotonic()
        self._in_flight += 1
        try:
            facts = await self._patch(errand.write)
        except ApiError as error:
            self._count(errand.write, error.word, began)
            return await self._failed(errand, error)
        except asyncio.CancelledError:
            self._unknown_until = math.inf
            raise
        finally:
            self._in_flight -= 1
        self._count(errand.write, "done", began)
        self._settle(errand.write, facts)
        return None

    async def _patch(self, write: Write) -> CachedBinding:
        """Write to the API server: the one place where that is done."""
        if write.subresource:
            raw = await self._api.patch(f"{write.path}/{write.subresource}", write.patch, kind="merge")
            return self._understood(write, raw)
        return self._understood(write, await self._api.patch(write.path, write.patch))

    async def _failed(self, errand: PendingWrite, error: ApiError) -> float | None:
        match error:
            case TooManyRequests() | Unreachable(sent=False):
                return self._again(errand, error)
            case ServerError() | Unreachable():
                errand.unknown_until = time.monotonic() + self._api.timeouts.write + self._api.timeouts.grace
                self._unknown_until = errand.unknown_until
                log.warning("outcome unknown", workload=errand.write.workload, error=str(error))
                return errand.backoff.failed(at_least=error.retry_after)
            case Invalid() | Conflict():
                await self._compare(errand.write, error)
            case NotFound():
                self._withdraw(errand.write, "it is gone")
            case QuotaExceeded():
                self._withdraw(errand.write, f"Karmada's quota does not take it: {error.quota}")
            case _:
                self._alarm(errand.write, error)
        return None

    def _again(self, errand: PendingWrite, error: ApiError) -> float | None:
        """Send what was not even looked at once more: its room is kept, so that nobody passes it meanwhile."""
        if time.monotonic() - errand.begun > STALE_SECONDS:
            self._withdraw(errand.write, str(error))
            return None
        return errand.backoff.failed(at_least=error.retry_after)

    async def _compare(self, write: Write, error: ApiError) -> None:
        """Find out whether the patch was refused because the binding has changed, or for no reason we know."""
        try:
            facts = await self._read(write)
        except ApiError as unread:
            self._withdraw(write, str(unread))
            return
        if write.is_done(facts):
            self._settle(write, facts)
        elif facts.uid == write.uid and facts.resource_version == write.seen:
            self._alarm(write, error)
        else:
            self._metrics.count_conflict()
            self._withdraw(write, "it has changed")

    async def _look(self, errand: PendingWrite) -> float | None:
        """Find out what became of a patch that was not answered; until then it counts as done."""
        write = errand.write
        try:
            facts = await self._read(write)
        except NotFound:
            self._withdraw(write, "it is gone")
            return None
        except ApiError as error:
            return errand.backoff.failed(at_least=error.retry_after)
        if write.is_done(facts):
            self._settle(write, facts)
        elif facts.uid == write.uid and time.monotonic() < (errand.unknown_until or 0):
            return errand.backoff.failed()
        else:
            self._withdraw(write, "the patch was not carried out")
        return None

    async def _read(self, write: Write) -> CachedBinding:
        facts = self._understood(write, await self._api.get(write.path))
        self._tell(facts)
        return facts

    def _understood(self, write: Write, body: bytes) -> CachedBinding:
        try:
            return self._books.bindings.decode(body)
        except msgspec.MsgspecError as error:
            raise Unreachable(write.path, f"the answer is no binding: {error}") from error

    def _tell(self, facts: CachedBinding) -> None:
        (self._books.bindings if facts.namespace else self._books.cluster_bindings).upsert(facts)

    def _settle(self, write: Write, facts: CachedBinding) -> None:
        self._tell(facts)
        self._books.settle(write.uid, facts.resource_version)
        self._refused.pop(write.uid, None)
        self.on_settled(write, facts)
        if write.effect == "admit":
            self._metrics.count_admission(waited=write.waited)
            log.info("workload admitted", workload=write.workload, queue=write.queue, clusters=write.clusters)
        elif write.effect == "evict":
            self._metrics.count_eviction(write.reason)
            log.info("workload evicted", workload=write.workload, queue=write.queue, reason=write.reason)

    def _alarm(self, write: Write, error: ApiError) -> None:
        """Say that somebody must do something: right or policy is missing, and asking again will not help soon."""
        log.error("write refused", workload=write.workload, effect=write.effect, error=str(error))
        self._withdraw(write, str(error))

    def _withdraw(self, write: Write, why: str) -> None:
        """Give the decision back; it is made again after a while that grows with each refusal."""
        refused = self._refused.setdefault(write.uid, RetryState(Backoff(first=2, most=60)))
        refused.until = self._clock() + round(refused.backoff.failed() * 1000)
        while len(self._refused) > _MAX_RETRY_STATES:
            del self._refused[next(iter(self._refused))]
        log.warning("write withdrawn", workload=write.workload, effect=write.effect, reason=why)
        self._books.withdraw(write.uid, Refusal(Reason.STARTUP_BACKOFF, subject=why, until=refused.until))

    def _count(self, write: Write, outcome: str, began: float) -> None:
        self._metrics.count_patch(write.effect, outcome, seconds=time.monotonic() - began)


def _ignore_settled(_: Write, __: CachedBinding) -> None:
    """Keep it to ourselves."""
