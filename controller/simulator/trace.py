"""Input of a simulation: the initial objects, and the submission and run times of jobs.

Times are milliseconds since the start of the simulation, except *start* and the creation
times of workloads, which are the engine's times.
"""

import re
from dataclasses import dataclass, field

from controller.engine.policy import Policy
from controller.engine.reasons import EvictionReason
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import Queue
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import Workload


@dataclass(frozen=True, slots=True)
class PodSet:
    """A number of equal pods of a job."""

    count: int
    request: Resources


@dataclass(frozen=True, slots=True)
class Submission:
    """One job with its submission time and its run time after admission."""

    workload: Workload
    runtime: int
    """Of a job that runs at the start, the whole run time."""
    at: int = 0
    pods: tuple[PodSet, ...] = ()
    """The pods of the job, for the comparison with admission pod by pod."""
    ran: int = 0
    """The part of the run time that has passed at the start."""


DEFAULT_GRACE = 30_000
"""Default grace period of pods in Kubernetes."""


def grace_ms(policy: Policy, reason: EvictionReason) -> int:
    """Return the grace period of an eviction in milliseconds; that of pods for evictions without one of their own."""
    match reason:
        case EvictionReason.RECLAIMED:
            return policy.reclaim.grace_ms
        case EvictionReason.PREEMPTED | EvictionReason.ADVANCE_RESERVATION | EvictionReason.BACKFILL_OVERRUN:
            return policy.preemption.grace_ms
        case _:
            return DEFAULT_GRACE


@dataclass(frozen=True, slots=True)
class Trace:
    """The initial objects and the jobs of a simulation."""

    queues: tuple[Queue, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    submissions: tuple[Submission, ...] = ()
    """Includes jobs that are pending or running at the start, with ``at`` 0."""
    policy: Policy = field(default_factory=Policy)
    start: int = 0
    """The engine's time at the start."""


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Write rate, status update interval and time limit of a simulation."""

    writes_per_second: int = 0
    """0 for no limit."""
    status_period: int = 10_000
    """Interval of cluster status updates (Karmada's default)."""
    knows_run_times: bool = True
    """Whether the engine knows the run time of each job, for backfill (O9)."""
    until: int | None = None
    """Time limit, or ``None`` to run until no event remains."""


_PART = re.compile(r"([0-9]{1,12})(ms|s|m|h)")

_FORM = re.compile(r"(?:[0-9]{1,12}(?:ms|s|m|h))+")

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

_SECOND = 1000


class DurationError(ValueError):
    """A text that is not a duration; the message gives the format."""


def parse_duration(text: str) -> int:
    """Parse a duration such as ``90s``, ``1h30m`` or ``200ms`` into milliseconds."""
    if not _FORM.fullmatch(text):
        raise DurationError(f"{text!r} is not a duration; write whole numbers with h, m, s or ms, such as 90s or 1h30m")
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in _PART.findall(text))


def format_duration(duration: int) -> str:
    """Format milliseconds so that `parse_duration` parses them."""
    return f"{duration}ms" if duration % _SECOND else f"{duration // _SECOND}s"


def seconds(duration: int) -> int | float:
    """Convert milliseconds to seconds, as an integer if possible."""
    return duration / _SECOND if duration % _SECOND else duration // _SECOND
