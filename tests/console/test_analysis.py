"""Answers to slow questions: places of one user, and memory."""

import asyncio

from console.analysis import Analyses


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


async def test_long_answers_are_dropped_for_newer_ones():
    analyses = Analyses(seconds=1)

    async def answer() -> bytes:
        return bytes(10 << 20)

    for number in range(20):
        analyses.fetch(number, answer)
        await asyncio.sleep(0)
    held = [number for number in range(20) if analyses.cached(number) is not None]
    assert held == list(range(14, 20))
