"""A trace: everything a simulation begins with, and which job comes when and runs how long.

Values only. Times are whole milliseconds since the start of the simulation,
but for *start* itself and the ages of workloads, which count as the engine
counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.engine.clusters import Cluster
from controller.engine.policy import Policy
from controller.engine.queues import Queue
from controller.engine.reasons import EvictionReason
from controller.engine.resources import Resources
from controller.engine.workloads import Workload


@dataclass(frozen=True, slots=True)
class PodSet:
    """Some equal pods of a job."""

    count: int
    request: Resources


@dataclass(frozen=True, slots=True)
class Submission:
    """One job: when it comes and how long it runs once it is let in."""

    workload: Workload
    runtime: int
    at: int = 0
    pods: tuple[PodSet, ...] = ()
    """Its pods one by one, for a comparison with who admits pods and not jobs."""


DEFAULT_GRACE = 30_000
"""Kubernetes' own grace period of a pod."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What there is at the start, and what comes."""

    queues: tuple[Queue, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    submissions: tuple[Submission, ...] = ()
    """Also those that are there, or run, at the start: with ``at`` 0."""
    policy: Policy = field(default_factory=Policy)
    grace: Mapping[EvictionReason, int] = field(default_factory=dict)
    """How long a victim runs on, by why it has to go; ``DEFAULT_GRACE`` where nothing is said."""
    start: int = 0
    """The engine's time at the start."""


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """How fast the outside answers, and how long to look."""

    writes_per_second: int = 0
    """0: writing costs nothing."""
    status_period: int = 10_000
    """How often a cluster's summary is looked at and written if it has changed (Karmada's default)."""
    until: int | None = None
    """When to stop looking; ``None``: when nothing more can happen."""
