"""Counts pending workload classes by scheduling requirements in each branch of the tree.

The tournament skips branches without a class that could fit. Counts are kept by
queue priority, because only queues of equal priority compete with each other.
"""

from collections.abc import Iterable, Mapping

from controller.engine.pending import WorkloadClass
from controller.engine.queues import QueueName
from controller.engine.tree import Tree

Counts = Mapping[QueueName, Mapping[int, int]]
"""For each queue, how many classes with each requirements (by id) are pending in it and below it."""


class ClassCounts:
    """Counts of the classes pending in one tree of queues."""

    def __init__(self, tree: Tree, lanes: Iterable[WorkloadClass]) -> None:
        self.tree = tree
        self._by_priority: dict[int, dict[QueueName, dict[int, int]]] = {}
        for lane in lanes:
            self.add(lane, 1)

    def add(self, lane: WorkloadClass, change: int) -> None:
        """Add *change* (1 or -1) to the count of *lane* in its queue and all ancestors."""
        leaf = self.tree.nodes.get(lane.queue)
        if leaf is None or not leaf.is_leaf:
            return
        level = self._by_priority.setdefault(leaf.queue.priority, {})
        for node in leaf.path():
            shapes = level.setdefault(node.name, {})
            shapes[id(lane.requirements)] = shapes.get(id(lane.requirements), 0) + change
            if not shapes[id(lane.requirements)]:
                del shapes[id(lane.requirements)]

    def by_priority(self) -> list[Counts]:
        """Return the counts of each queue priority, the highest first."""
        return [self._by_priority[priority] for priority in sorted(self._by_priority, reverse=True)]
