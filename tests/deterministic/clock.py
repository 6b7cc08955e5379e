"""An asyncio event loop on virtual time: ready tasks run in a seeded order, and idle time takes none."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar
from unittest import mock

from aiohttp import connector

T = TypeVar("T")

#: The time of day at which every simulation begins: 2026-01-01, 00:00 UTC, in seconds since 1970.
EPOCH = 1_767_225_600


class DeadlockError(Exception):
    """No task can run, and no timer is set that would change it."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in order, and tasks that are ready together in an order drawn from *seed*.

    When nothing is ready, the time jumps to the next timer. There are no threads, sockets or signals:
    ``run_in_executor`` calls the function at once.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.steps = 0
        self._now = 0.0
        self._selector = self
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 -- the future raises it
            future.set_exception(error)
        return future

    def select(self, timeout: float | None) -> tuple[()]:
        """Advance the time to the next timer; called by the base class where a real loop polls its selector."""
        if timeout is None:
            raise DeadlockError(f"nothing to do at {self._now}")
        if timeout > 0:
            self._now = max(self._now, self._scheduled[0].when())
        return ()

    def _run_once(self) -> None:
        positions = [index for index, handle in enumerate(self._ready) if _is_task_step(handle)]
        if len(positions) > 1:
            drawn = self.random.sample(positions, len(positions))
            handles = [self._ready[index] for index in drawn]
            for index, handle in zip(positions, handles, strict=True):
                self._ready[index] = handle
        self.steps += len(self._ready)
        super()._run_once()

    def _process_events(self, event_list: tuple[()]) -> None:
        """There are no events of files."""

    def _write_to_self(self) -> None:
        """There is no thread to wake the loop from."""


def _is_task_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)


@contextmanager
def _virtual_time(loop: VirtualLoop) -> Iterator[None]:
    """Replace the clocks and the random numbers that production code reads."""

    def seconds() -> float:
        return EPOCH + loop.time()

    def nanoseconds() -> int:
        return EPOCH * 10**9 + int(loop.time() * 1e9)

    def uptime(_: int) -> float:
        return loop.time()

    state = random.getstate()
    random.seed(loop.random.getrandbits(64))
    with (
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(connector, "monotonic", loop.time),
        mock.patch.object(time, "time", seconds),
        mock.patch.object(time, "time_ns", nanoseconds),
        mock.patch.object(time, "clock_gettime", uptime),
        mock.patch.object(time, "sleep", _refuse_sleep),
    ):
        yield
    random.setstate(state)


def _refuse_sleep(_: float) -> NoReturn:
    raise AssertionError("time.sleep blocks the event loop")


def simulate(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run *main* to its end on virtual time and return its result; the same *seed* gives the same run."""
    loop = VirtualLoop(seed)
    with _virtual_time(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())
