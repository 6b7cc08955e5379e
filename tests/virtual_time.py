"""Runs async tests on virtual time: waiting takes no time, and a busy machine changes nothing.

Tests that use sockets, threads or processes cannot run on it; some of them set a clock.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from tests.deterministic.clock import simulate


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async *test* on virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        simulate(lambda: test(*args, **fixtures), seed=0)

    return run


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
