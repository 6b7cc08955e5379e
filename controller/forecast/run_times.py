"""Learns run times from the ends of admitted workloads.

A run time is the time from admission to the end of the run, because that is how long the workload holds its charge.
The distribution for a job combines four levels, from the most specific: its queue, namespace, template without names
and accelerators; its namespace and accelerators; its queue; all jobs. Each level adds its own runs to the distribution
of the next more general one, which counts as few runs: the predictive distribution of a hierarchical Dirichlet process.
Where a template has many runs they decide; where it has none, the general levels do. Newer runs count more, because
run times drift. Runs that an eviction stopped are no run times: they only show that the job would have run longer.

Sources: empirical quantiles per template as in 3Sigma (EuroSys 2018) and in learned queue wait times
(arXiv 2204.13543); the combination of levels as in hierarchical Dirichlet processes (Teh et al., 2006).
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, pairwise
from math import sqrt
from statistics import NormalDist, fmean
from typing import NamedTuple

from controller.forecast.distribution import Distribution, WeightedTime, with_censored

#: Longest run time that is recorded or predicted, and longest `spec.runningEstimate` that is accepted, in seconds.
MAX_SECONDS = 365 * 86_400

#: Bounds of the memory: keys of all levels together, runs of a key, and evicted runs of a key.
MAX_KEYS = 1_000
MAX_RUNS = 24
MAX_EVICTED = 6

#: Weight of a run relative to the next newer one of its key: the last ten runs have two thirds of the weight.
_DECAY = 0.9

#: Number of runs that the next more general level counts as.
_PRIOR_RUNS = 4.0

#: Run times before any run is known, in seconds: from seconds to days, around ten minutes.
_INITIAL_SECONDS = (10, 60, 300, 600, 1200, 3600, 21_600, 86_400)

#: Ratios of run time to estimate before any is known: users estimate too much rather than too little.
_INITIAL_RATIOS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5)

#: The calibration is learned from at least so many pairs of runs; its bounds.
_MIN_COMPARISONS = 20
_MAX_CORRELATION = 0.95
_MAX_DISPERSION = 2.0

#: A run is compared with at least so many earlier ones, for so many templates at most.
_MIN_EARLIER = 4
_MAX_COMPARED = 200

_NORMAL = NormalDist()

_DIGEST_BYTES = 9
#: Digits of the digest by which a run names its namespace.
NAMESPACE_DIGITS = 4


class Outcome(StrEnum):
    """How a run ended; the values are stored."""

    COMPLETED = "c"
    FAILED = "f"
    EVICTED = "e"


class JobProfile(NamedTuple):
    """What is known about the run time of a job before it runs."""

    queue: str
    namespace: str
    template: str = ""
    """A digest of its template without names."""
    accelerators: str = ""
    """Amounts of its extended resources, such as ``nvidia.com/gpu=8``."""
    estimate: int = 0
    """``spec.runningEstimate`` in seconds; 0 without one."""


class Run(NamedTuple):
    """One ended run."""

    seconds: int
    outcome: Outcome = Outcome.COMPLETED
    estimate: int = 0
    """The user's estimate in seconds; 0 without one."""
    namespace: str = ""
    """A short digest of the namespace, where the runs of several namespaces are combined."""


class Level(IntEnum):
    """How specific a key is; the values are stored."""

    TEMPLATE = 0
    NAMESPACE = 1
    QUEUE = 2
    ALL = 3


class Key(NamedTuple):
    """Identifies a history by digests; names are not stored."""

    level: Level
    namespace: str
    """Of the namespace to which the key counts; empty for queues and for all jobs."""
    digest: str


_ALL = Key(Level.ALL, "", "")


def _digest(*names: str) -> str:
    return blake2b("\0".join(names).encode(), digest_size=_DIGEST_BYTES).hexdigest()


@lru_cache(maxsize=4096)
def keys_of(profile: JobProfile) -> tuple[Key, ...]:
    """Return the keys of a job, from the most specific level to all jobs; equal jobs are looked up with each change."""
    namespace = _digest("namespace", profile.namespace)
    return (
        Key(Level.TEMPLATE, namespace, _digest("template", *profile[:4])),
        Key(Level.NAMESPACE, namespace, _digest("namespace", profile.namespace, profile.accelerators)),
        Key(Level.QUEUE, "", _digest("queue", profile.queue)),
        _ALL,
    )


