"""Draws the run times of the workloads in each future, from the learned run times."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import sqrt
from random import Random
from statistics import NormalDist

from controller.engine.state.workloads import Workload, WorkloadDetails, WorkloadUid
from controller.forecast.futures import Future
from controller.forecast.run_times import MAX_SECONDS, JobProfile, RunTimes, keys_of

_NORMAL = NormalDist()

_SECOND = 1000

#: Bounds the Pareto tail of a draw: at most ten thousand times the time already run.
_MAX_PROBABILITY = 0.9999

ProfileOf = Callable[[Workload], JobProfile]


class RunTimeSampler:
    """Draws run times: independent between futures, and in one future correlated between jobs of one template.

    The correlation is that of past runs of one template (a Gaussian copula), and the dispersion is that of past runs in
    the distributions of the runs before them. Without both, the forecast for a queue of many equal jobs is too narrow.
    """

    def __init__(self, run_times: RunTimes, profile_of: ProfileOf, *, seed: int = 0) -> None:
        self._run_times = run_times
        self._profile_of = profile_of
        self._seed = seed
        self._calibration = run_times.calibration()

    def futures(self, count: int, arrivals: "ArrivalsOf | None" = None) -> Iterator[Future]:
        """Yield *count* futures."""
        for number in range(count):
            yield Future(self._run_time_of(number), arrivals(number) if arrivals is not None else ())

    def _run_time_of(self, number: int) -> Callable[[Workload, int], int]:
        @cache
        def shared_score(digest: str) -> float:
            return Random(f"{self._seed}/{number}/template/{digest}").gauss()  # noqa: S311 -- reproducible futures, no secrets

        def run_time_of(workload: Workload, ran: int) -> int:
            profile = self._profile_of(workload)
            shared = shared_score(keys_of(profile)[0].digest)
            own = Random(f"{self._seed}/{number}/{workload.uid}").gauss()  # noqa: S311 -- reproducible futures, no secrets
            correlation, dispersion = self._calibration
            score = dispersion * (sqrt(correlation) * shared + sqrt(1 - correlation) * own)
            seconds = self._run_times.distribution(profile).total_time(
                min(_NORMAL.cdf(score), _MAX_PROBABILITY), ran / _SECOND
            )
            return max(round(min(seconds, MAX_SECONDS) * _SECOND), ran)

        return run_time_of


ArrivalsOf = Callable[[int], Sequence[tuple[int, Workload]]]
"""Returns the arrivals of a future by its number."""

_DAY = 86_400_000

_BLOCK = 3_600_000


class RepeatedArrivals:
    """Arrivals like those of the last day: each block of an hour and a namespace comes again, a random number of times.

    The number has a Poisson distribution with mean 1. Whole blocks are repeated, so that bursts remain bursts, and at
    the same time of day, so that the day's pattern remains (a block bootstrap).
    """

    def __init__(self, workloads: Sequence[Workload], now: int, *, seed: int = 0) -> None:
        self._seed = seed
        self._blocks: dict[tuple[int, str], list[Workload]] = {}
        for workload in sorted(workloads, key=lambda workload: (workload.created_at, workload.uid)):
            if now - _DAY < workload.created_at <= now and workload.gang is None:
                block = (now - workload.created_at) // _BLOCK, workload.namespace
                self._blocks.setdefault(block, []).append(workload)

    def __call__(self, number: int) -> Sequence[tuple[int, Workload]]:
        """Return the arrivals of the next day in future *number*."""
        arrivals = []
        for (hour, namespace), workloads in sorted(self._blocks.items()):
            random = Random(f"{self._seed}/{number}/arrivals/{hour}/{namespace}")  # noqa: S311 -- reproducible futures, no secrets
            for copy in range(_poisson(random)):
                arrivals += [_again(workload, number, copy) for workload in workloads]
        return sorted(
            ((workload.created_at, workload) for workload in arrivals), key=lambda arrival: (arrival[0], arrival[1].uid)
        )


def repeated_uid(workload: Workload) -> WorkloadUid:
    """Return the uid of the workload that an arrival repeats."""
    return WorkloadUid(workload.uid.rsplit("/", 2)[0])


def _poisson(random: Random) -> int:
    """Return a random number with a Poisson distribution of mean 1."""
    count, elapsed = 0, random.expovariate(1)
    while elapsed < 1:
        count, elapsed = count + 1, elapsed + random.expovariate(1)
    return count


def _again(workload: Workload, number: int, copy: int) -> Workload:
    """Return a pending workload like *workload*, a day later."""
    details = workload.details
    return Workload(
        uid=WorkloadUid(f"{workload.uid}/{number}/{copy}"),
        namespace=workload.namespace,
        name=workload.name,
        kind=workload.kind,
        queue=workload.queue,
        requirements=replace(
            workload.requirements,
            excluded_clusters=frozenset(),
            retryable_clusters=frozenset(),
            current_clusters=frozenset(),
            evicting_from=frozenset(),
        ),
        priority=workload.priority,
        created_at=workload.created_at + _DAY,
        details=WorkloadDetails(
            priority_class=details.priority_class,
            task_classes=details.task_classes,
            preempts=details.preempts,
            run_time_ms=details.run_time_ms,
            run_time_bounds_ms=details.run_time_bounds_ms,
        ).shared(),
    )
