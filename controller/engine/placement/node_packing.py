"""Decides whether a gang can be placed on the nodes of an empty cluster (C3).

The operator describes the nodes (``nodeShapes``). A negative answer is proven, by bounds or by an exhaustive
search; otherwise the answer is positive. The work is bounded for every input.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from controller.engine.state.clusters import NodeShape
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import Resources

Amounts = tuple[int, ...]
"""Amounts by resource, in the order of the resource names of all nodes."""
Pods = tuple[tuple[Amounts, int], ...]
"""Number of pods by request."""
Nodes = tuple[tuple[Amounts, int], ...]
"""Number of nodes by free amounts."""

#: Amount of a resource that a node does not list.
_UNBOUNDED: Final = 1 << 200
#: Maximum number of distinct requests compared with one another; beyond it only sums and single requests are.
_MAX_REQUESTS: Final = 48
#: Maximum number of pods and of nodes, and of steps, for an exhaustive search.
_MAX_PLACED: Final = 24
_MAX_STEPS: Final = 2_000


def can_hold_gang(pod_sets: Iterable[PodSet], nodes: Sequence[NodeShape]) -> bool:
    """Return whether the empty *nodes* may hold all pods of the gang minimum."""
    names = sorted({name for node in nodes for name, _ in node.allocatable})
    counts: dict[Amounts, int] = {}
    for pod_set in pod_sets:
        requested = pod_set.amounts
        request = tuple(max(requested.get(name, 0), 0) for name in names)
        if pod_set.minimum > 0 and any(request):
            counts[request] = counts.get(request, 0) + pod_set.minimum
    empty = ((tuple(dict(node.allocatable).get(name, _UNBOUNDED) for name in names), node.count) for node in nodes)
    pods = tuple(sorted(counts.items()))
    # Equal gangs are common where they have few distinct requests; keys of many requests would fill the memory.
    decide = _may_pack if len(pods) <= _MAX_REQUESTS else _may_pack.__wrapped__
    return decide(pods, tuple(sorted((allocatable, count) for allocatable, count in empty if count > 0)))


def replicas_that_pack(replica: Resources, nodes: Sequence[NodeShape]) -> int | None:
    """Return how many equal pods the empty *nodes* hold; ``None`` where a node lists none of their resources."""
    total = 0
    for node in nodes:
        counts = [allocatable // replica[name] for name, allocatable in node.allocatable if replica.get(name, 0) > 0]
        if not counts:
            return None
        total += node.count * min(counts)
    return total


@lru_cache(maxsize=4096)
def _may_pack(pods: Pods, nodes: Nodes) -> bool:
    if _exceeds_bounds(pods, nodes):
        return False
    if not pods or sum(count for _, count in pods) > _MAX_PLACED or sum(count for _, count in nodes) > _MAX_PLACED:
        return True
    if any(_first_fit(order, choice) for order in _packing_orders(pods) for choice in (nodes, nodes[::-1])):
        return True
    return _Search(pods, nodes).may_pack()


def _exceeds_bounds(pods: Pods, nodes: Nodes) -> bool:
    """Return whether a bound proves that *pods* do not fit: the sum of a resource, or the number of pods per node."""
    needs = [sum(request[place] * count for request, count in pods) for place in range(len(pods[0][0]) if pods else 0)]
    capacities = [sum(free[place] * count for free, count in nodes) for place in range(len(needs))]
    if any(need > capacity for need, capacity in zip(needs, capacities, strict=True)):
        return True
    groups = [[pod] for pod in pods]
    if len(pods) <= _MAX_REQUESTS:
        groups += _large_requests(pods)
    return any(_has_too_many_pods(group, nodes) for group in groups)


def _large_requests(pods: Pods) -> Iterator[list[tuple[Amounts, int]]]:
    """Yield, for each resource and amount, the pods that request at least as much."""
    for place in range(len(pods[0][0]) if pods else 0):
        for least in sorted({request[place] for request, _ in pods}):
            yield [pod for pod in pods if pod[0][place] >= least]


def _has_too_many_pods(group: Sequence[tuple[Amounts, int]], nodes: Nodes) -> bool:
    """Return whether the pods outnumber what nodes hold of pods with the group's smallest requests."""
    least = tuple(map(min, zip(*(request for request, _ in group), strict=True)))
    if not any(least):
        return False
    return sum(count for _, count in group) > sum(_pods_per_node(least, free) * count for free, count in nodes)


def _pods_per_node(request: Amounts, free: Amounts) -> int:
    """Return how many pods with *request* fit into *free*."""
    return min(available // requested for requested, available in zip(request, free, strict=True) if requested > 0)


def _left_after(free: Amounts, request: Amounts, times: int) -> Amounts:
    return tuple(available - requested * times for requested, available in zip(request, free, strict=True))


def _packing_orders(pods: Pods) -> Iterator[Pods]:
    """Yield packing orders: largest requests first, by each resource in turn."""
    for first in range(len(pods[0][0])):
        yield tuple(sorted(pods, key=lambda pod: (pod[0][first], pod[0]), reverse=True))


def _first_fit(pods: Pods, nodes: Nodes) -> bool:
    """Place the pods request by request, node by node; say whether all fit."""
    groups = list(nodes)
    for request, count in pods:
        remaining, after = count, list[tuple[Amounts, int]]()
        for free, node_count in groups:
            pods_per_node = _pods_per_node(request, free)
            if not remaining or not pods_per_node:
                after.append((free, node_count))
                continue
            full, rest = (
                (node_count, 0) if remaining >= pods_per_node * node_count else divmod(remaining, pods_per_node)
            )
            remaining -= full * pods_per_node + rest
            used = [
                (_left_after(free, request, pods_per_node), full),
                (_left_after(free, request, rest), int(rest > 0)),
            ]
            after += [group for group in (*used, (free, node_count - full - (rest > 0))) if group[1] > 0]
        if remaining:
            return False
        groups = after
    return True


class _Search:
    """Exhaustive search for a placement, largest pods first, with a limited number of steps."""

    def __init__(self, pods: Pods, nodes: Nodes) -> None:
        self._pods = [request for request, count in reversed(pods) for _ in range(count)]
        self._nodes = tuple(free for free, count in nodes for _ in range(count))
        self._steps = 0
        self._failed: set[tuple[int, tuple[Amounts, ...]]] = set()

    def may_pack(self) -> bool:
        """Return whether there is a placement, or the search has reached its limit."""
        return self._place(0, self._nodes)

    def _place(self, number: int, nodes: tuple[Amounts, ...]) -> bool:
        self._steps += 1
        if number == len(self._pods) or self._steps > _MAX_STEPS:
            return True
        key = number, tuple(sorted(nodes))
        if key in self._failed:
            return False
        request = self._pods[number]
        for free in sorted(set(nodes)):
            if _pods_per_node(request, free):
                at = nodes.index(free)
                after = (*nodes[:at], _left_after(free, request, 1), *nodes[at + 1 :])
                if self._place(number + 1, after):
                    return True
        self._failed.add(key)
        return False
