"""Decides the order of heads between queues where borrowing heads may go last (O1-O3).

Queue priority comes first; among equals, the branches of the tree compete.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from controller.engine.fairness.shares import QueueShares
from controller.engine.fairness.tournament import Branch, Head, LeafIterator, SchedulableClass, Tournament
from controller.engine.policy import Policy
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.request_index import Slots
from controller.engine.steps import Steps

if TYPE_CHECKING:
    from controller.engine.state.pending import WorkloadClass

_ANY: Slots = 1
"""Stands for all requirements: the heads of a band compete, whatever they request."""

PriorityBand = tuple[bool, int]
"""Whether the head borrows (only where others go first), and the queue priority, negated."""


class _BandTournament(Tournament):
    """Selects the first of the heads of one priority band."""

    def __init__(self, shares: QueueShares, heads: Mapping[QueueName, Head]) -> None:
        super().__init__(shares)
        self._root = shares.quota.tree.root
        self._heads = dict(heads)
        self._counts = Counter(node.name for head in heads.values() for node in head.leaf.path())
        """How many leaves compete below each queue."""

    def best(self) -> Head | None:
        """Return the best head, or ``None``."""
        return self._best_head(self._root, _ANY)

    def update(self, leaf: Node, head: Head | None) -> None:
        """Set the head with which *leaf* competes, or remove the leaf with ``None``."""
        change = (head is not None) - (leaf.name in self._heads)
        if head is None:
            self._heads.pop(leaf.name, None)
        else:
            self._heads[leaf.name] = head
        for node in leaf.path() if change else ():
            self._counts[node.name] += change
        self._invalidate(leaf)

    def _eligible(self, branch: Branch, child: Node) -> Slots:
        return branch.offered if self._counts[child.name] else 0

    def _head(self, branch: Branch) -> Head | None:
        return self._heads.get(branch.node.name)


class HeadIterator:
    """Yields one head after the other until all are admitted or skipped.

    Where workloads within their fair share go first, a head that would borrow takes
    its queue's turn only if *fits* returns true; otherwise it is skipped (O3).
    *borrows* says whether a head would borrow, with the parts of its gang.
    """

    def __init__(
        self,
        shares: QueueShares,
        policy: Policy,
        classes: Mapping[QueueName, Iterable[SchedulableClass]],
        *,
        fits: Callable[[Head], bool],
        borrows: Callable[[Head], bool],
    ) -> None:
        self.refused: list[WorkloadClass] = []
        """Classes whose head was skipped."""
        self._fits = fits
        self._would_borrow = borrows
        self._shares = shares
        self._fair_share_first = policy.serves_fair_shares_first
        self._heads: dict[PriorityBand, dict[QueueName, Head]] = {}
        self._bands: dict[QueueName, PriorityBand] = {}
        self._current: tuple[PriorityBand, _BandTournament] | None = None
        self._leaves: dict[QueueName, LeafIterator] = {}
        self._to_recheck: dict[QueueName, Node] = {}
        """Queues whose borrowing head precedes workloads that would not borrow."""
        self._changed_leaves: list[Node] = []
        """Queues with another head since they were placed in a band."""
        self._must_recheck = False
        """Whether an admission may have changed which borrowing heads fit."""
        for name in sorted(classes):
            leaf = shares.quota.tree.nodes[name]
            self._leaves[name] = LeafIterator(leaf, classes[name], shares, policy)
            self._changed_leaves.append(leaf)

    def next(self) -> Steps[Head | None]:
        """Return the next head, or ``None`` when all are done."""
        yield from self._place_changed_leaves()
        while self._heads:
            band = min(self._heads)
            if self._must_recheck:
                yield from self._recheck_borrowing_heads()
                continue
            head = self._tournament(band).best()
            if head is None:
                raise AssertionError(f"band {band} has leaves but no head")
            if self._band(head) == band:
                return head
            yield from self._place(head.leaf)
        return None

    def _place_changed_leaves(self) -> Steps[None]:
        """Place the queues with another head in their bands, in the order of the changes."""
        changed, self._changed_leaves = self._changed_leaves, []
        for leaf in changed:
            yield from self._place(leaf)

    def _recheck_borrowing_heads(self) -> Steps[None]:
        """Skip borrowing heads that no longer fit and precede workloads that would not borrow (O3)."""
        self._must_recheck = False
        for name, leaf in list(self._to_recheck.items()):
            head = self._leaves[name].head()
            yield 1
            if head is None or not self._fits(head):
                yield from self._place(leaf)
            elif not self._has_non_borrowing(leaf):
                del self._to_recheck[name]

    def borrows(self, head: Head) -> bool:
        """Return whether the head is tried later because it would borrow."""
        return self._fair_share_first and self._would_borrow(head)

    def skip_queue(self, head: Head) -> None:
        """Drop the whole queue of *head*."""
        self._leaves[head.leaf.name].skip_all()
        self._changed_leaves.append(head.leaf)

    def on_admitted(self, head: Head) -> None:
        """Continue after *head* was admitted and removed from its class."""
        self._leaves[head.leaf.name].advance()
        self._must_recheck = bool(self._to_recheck)
        self._changed_leaves.append(head.leaf)

    def on_skipped(self, head: Head) -> None:
        """Continue after *head* was refused: skip its class, or the whole queue if it is fifo."""
        self._skip(head)
        self._changed_leaves.append(head.leaf)

    def _skip(self, head: Head) -> None:
        self.refused.append(head.workload_class)
        self._leaves[head.leaf.name].skip()

    def _place(self, leaf: Node) -> Steps[None]:
        """Place the leaf with its present head in the band where it belongs."""
        before = self._bands.pop(leaf.name, None)
        if before is not None:
            del self._heads[before][leaf.name]
            if not self._heads[before]:
                del self._heads[before]
        self._to_recheck.pop(leaf.name, None)
        head = self._leaves[leaf.name].head()
        while head is not None and self.borrows(head) and not self._fits(head):
            self._skip(head)
            head = self._leaves[leaf.name].head()
            yield 1
        if head is not None and self.borrows(head) and self._has_non_borrowing(leaf):
            self._to_recheck[leaf.name] = leaf
        band = self._band(head) if head else None
        if head is not None and band is not None:
            self._bands[leaf.name] = band
            self._heads.setdefault(band, {})[leaf.name] = head
        if self._current is not None and self._current[0] in (before, band):
            self._current[1].update(leaf, head if self._current[0] == band else None)

    def _has_non_borrowing(self, leaf: Node) -> bool:
        """Return whether a workload of *leaf* would not borrow; usage only grows, so that none will later."""
        charges = self._leaves[leaf.name].charges()
        return not leaf.queue.fifo and not all(self._shares.borrows(leaf, charge) for charge in charges)

    def _band(self, head: Head) -> PriorityBand:
        return self.borrows(head), -head.leaf.queue.priority

    def _tournament(self, band: PriorityBand) -> _BandTournament:
        """Return the tournament of *band*; it is rebuilt after another band was served."""
        if self._current is None or self._current[0] != band:
            self._current = band, _BandTournament(self._shares, self._heads[band])
        return self._current[1]