@dataclass(slots=True)
class RunHistory:
    """The latest runs of one key, the newest last.

    A run too many displaces the oldest one of the namespace with the most runs, so that a namespace with many short
    jobs does not determine what is expected of the others.
    """

    runs: deque[Run] = field(default_factory=lambda: deque(maxlen=MAX_RUNS))
    """Completed and failed runs: a failed run also frees its charge, at its own time."""
    evicted: deque[Run] = field(default_factory=lambda: deque(maxlen=MAX_EVICTED))

    def add(self, run: Run) -> None:
        """Add the newest run."""
        runs = self.evicted if run.outcome is Outcome.EVICTED else self.runs
        if len(runs) == runs.maxlen:
            counts = Counter(other.namespace for other in (*runs, run))
            # Those of an earlier version, which stored no namespaces, are displaced first.
            largest = "" if "" in counts else max(counts, key=counts.__getitem__)
            runs.remove(next(other for other in runs if other.namespace == largest))
        runs.append(run)


class RunTimes:
    """The learned run times of all keys, bounded in size.

    Where a key too many is added, the namespace with the most keys loses its least recently used one, so that a
    namespace with many templates does not displace the others.
    """

    def __init__(self, histories: Mapping[Key, RunHistory] | None = None) -> None:
        self._histories: OrderedDict[Key, RunHistory] = OrderedDict(histories or {})
        self._per_namespace: dict[str, OrderedDict[Key, None]] = {}
        for key in self._histories:
            self._per_namespace.setdefault(key.namespace, OrderedDict())[key] = None
        self._distributions: dict[tuple[Key, ...], Distribution] = {}
        self._ratios: dict[tuple[Key, ...], Distribution] = {}

    def __len__(self) -> int:
        return len(self._histories)

    def __iter__(self) -> Iterator[tuple[Key, RunHistory]]:
        """Yield the histories, the least recently used first."""
        yield from self._histories.items()

    def record(self, profile: JobProfile, run: Run) -> None:
        """Add the end of a run at every level."""
        bounded = run._replace(seconds=min(max(run.seconds, 1), MAX_SECONDS), namespace="")
        digest = _digest("namespace", profile.namespace)[:NAMESPACE_DIGITS]
        for key in keys_of(profile):
            self._open(key).add(bounded if key.namespace else bounded._replace(namespace=digest))
        self._clear_distributions()

    def _clear_distributions(self) -> None:
        self._distributions.clear()
        self._ratios.clear()

    def _open(self, key: Key) -> RunHistory:
        history = self._histories.get(key)
        if history is None:
            if len(self._histories) >= MAX_KEYS:
                self.drop_one()
            history = self._histories[key] = RunHistory()
        self._histories.move_to_end(key)
        own = self._per_namespace.setdefault(key.namespace, OrderedDict())
        own[key] = None
        own.move_to_end(key)
        return history

    def drop_one(self) -> None:
        """Forget the least recently used key of the namespace with the most keys."""
        namespace, own = max(self._per_namespace.items(), key=lambda item: (len(item[1]), item[0]))
        key, _ = own.popitem(last=False)
        del self._histories[key]
        if not own:
            del self._per_namespace[namespace]
        self._clear_distributions()

    def distribution(self, profile: JobProfile) -> Distribution:
        """Return the distribution of the run time of a job.

        The user's estimate counts as a second distribution: the estimate times the ratios of past run times to past
        estimates. The narrower one has the larger weight, in inverse proportion to the variances.
        """
        learned = self._learned(keys_of(profile))
        if not profile.estimate:
            return learned
        ratios = self._estimated(keys_of(profile))
        own, other = learned.spread**2, ratios.spread**2
        share = own / (own + other) if own + other else 0.5
        return Distribution([*learned.scaled(1 - share), *ratios.scaled(share, factor=float(profile.estimate))])

    def knows(self, profile: JobProfile) -> bool:
        """Return whether enough is known to predict the run time of *profile*."""
        if profile.estimate or not self._histories:
            return profile.estimate > 0
        histories = (self._histories.get(key) for key in keys_of(profile))
        return any(history and len(history.runs) >= _PRIOR_RUNS for history in histories)

    @property
    def knows_all(self) -> bool:
        """Return whether enough runs are known to predict the run time of any job."""
        history = self._histories.get(_ALL)
        return history is not None and len(history.runs) >= _PRIOR_RUNS

    def quantiles(self, profile: JobProfile, probabilities: Iterable[float]) -> list[float]:
        """Return the run times in seconds not exceeded with each of *probabilities*; empty while too little is known.

        Enough is an estimate of the user, or as many runs of one level as the next more general one counts as.
        """
        if not self.knows(profile):
            return []
        quantile = self.distribution(profile).quantile
        return [min(quantile(probability), MAX_SECONDS) for probability in probabilities]

    def _learned(self, keys: tuple[Key, ...]) -> Distribution:
        """Return the distribution of the run times of *keys*, without estimates."""
        known = self._distributions.get(keys)
        if known is None:
            general = self._learned(keys[1:]) if keys else _INITIAL
            known = general if not keys else _combined(self._histories.get(keys[0]), general)
            self._distributions[keys] = known
        return known

    def _estimated(self, keys: tuple[Key, ...]) -> Distribution:
        """Return the distribution of run times divided by estimates, over the same levels."""
        known = self._ratios.get(keys)
        if known is None:
            general = self._estimated(keys[1:]) if keys else _INITIAL_RATIO
            history = self._histories.get(keys[0]) if keys else None
            runs = [run for run in history.runs if run.estimate] if history else []
            own = _weighted([run.seconds / run.estimate for run in runs])
            known = Distribution([*own, *general.scaled(_PRIOR_RUNS)]) if own else general
            self._ratios[keys] = known
        return known

    def calibration(self) -> "Calibration":
        """Return how past runs differ from what the runs before them showed.

        Jobs of one template that are pending together share what the past does not show: a new data set, other
        parameters. So the runs known of a template are fewer independent observations than they seem. For each two
        consecutive runs of a template, their probabilities in the distribution of the earlier runs are compared as
        normal scores.
        """
        products, squares = [], []
        general = self._learned((_ALL,))
        templates = (key for key in reversed(self._histories) if key.level is Level.TEMPLATE)
        for key in islice(templates, _MAX_COMPARED):
            runs = self._histories[key].runs
            for first, second in pairwise(range(_MIN_EARLIER, len(runs))):
                earlier = _combined(RunHistory(deque(islice(runs, first))), general)
                scores = [_normal_score(earlier.fraction(runs[index].seconds)) for index in (first, second)]
                products.append(scores[0] * scores[1])
                squares.append((scores[0] ** 2 + scores[1] ** 2) / 2)
        if len(products) < _MIN_COMPARISONS:
            return Calibration()
        square = fmean(squares)
        correlation = min(max(fmean(products) / max(square, 1e-9), 0.0), _MAX_CORRELATION)
        return Calibration(correlation, min(max(sqrt(square), 1.0), _MAX_DISPERSION))


