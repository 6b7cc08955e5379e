"""How long to wait after the n-th failure in a row.

Exponential with jitter. It neither sleeps nor reads a clock.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """The waiting times of one thing that may fail, in seconds."""

    initial: float = 0.25
    maximum: float = 10
    jitter: Callable[[], float] = random.random
    """A number in [0, 1): how much of the upper half of each delay is used."""
    failures: int = 0

    def next_delay(self, *, at_least: float | None = None) -> float:
        """Return how long to wait after one more failure, never below *at_least*."""
        full: float = min(self.initial * 2 ** min(self.failures, 32), self.maximum)
        self.failures += 1
        return max(full * (1 + self.jitter()) / 2, at_least or 0)

    def reset(self) -> None:
        """Begin again with the shortest delay."""
        self.failures = 0
