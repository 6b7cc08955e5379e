"""Finds the next head from the root down, and visits only branches that may have it.

For ``queueOrder: PriorityFirst`` (O1): among queues of the highest priority
each branch offers its best head, the branch with the smaller usage ratio first.
A branch is compared by its ratio alone until that is the smallest, and a branch
whose limit leaves nothing for any requirements pending in it is never visited.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from controller.engine.fairness.ordering import Head, LeafIterator, QueueShares, Rank, RatioKey
from controller.engine.state.hierarchy import Node
from controller.engine.state.pending import Counts
from controller.engine.state.quota import Quota
from controller.engine.state.resources import Resources

if TYPE_CHECKING:
    from controller.engine.state.hierarchy import QueueName

_NO_RESOURCES: frozenset[str] = frozenset()

_Key = Rank | tuple[RatioKey]
"""A branch's rank with its head, or only its usage ratio, which sorts before it."""

OpenLeaf = Callable[[Node], LeafIterator]
"""Returns the iterator over the schedulable classes of a leaf."""


class _Branch:
    """Cached state of one queue in the tournament."""

    def __init__(self, node: Node, requirement_ids: frozenset[int]) -> None:
        self.node = node
        self.offered = requirement_ids
        """The requirements that fit outside the branch."""
        self.fitting: frozenset[int] = frozenset()
        """Those of them that also fit the limit of this queue."""
        self.leaf: LeafIterator | None = None
        """The iterator over the classes, for a leaf."""
        self.heap: list[tuple[_Key, int, int]] = []
        """For each child its key, its number, and the version of both."""
        self.versions: list[int] = []
        self.stale: set[int] = set()
        """The children in which a head was admitted or skipped."""
        self.is_stale = True
        self.has_admitted = False
        """Whether a head was admitted below, so that less may be left of the limit."""


class Tournament:
    """Selects the next head among queues of one priority, for requirements that fit."""

    def __init__(
        self, shares: QueueShares, counts: Counts, charges: Mapping[int, Resources], *, open_line: OpenLeaf
    ) -> None:
        self._shares = shares
        self._counts = counts
        self._charges = charges
        """The charge of one workload, by requirements."""
        self._open_leaf = open_line
        self._branches: dict[QueueName, _Branch] = {}

    def next(self, requirement_ids: frozenset[int]) -> Head | None:
        """Return the next head among those with requirements in *requirement_ids*, ``None`` when all are done."""
        root = self._quota.tree.root
        return self._best_head(root, requirement_ids)

    def on_admitted(self, head: Head) -> None:
        """Continue after *head* was admitted and removed from its class."""
        self._leaf(head).advance()
        self._invalidate(head.leaf, is_fuller=True)

    def on_skipped(self, head: Head) -> None:
        """Continue after *head* was refused: skip its class, or the whole queue if it is fifo."""
        if head.leaf.queue.fifo:
            self._leaf(head).skip_all()
        else:
            self._leaf(head).skip_class()
        self._invalidate(head.leaf, is_fuller=False)

    @property
    def _quota(self) -> Quota:
        return self._shares.quota

    def _leaf(self, head: Head) -> LeafIterator:
        line = self._branches[head.leaf.name].leaf
        if line is None:
            raise AssertionError(f"nobody competes in {head.leaf.name}")
        return line

    def _invalidate(self, leaf: Node, *, is_fuller: bool) -> None:
        child: Node | None = None
        for node in leaf.path():
            branch = self._branches[node.name]
            branch.is_stale = True
            branch.has_admitted |= is_fuller
            if child is not None:
                branch.stale.add(child.index)
            child = node

    def _best_head(self, node: Node, requirement_ids: frozenset[int]) -> Head | None:
        """Return the best head of *node* among those with requirements in *requirement_ids*."""
        branch = self._branches.get(node.name)
        if branch is None or branch.offered != requirement_ids:
            branch = self._open_branch(node, requirement_ids, branch)
        elif branch.is_stale:
            self._refresh(branch)
        branch.is_stale = False
        return branch.leaf.head() if branch.leaf is not None else self._best_child_head(branch)

    def _open_branch(self, node: Node, requirement_ids: frozenset[int], before: _Branch | None) -> _Branch:
        branch = self._branches[node.name] = _Branch(node, requirement_ids)
        branch.fitting = self._fitting(branch)
        if not node.is_leaf:
            self._fill(branch)
            return branch
        branch.leaf = before.leaf if before is not None else None
        if branch.leaf is None:
            branch.leaf = self._open_leaf(node)
        branch.leaf.restrict_to(branch.fitting)
        return branch

    def _fitting(self, branch: _Branch) -> frozenset[int]:
        node = branch.node
        return frozenset(
            requirements for requirements in branch.offered if self._quota.has_free(node, self._charges[requirements])
        )

    def _fill(self, branch: _Branch) -> None:
        children = branch.node.children
        branch.versions = [0] * len(children)
        branch.heap = [
            ((self._shares.ratio_key(child.name, _NO_RESOURCES),), number, 0)
            for number, child in enumerate(children)
            if self._eligible(branch, child)
        ]
        heapify(branch.heap)

    def _eligible(self, branch: _Branch, child: Node) -> frozenset[int]:
        """Return the requirements pending in *child* that fit the quota above it."""
        waiting = self._counts.get(child.name, {})
        eligible = branch.fitting.intersection(waiting) if waiting else frozenset[int]()
        if not eligible or child.name in self._quota.guaranteed or not self._quota.guaranteed:
            return eligible
        # Reserved quota is available only to queues that have a guarantee.
        return frozenset(
            requirements
            for requirements in eligible
            if self._quota.has_unreserved(branch.node, self._charges[requirements])
        )

    def _refresh(self, branch: _Branch) -> None:
        """Update a branch after a change below it."""
        was_served, branch.has_admitted = branch.has_admitted, False
        requirement_ids = self._fitting(branch) if was_served else branch.fitting
        has_changed, branch.fitting = requirement_ids != branch.fitting, requirement_ids
        if branch.leaf is not None:
            if was_served:
                branch.leaf.restrict_to(requirement_ids)
        elif has_changed:
            self._fill(branch)
        else:
            for number in branch.stale:
                branch.versions[number] += 1
                child = branch.node.children[number]
                if self._eligible(branch, child):
                    share = self._shares.ratio_key(child.name, _NO_RESOURCES)
                    heappush(branch.heap, ((share,), number, branch.versions[number]))
        branch.stale.clear()

    def _best_child_head(self, branch: _Branch) -> Head | None:
        """Return the best head of the children; visit only children that may have it."""
        while branch.heap:
            key, number, version = branch.heap[0]
            child = branch.node.children[number]
            if version != branch.versions[number]:
                heappop(branch.heap)
                continue
            head = self._best_head(child, self._eligible(branch, child))
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
        return (
            self._shares.ratio_key(node.name, head.resources),
            -workload.priority,
            workload.created_at,
            workload.queue,
        )
