"""States for the reference model: the engine's queues, clusters and policy, and jobs as plain values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.engine.policy import AdvanceReservation, Ageing, Policy
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import Queue
from controller.engine.state.workloads import Workload
from tests.engine.worlds import NOW, ONE, Objects

DEFAULT = Policy()
Amounts = Mapping[str, int]
Running = Mapping[str, tuple[str, ...]]
"""The clusters of each running job."""


@dataclass(frozen=True, eq=False)
class Job:
    """A job that runs whole on one or several clusters; *clusters* are set while it runs."""

    name: str
    queue: str
    requests: Amounts
    gang: Amounts
    namespace: str = "default"
    priority: int = 0
    since: int = 0
    """When it was created; all times are in milliseconds."""
    affinity: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    copies: int = 1
    """On how many clusters it runs whole; any one of the matching clusters for 1."""
    may_be_copied: bool = False
    """Whether its policy allows several clusters."""
    charge: Amounts = field(default_factory=dict)
    """Requests of all copies."""
    ran: int = 0
    """Time since its admission."""
    evictions: int = 0
    never: bool = False
    """Its priority class never preempts."""
    preserved: bool = False
    """Removing its cluster would not stop it."""
    run_time: int | None = None
    """The expected run time."""
    leaving: bool = False
    """Its eviction is in progress."""
    nominated: str = ""
    """The cluster that it is nominated for."""
    rank: int = 0
    """The order of its nomination."""
    hyperjob: str = ""
    """The HyperJob of which it is a part."""
    minimum: int = 0
    """How many parts of it must start together."""

    @classmethod
    def of(cls, workload: Workload, clusters: Iterable[str]) -> "Job":
        """Return an indivisible workload of the engine; the number of its pods limits nothing."""
        requirements, admission = workload.requirements, workload.admission
        affinity = requirements.placement.affinity
        names = affinity.names if affinity else ()
        matching = [name for name in clusters if not names or name in names]
        copies = min([len(matching), *(spread.maximum for spread in requirements.placement.spread)])
        if admission:
            copies = len(admission.cluster_charges)
        requests, gang = (
            {name: amount for name, amount in amounts.items() if name != "pods"}
            for amounts in (requirements.requests, requirements.gang_requests)
        )
        return cls(
            workload.name,
            workload.queue,
            requests,
            gang,
            namespace=workload.namespace,
            priority=workload.priority,
            since=workload.created_at,
            affinity=names,
            clusters=tuple(charge.cluster for charge in admission.cluster_charges) if admission else (),
            copies=copies,
            may_be_copied=requirements.placement.spread != ONE and len(names) != 1,
            charge=total([requests] * max(copies, 1)),
            ran=NOW - admission.admitted_at if admission else 0,
            evictions=workload.evictions,
            never=not workload.details.preempts,
            preserved=workload.preserved,
            run_time=workload.run_time_ms,
            leaving=workload.is_being_evicted,
            nominated=workload.nomination.cluster if workload.nomination else "",
            rank=workload.nomination.rank if workload.nomination else 0,
            hyperjob=workload.gang.key if workload.gang else "",
            minimum=workload.gang.minimum if workload.gang else 0,
        )

    def ends_at(self) -> int | None:
        """O9: return when the job is expected to end if it runs, ``None`` where that is unknown."""
        if self.run_time is None:
            return None
        end, overrun = NOW + self.run_time - (self.ran if self.clusters else 0), 60_000
        while end <= NOW:
            end, overrun = end + overrun, 2 * overrun
        return end


def keeps_off(reservation: AdvanceReservation, job: Job) -> bool:
    """O11: return whether a job that is admitted now must leave the reserved amounts free."""
    begins_soon = reservation.since - reservation.drain_ms <= NOW
    if job.run_time is not None:
        begins_soon = NOW + job.run_time > reservation.since
    return job.queue != reservation.queue and reservation.until > NOW and (begins_soon or reservation.since <= NOW)


def raised_by(ageing: Ageing, since: int, now: int) -> int:
    """O10: return the raise of a job at *now*; priorities are raised ten times in ``after_ms``."""
    if not ageing.after_ms:
        return 0
    steps = max(now - now % (ageing.after_ms // 10) - since, 0) // ageing.after_ms
    return min(steps * ageing.step, ageing.max_raise)


@dataclass(frozen=True)
class State:
    """Everything that one plan depends on."""

    clusters: tuple[Cluster, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[Job, ...]
    policy: Policy = DEFAULT

    @classmethod
    def of(cls, objects: Objects) -> "State":
        """Return the same state; *used* of a cluster is its external usage here (C2)."""
        reported = {cluster.name: reported_on(cluster, objects.workloads) for cluster in objects.clusters}
        clusters = tuple(
            replace(cluster, used=remaining(cluster.used, reported[cluster.name])) for cluster in objects.clusters
        )
        names = [cluster.name for cluster in clusters]
        jobs = tuple(Job.of(workload, names) for workload in objects.workloads)
        return cls(clusters, objects.queues, jobs, objects.policy)


def reported_on(cluster: Cluster, workloads: Iterable[Workload]) -> Amounts:
    """Return the charges on *cluster* of the workloads that it has reported."""
    admissions = (workload.admission for workload in workloads if workload.admission is not None)
    charges = (charge for admission in admissions if admission.reported for charge in admission.cluster_charges)
    return total(charge.charge for charge in charges if charge.cluster == cluster.name)


@dataclass(frozen=True)
class Decision:
    """One decision of a plan: Admit and Nominate name the cluster, Evict the preemptor."""

    action: str
    job: str
    subject: str


def total(amounts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of *amounts* by resource."""
    result: dict[str, int] = {}
    for summand in amounts:
        for resource, amount in summand.items():
            result[resource] = result.get(resource, 0) + amount
    return result


def remaining(amounts: Amounts, taken: Amounts) -> dict[str, int]:
    """Return *amounts* without those *taken*, none of them negative."""
    return {name: max(amount - taken.get(name, 0), 0) for name, amount in amounts.items()}


def fits(asked: Amounts, room: Amounts) -> bool:
    """Return whether all requested amounts are free."""
    return all(amount <= room.get(resource, 0) for resource, amount in asked.items() if amount)


def plus(usage: Running, *jobs: Job) -> Running:
    """Return *usage* with further jobs, on no cluster."""
    return {**usage, **{job.name: () for job in jobs}}


def less(usage: Running, *jobs: Job) -> Running:
    """Return *usage* without some jobs."""
    gone = {job.name for job in jobs}
    return {name: at for name, at in usage.items() if name not in gone}
