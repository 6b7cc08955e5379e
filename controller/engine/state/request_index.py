"""Finds the requests that exceed a free amount, without visiting the others.

Requests are numbered by slots. A set of slots is an integer with one bit for
each slot, so that the results of several queries are combined with ``&`` and
``|`` at once for all.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from controller.engine.state.resources import Resources

Slots = int
"""A set of slots, as bits."""


def slots_in(slots: Slots) -> Iterator[int]:
    """Yield the slots of a set, in ascending order."""
    digits = bin(slots)[:1:-1]
    slot = digits.find("1")
    while slot >= 0:
        yield slot
        slot = digits.find("1", slot + 1)


class _AmountIndex:
    """The amounts of one resource in ascending order, with the set of all slots from every n-th amount on."""

    _MOST_SETS = 64
    _MIN_INTERVAL = 16

    def __init__(self) -> None:
        self._amounts: list[tuple[int, int]] = []
        """Amounts with their slots."""
        self._interval = self._MIN_INTERVAL
        """Number of amounts from one set to the next."""
        self._sets: list[Slots] = []
        """The slots from each multiple of the interval on."""

    def __bool__(self) -> bool:
        return bool(self._amounts)

    def add(self, slot: int, amount: int) -> None:
        """Add a slot; the amounts after it move by one."""
        position = bisect_left(self._amounts, (amount, slot))
        self._amounts.insert(position, (amount, slot))
        if (len(self._amounts) - 1) // self._interval >= self._MOST_SETS:
            self._interval *= 2
            self._sets = self._sets[::2]
        if (len(self._amounts) - 1) // self._interval == len(self._sets):
            self._sets.append(0)
        self._change(position, slot)

    def remove(self, slot: int, amount: int) -> None:
        """Remove a slot; the amounts after it move by one."""
        position = bisect_left(self._amounts, (amount, slot))
        self._change(position, slot)
        del self._amounts[position]
        if len(self._sets) > (len(self._amounts) + self._interval - 1) // self._interval:
            self._sets.pop()

    def _change(self, position: int, slot: int) -> None:
        """Add the slot at *position* to the sets, or remove it; later sets gain or lose their first amount."""
        interval, amounts = self._interval, self._amounts
        for number in range(len(self._sets)):
            first = number * interval
            self._sets[number] ^= 1 << (slot if first <= position else amounts[first][1])

    def above(self, amount: int) -> Slots:
        """Return the slots with more than *amount*."""
        position, slots = bisect_right(self._amounts, (amount, _LAST)), 0
        number = -(-position // self._interval)
        for _, slot in self._amounts[position : number * self._interval]:
            slots |= 1 << slot
        return slots | self._sets[number] if number < len(self._sets) else slots


_LAST = 1 << 62


class RequestIndex:
    """Requests by resource; amounts that are zero or less exceed nothing."""

    def __init__(self) -> None:
        self._by_resource: dict[str, _AmountIndex] = {}

    def add(self, slot: int, requests: Resources) -> None:
        """Add the requests of a slot."""
        for name, amount in requests.items():
            if amount > 0:
                self._by_resource.setdefault(name, _AmountIndex()).add(slot, amount)

    def remove(self, slot: int, requests: Resources) -> None:
        """Remove the requests of a slot, as they were added."""
        for name, amount in requests.items():
            if amount > 0:
                index = self._by_resource[name]
                index.remove(slot, amount)
                if not index:
                    del self._by_resource[name]

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that are requested."""
        return tuple(self._by_resource)

    def exceeding(self, free: Resources) -> Slots:
        """Return the slots that request more than is *free* of a listed resource."""
        slots = 0
        for name, amount in free.items():
            index = self._by_resource.get(name)
            if index is not None:
                slots |= index.above(amount)
        return slots

    def not_fitting(self, free: Resources) -> Slots:
        """Return the slots that request more than is *free*, where a resource that is not listed has none."""
        slots = 0
        for name, index in self._by_resource.items():
            slots |= index.above(free.get(name, 0))
        return slots
