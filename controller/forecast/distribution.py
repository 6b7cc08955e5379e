"""Distributions of run times from weighted observations: quantiles, also given the time already run."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from math import exp, log, sqrt
from typing import NamedTuple


class WeightedTime(NamedTuple):
    """A run time in seconds and its weight."""

    seconds: float
    weight: float


_MIN_SECONDS = 0.001


class Distribution:
    """A distribution of run times, interpolated between observations in the logarithm of the time.

    The probability of an observation is the middle of its weight. Below the first observation the probability grows
    linearly; above the last one it is a Pareto tail of index 1: a run longer than all observations is as likely to
    double its time as not.
    """

    def __init__(self, times: Iterable[WeightedTime]) -> None:
        self.times = tuple(sorted(time for time in times if time.weight > 0))
        weights = [time.weight for time in self.times]
        self.total = sum(weights)
        self._logs = [log(max(time.seconds, _MIN_SECONDS)) for time in self.times]
        self._fractions = [
            (end - weight / 2) / self.total for end, weight in zip(accumulate(weights), weights, strict=True)
        ]

    def fraction(self, seconds: float) -> float:
        """Return the probability of a run time of at most *seconds*."""
        if seconds <= 0:
            return 0.0
        logs, fractions, at = self._logs, self._fractions, log(seconds)
        index = bisect_right(logs, at)
        if index == 0:
            return fractions[0] * exp(at - logs[0])
        if index == len(logs):
            return 1 - (1 - fractions[-1]) * exp(logs[-1] - at)
        below, above = logs[index - 1], logs[index]
        return fractions[index - 1] + (fractions[index] - fractions[index - 1]) * (at - below) / (above - below)

    def quantile(self, probability: float) -> float:
        """Return the run time in seconds that is not exceeded with *probability*, which is below 1."""
        logs, fractions = self._logs, self._fractions
        index = bisect_left(fractions, probability)
        if index == 0:
            return exp(logs[0]) * probability / fractions[0]
        if index == len(fractions):
            return exp(logs[-1]) * (1 - fractions[-1]) / (1 - probability)
        weight = (probability - fractions[index - 1]) / (fractions[index] - fractions[index - 1])
        return exp(logs[index - 1] + (logs[index] - logs[index - 1]) * weight)

    def total_time(self, probability: float, ran: float) -> float:
        """Return the quantile of the run time of a job that has run for *ran* seconds, in seconds."""
        passed = self.fraction(ran)
        return max(self.quantile(passed + probability * (1 - passed)), ran)

    @property
    def spread(self) -> float:
        """Return the standard deviation of the logarithm of the run time."""
        mean = sum(at * time.weight for at, time in zip(self._logs, self.times, strict=True)) / self.total
        squares = ((at - mean) ** 2 * time.weight for at, time in zip(self._logs, self.times, strict=True))
        return sqrt(sum(squares) / self.total)

    def scaled(self, total: float, *, factor: float = 1.0) -> list[WeightedTime]:
        """Return its observations with weights that sum to *total*, and times multiplied by *factor*."""
        by = total / self.total
        return [WeightedTime(time.seconds * factor, time.weight * by) for time in self.times]


def with_censored(times: Iterable[WeightedTime], censored: Iterable[WeightedTime]) -> list[WeightedTime]:
    """Return *times* with the weight of runs that were stopped early moved to the longer run times.

    A run stopped after some time would have run longer; its weight goes to all longer times in proportion (Efron's
    redistribution to the right, which yields the Kaplan-Meier estimate). Without any it counts as twice its time.
    """
    known = sorted(times)
    for stopped in sorted(censored):
        index = bisect_right(known, (stopped.seconds, float("inf")))
        longer = sum(time.weight for time in known[index:])
        if not longer:
            known.append(WeightedTime(2 * stopped.seconds, stopped.weight))
            continue
        by = 1 + stopped.weight / longer
        known[index:] = [WeightedTime(time.seconds, time.weight * by) for time in known[index:]]
    return known
