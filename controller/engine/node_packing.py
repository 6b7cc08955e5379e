"""Whether a gang can be placed on the nodes of an empty cluster (C3).

The nodes are those that the operator describes (``nodeShapes``). "No" is
proven, by bounds or by a search through all placements; where neither proves
it, the answer is yes. The work is bounded whatever is asked.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from controller.engine.clusters import NodeShape
from controller.engine.requests import PodSet
from controller.engine.resources import Resources

Amounts = tuple[int, ...]
"""By resource, in the order of the names that some node has."""
Pods = tuple[tuple[Amounts, int], ...]
"""How many pods there are of each request."""
Nodes = tuple[tuple[Amounts, int], ...]
"""How many nodes there are with so much left."""

#: What a node has of a resource that it does not name.
_UNBOUNDED: Final = 1 << 200
#: So many distinct requests are compared with one another; of more only the sums and each request alone are judged.
_MAX_REQUESTS: Final = 48
#: A search through all placements is tried for so many pods and nodes, and in so many steps.
_MAX_PLACED: Final = 24
_MAX_STEPS: Final = 2_000


def can_hold_gang(pod_sets: Iterable[PodSet], nodes: Sequence[NodeShape]) -> bool:
    """Say whether the pods that must start together may find a place each on the empty *nodes*."""
    names = sorted({name for node in nodes for name, _ in node.allocatable})
    counts: dict[Amounts, int] = {}
    for pod_set in pod_sets:
        asked = pod_set.amounts
        request = tuple(max(asked.get(name, 0), 0) for name in names)
        if pod_set.minimum > 0 and any(request):
            counts[request] = counts.get(request, 0) + pod_set.minimum
    empty = ((tuple(dict(node.allocatable).get(name, _UNBOUNDED) for name in names), node.count) for node in nodes)
    return _may_pack(tuple(sorted(counts.items())), tuple(sorted((has, count) for has, count in empty if count > 0)))


def replicas_that_pack(replica: Resources, nodes: Sequence[NodeShape]) -> int | None:
    """Return how many equal pods the empty *nodes* hold; ``None`` where one names nothing of what they ask for."""
    total = 0
    for node in nodes:
        counts = [has // replica[name] for name, has in node.allocatable if replica.get(name, 0) > 0]
        if not counts:
            return None
        total += node.count * min(counts)
    return total


@lru_cache(maxsize=4096)
def _may_pack(pods: Pods, nodes: Nodes) -> bool:
    if _exceeds_bounds(pods, nodes):
        return False
    if not pods or any(_first_fit(order, choice) for order in _packing_orders(pods) for choice in (nodes, nodes[::-1])):
        return True
    if sum(count for _, count in pods) > _MAX_PLACED or sum(count for _, count in nodes) > _MAX_PLACED:
        return True
    return _Search(pods, nodes).may_pack()


def _exceeds_bounds(pods: Pods, nodes: Nodes) -> bool:
    """Say whether a bound shows that *pods* have no place: all of one resource, or too few pods to a node."""
    needs = [sum(request[place] * count for request, count in pods) for place in range(len(pods[0][0]) if pods else 0)]
    haves = [sum(has[place] * count for has, count in nodes) for place in range(len(needs))]
    if any(need > have for need, have in zip(needs, haves, strict=True)):
        return True
    groups = [[each] for each in pods]
    if len(pods) <= _MAX_REQUESTS:
        groups += _large_requests(pods)
    return any(_has_too_many_pods(group, nodes) for group in groups)


def _large_requests(pods: Pods) -> Iterator[list[tuple[Amounts, int]]]:
    """Yield the pods that ask for so much of a resource or more, for each resource and amount."""
    for place in range(len(pods[0][0]) if pods else 0):
        for least in sorted({request[place] for request, _ in pods}):
            yield [each for each in pods if each[0][place] >= least]


def _has_too_many_pods(group: Sequence[tuple[Amounts, int]], nodes: Nodes) -> bool:
    """Say whether there are more pods than the nodes hold of pods that ask for the least of each resource."""
    least = tuple(map(min, zip(*(request for request, _ in group), strict=True)))
    if not any(least):
        return False
    return sum(count for _, count in group) > sum(_pods_per_node(least, has) * count for has, count in nodes)


def _pods_per_node(request: Amounts, has: Amounts) -> int:
    """Return how many pods with this *request* fit into what a node *has*."""
    return min(left // asked for asked, left in zip(request, has, strict=True) if asked > 0)


def _left_after(has: Amounts, request: Amounts, times: int) -> Amounts:
    return tuple(left - asked * times for asked, left in zip(request, has, strict=True))


def _packing_orders(pods: Pods) -> Iterator[Pods]:
    """Yield the orders in which to place: the largest requests first, by each resource in turn."""
    for first in range(len(pods[0][0])):
        yield tuple(sorted(pods, key=lambda each: (each[0][first], each[0]), reverse=True))


def _first_fit(pods: Pods, nodes: Nodes) -> bool:
    """Place all pods of one request after the other, node by node; say whether that works out."""
    groups = list(nodes)
    for request, count in pods:
        left, after = count, list[tuple[Amounts, int]]()
        for has, alike in groups:
            times = _pods_per_node(request, has)
            if not left or not times:
                after.append((has, alike))
                continue
            full, rest = (alike, 0) if left >= times * alike else divmod(left, times)
            left -= full * times + rest
            used = [(_left_after(has, request, times), full), (_left_after(has, request, rest), int(rest > 0))]
            after += [each for each in (*used, (has, alike - full - (rest > 0))) if each[1] > 0]
        if left:
            return False
        groups = after
    return True


class _Search:
    """A search through all placements, the largest pods first; it gives up after so many steps."""

    def __init__(self, pods: Pods, nodes: Nodes) -> None:
        self._pods = [request for request, count in reversed(pods) for _ in range(count)]
        self._nodes = tuple(has for has, count in nodes for _ in range(count))
        self._steps = 0
        self._failed: set[tuple[int, tuple[Amounts, ...]]] = set()

    def may_pack(self) -> bool:
        """Say whether there is a placement, or the search was given up."""
        return self._place(0, self._nodes)

    def _place(self, number: int, nodes: tuple[Amounts, ...]) -> bool:
        self._steps += 1
        if number == len(self._pods) or self._steps > _MAX_STEPS:
            return True
        key = number, tuple(sorted(nodes))
        if key in self._failed:
            return False
        request = self._pods[number]
        for has in sorted(set(nodes)):
            if _pods_per_node(request, has):
                at = nodes.index(has)
                after = (*nodes[:at], _left_after(has, request, 1), *nodes[at + 1 :])
                if self._place(number + 1, after):
                    return True
        self._failed.add(key)
        return False
