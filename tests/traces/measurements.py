"""Loads the published measurements of real clusters from ``measured.json``."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cache
from math import ceil, exp, log, sqrt
from pathlib import Path
from random import Random

import msgspec

Quantiles = tuple[float, ...]
"""Values at `Measurements.probabilities`."""

Frequencies = dict[str, float]


class PhillyTenant(msgspec.Struct, frozen=True):
    """One virtual cluster of Philly; times in seconds."""

    name: str
    gpu_time_share: float
    gpus: Frequencies
    durations: Quantiles
    mean_burst: float
    """Mean number of jobs in a burst."""
    mean_gap: float
    """Mean time between bursts."""


class Philly(msgspec.Struct, frozen=True):
    """Microsoft's training cluster: bursts of mostly small jobs from few tenants, with widely varying run times."""

    hour_of_day: tuple[float, ...]
    """Job rate of each hour relative to the mean."""
    weekday: tuple[float, ...]
    """Job rate of each day relative to the mean, Monday first."""
    tenants: tuple[PhillyTenant, ...]


class MeanAndMedian(msgspec.Struct, frozen=True):
    """Mean and median of a distribution, in seconds."""

    mean: float
    median: float


class HeliosCluster(msgspec.Struct, frozen=True):
    """One cluster of Helios."""

    name: str
    gpu_jobs: int
    cpu_jobs: int
    mean_gpus: float
    gpu_seconds: MeanAndMedian
    cpu_seconds: MeanAndMedian


class Helios(msgspec.Struct, frozen=True):
    """SenseTime's four clusters: half of the jobs are short and use no GPU, a few use many GPUs."""

    clusters: tuple[HeliosCluster, ...]


class Alibaba(msgspec.Struct, frozen=True):
    """Alibaba's shared GPUs: most tasks use one GPU or less."""

    gpus: Frequencies
    percent_of_one_gpu: Frequencies
    """GPU percentage of tasks that use at most one GPU."""
    durations: Quantiles
    cpu_milli: Quantiles
    memory_mib: Quantiles
    classes: Frequencies


class Measurements(msgspec.Struct, frozen=True):
    """All measurements; *probabilities* apply to every list of quantiles."""

    probabilities: Quantiles
    philly: Philly
    helios: Helios
    alibaba: Alibaba


@cache
def load_measurements() -> Measurements:
    """Return the measurements."""
    return msgspec.json.decode(Path(__file__).with_name("measured.json").read_bytes(), type=Measurements)


SECOND = 1000

_DAY = 86_400 * SECOND


class RandomStream:
    """Stream of random values, seeded by *names*."""

    def __init__(self, *names: object) -> None:
        self._random = Random("/".join(map(str, names)))

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
