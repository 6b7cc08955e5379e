"""Draws from measured distributions; the same seed draws the same.

Here are floats, as the distributions are; what is drawn is whole numbers, so
nothing that decides is made of floats.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import ceil, exp, log, sqrt
from random import Random

SECOND = 1000
_DAY = 86_400 * SECOND


class RandomStream:
    """One stream of draws; *names* tell it from the other streams of a load."""

    def __init__(self, *names: object) -> None:
        self._random = Random("/".join(map(str, names)))  # noqa: S311 - numbers that can be had again, no secret

    def uniform(self) -> float:
        """Return a number from 0 to 1."""
        return self._random.random()

    def choose(self, frequencies: Mapping[str, float]) -> str:
        """Return one of the names, as often as its frequency says."""
        return self._random.choices(list(frequencies), list(frequencies.values()))[0]

    def burst(self, mean: float) -> int:
        """Return a count of at least one: geometric, with this mean."""
        return 1 if mean <= 1 else ceil(log(1 - self.uniform()) / log(1 - 1 / mean) or 1)

    def gap(self, mean_seconds: float) -> int:
        """Return milliseconds to the next event of a Poisson process."""
        return round(self._random.expovariate(1 / mean_seconds) * SECOND)

    def skewed(self, *, mean: float, median: float) -> float:
        """Return a number of the log-normal distribution with this mean and median."""
        return self._random.lognormvariate(log(median), sqrt(2 * log(max(mean / median, 1))))


def quantile(part: float, probabilities: Sequence[float], values: Sequence[float]) -> float:
    """Return the value that *part* of all do not exceed, on a straight line between those known.

    The line is drawn on a logarithmic scale, for the values are magnitudes apart.
    """
    place = min(bisect_right(probabilities, part), len(values) - 1)
    below, above = values[place - 1], values[place]
    way = (part - probabilities[place - 1]) / (probabilities[place] - probabilities[place - 1])
    if below <= 0:
        return below + (above - below) * way
    return exp(log(below) + (log(above) - log(below)) * way)


def milliseconds(seconds: float) -> int:
    """Return a run time in whole milliseconds: a second at least and a day at most.

    The longest ever measured is 145 days; one such would outlast all else in
    a load of some hours, and no figure would tell of anything but its end.
    """
    return min(max(round(seconds * SECOND), SECOND), _DAY)
