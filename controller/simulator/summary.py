"""Computes the statistics of a simulation: waiting times, utilisation and fairness.

Results are floats in seconds and fractions; the inputs are integers, and no decision
depends on the results.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from controller.engine.state.hierarchy import ROOT, QueueName
from controller.engine.state.resources import CPU, MILLI, PODS, total
from controller.reporting.messages import pending_message
from controller.simulator.jobs import JobStage, SimulatedJob
from controller.simulator.metrics import QueueIntegrals
from controller.simulator.simulation import SimulationResult
from controller.simulator.trace import seconds

if TYPE_CHECKING:
    from controller.engine.reasons import Reason

Number = int | float
Fractions = dict[str, float]
"""By resource, as fractions of the total capacity."""

_DIGITS = 4
_HOUR = 3_600_000
_MAX_LONGEST = 10


class WaitTimes(msgspec.Struct, frozen=True):
    """Waiting times of jobs that were admitted at least once; percentiles by nearest rank."""

    jobs: int
    mean: Number
    p50: Number
    p99: Number
    max: Number


class Deviation(msgspec.Struct, frozen=True):
    """Difference between usage and fair share of a queue, as fractions of the total capacity."""

    mean: float
    max: float


class QueueSummary(msgspec.Struct, rename="camel", frozen=True):
    """One queue; jobs and waiting times are its own, amounts include its descendants."""

    name: str
    submitted: int
    finished: int
    evictions: int
    waiting: WaitTimes | None
    used: Fractions
    """Mean usage over time."""
    fair_share: Fractions
    """Mean fair share over time."""
    deviation: dict[str, Deviation]
    satisfaction: float | None
    """Resource-time of running jobs divided by that of the fair share, for its dominant resource."""


class NeverAdmitted(msgspec.Struct, frozen=True):
    """A job that was never admitted; ``since`` is its submission time."""

    kind: str
    namespace: str
    name: str
    queue: str
    since: Number
    reason: str | None
    message: str


class ReasonWaits(msgspec.Struct, frozen=True):
    """Total waiting time and number of jobs for one reason; null while an admission is being written."""

    reason: str | None
    jobs: int
    time: Number


class LongWait(msgspec.Struct, frozen=True):
    """One of the jobs with the longest waiting times, and its main reason."""

    kind: str
    namespace: str
    name: str
    queue: str
    time: Number
    reason: str | None
    message: str


class Jobs(msgspec.Struct, frozen=True):
    """Number of jobs by stage at the end."""

    submitted: int
    finished: int
    running: int
    waiting: int


class Summary(msgspec.Struct, rename="camel", frozen=True):
    """Statistics of one simulation; a value without data is null."""

    jobs: Jobs
    end: Number
    makespan: Number | None
    """From the first submission to the last finish."""
    waiting: WaitTimes | None
    utilisation: Fractions
    """Mean usage of running jobs as fractions of the total capacity."""
    fairness: float | None
    """Jain's fairness index of the satisfaction of the queues."""
    evictions: int
    waiting_by_reason: tuple[ReasonWaits, ...]
    """Sorted by time, the longest first."""
    longest_waits: tuple[LongWait, ...]
    """At most ten, the longest first."""
    idle: dict[str, dict[str, float]]
    """Mean idle capacity by resource and cause, as fractions of the total capacity; zero causes are omitted."""
    queues: tuple[QueueSummary, ...]
    never_admitted: tuple[NeverAdmitted, ...]
    idle_hours: dict[str, dict[str, float]] | msgspec.UnsetType = msgspec.UNSET
    """Hours for which CPUs and devices were idle because of each advance reservation; left out without any."""


def summarise(result: SimulationResult) -> Summary:
    """Return the statistics of *result*."""
    jobs = list(result.jobs)
    stages = [job.stage for job in jobs]
    satisfactions = _satisfactions(result)
    return Summary(
        jobs=Jobs(
            len(jobs), *(stages.count(stage) for stage in (JobStage.FINISHED, JobStage.RUNNING, JobStage.WAITING))
        ),
        end=seconds(result.ended_at),
        makespan=_makespan(jobs),
        waiting=_waits(jobs),
        utilisation=_parts(total(job.served_until(result.ended_at) for job in jobs), result),
        fairness=_rounded(jain(list(satisfactions.values()))),
        evictions=sum(job.evictions for job in jobs),
        waiting_by_reason=tuple(_by_reason(result, jobs)),
        longest_waits=tuple(_longest(result, jobs)),
        idle=_idle(result),
        queues=tuple(_queues(result, jobs, satisfactions)),
        never_admitted=tuple(_never_admitted(result, job) for job in jobs if not job.runs),
        idle_hours=_idle_hours(result) or msgspec.UNSET,
    )


def jain(values: Sequence[Fraction]) -> Fraction | None:
    """Return the fairness index of *values*: (sum of x)^2 / (n * sum of x^2), from 1/n to 1 where all are equal.

    R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness and
    Discrimination for Resource Allocation in Shared Computer Systems,
    DEC-TR-301, 1984. Here x is the satisfaction of a queue.
    """
    squares = sum(value * value for value in values)
    return Fraction(sum(values)) ** 2 / (len(values) * squares) if squares else None


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """Return the smallest value that at least *percent* of the *ordered* values do not exceed."""
    return ordered[max(ceil(Fraction(percent * len(ordered), 100)), 1) - 1]


def _makespan(jobs: Sequence[SimulatedJob]) -> Number | None:
    finished = [job.finished_at for job in jobs if job.finished_at is not None]
    return seconds(max(finished) - min(job.submission.at for job in jobs)) if finished else None


