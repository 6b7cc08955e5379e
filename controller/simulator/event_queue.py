"""Queue of future events: a heap of (time, sequence, event).

Events of the same time are handled in the order in which they were added, so that a
simulation is deterministic.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from controller.engine.plan import Decision
from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import WorkloadUid
from controller.simulator.trace import Submission


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job is submitted."""

    submission: Submission


@dataclass(frozen=True, slots=True)
class WriteCompleted:
    """The write of a decision is complete."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """A run of a job ends; *run* is the number of the run, because an evicted job runs again."""

    uid: WorkloadUid
    run: int


@dataclass(frozen=True, slots=True)
class PodsTerminated:
    """The pods of an evicted job have terminated."""

    uid: WorkloadUid


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A cluster updates its resource summary."""

    cluster: ClusterName


@dataclass(frozen=True, slots=True)
class WakeUp:
    """The engine requested a cycle at this time."""


QueuedEvent = Arrival | WriteCompleted | RunCompleted | PodsTerminated | StatusUpdate | WakeUp

_PASSIVE = (StatusUpdate, WakeUp)


class EventQueue:
    """The future events of a simulation."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, QueuedEvent]] = []
        self._sequence = count()
        self._active = 0

    @property
    def next_time(self) -> int | None:
        """Return the time of the next event, or ``None`` if the queue is empty."""
        return self._heap[0][0] if self._heap else None

    @property
    def is_idle(self) -> bool:
        """Return whether only status updates and wake-ups remain."""
        return self._active == 0

    def push(self, at: int, event: QueuedEvent) -> None:
        """Add *event* at time *at*, after all events already added for that time."""
        heappush(self._heap, (at, next(self._sequence), event))
        self._active += not isinstance(event, _PASSIVE)

    def pop_due(self, now: int) -> Iterator[QueuedEvent]:
        """Yield and remove the events due at *now*; events added meanwhile are returned by the next call."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])
        for event in due:
            self._active -= not isinstance(event, _PASSIVE)
            yield event
