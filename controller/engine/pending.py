"""The workloads that wait, in lanes of equal ones.

A lane holds the waiting workloads of one queue that share a shape: where one
of them does not fit, none of them does, so a lane is tried once and not once
per workload. Where the queue is shared fairly among namespaces, each has lanes
of its own; so have the parts of a group, those who are leaving, and those for
whom others are.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from controller.engine.clusters import ClusterName
from controller.engine.queues import QueueName
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import EMPTY, Resources
from controller.engine.workloads import HyperJobGang, SchedulingRequirements, Workload, WorkloadUid

OrderKey = tuple[int, int, str, str, str]

_Key = tuple[QueueName, str, int, HyperJobGang | None, bool, ClusterName | None, bool, str | None]
"""Queue, namespace, shape, group, whether they leave, what is held for them, whether they could be reclaimed, whose
reservation it is."""


def order_key(workload: Workload) -> OrderKey:
    """Return the key that orders workloads inside a queue: priority, age, namespace, name (O2)."""
    return -workload.priority, workload.created_at, workload.namespace, workload.name, workload.uid


@dataclass(slots=True)
class QueueingHint:
    """What must happen before a refused lane is tried again."""

    queue: QueueName
    """At which something must be freed."""
    free_count: int
    """How often that had happened when it was refused."""
    generation: int
    """With which ceilings."""
    or_unreserved_at_root: bool = False
    """It would also do if the root had that much that is reserved for nobody."""


@dataclass(slots=True, eq=False)
class WorkloadClass:
    """Equal workloads of one queue, in order; of one namespace where tenants are told apart."""

    queue: QueueName
    namespace: str
    """Empty where it does not matter."""
    requirements: SchedulingRequirements
    gang: HyperJobGang | None = None
    """Set where all its workloads are parts of one group."""
    workloads: list[Workload] = field(default_factory=list)
    """In order of place."""
    charge: Resources = EMPTY
    """What admitting one of them would be charged in all (D5)."""
    is_leaving: bool = False
    """They were evicted and are not gone yet (P5)."""
    nominated_cluster: ClusterName | None = None
    """The cluster that is held for them (P5)."""
    is_non_preemptible: bool = False
    """What is admitted of them could not be reclaimed, so they may not borrow (P4)."""
    reservation_owner: str | None = None
    """Whom room is kept for (O6): the only one in it, or parts of one group."""
    inadmissible: Refusal | None = None
    """Why no room would help, as the queues and clusters are."""
    retry_hint: QueueingHint | None = None
    """Set while it is known to be refused."""
    last_reason: Reason | None = None
    """The reason that all have been given but those who are news."""

    @property
    def is_waiting(self) -> bool:
        """Say whether they wait for room, neither leaving nor sure of what others leave."""
        return not self.is_leaving and self.nominated_cluster is None

    @property
    def head(self) -> Workload:
        """Return the first workload; a lane in the backlog has one."""
        return self.workloads[0]

    @property
    def order_key(self) -> OrderKey:
        """Return the place of its first workload."""
        return order_key(self.workloads[0])

    def __iter__(self) -> Iterator[Workload]:
        return iter(self.workloads)

    def count_before(self, other: OrderKey) -> int:
        """Return how many of its workloads come before that place."""
        return bisect_left(self.workloads, other, key=order_key)


def _whose(workload: Workload) -> str:
    """Return what tells apart whose reservation it is: one covers all parts of a group (G1)."""
    return workload.gang.key if workload.gang is not None else workload.uid


def _count_nothing(_: WorkloadClass, __: int) -> None:
    """Let nobody know."""


class PendingWorkloads:
    """All waiting workloads that are not held for reasons of their own."""

    def __init__(self) -> None:
        self.is_by_tenant = False
        """Whether lanes that are opened from now on hold workloads of one namespace only."""
        self.queues: dict[QueueName, list[WorkloadClass]] = {}
        """The lanes of each queue; none is empty."""
        self.by_requirements: dict[int, list[WorkloadClass]] = {}
        """The lanes of each shape, by the shape's id."""
        self.unevaluated: dict[WorkloadClass, None] = {}
        """Lanes that nobody has looked at since they began."""
        self.changed: set[QueueName] = set()
        """Queues in which somebody came or went since this was last emptied."""
        self.unpublished: dict[WorkloadClass, set[WorkloadUid]] = {}
        """Who has not been given a reason yet, by lane."""
        self.on_class_change: Callable[[WorkloadClass, int], None] = _count_nothing
        """Hears of each lane that opens (1) and closes (-1)."""
        self._classes: dict[_Key, WorkloadClass] = {}
        self._requirements: dict[tuple[object, ...], SchedulingRequirements] = {}
        self._class_of: dict[WorkloadUid, WorkloadClass] = {}

    def __contains__(self, uid: WorkloadUid) -> bool:
        return uid in self._class_of

    def __len__(self) -> int:
        return len(self._class_of)

    def classes(self) -> Iterator[WorkloadClass]:
        """Yield all lanes, queue by queue."""
        for name in sorted(self.queues):
            yield from self.queues[name]

    def class_of(self, uid: WorkloadUid) -> WorkloadClass:
        """Return the lane of a waiting workload."""
        return self._class_of[uid]

    def add(self, workload: Workload, *, immovable: bool = False) -> None:
        """Let *workload* wait in its lane."""
        shape = self._requirements.setdefault(workload.requirements.scheduling_key, workload.requirements)
        namespace = workload.namespace if self.is_by_tenant else ""
        held = workload.nomination.cluster if workload.nomination is not None and not workload.is_leaving else None
        reserved = _whose(workload) if workload.reservation is not None else None
        key = workload.queue, namespace, id(shape), workload.gang, workload.is_leaving, held, immovable, reserved
        lane = self._classes.get(key) or self._open(key, shape)
        insort(lane.workloads, workload, key=order_key)
        self.unpublished.setdefault(lane, set()).add(workload.uid)
        self.changed.add(workload.queue)
        self._class_of[workload.uid] = lane

    def _open(self, key: _Key, shape: SchedulingRequirements) -> WorkloadClass:
        queue, namespace, _, group, is_leaving, held, immovable, reserved = key
        lane = WorkloadClass(
            queue,
            namespace,
            shape,
            group,
            is_leaving=is_leaving,
            nominated_cluster=held,
            is_non_preemptible=immovable,
            reservation_owner=reserved,
        )
        self._classes[key] = lane
        self.queues.setdefault(queue, []).append(lane)
        self.by_requirements.setdefault(id(shape), []).append(lane)
        self.unevaluated[lane] = None
        self.on_class_change(lane, 1)
        return lane

    def remove(self, workload: Workload) -> None:
        """Take *workload*, as it was added, out of its lane."""
        lane = self._class_of.pop(workload.uid)
        del lane.workloads[lane.count_before(order_key(workload))]
        if lane in self.unpublished:
            self.unpublished[lane].discard(workload.uid)
        self.changed.add(workload.queue)
        if not lane.workloads:
            self._close(lane)

    def _close(self, lane: WorkloadClass) -> None:
        shape = lane.requirements
        self.on_class_change(lane, -1)
        key = lane.queue, lane.namespace, id(shape), lane.gang
        del self._classes[
            *key, lane.is_leaving, lane.nominated_cluster, lane.is_non_preemptible, lane.reservation_owner
        ]
        self.queues[lane.queue].remove(lane)
        if not self.queues[lane.queue]:
            del self.queues[lane.queue]
        self.by_requirements[id(shape)].remove(lane)
        if not self.by_requirements[id(shape)]:
            del self.by_requirements[id(shape)], self._requirements[shape.scheduling_key]
        self.unevaluated.pop(lane, None)
        self.unpublished.pop(lane, None)

    def in_order(self, queue: QueueName) -> list[Workload]:
        """Return everyone who waits in *queue*, in order of place."""
        return sorted((each for lane in self.queues.get(queue, ()) for each in lane), key=order_key)