class Calibration(NamedTuple):
    """How the normal scores of runs in the distributions of earlier runs differ from independent standard ones."""

    correlation: float = 0.3
    """Correlation of runs of one template that no earlier run shows, from 0 to 1."""
    dispersion: float = 1.0
    """Standard deviation of the scores: above 1 where the distributions are too narrow."""


def _normal_score(probability: float) -> float:
    return _NORMAL.inv_cdf(min(max(probability, 0.005), 0.995))


def _weighted(values: Sequence[float]) -> list[WeightedTime]:
    """Return *values*, the newest last, with weights that decrease with age."""
    newest = len(values) - 1
    return [WeightedTime(value, _DECAY ** (newest - index)) for index, value in enumerate(values)]


def _combined(history: RunHistory | None, general: Distribution) -> Distribution:
    if history is None or not (history.runs or history.evicted):
        return general
    times = [*_weighted([run.seconds for run in history.runs]), *general.scaled(_PRIOR_RUNS)]
    return Distribution(with_censored(times, [WeightedTime(run.seconds, 1.0) for run in history.evicted]))


_INITIAL = Distribution(WeightedTime(seconds, 1.0) for seconds in _INITIAL_SECONDS)
_INITIAL_RATIO = Distribution(WeightedTime(ratio, 1.0) for ratio in _INITIAL_RATIOS)
