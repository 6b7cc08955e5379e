"""Charges that were freed recently: a cluster's summary may still include them."""

from bisect import bisect_right, insort
from operator import itemgetter

from controller.engine.state.resources import EMPTY, Resources, add, nonzero, subtract, total


class RecentlyFreed:
    """Charges that were freed recently and that a cluster's summary may still include."""

    __slots__ = ("charges", "total")

    def __init__(self) -> None:
        self.charges: list[tuple[int, Resources]] = []
        """The time of each and the charge, the earliest first."""
        self.total: Resources = EMPTY

    def __bool__(self) -> bool:
        return bool(self.charges)

    @property
    def earliest(self) -> int:
        """Return when the earliest charge was freed."""
        return self.charges[0][0]

    def add(self, charge: Resources, now: int) -> None:
        """Add a charge that was freed at *now*."""
        insort(self.charges, (now, charge), key=itemgetter(0))
        self.total = add(self.total, charge)

    def forget(self, until: int) -> None:
        """Drop what was freed at *until* or before."""
        past = bisect_right(self.charges, until, key=itemgetter(0))
        if past:
            self.total = nonzero(subtract(self.total, total(charge for _, charge in self.charges[:past])))
            del self.charges[:past]
