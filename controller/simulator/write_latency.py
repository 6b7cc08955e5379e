"""The one who writes decisions to the API server: one after the other, so many a second."""

from fractions import Fraction
from math import ceil

_SECOND = 1000


class WriteLatency:
    """Tells when a write will be done; *per_second* 0 means at once."""

    def __init__(self, per_second: int) -> None:
        self._duration = Fraction(_SECOND, per_second) if per_second else Fraction(0)
        self._free_at = Fraction(0)

    def done_at(self, now: int) -> int:
        """Return when a write that is asked for at *now* is done, after all that were asked for before."""
        self._free_at = max(self._free_at, Fraction(now)) + self._duration
        return ceil(self._free_at)
