"""What goes on by itself while a test runs: when it breaks down, the test does, and says why."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def run_in_background(*players: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Let *players* go on while the block runs; one that fails ends the block, which raises what it raised."""
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
