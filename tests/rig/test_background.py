"""Nobody breaks down unseen while a test runs."""

import asyncio

import pytest

from tests.rig.background import run_in_background


async def broken():
    raise KeyError("what it looked for")


async def test_it_goes_on_while_the_block_runs_and_is_stopped_then():
    steps = []

    async def player():
        try:
            while True:
                steps.append("on")
                await asyncio.sleep(0)
        finally:
            steps.append("off")

    async with run_in_background(player()):
        await asyncio.sleep(0.01)
    assert set(steps[:-1]) == {"on"}
    assert steps[-1] == "off"


async def test_one_that_breaks_down_ends_the_block_with_what_it_raised():
    with pytest.raises(KeyError, match="what it looked for"):
        async with run_in_background(asyncio.sleep(3600), broken()):
            await asyncio.sleep(3600)


async def test_what_the_block_raises_is_raised():
    with pytest.raises(AssertionError, match="seen"):
        async with run_in_background(asyncio.sleep(3600)):
            raise AssertionError("seen")


async def test_both_are_told_where_both_fail():
    async def clumsy():
        try:
            await asyncio.sleep(3600)
        finally:
            raise KeyError

    async def play():
        async with run_in_background(clumsy()):
            await asyncio.sleep(0)
            raise AssertionError("seen")

    with pytest.raises(BaseExceptionGroup) as found:
        await play()
    assert {type(exception) for exception in found.value.exceptions} == {KeyError, AssertionError}
