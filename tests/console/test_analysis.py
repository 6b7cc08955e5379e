"""Answers to slow questions: places of one user, and memory."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from console.analysis import Analyses, AnalysisError, TemporaryAnswer


async def test_questions_of_one_user_leave_places_for_others():
    analyses, asked, go_on = Analyses(seconds=1), [], asyncio.Event()

    def ask(number: int, user: str) -> None:
        async def answer() -> bytes:
            asked.append(user)
            await go_on.wait()
            return b"{}"

        analyses.fetch((user, number), answer, user=user)

    for number in range(30):
        ask(number, "one")
    ask(0, "two")
    await asyncio.sleep(0)
    assert (asked.count("two"), 1 < asked.count("one") < 10) == (1, True)
    go_on.set()
    await asyncio.sleep(0)
    ask(30, "one")
    await asyncio.sleep(0)
    assert analyses.cached(("one", 30)) is not None


async def test_questions_of_many_users_leave_a_place_for_forecasts():
    analyses, asked, go_on = Analyses(seconds=1), [], asyncio.Event()

    async def answer() -> bytes:
        asked.append("one")
        await go_on.wait()
        return b"{}"

    for number in range(30):
        analyses.fetch(number, answer, user=f"user-{number}")
    await asyncio.sleep(0)
    places = len(asked)
    analyses.fetch("forecasts", answer)
    await asyncio.sleep(0)
    assert (places < 30, len(asked)) == (True, places + 1)
    go_on.set()
    await asyncio.sleep(0)


async def test_long_answers_are_dropped_for_newer_ones():
    analyses = Analyses(seconds=1)

    async def answer() -> bytes:
        return bytes(10 << 20)

    for number in range(20):
        analyses.fetch(number, answer)
        await asyncio.sleep(0)
    held = [number for number in range(20) if analyses.cached(number) is not None]
    assert held == list(range(14, 20))


@pytest.mark.parametrize(
    ("answer", "user", "seconds"),
    [
        pytest.param(b"{}", "one", 60, id="answer"),
        pytest.param(TemporaryAnswer(b"{}"), "one", 5, id="temporary-answer"),
        pytest.param(None, "one", 30, id="failure"),
        pytest.param(None, "", 60, id="failed-forecasts"),
    ],
)
async def test_failed_question_of_a_user_is_soon_asked_again(answer, user, seconds, monkeypatch):
    analyses, asked, now = Analyses(seconds=1), [], 1_000.0
    monkeypatch.setattr("console.analysis.time.monotonic", lambda: now)

    async def produce() -> bytes:
        asked.append(now)
        if answer is None:
            raise AnalysisError("it took too long")
        return answer

    for later in (0, seconds - 1, seconds + 1):
        now = 1_000.0 + later
        analyses.fetch("key", produce, user=user)
        await asyncio.sleep(0)
    assert asked == [1_000.0, 1_000.0 + seconds + 1]
    assert analyses.cached("key").answer == answer


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_question_fails_where_no_child_can_be_started(monkeypatch):
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("os.fork", refused)
    analyses, files = Analyses(seconds=1), open_files()
    analyses.ask("key", lambda: b"{}")
    await asyncio.sleep(0.01)
    assert analyses.cached("key").answer is None
    assert open_files() == files


async def test_answer_that_is_too_large_fails(monkeypatch):
    monkeypatch.setattr("console.analysis._MAX_BYTES", 1_000)
    analyses = Analyses(seconds=1)
    assert await analyses.run(lambda: bytes(999)) == bytes(999)
    with pytest.raises(AnalysisError, match="the answer is too large"):
        await analyses.run(lambda: bytes(1_000))
