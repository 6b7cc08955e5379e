"""The workloads that wait, in lanes of equal ones.

A lane holds the waiting workloads of one queue and namespace that share a
shape: where one of them does not fit, none of them does, so a lane is tried
once and not once per workload.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from controller.engine.queues import QueueName
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import EMPTY, Resources
from controller.engine.workloads import Shape, Workload, WorkloadUid

Place = tuple[int, int, str, str, str]


def place(workload: Workload) -> Place:
    """Return the key that orders workloads inside a queue: priority, age, namespace, name (O2)."""
    return -workload.priority, workload.since, workload.namespace, workload.name, workload.uid


@dataclass(slots=True, eq=False)
class Lane:
    """Equal workloads of one queue and namespace, in order."""

    queue: QueueName
    namespace: str
    shape: Shape
    entries: list[tuple[Place, Workload]] = field(default_factory=list)
    charge: Resources = EMPTY
    """What admitting one of them would be charged in all, as of the last cycle (D5)."""
    refusal: Refusal | None = None
    """Why its first workload did not get in, in the last cycle."""
    told: Reason | None = None
    """The reason that all but the untold ones have been given."""
    untold: set[WorkloadUid] = field(default_factory=set)

    @property
    def head(self) -> Workload:
        """Return the first workload; a lane in the backlog has one."""
        return self.entries[0][1]

    def __iter__(self) -> Iterator[Workload]:
        return (workload for _, workload in self.entries)


class Backlog:
    """All waiting workloads that are not held for reasons of their own."""

    def __init__(self) -> None:
        self.queues: dict[QueueName, list[Lane]] = {}
        """The lanes of each queue; none is empty."""
        self._lanes: dict[tuple[object, ...], Lane] = {}
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._of: dict[WorkloadUid, Lane] = {}

    def __contains__(self, uid: WorkloadUid) -> bool:
        return uid in self._of

    def __len__(self) -> int:
        return len(self._of)

    def lanes(self) -> Iterator[Lane]:
        """Yield all lanes, queue by queue."""
        for name in sorted(self.queues):
            yield from self.queues[name]

    def lane(self, uid: WorkloadUid) -> Lane:
        """Return the lane of a waiting workload."""
        return self._of[uid]

    def add(self, workload: Workload) -> None:
        """Let *workload* wait in its lane."""
        shape = self._shapes.setdefault(workload.shape.key, workload.shape)
        key = (workload.queue, workload.namespace, id(shape))
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(workload.queue, workload.namespace, shape)
            self.queues.setdefault(workload.queue, []).append(lane)
        insort(lane.entries, (place(workload), workload), key=lambda entry: entry[0])
        lane.untold.add(workload.uid)
        self._of[workload.uid] = lane

    def remove(self, workload: Workload) -> None:
        """Take *workload*, as it was added, out of its lane."""
        lane = self._of.pop(workload.uid)
        del lane.entries[bisect_left(lane.entries, place(workload), key=lambda entry: entry[0])]
        lane.untold.discard(workload.uid)
        if not lane.entries:
            del self._lanes[(lane.queue, lane.namespace, id(lane.shape))]
            self.queues[lane.queue].remove(lane)
            if not self.queues[lane.queue]:
                del self.queues[lane.queue]

    def in_order(self, queue: QueueName) -> list[Workload]:
        """Return everyone who waits in *queue*, in order of place."""
        entries = [entry for lane in self.queues.get(queue, ()) for entry in lane.entries]
        return [workload for _, workload in sorted(entries, key=lambda entry: entry[0])]
