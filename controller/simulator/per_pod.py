"""What would become of a trace if pods were admitted one by one and not jobs whole: for comparison only.

Whenever room appears, all waiting pods are tried in a new random order, and
each takes room as soon as some cluster has it. A job runs once all its pods
have room, and frees it when it is done. Queues, priorities and gangs are not
looked at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random

from controller.engine.clusters import Cluster, ClusterName
from controller.engine.resources import EMPTY, Resources, add, fits, subtract
from controller.engine.workloads import WorkloadState
from controller.simulator.trace import Submission, Trace


@dataclass(frozen=True, slots=True)
class PerPodResult:
    """What became of the jobs."""

    jobs: int
    finished: int
    finished_at: int | None
    """When the last of them finished, ``None`` where none did."""
    pods_in_vain: int
    """How many pods hold room for ever, for jobs that never run."""
    stuck_jobs: int
    """How many jobs they belong to."""

    @property
    def is_deadlocked(self) -> bool:
        """Say whether jobs hold room that keeps each other from running."""
        return self.stuck_jobs > 0


@dataclass(slots=True)
class _Job:
    submission: Submission
    missing: list[Resources]
    """The requests of the pods that have no room yet."""
    placed: list[tuple[ClusterName, Resources]] = field(default_factory=list)


class _FreeCapacities:
    """What is left in each cluster."""

    def __init__(self, clusters: tuple[Cluster, ...]) -> None:
        self._left = {each.name: subtract(each.allocatable or EMPTY, each.used) for each in clusters if each.is_usable}

    def take(self, request: Resources) -> ClusterName | None:
        """Take room for a pod in the first cluster, by name, that has it."""
        for name in sorted(self._left):
            if fits(request, self._left[name]):
                self._left[name] = subtract(self._left[name], request)
                return name
        return None

    def free(self, placed: list[tuple[ClusterName, Resources]]) -> None:
        """Free the room of all pods of a job."""
        for name, request in placed:
            self._left[name] = add(self._left[name], request)


def admit_per_pod(trace: Trace, seed: int) -> PerPodResult:
    """Play *trace* pod by pod, in the random order that *seed* gives."""
    dice = Random(seed)  # noqa: S311 - an order that can be had again, no secret
    rooms = _FreeCapacities(trace.clusters)
    agenda = [(job.submission.at, number, job) for number, job in enumerate(_jobs(trace))]
    heapify(agenda)
    tickets = count(len(agenda))
    waiting: list[_Job] = []
    finished: list[int] = []
    while agenda:
        now = agenda[0][0]
        for job in _due(agenda, now):
            if job.missing:
                waiting.append(job)
            else:
                rooms.free(job.placed)
                finished.append(now)
        for job in _place(waiting, rooms, dice):
            heappush(agenda, (now + job.submission.runtime, next(tickets), job))
        waiting = [job for job in waiting if job.missing]
    holding = [job for job in waiting if job.placed]
    return PerPodResult(
        jobs=len(finished) + len(waiting),
        finished=len(finished),
        finished_at=max(finished, default=None),
        pods_in_vain=sum(len(job.placed) for job in holding),
        stuck_jobs=len(holding),
    )


def _jobs(trace: Trace) -> Iterator[_Job]:
    """Yield the jobs that wait at the start or come later, and have pods."""
    for submission in trace.submissions:
        pods = [each.request for each in submission.pods for _ in range(each.count)]
        if pods and submission.workload.state is WorkloadState.PENDING:
            yield _Job(submission, pods)


def _due(agenda: list[tuple[int, int, _Job]], now: int) -> Iterator[_Job]:
    while agenda and agenda[0][0] <= now:
        yield heappop(agenda)[2]


def _place(waiting: Sequence[_Job], rooms: _FreeCapacities, dice: Random) -> Iterator[_Job]:
    """Try every pod of *waiting* once, in random order; yield the jobs all of whose pods have room then."""
    pods = [(job, request) for job in waiting for request in job.missing]
    dice.shuffle(pods)
    for job, request in pods:
        cluster = rooms.take(request)
        if cluster is not None:
            job.missing.remove(request)
            job.placed.append((cluster, request))
            if not job.missing:
                yield job
