"""Work items that are processed by several workers, each item by one worker at a time.

An item that is added while it is processed is processed once more. Times are those of the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NoReturn, TypeVar

import structlog

T = TypeVar("T", bound=Hashable)

#: Delay before an item is processed again after an unexpected error, in seconds.
_FAILED_SECONDS = 300.0

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class WorkQueue(Generic[T]):
    """Items that are due, and items with the time when they are."""

    def __init__(self) -> None:
        self._ready: dict[T, None] = {}
        self._count_ready = asyncio.Semaphore(0)
        self._timers: dict[T, asyncio.TimerHandle] = {}
        self._active: set[T] = set()
        self._again: dict[T, float] = {}
        """Delays of active items that are to be processed once more."""
        self._retried: set[T] = set()
        """Items that are not processed before they are due, also if they are added again."""

    def __len__(self) -> int:
        return len(self._ready) + len(self._timers) + len(self._active)

    def add(self, item: T, *, seconds: float = 0) -> None:
        """Let *item* be processed after *seconds*, or earlier if it is due earlier already.

        An item that is to be retried is not processed before its delay has passed.
        """
        if item in self._retried or item in self._ready:
            return
        if item in self._active:
            self._again[item] = min(seconds, self._again.get(item, seconds))
            return
        self._schedule(item, seconds)

    def retry(self, item: T, seconds: float) -> None:
        """Let *item*, which is being processed, be processed again after *seconds*, whatever is added meanwhile."""
        self._again[item] = seconds
        self._retried.add(item)

    def _schedule(self, item: T, seconds: float) -> None:
        timer = self._timers.get(item)
        if seconds <= 0:
            if timer is not None:
                timer.cancel()
            self._become_ready(item)
            return
        loop = asyncio.get_running_loop()
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[item] = loop.call_later(seconds, self._become_ready, item)

    def _become_ready(self, item: T) -> None:
        self._timers.pop(item, None)
        self._ready[item] = None
        self._count_ready.release()

    async def get(self) -> T:
        """Return the next due item; the caller must call ``done`` after processing it."""
        await self._count_ready.acquire()
        item = next(iter(self._ready))
        del self._ready[item]
        self._retried.discard(item)
        self._active.add(item)
        return item

    def done(self, item: T) -> None:
        """End the processing of *item*; it is added again if that was requested meanwhile."""
        self._active.discard(item)
        again = self._again.pop(item, None)
        if again is not None:
            self._schedule(item, again)


async def run_worker(queue: WorkQueue[T], process: Callable[[T], Awaitable[None]]) -> NoReturn:
    """Process the items of *queue* until cancelled."""
    while True:
        item = await queue.get()
        try:
            await process(item)
        except Exception:
            # Tenants write the objects; an error with one must not block the others.
            log.exception("work item failed", item=str(item)[:200])
            queue.add(item, seconds=_FAILED_SECONDS)
        finally:
            queue.done(item)
