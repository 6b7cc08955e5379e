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


class SteadyClock:
    """A time of day that never goes back and never jumps.

    When the machine's clock is set, it goes a tenth slower or faster until it
    agrees: a decision that was put off for seconds comes after about that time.
    """

    def __init__(self, clock: Clock = wall_clock, uptime: Uptime = uptime) -> None:
        self._clock = clock
        self._uptime = uptime
        self._at = self._uptime()
        self._now = float(clock())

    def __call__(self) -> int:
        """Return milliseconds since 1970."""
        at = self._uptime()
        passed = (at - self._at) * 1000
        self._at = at
        missing = self._clock() - (self._now + passed)
        self._now += passed + min(max(missing, -passed / 10), passed / 10)
        return int(self._now)
