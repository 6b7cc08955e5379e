"""Usage and fair shares of queues over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import inf

from controller.engine.state.resources import EMPTY, Resources

Amounts = Mapping[str, Fraction | int]
"""Amounts in base units by resource."""


@dataclass(frozen=True, slots=True)
class FairShares:
    """Fair share and limit of each queue."""

    fair_share: Mapping[str, Amounts] = field(default_factory=dict)
    limits: Mapping[str, Amounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """Usage of a queue at one time; amounts in base units."""

    queue: str
    used: Resources = EMPTY
    fair_share: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    admitted: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak usage of a resource and the queue's fair share at that time."""

    used: int = 0
    fair_share: Fraction | int = 0


@dataclass(slots=True)
class UsageHistory:
    """Usage of all queues over time."""

    moments: list[tuple[float, Sequence[QueueUsage]]] = field(default_factory=list)

    def record(self, at: float, standings: Sequence[QueueUsage]) -> None:
        """Record the usage of all queues from time *at* on."""
        self.moments.append((at, standings))

    def peak(self, queue: str, resource: str) -> Peak:
        """Return the first peak of *resource* in *queue*."""
        best = Peak()
        for _, standings in self.moments:
            for standing in standings:
                if standing.queue == queue and standing.used.get(resource, 0) > best.used:
                    best = Peak(standing.used[resource], standing.fair_share.get(resource, 0))
        return best

    def contention(
        self, first: str, second: str, resource: str, *, before: float = inf
    ) -> tuple[float, Fraction, Fraction] | None:
        """Return how long both queues had pending jobs while using *resource*, and their average usage.

        Only times before *before* count. Returns ``None`` if both were never pending at once.
        """
        lasted, held = 0.0, [0.0, 0.0]
        moments = [moment for moment in self.moments if moment[0] < before]
        for (at, standings), (until, _) in pairwise(moments):
            pair = [standing for name in (first, second) for standing in standings if standing.queue == name]
            amounts = [item.used.get(resource, 0) for item in pair]
            if len(pair) == len(held) and all(item.pending for item in pair) and any(amounts):
                lasted += until - at
                held = [sum_ + amount * (until - at) for sum_, amount in zip(held, amounts, strict=True)]
        if not lasted:
            return None
        return lasted, Fraction(held[0] / lasted), Fraction(held[1] / lasted)
