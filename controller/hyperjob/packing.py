"""Onto which clusters a number of equal units goes, with as few parts as possible; knows nothing but numbers.

One cluster, the host, also takes what must exist once. Of the ways with the
fewest parts the preferred clusters are served first, in their order; among the
others the largest go first, and the last part goes where least is left over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class ClusterBin:
    """What one cluster can hold, in units."""

    name: str
    capacity: int
    leader_capacity: int
    """The same beside what must exist once; negative where that does not fit."""


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """What is to be packed."""

    units: int
    max_parts: int
    """The greatest number of parts."""
    min_units: int = 1
    """The fewest units of a part."""


Shares = tuple[tuple[str, int], ...]
"""The units of each cluster; the host first."""


def pack(bins: Sequence[ClusterBin], load: PackingRequest, preferred: Sequence[str] = ()) -> Shares | None:
    """Return the way with the fewest parts, or ``None`` where there is none."""
    order = usable_bins(bins, load, preferred)
    liked = [each.name for each in order if each.name in preferred]
    for parts in range(_min_parts(order, load), _max_parts(order, load) + 1):
        for host in order:
            chosen = _choose(order, host, load=load, parts=parts, liked=liked)
            if chosen:
                return _assign(order, chosen, host, load)
    return None


def fill_in_order(bins: Sequence[ClusterBin], load: PackingRequest, preferred: Sequence[str] = ()) -> Shares | None:
    """Return the way that fills one cluster after the other, or ``None`` where there is none."""
    order = usable_bins(bins, load, preferred)
    for parts in range(_min_parts(order, load), _max_parts(order, load) + 1):
        chosen = order[:parts]
        for host in chosen:
            if host.leader_capacity >= load.min_units and _capacity(chosen, host) >= load.units:
                return _assign(order, chosen, host, load)
    return None


def usable_bins(bins: Sequence[ClusterBin], load: PackingRequest, preferred: Sequence[str]) -> list[ClusterBin]:
    """Return the bins that can hold a part: the preferred ones in their order, then by size and name."""
    place = {name: number for number, name in enumerate(preferred)}
    usable = (each for each in bins if each.capacity >= load.min_units)
    return sorted(
        usable, key=lambda each: (place.get(each.name, len(place)), -min(each.capacity, load.units), each.name)
    )


def _min_parts(order: Sequence[ClusterBin], load: PackingRequest) -> int:
    """Return how many parts it takes where nothing has to exist once."""
    sums = accumulate(sorted((each.capacity for each in order), reverse=True))
    return next((parts for parts, held in enumerate(sums, start=1) if held >= load.units), len(order) + 1)


def _max_parts(order: Sequence[ClusterBin], load: PackingRequest) -> int:
    return min(load.max_parts, load.units // load.min_units, len(order))


def _capacity(chosen: Sequence[ClusterBin], host: ClusterBin) -> int:
    return host.leader_capacity + sum(each.capacity for each in chosen if each is not host)


def _choose(
    order: Sequence[ClusterBin], host: ClusterBin, *, load: PackingRequest, parts: int, liked: Sequence[str]
) -> list[ClusterBin] | None:
    """Return the bins beside which *host* makes *parts* parts that hold everything, in the order of preference."""
    if host.leader_capacity < load.min_units:
        return None
    others = [each for each in order if each is not host]
    need = load.units - host.leader_capacity
    chosen: list[ClusterBin] = [host]
    for left in range(parts - 1, 0, -1):
        found = _choose_next(others, need, left=left, liked=liked)
        if found is None:
            return None
        chosen.append(found)
        others.remove(found)
        need -= found.capacity
    return chosen if need <= 0 else None


def _choose_next(others: Sequence[ClusterBin], need: int, *, left: int, liked: Sequence[str]) -> ClusterBin | None:
    """Return the first bin that leaves a way for the *left* - 1 after it; the last is chosen to leave least over."""
    by_size = sorted(others, key=lambda each: -each.capacity)
    able = [each for each in others if each.capacity + _largest_capacity(by_size, each, left - 1) >= need]
    if not able or left > 1 or able[0].name in liked:
        return able[0] if able else None
    return min(able, key=lambda each: (each.capacity, each.name))


def _largest_capacity(by_size: Sequence[ClusterBin], but: ClusterBin, count: int) -> int:
    first = [each for each in by_size[: count + 1] if each is not but]
    return sum(each.capacity for each in first[:count])


def _assign(
    order: Sequence[ClusterBin], chosen: Sequence[ClusterBin], host: ClusterBin, load: PackingRequest
) -> Shares:
    """Give each chosen bin its least, then fill them in order."""
    given = {each.name: load.min_units for each in chosen}
    rest = load.units - load.min_units * len(chosen)
    for each in (each for each in order if each.name in given):
        more = min((each.leader_capacity if each is host else each.capacity) - load.min_units, rest)
        given[each.name] += more
        rest -= more
    return tuple(_host_first(given, host.name))


def _host_first(given: dict[str, int], host: str) -> Iterator[tuple[str, int]]:
    yield host, given[host]
    yield from ((name, units) for name, units in given.items() if name != host)
