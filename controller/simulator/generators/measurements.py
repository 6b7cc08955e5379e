"""Loads the published measurements of real clusters from ``measured.json``."""

from functools import cache
from importlib.resources import files

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

    source: str
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

    source: str
    clusters: tuple[HeliosCluster, ...]


class Alibaba(msgspec.Struct, frozen=True):
    """Alibaba's shared GPUs: most tasks use one GPU or less."""

    source: str
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
    text = files(__package__).joinpath("measured.json").read_bytes()
    return msgspec.json.decode(text, type=Measurements)
