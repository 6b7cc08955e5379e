"""When the workloads that run on a cluster are expected to end, and what they release until then.

A forecast asks for many times, so that each answer must take little time, however many workloads run.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import TypeVar

from controller.engine.state.resources import EMPTY, Resources, add, positive, subtract, total

ReservationNames = tuple[str, ...]
"""The advance reservations that keep capacity free for a workload."""

_Charge = TypeVar("_Charge")


def by_reservations(charges: Iterable[tuple[ReservationNames, _Charge]]) -> dict[ReservationNames, list[_Charge]]:
    """Return the charges of workloads that reservations are for, those of the fewest reservations first."""
    grouped: dict[ReservationNames, list[_Charge]] = {}
    for names, charge in charges:
        if names:
            grouped.setdefault(names, []).append(charge)
    return dict(sorted(grouped.items(), key=lambda item: (len(item[0]), item[0])))


class ExpectedEnds:
    """The ends of running workloads, each with the reservations for it, its end if known, and its charge."""

    def __init__(self, running: Sequence[tuple[ReservationNames, int | None, Resources]]) -> None:
        self._all = _ChargesByEnd([(end, charge) for _, end, charge in running])
        reserved = by_reservations((names, (end, charge)) for names, end, charge in running)
        self._reserved = {names: _ChargesByEnd(charges) for names, charges in reserved.items()}

    @property
    def first(self) -> int | None:
        """Return the first expected end."""
        return self._all.first

    def released(self, after: int, until: int) -> Resources:
        """Return what is released after *after* and no later than *until*."""
        if until <= after:
            return EMPTY
        return positive(subtract(self._all.released_by(until), self._all.released_by(after)))

    def reserved_after(self, at: int) -> Mapping[ReservationNames, Resources]:
        """Return what workloads that reservations are for use after *at*."""
        return {names: subtract(charges.total, charges.released_by(at)) for names, charges in self._reserved.items()}


class _ChargesByEnd:
    """Charges with the times at which they are expected to end; ``None`` where unknown."""

    def __init__(self, charges: Sequence[tuple[int | None, Resources]]) -> None:
        self._known = sorted(((end, charge) for end, charge in charges if end is not None), key=itemgetter(0))
        self._ends = [end for end, _ in self._known]
        self.total = total(charge for _, charge in charges)

    @property
    def first(self) -> int | None:
        """Return the first end."""
        return self._ends[0] if self._ends else None

    def released_by(self, at: int) -> Resources:
        """Return the sum of the charges that end no later than *at*."""
        return self._sums[bisect_right(self._ends, at)]

    @cached_property
    def _sums(self) -> list[Resources]:
        """Return the sum of no charge, of the first one that ends, of the first two, and so on."""
        return [*accumulate((charge for _, charge in self._known), add, initial=EMPTY)]
