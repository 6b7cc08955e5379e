"""What was measured on real clusters, from ``measured.json``: sizes, run times and arrivals, with their sources."""

from functools import cache
from importlib.resources import files

import msgspec

Quantiles = tuple[float, ...]
"""The values at the common probabilities."""
Frequencies = dict[str, float]


class PhillyTenant(msgspec.Struct, frozen=True):
    """One virtual cluster of Philly; times in seconds."""

    name: str
    gpu_time_share: float
    gpus: Frequencies
    durations: Quantiles
    mean_burst: float
    """How many jobs come in one burst."""
    mean_gap: float
    """How long it is from one burst to the next."""


class Philly(msgspec.Struct, frozen=True):
    """Microsoft's training cluster: bursts from few tenants, nearly all jobs small, run times of five magnitudes."""

    source: str
    hour_of_day: tuple[float, ...]
    """How many times as many jobs as on the average come in each hour."""
    weekday: tuple[float, ...]
    """The same for each day, Monday first."""
    tenants: tuple[PhillyTenant, ...]


class MeanAndMedian(msgspec.Struct, frozen=True):
    """A distribution of which only the middle is known, in seconds."""

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
    """SenseTime's four clusters: half of the jobs use no GPU and are short, some use very many."""

    source: str
    clusters: tuple[HeliosCluster, ...]


class Alibaba(msgspec.Struct, frozen=True):
    """Alibaba's shared GPUs: most tasks take one or a part of one."""

    source: str
    gpus: Frequencies
    percent_of_one_gpu: Frequencies
    """What those take that take one GPU at most."""
    durations: Quantiles
    cpu_milli: Quantiles
    memory_mib: Quantiles
    classes: Frequencies


class Measurements(msgspec.Struct, frozen=True):
    """All of it; *probabilities* are those of every list of quantiles."""

    probabilities: Quantiles
    philly: Philly
    helios: Helios
    alibaba: Alibaba


@cache
def load_measurements() -> Measurements:
    """Return what was measured."""
    text = files(__package__).joinpath("measured.json").read_bytes()
    return msgspec.json.decode(text, type=Measurements)
