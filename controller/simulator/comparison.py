"""Compares backfill with other ways to treat large jobs, on the same trace."""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from math import ceil

import msgspec

from controller.engine.policy import Backfill, HeadReservationPolicy, Policy
from controller.engine.state.resources import CPU, MILLI, PODS, Resources, total
from controller.simulator.metrics import IdleCause
from controller.simulator.simulation import SimulationResult
from controller.simulator.summary import Number, nearest_rank
from controller.simulator.trace import SimulationSettings, Submission, Trace, seconds

_HOUR = 3_600_000
_DIGITS = 4

#: The part of the jobs that count as large.
_LARGEST = 20

#: Longer than any simulation.
_UNBOUNDED_MS = 1 << 50


class Variant(StrEnum):
    """What is compared."""

    CONFIGURED = "configured"
    """The configuration as it is."""
    TRAVERSE = "traverse"
    """Neither reservations nor backfill: smaller jobs always pass a large one."""
    RESERVATIONS = "reservations"
    """Head reservations without backfill."""
    EASY = "easy"
    """Textbook EASY, with exact run times.

    Capacity is reserved for the head of each queue after it has waited one second, however late it can start.
    """


class VariantFigures(msgspec.Struct, rename="camel", frozen=True):
    """What one variant does with the jobs; a job that was not admitted waits until the end."""

    variant: Variant
    resource: str
    """The resource of ``utilisation`` and ``reservedHours``."""
    mean_wait: Number
    p99_wait: Number
    largest_p99_wait: Number
    """Of the largest twentieth of the jobs."""
    utilisation: float
    """Mean usage of running jobs as a fraction of the total capacity, which excludes external usage."""
    reserved_hours: float
    """How long one unit of the resource was idle for head reservations in total."""
    finished: int


def variants(trace: Trace, settings: SimulationSettings) -> Iterator[tuple[Variant, Trace, SimulationSettings]]:
    """Yield the simulations to compare."""
    policy = trace.policy
    never = replace(policy, head_reservation=HeadReservationPolicy(after_ms=_UNBOUNDED_MS))
    alone = replace(policy, backfill=replace(policy.backfill, enabled=False))
    after_a_second = HeadReservationPolicy(after_ms=1000, max_ms=_UNBOUNDED_MS)
    easy = replace(policy, head_reservation=after_a_second, backfill=Backfill(enabled=True))
    policies: dict[Variant, Policy] = {
        Variant.CONFIGURED: policy,
        Variant.TRAVERSE: never,
        Variant.RESERVATIONS: alone,
        Variant.EASY: easy,
    }
    for variant, changed in policies.items():
        knows_run_times = settings.knows_run_times or variant is Variant.EASY
        yield variant, replace(trace, policy=changed), replace(settings, knows_run_times=knows_run_times)


def figures(variant: Variant, result: SimulationResult) -> VariantFigures:
    """Return the figures of one simulation."""
    capacity = total(cluster.allocatable or {} for cluster in result.trace.clusters)
    devices = sorted((name for name in capacity if "/" in name), key=lambda name: (-capacity[name], name))
    resource = next(iter(devices), CPU)
    jobs = sorted(result.jobs, key=lambda job: (-_size(job.submission, capacity), job.submission.at))
    largest = jobs[: ceil(len(jobs) / _LARGEST)]
    waits = sorted(job.waited_until(result.ended_at) for job in jobs) or [0]
    large_waits = sorted(job.waited_until(result.ended_at) for job in largest) or [0]
    area = result.share_metrics.capacity_area.get(resource, 0)
    used = sum(job.served_until(result.ended_at).get(resource, 0) for job in jobs)
    reserved = result.idle.areas[IdleCause.RESERVED].get(resource, 0)
    return VariantFigures(
        variant,
        resource,
        mean_wait=seconds(round(Fraction(sum(waits), len(waits)))),
        p99_wait=seconds(nearest_rank(waits, 99)),
        largest_p99_wait=seconds(nearest_rank(large_waits, 99)),
        utilisation=round(used / area, _DIGITS) if area else 0.0,
        reserved_hours=round(reserved / _HOUR / MILLI, _DIGITS),
        finished=result.jobs.finished,
    )


def _size(submission: Submission, capacity: Resources) -> Fraction:
    """Return the largest part of the capacity that a job requests of any resource."""
    requests = submission.workload.requirements.requests
    parts = (
        Fraction(amount, capacity[name])
        for name, amount in requests.items()
        if name != PODS and amount > 0 and capacity.get(name)
    )
    return max(parts, default=Fraction(0))
