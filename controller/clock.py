"""The time of day as the engine counts it, and the time that never jumps; whoever needs one takes it as a value."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Milliseconds since 1970."""

Uptime = Callable[[], float]
"""Seconds since some moment; it goes on while the machine sleeps, and never jumps."""


def wall_clock() -> int:
    """Return the time of day; it may jump, so it measures no durations."""
    return time.time_ns() // 1_000_000


def uptime() -> float:
    """Return the time since the machine was started, sleep included, so that no lease outlives it unnoticed."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
