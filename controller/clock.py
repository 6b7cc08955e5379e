"""Clocks that are passed into the parts of the controller, so that tests can run on virtual time."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Milliseconds since 1970."""

Uptime = Callable[[], float]
"""Seconds since an arbitrary point; monotonic, and continues during system suspend."""


def wall_clock() -> int:
    """Return the time of day. It may jump, so it must not be used to measure durations."""
    return time.time_ns() // 1_000_000


def uptime() -> float:
    """Return the time since boot, including system suspend, so that a lease expires during a suspend too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """A time of day that is monotonic and does not jump.

    After the system clock was set, it runs 10 % slower or faster until both agree, so that a decision that
    was delayed by seconds is taken after about that time.
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
