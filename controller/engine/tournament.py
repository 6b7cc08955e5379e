"""Whose turn it is, found out from the root down: only branches that may hold the next one are looked at.

For ``queueOrder: PriorityFirst`` (O1): among queues of the highest priority
each branch offers its best head, the branch with the smaller share first. What
a branch offers is known by its share alone until that is the smallest one, and
a branch whose ceiling leaves nothing for any shape that waits in it is never
entered.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from controller.engine.class_counts import Counts
from controller.engine.ordering import Head, LeafIterator, QueueShares, Rank, RatioKey
from controller.engine.quota import Quota
from controller.engine.resources import Resources
from controller.engine.tree import Node

if TYPE_CHECKING:
    from controller.engine.queues import QueueName

_ASKS_NOTHING: frozenset[str] = frozenset()

_Key = Rank | tuple[RatioKey]
"""A branch's rank with its head, or only its share, which comes before."""

OpenLeaf = Callable[[Node], LeafIterator]
"""Returns the lanes of a leaf that may be tried."""


class _Branch:
    """What is known of the heads below one queue."""

    def __init__(self, node: Node, shapes: frozenset[int]) -> None:
        self.node = node
        self.given = shapes
        """The shapes for which there is room outside it."""
        self.shapes: frozenset[int] = frozenset()
        """Those of them for which its own ceiling has room, too."""
        self.line: LeafIterator | None = None
        """A leaf's lanes."""
        self.heap: list[tuple[_Key, int, int]] = []
        """Of each child its key, its number, and the version of both."""
        self.versions: list[int] = []
        self.stale: set[int] = set()
        """The children in which somebody was served or passed over since."""
        self.is_stale = True
        self.is_fuller = False
        """Whether somebody was served below it since, so that its ceiling may leave less."""


class Tournament:
    """The heads of queues of one priority, for shapes for which there is room."""

    def __init__(
        self, standing: QueueShares, counts: Counts, charges: Mapping[int, Resources], *, open_line: OpenLeaf
    ) -> None:
        self._standing = standing
        self._counts = counts
        self._charges = charges
        """What one of each shape is charged."""
        self._open = open_line
        self._branches: dict[QueueName, _Branch] = {}

    def next(self, shapes: frozenset[int]) -> Head | None:
        """Return the head whose turn it is among those of *shapes*, ``None`` when all are done."""
        root = self._quota.tree.root
        return self._offer(root, shapes)

    def served(self, head: Head) -> None:
        """Go on after *head* was admitted and taken out of its lane."""
        self._line(head).moved_on()
        self._touch(head.leaf, is_fuller=True)

    def passed_over(self, head: Head) -> None:
        """Go on after *head* was refused: nobody else in its lane would fit; in a fifo queue nobody at all."""
        if head.leaf.queue.fifo:
            self._line(head).drop()
        else:
            self._line(head).drop_lane()
        self._touch(head.leaf, is_fuller=False)

    @property
    def _quota(self) -> Quota:
        return self._standing.quota

    def _line(self, head: Head) -> LeafIterator:
        line = self._branches[head.leaf.name].line
        if line is None:
            raise AssertionError(f"nobody competes in {head.leaf.name}")
        return line

    def _touch(self, leaf: Node, *, is_fuller: bool) -> None:
        child: Node | None = None
        for node in leaf.path():
            branch = self._branches[node.name]
            branch.is_stale = True
            branch.is_fuller |= is_fuller
            if child is not None:
                branch.stale.add(child.place)
            child = node

    def _offer(self, node: Node, shapes: frozenset[int]) -> Head | None:
        """Return the best head of *node* among those of *shapes*."""
        branch = self._branches.get(node.name)
        if branch is None or branch.given != shapes:
            branch = self._enter(node, shapes, branch)
        elif branch.is_stale:
            self._refresh(branch)
        branch.is_stale = False
        return branch.line.head() if branch.line is not None else self._best(branch)

    def _enter(self, node: Node, shapes: frozenset[int], before: _Branch | None) -> _Branch:
        branch = self._branches[node.name] = _Branch(node, shapes)
        branch.shapes = self._with_room(branch)
        if not node.is_leaf:
            self._fill(branch)
            return branch
        branch.line = before.line if before is not None else None
        if branch.line is None:
            branch.line = self._open(node)
        branch.line.keep(branch.shapes)
        return branch

    def _with_room(self, branch: _Branch) -> frozenset[int]:
        node = branch.node
        return frozenset(shape for shape in branch.given if self._quota.has_free(node, self._charges[shape]))

    def _fill(self, branch: _Branch) -> None:
        children = branch.node.children
        branch.versions = [0] * len(children)
        branch.heap = [
            ((self._standing.rank(child.name, _ASKS_NOTHING),), number, 0)
            for number, child in enumerate(children)
            if self._below(branch, child)
        ]
        heapify(branch.heap)

    def _below(self, branch: _Branch, child: Node) -> frozenset[int]:
        """Return the shapes that wait in *child* and for which there is room above it."""
        waiting = self._counts.get(child.name, {})
        found = branch.shapes.intersection(waiting) if waiting else frozenset[int]()
        if not found or child.name in self._quota.guaranteed or not self._quota.guaranteed:
            return found
        # Of what is guaranteed nothing is for those who have no guarantee.
        return frozenset(shape for shape in found if self._quota.has_unreserved(branch.node, self._charges[shape]))

    def _refresh(self, branch: _Branch) -> None:
        """Look again after something below *branch* has changed."""
        was_served, branch.is_fuller = branch.is_fuller, False
        shapes = self._with_room(branch) if was_served else branch.shapes
        has_changed, branch.shapes = shapes != branch.shapes, shapes
        if branch.line is not None:
            if was_served:
                branch.line.keep(shapes)
        elif has_changed:
            self._fill(branch)
        else:
            for number in branch.stale:
                branch.versions[number] += 1
                child = branch.node.children[number]
                if self._below(branch, child):
                    share = self._standing.rank(child.name, _ASKS_NOTHING)
                    heappush(branch.heap, ((share,), number, branch.versions[number]))
        branch.stale.clear()

    def _best(self, branch: _Branch) -> Head | None:
        """Return the best head of the children, of which only those are asked that may have it."""
        while branch.heap:
            key, number, version = branch.heap[0]
            child = branch.node.children[number]
            if version != branch.versions[number]:
                heappop(branch.heap)
                continue
            head = self._offer(child, self._below(branch, child))
            if head is None:
                heappop(branch.heap)
                continue
            exact = self._rank(child, head)
            if exact == key:
                return head
            heappop(branch.heap)
            heappush(branch.heap, (exact, number, version))
        return None

    def _rank(self, node: Node, head: Head) -> Rank:
        workload = head.workload
        return self._standing.rank(node.name, head.asks), -workload.priority, workload.since, workload.queue
