"""What the queues held beside what they were entitled to, over time. Pure: times are arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import inf

from controller.engine.resources import EMPTY, Resources

Amounts = Mapping[str, Fraction | int]
"""By resource, in base units."""


@dataclass(frozen=True, slots=True)
class FairShares:
    """What each queue is entitled to, and the most that it may ever hold."""

    fair_share: Mapping[str, Amounts] = field(default_factory=dict)
    limits: Mapping[str, Amounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """One queue at one moment; amounts in base units."""

    queue: str
    used: Resources = EMPTY
    fair_share: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    admitted: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that a queue held of a resource, and what it was entitled to at that moment."""

    used: int = 0
    fair_share: Fraction | int = 0


@dataclass(slots=True)
class UsageHistory:
    """The standings of all queues, one moment after the other."""

    moments: list[tuple[float, Sequence[QueueUsage]]] = field(default_factory=list)

    def record(self, at: float, standings: Sequence[QueueUsage]) -> None:
        """Take how all queues stand from now on."""
        self.moments.append((at, standings))

    def peak(self, queue: str, resource: str) -> Peak:
        """Return the first moment at which *queue* held most of *resource*."""
        best = Peak()
        for _, standings in self.moments:
            for standing in standings:
                if standing.queue == queue and standing.used.get(resource, 0) > best.used:
                    best = Peak(standing.used[resource], standing.fair_share.get(resource, 0))
        return best

    def contention(
        self, first: str, second: str, resource: str, *, before: float = inf
    ) -> tuple[float, Fraction, Fraction] | None:
        """Return for how long jobs of both queues waited while they held something, and what they held on average.

        ``None`` when that was never so until *before*.
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
