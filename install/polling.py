"""Polls a condition that Kubernetes offers no watch for."""

import asyncio
from collections.abc import Awaitable, Callable


async def poll_until(condition: Callable[[], Awaitable[bool]], *, seconds: float, every: float) -> bool:
    """Poll until *condition* is true; return whether that happened within *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await condition():
                    return True
                await asyncio.sleep(every)
    except TimeoutError:
        return False
