"""Simulates admission pod by pod, without gangs, for comparison.

Whenever capacity becomes free, all waiting pods are tried in a new random order, and each is
placed on the first cluster with enough free capacity. A job runs once all its pods are placed,
and frees their capacity when it finishes. Queues, priorities and gangs are ignored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random

from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.resources import EMPTY, Resources, add, fits, subtract
from controller.engine.state.workloads import WorkloadState
from controller.simulator.trace import Submission, Trace


@dataclass(frozen=True, slots=True)
class PerPodResult:
    """Result of a simulation with admission pod by pod."""

    jobs: int
    finished: int
    finished_at: int | None
    """Time at which the last job finished, or ``None`` if none did."""
    wasted_pods: int
    """Number of placed pods of jobs that never run."""
    stuck_jobs: int
    """Number of jobs with placed pods that never run."""

    @property
    def is_deadlocked(self) -> bool:
        """Return whether partially placed jobs block each other."""
        return self.stuck_jobs > 0


@dataclass(slots=True)
class _Job:
    submission: Submission
    missing: list[Resources]
    """Requests of the pods that are not placed."""
    placed: list[tuple[ClusterName, Resources]] = field(default_factory=list)


class _FreeCapacities:
    """Free capacity of each cluster."""

    def __init__(self, clusters: tuple[Cluster, ...]) -> None:
        self._left = {
            cluster.name: subtract(cluster.allocatable or EMPTY, cluster.used)
            for cluster in clusters
            if cluster.is_usable
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
            self._left[name] = add(self._left[name], request)


def admit_per_pod(trace: Trace, seed: int) -> PerPodResult:
    """Simulate *trace* with admission pod by pod in the random order given by *seed*."""
    random = Random(seed)  # noqa: S311 - a reproducible order, not a secret
    capacities = _FreeCapacities(trace.clusters)
    events = [(job.submission.at, number, job) for number, job in enumerate(_jobs(trace))]
    heapify(events)
    sequence = count(len(events))
    waiting: list[_Job] = []
    finished: list[int] = []
    while events:
        now = events[0][0]
        for job in _due(events, now):
            if job.missing:
                waiting.append(job)
            else:
                capacities.free(job.placed)
                finished.append(now)
        for job in _place(waiting, capacities, random):
            heappush(events, (now + job.submission.runtime, next(sequence), job))
        waiting = [job for job in waiting if job.missing]
    holding = [job for job in waiting if job.placed]
    return PerPodResult(
        jobs=len(finished) + len(waiting),
        finished=len(finished),
        finished_at=max(finished, default=None),
        wasted_pods=sum(len(job.placed) for job in holding),
        stuck_jobs=len(holding),
    )


def _jobs(trace: Trace) -> Iterator[_Job]:
    """Yield the pending jobs of the trace that have pods."""
    for submission in trace.submissions:
        pods = [pod_set.request for pod_set in submission.pods for _ in range(pod_set.count)]
        if pods and submission.workload.state is WorkloadState.PENDING:
            yield _Job(submission, pods)


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
