"""Equal queues in equal cohorts, with three sizes of jobs in strict rhythm: the shapes performance is measured on.

Every queue deserves what its part of the cohort is, and may borrow all the
cohort has, up to a limit. More comes than the cohorts can run at once, so
the ideal makespan is the work divided by the room.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from controller.engine.queues import Queue, QueueName
from controller.engine.resources import CPU, MILLI
from controller.simulator.generators.load import Job, Load, Task, amounts, member


@dataclass(frozen=True, slots=True)
class Stream:
    """Equal jobs of one queue that come at equal distances; times in milliseconds."""

    name: str
    count: int
    cpu: int
    every: int
    runtime: int
    priority: int


@dataclass(frozen=True, slots=True)
class Cohorts:
    """How many queues there are, and what comes to each of them."""

    cohorts: int
    queues: int
    """In each cohort."""
    streams: tuple[Stream, ...]
    deserved: int = 20
    """CPUs that a queue deserves; a cohort has as many as its queues deserve together."""
    most: int = 120
    """CPUs that a queue may hold with what it borrows."""

    @property
    def room(self) -> int:
        """Return the CPUs of one cohort."""
        return self.queues * self.deserved

    @property
    def ideal(self) -> int:
        """Return the shortest makespan that the room allows, in milliseconds."""
        work = sum(stream.count * stream.cpu * stream.runtime for stream in self.streams)
        return self.queues * work // self.room


THIRTY = Cohorts(
    cohorts=5,
    queues=6,
    streams=(
        Stream("small", 350, cpu=1, every=100, runtime=200, priority=50),
        Stream("medium", 100, cpu=5, every=500, runtime=500, priority=100),
        Stream("large", 50, cpu=20, every=1200, runtime=1000, priority=200),
    ),
)
THOUSAND = Cohorts(
    cohorts=10,
    queues=100,
    streams=(
        Stream("small", 35, cpu=1, every=60, runtime=150, priority=50),
        Stream("medium", 11, cpu=5, every=300, runtime=350, priority=100),
        Stream("large", 4, cpu=20, every=700, runtime=700, priority=200),
    ),
)


def cohorts_load(shape: Cohorts, *, clusters: int = 1) -> Load:
    """Return the load of *shape*, with its room in so many equal clusters, rounded up."""
    room = -(-shape.cohorts * shape.room // clusters)
    return Load(
        queues=tuple(_queues(shape)),
        clusters=tuple(member(f"member{number}", {CPU: room * MILLI}) for number in range(1, clusters + 1)),
        jobs=tuple(_jobs(shape)),
        classes={stream.name: stream.priority for stream in shape.streams},
    )


def _queues(shape: Cohorts) -> Iterator[Queue]:
    for number in range(1, shape.cohorts + 1):
        cohort = QueueName(f"cohort-{number}")
        yield Queue(cohort, capability={CPU: shape.room * MILLI})
        for name in _leaves(shape, number):
            deserved, most = {CPU: shape.deserved * MILLI}, {CPU: shape.most * MILLI}
            yield Queue(name, parent=cohort, deserved=deserved, capability=most)


def _leaves(shape: Cohorts, cohort: int) -> Iterator[QueueName]:
    return (QueueName(f"cohort-{cohort}-queue-{number}") for number in range(1, shape.queues + 1))


def _jobs(shape: Cohorts) -> Iterator[Job]:
    """Yield all jobs, the earlier ones first."""
    tasks = {stream: (Task("main", 1, amounts(cpu=stream.cpu * MILLI)),) for stream in shape.streams}
    arrivals = sorted((place * stream.every, number, place, stream) for number, place, stream in _places(shape.streams))
    queues = [name for cohort in range(1, shape.cohorts + 1) for name in _leaves(shape, cohort)]
    for at, _, place, stream in arrivals:
        for queue in queues:
            name = f"{stream.name}-{place + 1}"
            yield Job(queue, name, queue, tasks[stream], at, stream.runtime, stream.name)


def _places(streams: tuple[Stream, ...]) -> Iterator[tuple[int, int, Stream]]:
    for number, stream in enumerate(streams):
        for place in range(stream.count):
            yield number, place, stream
