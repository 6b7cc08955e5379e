"""The time of day as the engine counts it; whoever needs it takes a ``Clock``, so that tests can give one."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Milliseconds since 1970."""


def wall_clock() -> int:
    """Return the time of day; it may jump, so it measures no durations."""
    return time.time_ns() // 1_000_000
