"""Runs coroutines in the background of a test and fails the test if one of them fails."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def run_in_background(*players: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run *players* while the block runs; a failure ends the block and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(player) for player in players]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as found:
        if len(found.exceptions) > 1:
            raise
        raise found.exceptions[0] from None
