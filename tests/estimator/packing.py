"""Exact packing of pods on nodes, by brute force where necessary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Amounts = Mapping[str, int]
Gang = Sequence[tuple[Amounts, int]]
"""Requests of pods, and how many pods of each."""


@dataclass(frozen=True)
class Node:
    """What is free on one node."""

    free: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()


def pods_on(request: Amounts, free: Amounts) -> int:
    """Return how many equal pods one node holds."""
    return min((free.get(name, 0) // amount for name, amount in request.items() if amount > 0), default=10**6)


def pods_that_fit(request: Amounts, nodes: Sequence[Node]) -> int:
    """Return how many equal pods fit: exact, for each node stands alone."""
    return sum(max(pods_on(request, node.free), 0) for node in nodes)


def is_packable(gang: Gang, nodes: Sequence[Amounts]) -> bool:
    """Say whether all pods of *gang* fit on *nodes* together, by search with memory."""
    pods = sorted(
        (request for request, count in gang for _ in range(count)),
        key=lambda request: (-max(request.values(), default=0), sorted(request.items())),
    )
    names = sorted({name for request in pods for name, amount in request.items() if amount > 0})
    wants = [tuple(request.get(name, 0) for name in names) for request in pods]
    start = tuple(sorted(tuple(node.get(name, 0) for name in names) for node in nodes))
    dead: set[tuple[int, tuple[tuple[int, ...], ...]]] = set()

    def place(number: int, free: tuple[tuple[int, ...], ...]) -> bool:
        if number == len(wants):
            return True
        if (number, free) in dead:
            return False
        want, tried = wants[number], set()
        for index, node in enumerate(free):
            if node in tried or any(have < ask for have, ask in zip(node, want, strict=True)):
                continue
            tried.add(node)
            left = tuple(have - ask for have, ask in zip(node, want, strict=True))
            if place(number + 1, tuple(sorted((*free[:index], left, *free[index + 1 :])))):
                return True
        dead.add((number, free))
        return False

    return place(0, start)


def gangs_that_fit(gang: Gang, nodes: Sequence[Node], most: int = 3) -> int:
    """Return how many whole gangs fit, counted exactly up to *most*."""
    count = 0
    while count < most:
        times = [(request, number * (count + 1)) for request, number in gang]
        if not is_packable(times, [node.free for node in nodes]):
            break
        count += 1
    return count
