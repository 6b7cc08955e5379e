"""Counts pending workload classes by scheduling requirements in each branch of the tree.

The tournament skips branches without a class that could fit. Counts are kept by
queue priority, because only queues of equal priority compete with each other.
"""

from collections.abc import Iterable, Mapping

from controller.engine.state.hierarchy import Tree
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.queues import QueueName

Counts = Mapping[QueueName, Mapping[int, int]]
"""For each queue, how many classes with each requirements (by id) are pending in it and below it."""


class ClassCounts:
    """Counts of the classes pending in one tree of queues."""

    def __init__(self, tree: Tree, classes: Iterable[WorkloadClass]) -> None:
        self.tree = tree
        self._by_priority: dict[int, dict[QueueName, dict[int, int]]] = {}
        for workload_class in classes:
            self.add(workload_class, 1)

    def add(self, workload_class: WorkloadClass, change: int) -> None:
        """Add *change* (1 or -1) to the count of *workload_class* in its queue and all ancestors."""
        leaf = self.tree.nodes.get(workload_class.queue)
        if leaf is None or not leaf.is_leaf:
            return
        level = self._by_priority.setdefault(leaf.queue.priority, {})
        for node in leaf.path():
            requirements = level.setdefault(node.name, {})
            requirements[id(workload_class.requirements)] = (
                requirements.get(id(workload_class.requirements), 0) + change
            )
            if not requirements[id(workload_class.requirements)]:
                del requirements[id(workload_class.requirements)]

    def by_priority(self) -> list[Counts]:
        """Return the counts of each queue priority, the highest first."""
        return [self._by_priority[priority] for priority in sorted(self._by_priority, reverse=True)]
