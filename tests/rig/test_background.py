"""Background tasks that fail make their test fail."""

import asyncio

import pytest

from tests.rig.background import run_in_background


async def broken():
    raise KeyError("what it looked for")


async def test_background_task_runs_while_the_block_runs():
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


async def test_failing_task_ends_the_block_with_its_error():
    with pytest.raises(KeyError, match="what it looked for"):
        async with run_in_background(asyncio.sleep(3600), broken()):
            await asyncio.sleep(3600)


async def test_error_of_the_block_is_raised():
    with pytest.raises(AssertionError, match="seen"):
        async with run_in_background(asyncio.sleep(3600)):
            raise AssertionError("seen")


async def test_errors_of_block_and_task_are_both_raised():
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
