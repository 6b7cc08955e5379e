"""Waits of tests.

A wait ends with the event it waits for. The limit only ends a test that
hangs, so it is generous: a busy machine must not reach it.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Value = TypeVar("Value")

LIMIT_SECONDS = 180.0
_POLL_SECONDS = 0.05


async def poll(
    read: Callable[[], Awaitable[Value] | Value],
    what: str,
    *,
    until: Callable[[Value], Any] = bool,
    seconds: float = LIMIT_SECONDS,
    ignoring: tuple[type[Exception], ...] = (),
    log: Callable[[], str] = str,
) -> Value:
    """Read a value that gives no event until it satisfies *until*, and return it.

    An error of the kinds *ignoring* counts as no value. The error of a timeout has *what*, the last value and *log*.
    """
    last: Any = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    value = read()
                    last = await value if inspect.isawaitable(value) else value
                    if until(last):
                        return last
                except ignoring as error:
                    last = error
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise AssertionError(f"{what}: not within {seconds:g} s; last {last!r}\n{log()}") from error
