"""Small states for the reference model: clusters, queues and jobs as plain values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, int]
Running = Mapping[str, str]
"""The cluster of each running job."""
ROOT = "root"
BEGIN, NOW = 900_000, 1_000_000
"""When the oldest jobs were created, and when the plan is made; in seconds."""
DRAIN = 86_400


@dataclass(frozen=True)
class Cluster:
    """A member cluster without external usage."""

    name: str
    allocatable: Amounts


@dataclass(frozen=True)
class Queue:
    """A queue with its specification."""

    name: str
    parent: str = ROOT
    weight: int = 1
    priority: int = 0
    capability: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    reclaimable: bool = True
    fifo: bool = False
    closed: bool = False


@dataclass(frozen=True)
class Job:
    """A job that runs whole on one cluster; *cluster* is set while it runs."""

    name: str
    queue: str
    requests: Amounts
    gang: Amounts
    namespace: str = "default"
    priority: int = 0
    since: int = 0
    """Seconds from ``BEGIN`` until its creation."""
    affinity: tuple[str, ...] = ()
    cluster: str | None = None
    ran: int = 0
    """Seconds since its admission."""
    evictions: int = 0
    never: bool = False
    """Its priority class never preempts."""
    preserved: bool = False
    """Removing its cluster would not stop it."""
    run_time: int | None = None
    """The expected run time in seconds."""

    def ends_at(self) -> int | None:
        """O9: return when the job is expected to end if it runs, ``None`` where that is unknown."""
        if self.run_time is None:
            return None
        end, overrun = NOW + self.run_time - (self.ran if self.cluster else 0), 60
        while end <= NOW:
            end, overrun = end + overrun, 2 * overrun
        return end


@dataclass(frozen=True)
class Reservation:
    """O11: amounts of one cluster that are reserved in advance; *queue*: for its jobs, else for maintenance."""

    name: str
    cluster: str
    amounts: Amounts
    begin: int
    end: int
    queue: str | None = None

    def keeps_off(self, job: Job) -> bool:
        """Return whether a job that is admitted now must leave the amounts free."""
        begins_soon = self.begin - DRAIN <= NOW if job.run_time is None else NOW + job.run_time > self.begin
        return job.queue != self.queue and self.end > NOW and (begins_soon or self.begin <= NOW)


@dataclass(frozen=True)
class Eviction:
    """Settings of reclaim or of preemption."""

    min_runtime: int = 0
    max_evictions: int = 3


@dataclass(frozen=True)
class Ageing:
    """How waiting raises job priority: by *step* in each *after* seconds, at most by *most*."""

    after: int
    step: int
    most: int

    def raised_by(self, since: int, now: int) -> int:
        """Return the raise of a job at *now*; priorities are raised ten times in *after*."""
        steps = max(now - now % (self.after // 10) - since, 0) // self.after
        return min(steps * self.step, self.most)


@dataclass(frozen=True)
class State:
    """Everything that one plan depends on."""

    clusters: tuple[Cluster, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[Job, ...]
    queue_order: str = "PriorityFirst"
    tenant_fairness: str = "None"
    reclaim: Eviction | None = None
    preemption: Eviction | None = None
    reservation_after: int = 1800
    ageing: Ageing | None = None
    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True)
class Decision:
    """One decision of a plan: Admit and Nominate name the cluster, Evict the preemptor."""

    action: str
    job: str
    subject: str


def total(amounts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of *amounts* by resource."""
    result: dict[str, int] = {}
    for each in amounts:
        for resource, amount in each.items():
            result[resource] = result.get(resource, 0) + amount
    return result


def fits(asked: Amounts, room: Amounts) -> bool:
    """Return whether all requested amounts are free."""
    return all(amount <= room.get(resource, 0) for resource, amount in asked.items() if amount)


def plus(usage: Running, *jobs: Job) -> Running:
    """Return *usage* with further jobs, on no cluster."""
    return {**usage, **{job.name: "" for job in jobs}}


def less(usage: Running, *jobs: Job) -> Running:
    """Return *usage* without some jobs."""
    gone = {job.name for job in jobs}
    return {name: at for name, at in usage.items() if name not in gone}
