"""An asyncio event loop on virtual time: ready tasks run in a seeded order, and idle time takes none."""

import asyncio
import gc
import heapq
import inspect
import itertools
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NoReturn, Self, TypeVar
from unittest import mock

from aiohttp import connector

T = TypeVar("T")

_ITERATIONS_WITHOUT_TIME = 100_000
"""More iterations than this at one time are a livelock."""

#: The time of day at which every simulation begins: 2026-01-01, 00:00 UTC, in seconds since 1970.
EPOCH = 1_767_225_600


class DeadlockError(Exception):
    """No task can run, and no timer is set that would change it."""


class LivelockError(Exception):
    """Callbacks run again and again, and no time passes."""


class ProcessState(Enum):
    """What the loop does with the callbacks of a simulated process."""

    RUNNING = auto()
    FROZEN = auto()
    """They wait until the process continues, as after SIGSTOP."""
    DEAD = auto()
    """They are dropped."""


@dataclass(eq=False)
class SimulatedProcess:
    """A group of tasks with a wall clock of its own, which can be frozen, and stopped at any step."""

    name: str
    skew: float = 0
    """Difference of its wall clock, in seconds."""
    state: ProcessState = ProcessState.RUNNING
    is_killed: bool = False
    """Whether it ends now: it sends nothing any more."""
    steps_left: int | None = None
    """Number of its steps until ``on_last_step`` is called; ``None`` without limit."""
    on_last_step: Callable[[], None] = lambda: None
    waiting: list[asyncio.Handle] = field(default_factory=list)
    """Callbacks that became ready while it was frozen."""

    def takes(self, handle: asyncio.Handle) -> bool:
        """Return whether the callback *handle* of this process runs now."""
        if self.state is ProcessState.FROZEN:
            self.waiting.append(handle)
        elif self.state is ProcessState.DEAD:
            _discard(handle)
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.steps_left = None
                self.on_last_step()
        return self.state is ProcessState.RUNNING


PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("process", default=None)
"""The simulated process that the current task belongs to; tasks and timers inherit it."""


class NumberedTask(asyncio.Task[Any]):
    """A task with a hash that does not depend on its address, so that sets of tasks have one order."""

    number: int
    process: SimulatedProcess | None

    def __new__(cls, *_: Any, loop: "VirtualLoop", context: Context | None = None, **__: Any) -> Self:
        task = super().__new__(cls)
        task.number = next(loop.numbers)
        task.process = PROCESS.get() if context is None else context.get(PROCESS)
        return task

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in order, and tasks that are ready together in an order drawn from *seed*.

    When nothing is ready, the time jumps to the next timer. There are no threads, sockets or signals:
    ``run_in_executor`` calls the function at once.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self._now = 0.0
        self._iterations = 0
        """Iterations since ``_iterated_at``."""
        self._iterated_at = 0.0
        self._clock_resolution = 1e-9
        self.numbers = itertools.count(1)
        """Numbers of the tasks, in order of their creation."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = itertools.count()
        self.set_task_factory(self._new_task)

    def _new_task(self, _: asyncio.AbstractEventLoop, coro: Any, context: Any = None) -> NumberedTask:
        return NumberedTask(coro, loop=self, context=context)

    def resume(self, process: SimulatedProcess) -> None:
        """Let a frozen *process* continue, with the callbacks that became ready meanwhile."""
        process.state = ProcessState.RUNNING
        self._ready.extend(process.waiting)
        process.waiting.clear()

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 -- the future raises it
            future.set_exception(error)
        return future

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        """Call *callback* at *when*; timers of the same time fire in the order in which they were set."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        """Run all ready callbacks; if there are none, advance the time to the next timer first."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise DeadlockError(f"nothing to do at {self._now}")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        handles = list(ready)
        ready.clear()
        if len(handles) > 1:
            self._reorder(handles)
        self._count_iteration()
        for index, handle in enumerate(handles):
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is None or process.takes(handle):
                handle._run()
            if self._stopping:
                ready.extendleft(reversed(handles[index + 1 :]))
                return

    def _count_iteration(self) -> None:
        self._iterations = self._iterations + 1 if self._now == self._iterated_at else 0
        self._iterated_at = self._now
        if self._iterations > _ITERATIONS_WITHOUT_TIME:
            self._iterations = 0
            raise LivelockError(f"no time passes after {self._now}")

    def _reorder(self, handles: list[asyncio.Handle]) -> None:
        """Put the steps of tasks into an order that depends on the seed and on nothing else."""
        steps = [(task, index) for index, handle in enumerate(handles) if (task := _task_of(handle)) is not None]
        if len(steps) > 1:
            drawn = sorted(steps, key=lambda step: step[0].number)
            self.random.shuffle(drawn)
            moved = [handles[index] for _, index in drawn]
            for (_, index), handle in zip(steps, moved, strict=True):
                handles[index] = handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error or an unfinished task, except of a process that was killed: it ends at any step."""
        handle, task = context.get("handle"), context.get("task")
        process = handle._context.get(PROCESS) if handle is not None else getattr(task, "process", None)
        if process is None or not process.is_killed:
            super().call_exception_handler(context)

    def _process_events(self, event_list: tuple[()]) -> None:
        """There are no events of files."""

    def _write_to_self(self) -> None:
        """There is no thread to wake the loop from."""


def _discard(handle: asyncio.Handle) -> None:
    """Close the coroutine of a task that never begins, because its process has ended."""
    task = _task_of(handle)
    coroutine = task.get_coro() if task is not None else None
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()


def _task_of(handle: asyncio.Handle) -> NumberedTask | None:
    """Return the task that *handle* is a step of."""
    task = getattr(handle._callback, "__self__", None)
    return task if isinstance(task, NumberedTask) else None


@contextmanager
def _virtual_time(loop: VirtualLoop) -> Iterator[None]:
    """Replace the clocks and the random numbers that production code reads."""

    def seconds() -> float:
        process = PROCESS.get()
        return EPOCH + loop.time() + (process.skew if process else 0)

    def nanoseconds() -> int:
        process = PROCESS.get()
        return EPOCH * 10**9 + int((loop.time() + (process.skew if process else 0)) * 1e9)

    def uptime(_: int) -> float:
        return loop.time()

    state = random.getstate()
    random.seed(loop.random.getrandbits(64))
    identifiers = random.Random(loop.random.getrandbits(64))

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=identifiers.getrandbits(128), version=4)

    with (
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(connector, "monotonic", loop.time),
        mock.patch.object(time, "time", seconds),
        mock.patch.object(time, "time_ns", nanoseconds),
        mock.patch.object(time, "clock_gettime", uptime),
        mock.patch.object(time, "sleep", _refuse_sleep),
        mock.patch.object(uuid, "uuid4", uuid4),
    ):
        yield
    random.setstate(state)


def _refuse_sleep(_: float) -> NoReturn:
    raise AssertionError("time.sleep blocks the event loop")


def simulate(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run *main* to its end on virtual time and return its result; the same *seed* gives the same run."""
    loop = VirtualLoop(seed)
    with _rare_garbage_collection(), _virtual_time(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Collect garbage less often: the objects of the servers and caches are many, and have no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
