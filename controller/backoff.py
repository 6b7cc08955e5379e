"""Computes delays between retries: exponential with jitter."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """The retry delays of one operation, in seconds."""

    initial: float = 0.25
    maximum: float = 10
    jitter: Callable[[], float] = random.random
    """Returns a number in [0, 1): the used part of the upper half of each delay."""
    failures: int = 0

    def next_delay(self, *, at_least: float | None = None) -> float:
        """Count one more failure and return the delay before the next attempt, never below *at_least*."""
        full: float = min(self.initial * 2 ** min(self.failures, 32), self.maximum)
        self.failures += 1
        return max(full * (1 + self.jitter()) / 2, at_least or 0)

    def reset(self) -> None:
        """Start again with the initial delay, after a success."""
        self.failures = 0
