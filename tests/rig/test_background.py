"""Background tasks that fail make their test fail."""

import asyncio

import pytest

from tests.rig.background import run_in_background


async def broken():
    raise KeyError("what it looked for")


async def test_failing_task_ends_the_block_with_its_error():
    with pytest.raises(KeyError, match="what it looked for"):
        async with run_in_background(asyncio.sleep(3600), broken()):
            await asyncio.sleep(3600)


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
