"""Simulates admission pod by pod, without gangs, for comparison.

Whenever capacity becomes free, all waiting pods are tried in a new random order, and each is
placed on the first cluster with enough free capacity. A job runs once all its pods are placed,
and frees their capacity when it finishes. Queues, priorities and gangs are ignored.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random

import msgspec

from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.resources import EMPTY, Resources, add, clamp_non_negative, fits, subtract
from controller.engine.state.workloads import WorkloadState
from controller.simulator.summary import Number
from controller.simulator.trace import DEFAULT_GRACE, Submission, Trace, seconds


class PerPodReport(msgspec.Struct, rename="camel", frozen=True):
    """Result for the same jobs with pods admitted one by one."""

    seed: int
    jobs: int
    finished: int
    finished_at: Number | None
    """Seconds until the last job finished, ``None`` if none did."""
    deadlocked: bool
    """Whether jobs hold capacity with some of their pods and can never start."""
    deadlocked_jobs: int
    """Number of jobs with placed pods that never run."""
    wasted_pods: int
    """Number of placed pods of jobs that never run."""


@dataclass(slots=True)
class _Job:
    submission: Submission
    missing: list[Resources]
    """Requests of the pods that are not placed."""
    placed: list[tuple[ClusterName, Resources]] = field(default_factory=list)
    """Requests on each cluster: of single pods, or of all of a job that is admitted at the start."""


class _FreeCapacities:
    """Free capacity of each cluster, after what *existing* jobs hold at the start."""

    def __init__(self, clusters: tuple[Cluster, ...], existing: Iterable[_Job]) -> None:
        usable = {cluster.name: cluster for cluster in clusters if cluster.is_usable}
        external = {cluster.name: cluster.used for cluster in usable.values()}
        held = dict.fromkeys(usable, EMPTY)
        for job in existing:
            admission = job.submission.workload.admission
            for name, request in job.placed:
                if name in usable:
                    held[name] = add(held[name], request)
                    if admission is not None and admission.reported:
                        external[name] = clamp_non_negative(subtract(external[name], request))
        self._left = {
            name: subtract(cluster.allocatable or EMPTY, add(external[name], held[name]))
            for name, cluster in usable.items()
        }

    def take(self, request: Resources) -> ClusterName | None:
        """Place a pod on the first cluster by name with enough free capacity."""
        for name in sorted(self._left):
            if fits(request, self._left[name]):
                self._left[name] = subtract(self._left[name], request)
                return name
        return None

    def free(self, placed: list[tuple[ClusterName, Resources]]) -> None:
        """Free the capacity of all pods of a job."""
        for name, request in placed:
            if name in self._left:
                self._left[name] = add(self._left[name], request)


def admit_per_pod(trace: Trace, seed: int, until: int | None = None) -> PerPodReport:
    """Simulate *trace* with admission pod by pod in the random order given by *seed*; stop at *until*, if given."""
    random = Random(seed)  # noqa: S311 - a reproducible order, not a secret
    events = [(at, number, job) for number, (at, job) in enumerate(_jobs(trace))]
    capacities = _FreeCapacities(trace.clusters, [job for _, _, job in events])
    heapify(events)
    sequence = count(len(events))
    waiting: list[_Job] = []
    finished: list[int] = []
    while events and (until is None or events[0][0] <= until):
        now = events[0][0]
        for job in _due(events, now):
            capacities.free(job.placed)
            if job.missing:
                job.placed.clear()
                waiting.append(job)
            else:
                finished.append(now)
        for job in _place(waiting, capacities, random):
            heappush(events, (now + job.submission.runtime, next(sequence), job))
        waiting = [job for job in waiting if job.missing]
    running = [job for _, _, job in events if job.placed]
    # While a job runs, its end may let the others start.
    holding = [] if running else [job for job in waiting if job.placed]
    return PerPodReport(
        seed=seed,
        jobs=len(finished) + len(waiting) + len(running),
        finished=len(finished),
        finished_at=seconds(max(finished)) if finished else None,
        deadlocked=bool(holding),
        deadlocked_jobs=len(holding),
        wasted_pods=sum(len(job.placed) for job in holding),
    )


def _jobs(trace: Trace) -> Iterator[tuple[int, _Job]]:
    """Yield each pending job with pods and the time from which it waits, and each running job and its end."""
    for submission in trace.submissions:
        workload = submission.workload
        placed = [(charge.cluster, charge.charge) for charge in workload.cluster_charges]
        pods = [pod_set.request for pod_set in submission.pods for _ in range(pod_set.count)]
        if workload.state is WorkloadState.ADMITTED:
            yield submission.runtime - submission.ran, _Job(submission, [], placed)
        elif workload.state is WorkloadState.PENDING and pods:
            yield DEFAULT_GRACE if placed else submission.at, _Job(submission, pods, placed)


def _due(events: list[tuple[int, int, _Job]], now: int) -> Iterator[_Job]:
    while events and events[0][0] <= now:
        yield heappop(events)[2]


def _place(waiting: Sequence[_Job], capacities: _FreeCapacities, random: Random) -> Iterator[_Job]:
    """Try every pod of *waiting* once, in random order; yield the jobs that are completely placed."""
    pods = [(job, request) for job in waiting for request in job.missing]
    random.shuffle(pods)
    for job, request in pods:
        cluster = capacities.take(request)
        if cluster is not None:
            job.missing.remove(request)
            job.placed.append((cluster, request))
            if not job.missing:
                yield job
