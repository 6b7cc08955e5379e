"""What is going to happen and when: a heap of (time, sequence, occurrence).

What is due at one time comes in the order in which it was put down, so that
the same trace is played the same way every time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from controller.engine.clusters import ClusterName
from controller.engine.plan import Decision
from controller.engine.workloads import WorkloadUid
from controller.simulator.trace import Submission


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job is submitted."""

    submission: Submission


@dataclass(frozen=True, slots=True)
class WriteCompleted:
    """The write of a decision is done."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """A job's run comes to its end; *run* counts its runs, for one that was evicted runs again."""

    uid: WorkloadUid
    run: int


@dataclass(frozen=True, slots=True)
class PodsTerminated:
    """A victim's pods are gone."""

    uid: WorkloadUid


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A cluster's summary is looked at."""

    cluster: ClusterName


@dataclass(frozen=True, slots=True)
class WakeUp:
    """The engine asked to be woken."""


QueuedEvent = Arrival | WriteCompleted | RunCompleted | PodsTerminated | StatusUpdate | WakeUp

_PASSIVE = (StatusUpdate, WakeUp)


class EventQueue:
    """All that is still to happen."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, QueuedEvent]] = []
        self._sequence = count()
        self._active = 0

    @property
    def next_time(self) -> int | None:
        """When the next thing happens, ``None`` when nothing more does."""
        return self._heap[0][0] if self._heap else None

    @property
    def is_idle(self) -> bool:
        """Say whether nothing but summaries and wake-ups is to come."""
        return self._active == 0

    def push(self, at: int, occurrence: QueuedEvent) -> None:
        """Let *occurrence* happen at *at*, after all that was put down for that time before."""
        heappush(self._heap, (at, next(self._sequence), occurrence))
        self._active += not isinstance(occurrence, _PASSIVE)

    def pop_due(self, now: int) -> Iterator[QueuedEvent]:
        """Yield and strike out what is due at *now*; what is put down for it meanwhile waits for the next call."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])
        for occurrence in due:
            self._active -= not isinstance(occurrence, _PASSIVE)
            yield occurrence
