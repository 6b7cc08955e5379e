"""Groups pending workloads into equivalence classes.

Workloads of one queue with the same scheduling requirements form a class: where
one does not fit, none does, so a class is tried once. Gangs, owners of head
reservations and workloads being evicted form classes of their own; so do
nominated workloads by cluster, and those that may not borrow or preempt. Where
it matters, so do namespaces, run times and job priorities.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName, Tree
from controller.engine.state.request_index import Slots
from controller.engine.state.resources import EMPTY, Resources
from controller.engine.state.workloads import HyperJobGang, SchedulingRequirements, Workload, WorkloadUid

OrderKey = tuple[int, int, str, str, str]

_MAX_COUNTED_CLASSES = 32
"""In queues with at most so many classes, positions are counted class by class."""

#: Run times are rounded up to so many binary digits, so that there are few classes.
_RUN_TIME_DIGITS = 4


class ClassKey(NamedTuple):
    """What the workloads of one class have in common."""

    queue: QueueName
    namespace: str
    """Empty where all namespaces share the class."""
    requirements_id: int
    gang: HyperJobGang | None
    """Set where all workloads are parts of one gang."""
    is_being_evicted: bool
    """The workloads were evicted and have not stopped yet (P5)."""
    nominated_cluster: ClusterName | None
    """The cluster that the workloads are nominated for (P5)."""
    is_non_preemptible: bool
    """Reclaim could not evict these workloads once admitted, so they may not borrow (P4)."""
    preempts: bool
    """The workloads may preempt others (P2): where the first of a class finds no victims, none does."""
    reservation_owner: str | None
    """Key of the head reservation that its workload or its gang has (O6)."""
    run_times_ms: tuple[int, ...]
    """Bounds of the run time of each workload, as `run_time_bounds` returns them (O9); empty where not used."""
    priority: int | None
    """The job priority of each workload; ``None`` where they differ, because waiting raises none (O10)."""


def order_key(workload: Workload) -> OrderKey:
    """Return the key that orders workloads inside a queue: priority, age, namespace, name (O2)."""
    return -workload.priority, workload.created_at, workload.namespace, workload.name, workload.uid


@dataclass(slots=True)
class QueueingHint:
    """What must change before a refused class is tried again."""

    queue: QueueName
    """The queue in which usage must be freed."""
    free_count: int
    """How often usage had been freed there when the class was refused."""
    generation: int
    """The generation of the quota that refused it."""
    or_unreserved_at_root: bool = False
    """A retry is also worthwhile once the root has enough unreserved quota."""


@dataclass(slots=True, eq=False)
class WorkloadClass:
    """Equal pending workloads of one queue, in order; of one namespace where namespaces share the queue fairly."""

    key: ClassKey
    """Its key among all classes; what is read most often has a field of its own."""
    queue: QueueName
    requirements: SchedulingRequirements
    slot: int
    """The slot of its requirements in sets of slots, until the slots are renumbered."""
    key_of: Callable[[Workload], OrderKey] = order_key
    """The key that orders its workloads among those of the queue."""
    workloads: list[Workload] = field(default_factory=list)
    """Ordered by ``order_key``."""
    charge: Resources = EMPTY
    """The total charge of admitting one workload (D5)."""
    counted_charge: Resources = EMPTY
    counted: int = 0
    """The requests of its queue include so many times *counted_charge* for its workloads (Q4)."""
    inadmissible: Refusal | None = None
    """Why no capacity would help, given the present queues and clusters."""
    retry_hint: QueueingHint | None = None
    """Set while the class is known to be refused."""
    last_reason: Reason | None = None
    """The reason published for all its workloads except unpublished ones."""
    order_key: OrderKey = field(init=False)
    """The order key of the first workload."""
    competes_alone: bool = field(init=False)
    """Where its workloads compete, they do so without a gang or a reservation."""

    def __post_init__(self) -> None:
        self.competes_alone = self.is_waiting and self.gang is None and self.key.reservation_owner is None

    @property
    def gang(self) -> HyperJobGang | None:
        """Return the gang that all its workloads are parts of."""
        return self.key.gang

    @property
    def is_waiting(self) -> bool:
        """Return whether its workloads are pending without an eviction in progress, their own or of their victims."""
        return not self.key.is_being_evicted and self.key.nominated_cluster is None

    @property
    def competes(self) -> bool:
        """Return whether its workloads compete for capacity, so that nothing else keeps them pending."""
        return self.inadmissible is None and self.is_waiting

    @property
    def head(self) -> Workload:
        """Return the first workload; a class in the collection has at least one."""
        return self.workloads[0]

    def __iter__(self) -> Iterator[Workload]:
        return iter(self.workloads)

    def add(self, workload: Workload) -> None:
        """Insert a workload in order."""
        insort(self.workloads, workload, key=order_key)
        self.order_key = self.key_of(self.workloads[0])

    def remove(self, workload: Workload) -> None:
        """Remove a workload as it was added."""
        del self.workloads[self.count_before(order_key(workload))]
        if self.workloads:
            self.order_key = self.key_of(self.workloads[0])

    def order_by(self, key_of: Callable[[Workload], OrderKey]) -> None:
        """Use *key_of* from now on; the order inside the class stays."""
        self.key_of = key_of
        self.order_key = key_of(self.workloads[0])

    def count_before(self, other: OrderKey) -> int:
        """Return how many of its workloads come before that key."""
        if other <= order_key(self.head):
            return 0
        return bisect_left(self.workloads, other, key=order_key)


def owner_of(workload: Workload) -> str:
    """Return the key of the reservation's owner: the gang for all its parts (G1), otherwise the workload."""
    return workload.gang.key if workload.gang is not None else workload.uid


