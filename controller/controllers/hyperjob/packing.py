"""Packs a number of equal units onto clusters with as few parts as possible; independent of Kubernetes objects.

One cluster, the leader, also takes the pods that must exist once. Among the packings with the fewest parts, preferred
clusters come first, in their order, then the largest ones, and the last part goes where the least capacity remains.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class ClusterBin:
    """Capacity of one cluster, in units."""

    name: str
    capacity: int
    leader_capacity: int
    """Capacity after placing the pods that must exist once; negative where these do not fit."""


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """The units to pack and their limits."""

    units: int
    max_parts: int
    """Maximum number of parts."""
    min_units: int = 1
    """Minimum number of units of a part."""


Shares = tuple[tuple[str, int], ...]
"""Units of each cluster; the leader first."""


def pack(bins: Sequence[ClusterBin], load: PackingRequest, preferred: Sequence[str] = ()) -> Shares | None:
    """Return the packing with the fewest parts, ``None`` if there is none."""
    order = usable_bins(bins, load, preferred)
    preferred_names = [cluster.name for cluster in order if cluster.name in preferred]
    for parts in range(_min_parts(order, load), _max_parts(order, load) + 1):
        for host in order:
            chosen = _choose(order, host, load=load, parts=parts, preferred_names=preferred_names)
            if chosen:
                return _assign(order, chosen, host, load)
    return None


def fill_in_order(bins: Sequence[ClusterBin], load: PackingRequest, preferred: Sequence[str] = ()) -> Shares | None:
    """Return the packing that fills one cluster after the other, ``None`` if there is none."""
    order = usable_bins(bins, load, preferred)
    for parts in range(_min_parts(order, load), _max_parts(order, load) + 1):
        chosen = order[:parts]
        for host in chosen:
            if host.leader_capacity >= load.min_units and _capacity(chosen, host) >= load.units:
                return _assign(order, chosen, host, load)
    return None


def usable_bins(bins: Sequence[ClusterBin], load: PackingRequest, preferred: Sequence[str]) -> list[ClusterBin]:
    """Return the bins that can hold a part: preferred ones in their order, then by size and name."""
    index = {name: number for number, name in enumerate(preferred)}
    usable = (cluster for cluster in bins if cluster.capacity >= load.min_units)
    return sorted(
        usable,
        key=lambda cluster: (index.get(cluster.name, len(index)), -min(cluster.capacity, load.units), cluster.name),
    )


def _min_parts(order: Sequence[ClusterBin], load: PackingRequest) -> int:
    """Return the minimum number of parts, ignoring pods that must exist once."""
    sums = accumulate(sorted((cluster.capacity for cluster in order), reverse=True))
    return next((parts for parts, held in enumerate(sums, start=1) if held >= load.units), len(order) + 1)


def _max_parts(order: Sequence[ClusterBin], load: PackingRequest) -> int:
    return min(load.max_parts, load.units // load.min_units, len(order))


def _capacity(chosen: Sequence[ClusterBin], host: ClusterBin) -> int:
    return host.leader_capacity + sum(cluster.capacity for cluster in chosen if cluster is not host)


def _choose(
    order: Sequence[ClusterBin], host: ClusterBin, *, load: PackingRequest, parts: int, preferred_names: Sequence[str]
) -> list[ClusterBin] | None:
    """Return *parts* bins including *host* that hold all units, in the order of preference, ``None`` if impossible."""
    if host.leader_capacity < load.min_units:
        return None
    others = [cluster for cluster in order if cluster is not host]
    need = load.units - host.leader_capacity
    chosen: list[ClusterBin] = [host]
    for left in range(parts - 1, 0, -1):
        found = _choose_next(others, need, left=left, preferred_names=preferred_names)
        if found is None:
            return None
        chosen.append(found)
        others.remove(found)
        need -= found.capacity
    return chosen if need <= 0 else None


def _choose_next(
    others: Sequence[ClusterBin], need: int, *, left: int, preferred_names: Sequence[str]
) -> ClusterBin | None:
    """Return the first bin that leaves a solution for the *left* - 1 after it; the last bin wastes least."""
    by_size = sorted(others, key=lambda cluster: -cluster.capacity)
    feasible = [
        cluster for cluster in others if cluster.capacity + _largest_capacity(by_size, cluster, left - 1) >= need
    ]
    if not feasible or left > 1 or feasible[0].name in preferred_names:
        return feasible[0] if feasible else None
    return min(feasible, key=lambda cluster: (cluster.capacity, cluster.name))


def _largest_capacity(by_size: Sequence[ClusterBin], excluded: ClusterBin, count: int) -> int:
    first = [cluster for cluster in by_size[: count + 1] if cluster is not excluded]
    return sum(cluster.capacity for cluster in first[:count])


def _assign(
    order: Sequence[ClusterBin], chosen: Sequence[ClusterBin], host: ClusterBin, load: PackingRequest
) -> Shares:
    """Give each chosen bin the minimum, then fill them in order."""
    assigned = {cluster.name: load.min_units for cluster in chosen}
    rest = load.units - load.min_units * len(chosen)
    for cluster in (cluster for cluster in order if cluster.name in assigned):
        more = min((cluster.leader_capacity if cluster is host else cluster.capacity) - load.min_units, rest)
        assigned[cluster.name] += more
        rest -= more
    return tuple(_host_first(assigned, host.name))


def _host_first(assigned: dict[str, int], host: str) -> Iterator[tuple[str, int]]:
    yield host, assigned[host]
    yield from ((name, units) for name, units in assigned.items() if name != host)
