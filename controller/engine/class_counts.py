"""How many lanes of each shape wait in each part of the tree, so that whole branches can be left out.

Counted lane by lane as they open and close, and by queue priority: queues of
one priority compete with one another only.
"""

from collections.abc import Iterable, Mapping

from controller.engine.pending import WorkloadClass
from controller.engine.queues import QueueName
from controller.engine.tree import Tree

Counts = Mapping[QueueName, Mapping[int, int]]
"""For each queue, how many lanes of each shape, by the shape's id, wait in it and below it."""


class ClassCounts:
    """The lanes that wait in one tree of queues."""

    def __init__(self, tree: Tree, lanes: Iterable[WorkloadClass]) -> None:
        self.tree = tree
        self._by_priority: dict[int, dict[QueueName, dict[int, int]]] = {}
        for lane in lanes:
            self.add(lane, 1)

    def add(self, lane: WorkloadClass, change: int) -> None:
        """Count *lane* once more, or once less with -1."""
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