def run_time_bounds(workload: Workload) -> tuple[int, ...]:
    """Return the expected run time and its less probable bounds, rounded up by at most an eighth; empty if unknown."""
    if workload.run_time_ms is None:
        return ()
    return tuple(map(_rounded_up, (workload.run_time_ms, *workload.details.run_time_bounds_ms)))


def _rounded_up(run_time_ms: int) -> int:
    unit = 1 << max(run_time_ms.bit_length() - _RUN_TIME_DIGITS, 0)
    return -(-run_time_ms // unit) * unit


SlotsByQueue = Mapping[QueueName, Slots]
"""For each queue, the requirements that are pending in it and below it."""


class PendingRequirements:
    """The requirements that are pending in each part of one tree of queues."""

    def __init__(self, tree: Tree, classes: Iterable[WorkloadClass]) -> None:
        self.tree = tree
        self._slots: dict[int, dict[QueueName, Slots]] = {}
        """By the priority of the leaves."""
        self._counts: dict[int, dict[QueueName, dict[int, int]]] = {}
        """Number of classes by slot, likewise."""
        for workload_class in classes:
            self.add(workload_class)

    def use(self, tree: Tree) -> bool:
        """Use *tree* if its queues have the same parents, priorities and leaves; return whether they have."""
        if tree is not self.tree and tree.shape() != self.tree.shape():
            return False
        self.tree = tree
        return True

    def add(self, workload_class: WorkloadClass) -> None:
        """Add a class to its queue and all ancestors."""
        slot = workload_class.slot
        for name, slots, counts in self._path(workload_class):
            counts[slot] = counts.get(slot, 0) + 1
            if counts[slot] == 1:
                slots[name] = slots.get(name, 0) | 1 << slot

    def remove(self, workload_class: WorkloadClass) -> None:
        """Remove a class that was added."""
        slot = workload_class.slot
        for name, slots, counts in self._path(workload_class):
            counts[slot] -= 1
            if not counts[slot]:
                del counts[slot]
                slots[name] ^= 1 << slot

    def _path(
        self, workload_class: WorkloadClass
    ) -> Iterator[tuple[QueueName, dict[QueueName, Slots], dict[int, int]]]:
        """Yield each queue from that of the class to the root, with its slots and how many classes each slot has."""
        leaf = self.tree.nodes.get(workload_class.queue)
        if leaf is None or not leaf.is_leaf:
            return
        priority = leaf.queue.priority
        slots, counts = self._slots.setdefault(priority, {}), self._counts.setdefault(priority, {})
        for node in leaf.path():
            yield node.name, slots, counts.setdefault(node.name, {})

    def by_priority(self) -> list[SlotsByQueue]:
        """Return the requirements of each queue priority, the highest first; they follow later changes."""
        return [self._slots[priority] for priority in sorted(self._slots, reverse=True)]


class PendingWorkloads:
    """All pending workloads that compete, by equivalence class."""

    def __init__(self) -> None:
        self.is_by_tenant = False
        """Whether new classes hold workloads of one namespace only."""
        self.is_by_run_time = False
        """Whether new classes hold workloads of about one run time only."""
        self.is_by_priority = False
        """Whether new classes hold workloads of one priority only."""
        self.order_keys: dict[QueueName, Callable[[Workload], OrderKey]] = {}
        """The key that orders new classes, of queues with another one than ``order_key``."""
        self.queues: dict[QueueName, list[WorkloadClass]] = {}
        """The classes of each queue; none is empty."""
        self.by_requirements: dict[int, dict[WorkloadClass, None]] = {}
        """The classes with each requirements, in the order of their creation, by the requirements' id."""
        self.unevaluated: dict[WorkloadClass, None] = {}
        """Classes that were not evaluated since they were created."""
        self.changed: set[QueueName] = set()
        """Queues in which a workload was added or removed since this was last emptied."""
        self.changed_classes: dict[WorkloadClass, None] = {}
        """Classes in which a workload was added or removed, or that were evaluated, since this was last emptied."""
        self.unpublished: dict[WorkloadClass, dict[WorkloadUid, None]] = {}
        """Workloads without a published reason, by class."""
        self._opened: dict[int, None] = {}
        """Requirements that were added to *by_requirements* since ``pop_requirement_changes``."""
        self._closed: dict[int, None] = {}
        """Requirements that were removed from it since then, and existed before."""
        self._in_tree: PendingRequirements | None = None
        self.slot_count = 0
        """How many slots requirements have had since the slots were renumbered."""
        self._classes: dict[ClassKey, WorkloadClass] = {}
        self._requirements: dict[tuple[object, ...], tuple[int, SchedulingRequirements]] = {}
        """By the key of equal requirements; with the id, so that the keys of all their classes share one integer."""
        self._class_of: dict[WorkloadUid, WorkloadClass] = {}
        self._ordered: dict[QueueName, list[Workload]] = {}
        """All workloads of queues with many classes, by ``order_key``; from the first query of a queue on."""

    def __contains__(self, uid: WorkloadUid) -> bool:
        return uid in self._class_of

    def __len__(self) -> int:
        return len(self._class_of)

    def classes(self) -> Iterator[WorkloadClass]:
        """Yield all classes, queue by queue."""
        for name in sorted(self.queues):
            yield from self.queues[name]

    def forget_deleted(self) -> None:
        """Forget the changed queues and classes without workloads, before the first plan."""
        self.changed.intersection_update(self.queues)
        self.changed_classes = {
            workload_class: None for workload_class in self.changed_classes if workload_class.workloads
        }

    def class_of(self, uid: WorkloadUid) -> WorkloadClass:
        """Return the class of a pending workload."""
        return self._class_of[uid]

    def add(self, workload: Workload, *, is_non_preemptible: bool = False) -> None:
        """Add *workload* to its class."""
        own = workload.requirements
        requirements_id, requirements = self._requirements.setdefault(own.scheduling_key, (id(own), own))
        nominated_cluster = (
            workload.nomination.cluster if workload.nomination is not None and not workload.is_being_evicted else None
        )
        key = ClassKey(
            workload.queue,
            workload.namespace if self.is_by_tenant else "",
            requirements_id,
            workload.gang,
            workload.is_being_evicted,
            nominated_cluster,
            is_non_preemptible,
            workload.details.preempts,
            owner_of(workload) if workload.reservation is not None else None,
            run_time_bounds(workload) if self.is_by_run_time else (),
            workload.priority if self.is_by_priority else None,
        )
        workload_class = self._classes.get(key) or self._open(key, requirements)
        workload_class.add(workload)
        if workload.queue in self._ordered:
            insort(self._ordered[workload.queue], workload, key=order_key)
        self.unpublished.setdefault(workload_class, {})[workload.uid] = None
        self.changed.add(workload.queue)
        self.changed_classes[workload_class] = None
        self._class_of[workload.uid] = workload_class

    def _open(self, key: ClassKey, requirements: SchedulingRequirements) -> WorkloadClass:
        equal = self.by_requirements.get(id(requirements))
        slot = next(iter(equal)).slot if equal else self.slot_count
        key_of = self.order_keys.get(key.queue, order_key)
        workload_class = WorkloadClass(key, key.queue, requirements, slot, key_of)
        self._classes[key] = workload_class
        self.queues.setdefault(key.queue, []).append(workload_class)
        if equal is None:
            equal = self.by_requirements[id(requirements)] = {}
            self._opened[id(requirements)] = None
            self.slot_count += 1
        equal[workload_class] = None
        self.unevaluated[workload_class] = None
        if self._in_tree is not None:
            self._in_tree.add(workload_class)
        return workload_class

    def remove(self, workload: Workload) -> None:
        """Remove *workload*, as it was added, from its class."""
        workload_class = self._class_of.pop(workload.uid)
        workload_class.remove(workload)
        ordered = self._ordered.get(workload.queue)
        if ordered is not None:
            del ordered[bisect_left(ordered, order_key(workload), key=order_key)]
        if workload_class in self.unpublished:
            self.unpublished[workload_class].pop(workload.uid, None)
        self.changed.add(workload.queue)
        self.changed_classes[workload_class] = None
        if not workload_class.workloads:
            self._close(workload_class)

    def _close(self, workload_class: WorkloadClass) -> None:
        requirements = workload_class.requirements
        if self._in_tree is not None:
            self._in_tree.remove(workload_class)
        del self._classes[workload_class.key]
        self.queues[workload_class.queue].remove(workload_class)
        if not self.queues[workload_class.queue]:
            del self.queues[workload_class.queue]
            self._ordered.pop(workload_class.queue, None)
        del self.by_requirements[id(requirements)][workload_class]
        if not self.by_requirements[id(requirements)]:
            del self.by_requirements[id(requirements)], self._requirements[requirements.scheduling_key]
            if id(requirements) in self._opened:
                del self._opened[id(requirements)]
            else:
                self._closed[id(requirements)] = None
        self.unevaluated.pop(workload_class, None)
        self.unpublished.pop(workload_class, None)

    @property
    def has_requirement_changes(self) -> bool:
        """Return whether ``pop_requirement_changes`` would return any."""
        return bool(self._opened or self._closed)

    def pop_requirement_changes(self) -> tuple[list[int], list[int]]:
        """Return the ids removed from *by_requirements* and then those added to it, since the last call."""
        changes = [*self._closed], [*self._opened]
        self._closed.clear()
        self._opened.clear()
        return changes

    def in_order(self, queue: QueueName) -> Sequence[Workload]:
        """Return all workloads pending in *queue*, ordered by ``order_key``."""
        ordered = self._ordered.get(queue)
        if ordered is None:
            classes = self.queues.get(queue, ())
            ordered = sorted((workload for workload_class in classes for workload in workload_class), key=order_key)
            if len(classes) > _MAX_COUNTED_CLASSES:
                self._ordered[queue] = ordered
        return ordered

    def count(self, queue: QueueName) -> int:
        """Return the number of workloads pending in *queue*."""
        ordered = self._ordered.get(queue)
        if ordered is not None:
            return len(ordered)
        return sum(len(workload_class.workloads) for workload_class in self.queues.get(queue, ()))

    def count_before(self, queue: QueueName, key: OrderKey) -> int:
        """Return how many workloads pending in *queue* come before *key*."""
        classes = self.queues.get(queue, ())
        if len(classes) > _MAX_COUNTED_CLASSES:
            return bisect_left(self.in_order(queue), key, key=order_key)
        return sum(workload_class.count_before(key) for workload_class in classes)

    def renumber(self) -> None:
        """Number the slots again, without gaps and in the same order; all sets of slots become invalid."""
        for slot, classes in enumerate(self.by_requirements.values()):
            for workload_class in classes:
                workload_class.slot = slot
        self.slot_count, self._in_tree = len(self.by_requirements), None

    def in_tree(self, tree: Tree) -> PendingRequirements:
        """Return the requirements that are pending in each part of *tree*."""
        if self._in_tree is None or not self._in_tree.use(tree):
            self._in_tree = PendingRequirements(tree, self.classes())
        return self._in_tree
