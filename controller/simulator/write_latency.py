"""Simulates the rate limit of API writes."""

from fractions import Fraction
from math import ceil

_SECOND = 1000


class WriteLatency:
    """Computes when writes complete; with *per_second* 0 at once."""

    def __init__(self, per_second: int) -> None:
        self._duration = Fraction(_SECOND, per_second) if per_second else Fraction(0)
        self._free_at = Fraction(0)

    def done_at(self, now: int) -> int:
        """Return the completion time of a write requested at *now*, after all earlier writes."""
        self._free_at = max(self._free_at, Fraction(now)) + self._duration
        return ceil(self._free_at)
