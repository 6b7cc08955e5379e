"""Generates equal queues in equal cohorts with jobs at fixed intervals, the loads of the performance tests.

The queues of a cohort deserve equal parts of its capacity and may borrow up to a limit. The
cohorts are overloaded, so the ideal makespan is the total work divided by the capacity.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import CPU, MILLI
from tests.traces.load import Job, Load, Task, empty_cluster, resource_amounts


@dataclass(frozen=True, slots=True)
class JobStream:
    """Equal jobs of one queue, submitted at fixed intervals; times in milliseconds."""

    name: str
    count: int
    cpu: int
    interval: int
    runtime: int
    priority: int


@dataclass(frozen=True, slots=True)
class CohortShape:
    """Number of cohorts and queues, and the jobs of each queue."""

    cohorts: int
    queues: int
    """Number of queues in each cohort."""
    streams: tuple[JobStream, ...]
    deserved: int = 20
    """Deserved CPUs of a queue; the capacity of a cohort is the sum over its queues."""
    max_usage: int = 120
    """Capability of a queue in CPUs, including borrowed ones."""

    @property
    def capacity(self) -> int:
        """Return the CPUs of one cohort."""
        return self.queues * self.deserved

    @property
    def ideal_makespan(self) -> int:
        """Return the shortest possible makespan in milliseconds."""
        work = sum(stream.count * stream.cpu * stream.runtime for stream in self.streams)
        return self.queues * work // self.capacity


THIRTY = CohortShape(
    cohorts=5,
    queues=6,
    streams=(
        JobStream("small", 350, cpu=1, interval=100, runtime=200, priority=50),
        JobStream("medium", 100, cpu=5, interval=500, runtime=500, priority=100),
        JobStream("large", 50, cpu=20, interval=1200, runtime=1000, priority=200),
    ),
)

SMALL = replace(
    THIRTY, cohorts=2, queues=3, streams=tuple(replace(stream, count=stream.count // 10) for stream in THIRTY.streams)
)

THOUSAND = CohortShape(
    cohorts=10,
    queues=100,
    streams=(
        JobStream("small", 35, cpu=1, interval=60, runtime=150, priority=50),
        JobStream("medium", 11, cpu=5, interval=300, runtime=350, priority=100),
        JobStream("large", 4, cpu=20, interval=700, runtime=700, priority=200),
    ),
)


def cohorts_load(shape: CohortShape, *, clusters: int = 1) -> Load:
    """Return the load of *shape*, with the capacity divided over *clusters* equal clusters, rounded up."""
    cpus = -(-shape.cohorts * shape.capacity // clusters)
    return Load(
        queues=tuple(_queues(shape)),
        clusters=tuple(empty_cluster(f"member{number}", {CPU: cpus * MILLI}) for number in range(1, clusters + 1)),
        jobs=tuple(_jobs(shape)),
        classes={stream.name: stream.priority for stream in shape.streams},
    )


def _queues(shape: CohortShape) -> Iterator[Queue]:
    for number in range(1, shape.cohorts + 1):
        cohort = QueueName(f"cohort-{number}")
        yield Queue(cohort, capability={CPU: shape.capacity * MILLI})
        for name in _leaves(shape, number):
            deserved, most = {CPU: shape.deserved * MILLI}, {CPU: shape.max_usage * MILLI}
            yield Queue(name, parent=cohort, deserved=deserved, capability=most)


def _leaves(shape: CohortShape, cohort: int) -> Iterator[QueueName]:
    return (QueueName(f"cohort-{cohort}-queue-{number}") for number in range(1, shape.queues + 1))


def _jobs(shape: CohortShape) -> Iterator[Job]:
    """Yield all jobs, sorted by submission time."""
    tasks = {stream: (Task("main", 1, resource_amounts(cpu=stream.cpu * MILLI)),) for stream in shape.streams}
    arrivals = sorted(
        (index * stream.interval, number, index, stream) for number, index, stream in _numbered_jobs(shape.streams)
    )
    queues = [name for cohort in range(1, shape.cohorts + 1) for name in _leaves(shape, cohort)]
    for at, _, index, stream in arrivals:
        for queue in queues:
            name = f"{stream.name}-{index + 1}"
            yield Job(queue, name, queue, tasks[stream], at, stream.runtime, stream.name)


def _numbered_jobs(streams: tuple[JobStream, ...]) -> Iterator[tuple[int, int, JobStream]]:
    for number, stream in enumerate(streams):
        for index in range(stream.count):
            yield number, index, stream


def gang_load() -> Load:
    """Return five jobs with six pods of one CPU each, submitted at the same time to a cluster of nine CPUs."""
    queue, pod = QueueName("training"), resource_amounts(cpu=MILLI)
    tasks = Task("ps", 2, pod), Task("worker", 4, pod)
    return Load(
        queues=(Queue(queue),),
        clusters=(empty_cluster("member1", {CPU: 9 * MILLI}),),
        jobs=tuple(Job("training", f"job-{number}", queue, tasks, 0, 60_000) for number in range(1, 6)),
    )
