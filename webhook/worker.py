"""Judges large reviews in a thread of their own, a bounded number at a time, each within a deadline.

Small reviews are answered by the event loop, without a thread's cost. A large one may take a good part of a second, in
which the loop goes on answering: the interpreter switches between the two.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NoReturn, TypeVar

T = TypeVar("T")


class BusyError(Exception):
    """The review was not judged: too many are waiting, or it took too long; the message says which."""


class ReviewWorker:
    """A thread that judges, and the reviews that wait for it."""

    def __init__(self, *, max_waiting: int, seconds: float) -> None:
        self._max_waiting = max_waiting
        self._seconds = seconds
        self.unfinished = 0
        """Reviews that wait or are judged, also those whose deadline has passed."""
        # More threads would share one interpreter, and take it from the event loop.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reviews")

    async def run(self, task: Callable[[], T]) -> T:
        """Return what *judge* returns, or raise `BusyError`."""
        if self.unfinished >= self._max_waiting:
            raise BusyError(f"{self.unfinished} large reviews are waiting: try again")
        loop = asyncio.get_running_loop()
        self.unfinished += 1
        judging = self._thread.submit(_capture, task)
        judging.add_done_callback(lambda done: self._on_done(loop, done))
        try:
            # A thread cannot be stopped: a review that is late goes on, and counts until it ends.
            outcome = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(judging)), self._seconds)
        except TimeoutError as error:
            sentence = f"judging took longer than {self._seconds:g} s: make the object smaller, or try again"
            raise BusyError(sentence) from error
        finally:
            judging.cancel()
        try:
            return outcome()
        finally:
            # The traceback of an error names this frame: a cycle would keep the review's body in memory.
            del outcome, judging

    def close(self) -> None:
        """Drop the reviews that wait."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _on_done(self, loop: asyncio.AbstractEventLoop, _: "Future[Callable[[], T]]") -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._decrement)

    def _decrement(self) -> None:
        self.unfinished -= 1


def _capture(task: Callable[[], T]) -> Callable[[], T]:
    """Return a function that returns what *judge* returned, or raises its error: futures would keep the error."""
    try:
        result = task()
    except Exception as error:  # noqa: BLE001 -- raised again by whoever waits
        return partial(_raise, [error])
    return lambda: result


def _raise(errors: list[Exception]) -> NoReturn:
    raise errors.pop()
