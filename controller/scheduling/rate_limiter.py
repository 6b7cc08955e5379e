"""Limits concurrent writes and writes per second."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

#: Slots that were missed while the event loop was busy may be used for so long, in seconds.
_BURST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of writes; *per_second* 0 means no limit."""

    in_flight: int = 32
    per_second: int = 0


class RateLimiter:
    """Grants permission to send; calls *on_available* when the rate allows the next request."""

    def __init__(self, on_available: Callable[[], None]) -> None:
        self.limits = RateLimits()
        self._on_available = on_available
        self._in_flight = 0
        self._slot_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def try_acquire(self) -> bool:
        """Return whether a request may be sent now, and count it if so."""
        if self._in_flight >= self.limits.in_flight or not self._acquire_slot():
            return False
        self._in_flight += 1
        return True

    def release(self) -> None:
        """Note that a request has ended."""
        self._in_flight -= 1

    def _acquire_slot(self) -> bool:
        if not self.limits.per_second:
            return True
        now = time.monotonic()
        if now < self._slot_at:
            self._start_timer(self._slot_at - now)
            return False
        self._slot_at = max(self._slot_at, now - _BURST_SECONDS) + 1 / self.limits.per_second
        return True

    def _start_timer(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._on_available()