def _waits(jobs: Iterable[SimulatedJob]) -> WaitTimes | None:
    waited = sorted(job.waited for job in jobs if job.runs and not job.ran_before)
    if not waited:
        return None
    mean = round(Fraction(sum(waited), len(waited)))
    p50, p99 = nearest_rank(waited, 50), nearest_rank(waited, 99)
    return WaitTimes(len(waited), seconds(mean), p50=seconds(p50), p99=seconds(p99), max=seconds(waited[-1]))


def _parts(areas: Mapping[str, int], result: SimulationResult) -> Fractions:
    """Return *areas* as fractions of the capacity's area, by resource."""
    pool = result.share_metrics.capacity_area
    return {
        name: round(areas[name] / pool[name], _DIGITS)
        for name in sorted(areas)
        if name != PODS and areas[name] and pool.get(name)
    }


def _satisfactions(result: SimulationResult) -> dict[QueueName, Fraction]:
    """Return the satisfaction of every queue with jobs and a fair share."""
    by_queue: dict[QueueName, list[SimulatedJob]] = {}
    for job in result.jobs:
        by_queue.setdefault(job.workload.queue, []).append(job)
    satisfactions = {}
    for name, integrals in sorted(result.share_metrics.queues.items()):
        dominant = _dominant(integrals, result.share_metrics.capacity_area)
        if dominant is not None and name in by_queue:
            served = total(job.served_until(result.ended_at) for job in by_queue[name])
            satisfactions[name] = Fraction(served.get(dominant, 0), integrals.fair_share_area[dominant])
    return satisfactions


def _dominant(integrals: QueueIntegrals, pool: Mapping[str, int]) -> str | None:
    """Return the resource with the largest fair share relative to capacity; the first by name if equal."""
    parts = {
        name: Fraction(area, pool[name])
        for name, area in sorted(integrals.fair_share_area.items())
        if area and pool.get(name)
    }
    return max(parts, key=lambda name: parts[name], default=None)


def _queues(
    result: SimulationResult, jobs: Iterable[SimulatedJob], satisfactions: Mapping[QueueName, Fraction]
) -> Iterator[QueueSummary]:
    by_queue: dict[QueueName, list[SimulatedJob]] = {name: [] for name in result.share_metrics.queues if name != ROOT}
    for job in jobs:
        by_queue.setdefault(job.workload.queue, []).append(job)
    for name in sorted(by_queue):
        own, integrals = by_queue[name], result.share_metrics.queues.get(name, QueueIntegrals())
        yield QueueSummary(
            name=name,
            submitted=len(own),
            finished=sum(job.stage is JobStage.FINISHED for job in own),
            evictions=sum(job.evictions for job in own),
            waiting=_waits(own),
            used=_parts(integrals.usage_area, result),
            fair_share=_parts(integrals.fair_share_area, result),
            deviation=_deviation(integrals, result),
            satisfaction=_rounded(satisfactions.get(name)),
        )


def _deviation(integrals: QueueIntegrals, result: SimulationResult) -> dict[str, Deviation]:
    means = _parts(integrals.gap_area, result)
    widest = {name: round(float(gap), _DIGITS) for name, gap in integrals.max_gap.items()}
    return {name: Deviation(means[name], widest.get(name, 0.0)) for name in means}


def _never_admitted(result: SimulationResult, job: SimulatedJob) -> NeverAdmitted:
    workload = job.workload
    refusal = result.engine.refusal(workload.uid)
    return NeverAdmitted(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        since=seconds(job.submission.at),
        reason=refusal.reason if refusal else None,
        message=pending_message(refusal) if refusal else "its admission was being written",
    )


def _by_reason(result: SimulationResult, jobs: Iterable[SimulatedJob]) -> Iterator[ReasonWaits]:
    times: dict[Reason | None, list[int]] = {}
    for job in jobs:
        for reason, time in job.reasons_until(result.ended_at).items():
            times.setdefault(reason, []).append(time)
    for reason, durations in sorted(times.items(), key=lambda item: (-sum(item[1]), item[0] or "")):
        yield ReasonWaits(reason, len(durations), seconds(sum(durations)))


def _longest(result: SimulationResult, jobs: Iterable[SimulatedJob]) -> Iterator[LongWait]:
    waited = [(job.waited_until(result.ended_at), job) for job in jobs]
    ranked = sorted((pair for pair in waited if pair[0]), key=lambda pair: (-pair[0], pair[1].workload.uid))
    for time, job in ranked[:_MAX_LONGEST]:
        reasons = job.reasons_until(result.ended_at)
        main = max(reasons, key=lambda reason: (reasons[reason], reason or ""), default=None)
        refusal = job.refusals.get(main) if main is not None else None
        yield LongWait(
            kind=job.workload.kind,
            namespace=job.workload.namespace,
            name=job.workload.name,
            queue=job.workload.queue,
            time=seconds(time),
            reason=main,
            message=pending_message(refusal) if refusal is not None else "its admission was being written",
        )


def _idle(result: SimulationResult) -> dict[str, dict[str, float]]:
    parts = {cause: _parts(areas, result) for cause, areas in result.idle.areas.items()}
    names = sorted({name for fractions in parts.values() for name in fractions})
    return {
        name: {str(cause): fractions[name] for cause, fractions in parts.items() if name in fractions} for name in names
    }


def _idle_hours(result: SimulationResult) -> dict[str, dict[str, float]]:
    """Return the idle hours of CPUs and devices, which are counted in units, by reservation and resource."""
    return {
        name: {
            resource: round(area / (MILLI * _HOUR), _DIGITS)
            for resource, area in sorted(areas.items())
            if resource == CPU or "/" in resource
        }
        for name, areas in sorted(result.reservation_costs.areas.items())
    }


def _rounded(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), _DIGITS)
