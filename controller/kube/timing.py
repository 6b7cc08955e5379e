"""Clocks, retry delays and request rates, passed into the parts of a process, so that tests can run on virtual time."""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

#: Interval of looking whether a process is idle.
_IDLE_POLL_SECONDS = 0.1

#: Maximum number of keys of which the rate is known.
_MAX_KEYS = 4096

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


async def wait_until_idle(is_busy: Callable[[], bool], *, seconds: float) -> None:
    """Wait while *is_busy* returns true, at most for *seconds*: decisions are written before what reports them."""
    ends_at = time.monotonic() + seconds
    while is_busy() and time.monotonic() < ends_at:  # noqa: ASYNC110 -- not worth an event
        await asyncio.sleep(_IDLE_POLL_SECONDS)


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


@dataclass(slots=True)
class Backoff:
    """The retry delays of one operation, in seconds."""

    initial: float = 0.25
    maximum: float = 10
    jitter: Callable[[], float] = random.random
    """Returns a number in [0, 1): the used part of the upper half of each delay."""
    failures: int = 0

    def next_delay(self, *, at_least: float | None = None) -> float:
        """Count one more failure and return the delay before the next attempt, never below *at_least*."""
        full: float = min(self.initial * 2 ** min(self.failures, 32), self.maximum)
        self.failures += 1
        return max(full * (1 + self.jitter()) / 2, at_least or 0)

    def reset(self) -> None:
        """Start again with the initial delay, after a success."""
        self.failures = 0


class RequestRates:
    """Limits the requests of each key to *per_second* with bursts; the keys with the latest requests are known."""

    def __init__(
        self, per_second: float, *, burst: float, max_keys: int = _MAX_KEYS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = max(burst, 1.0)
        self._max_keys = max_keys
        self._clock = clock
        self._allowances: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Requests that a key may send at once, and when that was computed."""

    def __len__(self) -> int:
        return len(self._allowances)

    def admits(self, key: str) -> bool:
        """Count one request of *key*; return whether it may be sent now."""
        is_admitted = self._allowance(key) >= 1
        if is_admitted:
            self.spend(key, 1)
        return is_admitted

    def spend(self, key: str, requests: float) -> None:
        """Count *requests* of *key* that were sent, at most so many that it waits for the time of a burst."""
        self._allowances[key] = max(self._allowance(key) - requests, -self._burst), self._clock()

    def _allowance(self, key: str) -> float:
        """Return how many requests *key* may send now, which makes it the latest key."""
        now = self._clock()
        allowance, at = self._allowances.pop(key, (self._burst, now))
        allowance = min(allowance + (now - at) * self._per_second, self._burst)
        self._allowances[key] = allowance, now
        while len(self._allowances) > self._max_keys:
            self._allowances.popitem(last=False)
        return allowance
