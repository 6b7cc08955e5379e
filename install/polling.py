"""Waiting for what others do, asked again and again; Kubernetes tells nobody that a definition is served."""

import asyncio
from collections.abc import Awaitable, Callable


async def poll_until(condition: Callable[[], Awaitable[bool]], *, seconds: float, every: float) -> bool:
    """Ask until the answer is yes; say whether it was in time."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await condition():
                    return True
                await asyncio.sleep(every)
    except TimeoutError:
        return False
