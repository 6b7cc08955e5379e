"""Draws reproducible random values from measured distributions.

The distributions use floats, but the resulting amounts and times are integers, so that no
decision depends on floats.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import ceil, exp, log, sqrt
from random import Random

SECOND = 1000
_DAY = 86_400 * SECOND


class RandomStream:
    """Stream of random values, seeded by *names*."""

    def __init__(self, *names: object) -> None:
        self._random = Random("/".join(map(str, names)))  # noqa: S311 - reproducible numbers, not a secret

    def uniform(self) -> float:
        """Return a number from 0 to 1."""
        return self._random.random()

    def choose(self, frequencies: Mapping[str, float]) -> str:
        """Return one of the names with a probability proportional to its frequency."""
        return self._random.choices(list(frequencies), list(frequencies.values()))[0]

    def burst(self, mean: float) -> int:
        """Return a geometrically distributed count of at least one with mean *mean*."""
        return 1 if mean <= 1 else ceil(log(1 - self.uniform()) / log(1 - 1 / mean) or 1)

    def gap(self, mean_seconds: float) -> int:
        """Return the milliseconds to the next event of a Poisson process."""
        return round(self._random.expovariate(1 / mean_seconds) * SECOND)

    def skewed(self, *, mean: float, median: float) -> float:
        """Return a log-normally distributed number with the given mean and median."""
        return self._random.lognormvariate(log(median), sqrt(2 * log(max(mean / median, 1))))


def quantile(part: float, probabilities: Sequence[float], values: Sequence[float]) -> float:
    """Return the quantile at the probability *part*, interpolated between *values*.

    The interpolation is logarithmic, because the values span several orders of magnitude.
    """
    index = min(bisect_right(probabilities, part), len(values) - 1)
    below, above = values[index - 1], values[index]
    weight = (part - probabilities[index - 1]) / (probabilities[index] - probabilities[index - 1])
    if below <= 0:
        return below + (above - below) * weight
    return exp(log(below) + (log(above) - log(below)) * weight)


def milliseconds(seconds: float) -> int:
    """Return a run time in milliseconds, limited to between one second and one day.

    The longest measured run time is 145 days. One such job would dominate all statistics of a
    load of a few hours.
    """
    return min(max(round(seconds * SECOND), SECOND), _DAY)
