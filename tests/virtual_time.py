"""Runs async tests on virtual time: waiting takes no time, and a busy machine changes nothing.

Tests that use sockets, threads or processes cannot run on it.
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
