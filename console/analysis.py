"""Runs slow questions about a snapshot in child processes: forecasts, counterfactuals and what-if plans.

A child is a fork: it has the whole state as it was, copies what it changes, and ends after a limited processor time.
The console's own engine stays as it is, and its event loop is never blocked.
"""

import asyncio
import os
import resource
import signal
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from controller.kube.errors import ApiError

#: Children at once: one, so that the controller on the same node has another core.
_CHILDREN = 1
#: Questions on their way, for all users and for one of them: its page asks again.
_MAX_WAITING, _MAX_OF_ONE_USER = 20, 4
_RESULT_SECONDS = 60.0
#: Seconds until a user's question that failed in a child is asked again, or one with a temporary answer.
_FAILED_SECONDS, _TEMPORARY_SECONDS = 30.0, 5.0
#: Bytes of one answer, and answers and their bytes in memory.
_MAX_BYTES, _MAX_RESULTS, _MAX_RESULT_BYTES = 16 << 20, 500, 64 << 20
_NICE = 10
_READ_BYTES = 1 << 16
#: After standard input, output and error.
_FIRST_FILE = 3

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class AnalysisError(Exception):
    """A question was not answered; the message says why."""


class TemporaryAnswer(bytes):
    """An answer that is no result yet: the question is soon asked again."""


@dataclass(slots=True)
class _Result:
    at: float
    answer: bytes | None
    """``None`` where it failed or took too long."""

    @property
    def lifetime(self) -> float:
        """Return for how many seconds a user's question is not asked again."""
        if self.answer is None:
            return _FAILED_SECONDS
        return _TEMPORARY_SECONDS if isinstance(self.answer, TemporaryAnswer) else _RESULT_SECONDS

    @property
    def size(self) -> int:
        """Return its bytes."""
        return len(self.answer or b"")


class Analyses:
    """Asks questions in children, one after another, and caches the answers for a minute."""

    def __init__(self, *, seconds: float) -> None:
        self.on_answer: list[Callable[[], None]] = []
        self._seconds = seconds
        self._slots = asyncio.Semaphore(_CHILDREN)
        self._running: dict[Hashable, asyncio.Task[None]] = {}
        self._users: dict[Hashable, str] = {}
        """Who has asked the questions that are on their way."""
        self._results: OrderedDict[Hashable, _Result] = OrderedDict()

    def cached(self, key: Hashable) -> _Result | None:
        """Return the last answer to *key*, however old."""
        return self._results.get(key)

    def ask(self, key: Hashable, question: Callable[[], bytes], *, user: str = "") -> None:
        """Start *question*, unless its answer is new or being computed, or too many are, for all users or for *user*.

        An answer is new for a minute, a failure of a user's question for some seconds.
        There is always a place for those of the console itself, which have no user.
        """
        self.fetch(key, lambda: self.run(question), user=user)

    def ask_prepared(
        self, key: Hashable, prepare: Callable[[], Awaitable[Callable[[], bytes]]], *, user: str = ""
    ) -> None:
        """Ask the question that *prepare* returns, as ``ask`` does."""

        async def answer() -> bytes:
            return await self.run(await prepare())

        self.fetch(key, answer, user=user)

    def fetch(self, key: Hashable, answer: Callable[[], Awaitable[bytes]], *, user: str = "") -> None:
        """Fetch an *answer*, for example of another process, as ``ask`` does."""
        known = self._results.get(key)
        is_new = known is not None and time.monotonic() < known.at + (known.lifetime if user else _RESULT_SECONDS)
        has_place = not user or (
            len(self._running) < _MAX_WAITING and list(self._users.values()).count(user) < _MAX_OF_ONE_USER
        )
        if not is_new and key not in self._running and has_place:
            self._users[key] = user
            self._running[key] = asyncio.create_task(self._answer(key, answer))

    async def _answer(self, key: Hashable, produce: Callable[[], Awaitable[bytes]]) -> None:
        try:
            answer: bytes | None = await produce()
        except (AnalysisError, ApiError) as error:
            log.warning("analysis failed", reason=str(error))
            answer = None
        finally:
            self._running.pop(key, None)
            self._users.pop(key, None)
        self._results.pop(key, None)
        self._results[key] = _Result(time.monotonic(), answer)
        size = sum(result.size for result in self._results.values())
        while len(self._results) > _MAX_RESULTS or size > _MAX_RESULT_BYTES:
            size -= self._results.popitem(last=False)[1].size
        for handler in self.on_answer:
            handler()

    async def run(self, question: Callable[[], bytes]) -> bytes:
        """Return the answer of *question*, called in a child; raise `AnalysisError`."""
        async with self._slots:
            reading, writing = os.pipe()
            try:
                pid = os.fork()
            except OSError as error:
                os.close(reading)
                os.close(writing)
                raise AnalysisError(f"no child was started: {error.strerror}") from error
            if pid == 0:
                _child(question, writing, self._seconds)
            os.close(writing)
            try:
                async with asyncio.timeout(self._seconds * 2):
                    answer = await _read(reading)
            except TimeoutError as error:
                raise AnalysisError("it took too long") from error
            finally:
                os.close(reading)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                # The child has ended, or was just killed: this does not block.
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222
        if not answer or answer[:1] != b"+":
            raise AnalysisError(answer[1:].decode() or f"the child ended with {status}, probably out of time")
        return answer[1:]


def _child(question: Callable[[], bytes], writing: int, seconds: float) -> None:
    """Answer in the child and end it; nothing of the parent's runs here."""
    try:
        signal.set_wakeup_fd(-1)
        # The sockets of the console would stay open with the child otherwise.
        os.closerange(_FIRST_FILE, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        whole = max(int(seconds), 1)
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole))
        os.nice(_NICE)
        answer = b"+" + question()
    except BaseException as error:  # noqa: BLE001 -- the child ends here, whatever happened
        answer = b"-" + type(error).__name__.encode()
    if len(answer) > _MAX_BYTES:
        answer = b"-the answer is too large"
    with suppress(OSError):
        view = memoryview(answer)
        while view:
            view = view[os.write(writing, view) :]
    os._exit(0)


async def _read(reading: int) -> bytes:
    """Read the pipe to its end."""
    loop = asyncio.get_running_loop()
    os.set_blocking(reading, False)
    parts: list[bytes] = []
    ended = loop.create_future()

    def readable() -> None:
        try:
            part = os.read(reading, _READ_BYTES)
        except BlockingIOError:
            return
        parts.append(part)
        if not part and not ended.done():
            ended.set_result(None)

    loop.add_reader(reading, readable)
    try:
        await ended
    finally:
        loop.remove_reader(reading)
    return b"".join(parts)
