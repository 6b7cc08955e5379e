"""Runs large reviews in one thread, with a bounded number of waiting reviews and a deadline for each.

The event loop answers small reviews itself, which is cheaper. A large review may take a large part of a second, during
which the event loop continues to answer: the interpreter switches between the two threads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NoReturn, TypeVar

T = TypeVar("T")


class BusyError(Exception):
    """Raised when a review was not answered because too many are waiting or it took too long."""


class ReviewWorker:
    """Thread that answers large reviews, with the reviews that wait for it."""

    def __init__(self, *, max_waiting: int, seconds: float) -> None:
        self._max_waiting = max_waiting
        self._seconds = seconds
        self.unfinished = 0
        """Number of waiting and running reviews, including those past their deadline."""
        # More threads would share one interpreter and slow down the event loop.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reviews")

    async def run(self, task: Callable[[], T]) -> T:
        """Run *task* in the thread and return its result, or raise `BusyError`."""
        if self.unfinished >= self._max_waiting:
            raise BusyError(f"{self.unfinished} large reviews are waiting: try again")
        loop = asyncio.get_running_loop()
        self.unfinished += 1
        future = self._thread.submit(_capture, task)
        future.add_done_callback(lambda done: self._on_done(loop, done))
        try:
            # A thread cannot be stopped: a late review continues, and counts until it ends.
            outcome = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._seconds)
        except TimeoutError as error:
            message = f"the review took longer than {self._seconds:g} s: make the object smaller, or try again"
            raise BusyError(message) from error
        finally:
            future.cancel()
        try:
            return outcome()
        finally:
            # The traceback of an error names this frame: a cycle would keep the review's body in memory.
            del outcome, future

    def close(self) -> None:
        """Drop the waiting reviews."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _on_done(self, loop: asyncio.AbstractEventLoop, _: "Future[Callable[[], T]]") -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._decrement)

    def _decrement(self) -> None:
        self.unfinished -= 1


def _capture(task: Callable[[], T]) -> Callable[[], T]:
    """Run *task* and return a function that returns its result or raises its error; a future would retain the error."""
    try:
        result = task()
    except Exception as error:  # noqa: BLE001 -- raised again in the event loop
        return partial(_raise, [error])
    return lambda: result


def _raise(errors: list[Exception]) -> NoReturn:
    raise errors.pop()
