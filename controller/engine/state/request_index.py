"""Finds the requests that exceed a free amount, without visiting the others.

Requests are numbered by slots. A set of slots is an integer with one bit for
each slot, so that the results of several queries are combined with ``&`` and
``|`` at once for all.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from controller.engine.state.clusters import ClusterName
from controller.engine.state.resources import PODS, Resources

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

    def bounds(self, amount: int) -> tuple[int | None, int | None]:
        """Return from which amount on, and below which, ``above`` returns the same as for *amount*."""
        position = bisect_right(self._amounts, (amount, _LAST))
        return (
            self._amounts[position - 1][0] if position else None,
            self._amounts[position][0] if position < len(self._amounts) else None,
        )


_LAST = 1 << 62


class SlotUnion:
    """Sets of slots by cluster, and their union.

    The sets are the leaves of a binary tree, of which each node holds the union of its children, so that the change
    of one set costs as many operations as the tree has levels.
    """

    def __init__(self) -> None:
        self.sets: dict[ClusterName, Slots] = {}
        self._positions: dict[ClusterName, int] = {}
        """The leaf of each cluster; a cluster stays after its set was removed."""
        self._tree: list[Slots] = [0, 0]
        """The children of node *n* are 2 *n* and 2 *n* + 1; the second half are the leaves."""
        self._changed: set[ClusterName] = set()

    def __contains__(self, name: ClusterName) -> bool:
        return name in self.sets

    def set(self, name: ClusterName, slots: Slots) -> None:
        """Add or replace the set of *name*."""
        self.sets[name] = slots
        self._changed.add(name)

    def remove(self, name: ClusterName) -> None:
        """Remove the set of *name*, if it has one."""
        if self.sets.pop(name, None) is not None:
            self._changed.add(name)

    def union(self) -> Slots:
        """Return the slots of all sets."""
        if not self._changed <= self._positions.keys():
            self._positions = {name: number for number, name in enumerate(self.sets)}
            self._tree = [0] * (2 * max(len(self._positions), 1))
            self._changed = {*self.sets}
        count, tree = len(self._tree) // 2, self._tree
        for name in self._changed:
            tree[count + self._positions[name]] = self.sets.get(name, 0)
        if len(self._changed) * count.bit_length() > count:
            for node in range(count - 1, 0, -1):
                tree[node] = tree[2 * node] | tree[2 * node + 1]
        else:
            for name in self._changed:
                node = (count + self._positions[name]) // 2
                while node:
                    tree[node] = tree[2 * node] | tree[2 * node + 1]
                    node //= 2
        self._changed.clear()
        return tree[1]


class RequestIndex:
    """Requests by resource; amounts that are zero or less exceed nothing."""

    def __init__(self) -> None:
        self._by_resource: dict[str, _AmountIndex] = {}
        self.version = 0
        """Changes with every change of the requests."""

    def add(self, slot: int, requests: Resources) -> None:
        """Add the requests of a slot."""
        self.version += 1
        for name, amount in requests.items():
            if amount > 0:
                self._by_resource.setdefault(name, _AmountIndex()).add(slot, amount)

    def remove(self, slot: int, requests: Resources) -> None:
        """Remove the requests of a slot, as they were added."""
        self.version += 1
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

    def bounds(self, free: Resources) -> list[tuple[str, int | None, int | None]]:
        """Return from which free amount of each resource on, and below which, ``exceeding`` returns the same."""
        return [(name, *self._by_resource[name].bounds(amount)) for name, amount in free.items()]

    def not_fitting(self, free: Resources) -> Slots:
        """Return the slots that request more than is *free*, where a resource that is not listed has none."""
        slots = 0
        for name, index in self._by_resource.items():
            slots |= index.above(free.get(name, 0))
        return slots


def free_amounts(limit: Resources, taken: Resources, resources: Iterable[str], *, has_pods: bool) -> Resources:
    """Return what *taken* leaves of *limit*, of those of *resources* that are limited; ``pods`` only if *has_pods*."""
    return {name: limit.get(name, 0) - taken.get(name, 0) for name in resources if has_pods or name != PODS}


class ExceedingRequests:
    """The slots that exceed the free amounts of one limit.

    While no free amount passes the amount of a request, the set stays the same, so that it is found again only then.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._bounds: list[tuple[str, int | None, int | None]] = []
        """From which free amount of each resource on, and below which, *_slots* is valid; ``None`` for any."""
        self._slots: Slots = 0

    def of(self, requests: RequestIndex, limit: Resources, taken: Resources, *, has_pods: bool) -> Slots:
        """Return the slots of *requests* that exceed *limit* less *taken*; ``pods`` count only if *has_pods*."""
        if requests.version == self._version:
            for name, low, high in self._bounds:
                free = limit.get(name, 0) - taken.get(name, 0)
                if (low is not None and free < low) or (high is not None and free >= high):
                    break
            else:
                return self._slots
        left = free_amounts(limit, taken, requests.resources, has_pods=has_pods)
        self._version, self._slots = requests.version, requests.exceeding(left)
        self._bounds = requests.bounds(left)
        return self._slots
