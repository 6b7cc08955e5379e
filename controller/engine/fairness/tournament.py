"""Selects the next head from the root of the queue tree down, and visits only branches that may have it.

Each branch offers its best head; the branch with the smaller usage ratio goes first (O1). A branch is compared by its
ratio alone until that is the smallest, and a branch without an eligible head is never visited.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from controller.engine.fairness.shares import ZERO, ExactRatio, QueueShares, RatioKey, UsageRatio
from controller.engine.policy import Policy
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import OrderKey, SlotsByQueue, WorkloadClass
from controller.engine.state.request_index import ExceedingRequests, RequestIndex, Slots
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import HyperJobGang, Workload

Rank = tuple[int, int, ExactRatio, int, int, QueueName]

_Key = Rank | RatioKey
"""A branch's rank with its head, or only its usage ratio, which sorts before it."""

Fitting = tuple[Slots, Slots]
"""The requirements that fit a queue: for its children with a guarantee, and for the others."""

_EQUAL: UsageRatio = (0, ZERO)
_NO_RESOURCES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Head:
    """The next workload of a queue, with the class that it leads."""

    workload: Workload
    workload_class: WorkloadClass
    leaf: Node
    resources: frozenset[str]
    """The resources that count for usage ratios."""


class SchedulableClass(NamedTuple):
    """A class that may be tried, with the resources of its requirements that count for usage ratios.

    A tuple, because a leaf that is opened has one for each of its classes.
    """

    workload_class: WorkloadClass
    resources: frozenset[str]


class LeafIterator:
    """The schedulable classes of one leaf queue, in order."""

    def __init__(
        self,
        leaf: Node,
        entries: Iterable[SchedulableClass],
        shares: QueueShares,
        policy: Policy,
        *,
        start_together: Callable[[HyperJobGang | None], bool] = lambda _: False,
    ) -> None:
        self.leaf = leaf
        self._start_together = start_together
        """Whether the parts of a gang are admitted only together."""
        self._shares = shares
        self._by_tenant = policy.is_by_tenant
        self._by_tenant_first = policy.tenant_fairness == "NamespaceFirst"
        self._classes = list(entries)
        self._by_namespace: dict[str, list[tuple[OrderKey, int]]] = {}
        """A heap of the remaining classes of each namespace, or one of all classes, by order key and number."""
        self._heap: list[tuple[int, UsageRatio, OrderKey, int, str]] = []
        """The first class of each namespace. An admission changes the ratio of its own namespace only."""
        self._rank(range(len(self._classes)))

    def _rank(self, numbers: Iterable[int]) -> None:
        """Let the classes with these *numbers* remain."""
        self._by_namespace.clear()
        for number in numbers:
            self._by_namespace.setdefault(self._namespace(number), []).append(self._entry(number))
        for classes in self._by_namespace.values():
            heapify(classes)
        self._heap = [self._key(namespace) for namespace in self._by_namespace]
        heapify(self._heap)

    def _namespace(self, number: int) -> str:
        return self._classes[number].workload_class.key.namespace if self._by_tenant else ""

    def _entry(self, number: int) -> tuple[OrderKey, int]:
        return self._classes[number].workload_class.order_key, number

    def _key(self, namespace: str) -> tuple[int, UsageRatio, OrderKey, int, str]:
        first, number = self._by_namespace[namespace][0]
        share = self._shares.namespace_ratio(self.leaf.name, namespace) if self._by_tenant else _EQUAL
        return 0 if self._by_tenant_first else first[0], share, first, number, namespace

    def _drop_first(self, *, keep: bool = False) -> None:
        """Drop the class of the head, or *keep* it with another workload, and rank its namespace again."""
        *_, number, namespace = self._heap[0]
        classes = self._by_namespace[namespace]
        heappop(classes)
        if keep:
            heappush(classes, self._entry(number))
        if classes:
            heapreplace(self._heap, self._key(namespace))
        else:
            heappop(self._heap)

    def head(self) -> Head | None:
        """Return the first remaining head; none while a nominated or evicted workload blocks a fifo queue (O5)."""
        if not self._heap:
            return None
        entry = self._classes[self._heap[0][3]]
        if not entry.workload_class.is_waiting:
            self.skip_all()
            return None
        return Head(entry.workload_class.head, entry.workload_class, self.leaf, entry.resources)

    def charges(self) -> Iterable[Resources]:
        """Return the charges of the remaining classes."""
        remaining = (number for classes in self._by_namespace.values() for _, number in classes)
        return (self._classes[number].workload_class.charge for number in remaining)

    def skip(self) -> None:
        """Drop the class of the head after its refusal; in a fifo queue drop all classes."""
        if self.leaf.queue.fifo:
            self.skip_all()
        else:
            self._drop_first()

    def skip_all(self) -> None:
        """Drop all classes."""
        self._heap.clear()
        self._by_namespace.clear()

    def advance(self) -> None:
        """Continue after the head was admitted: with the next workload of its class, and its namespace ranked again."""
        workload_class = self._classes[self._heap[0][3]].workload_class
        self._drop_first(keep=bool(workload_class.workloads))

    def restrict_to(self, slots: Slots) -> None:
        """Drop the first classes while they have other requirements; in a fifo queue drop all with the first one.

        A HyperJob may start without that one, with its other classes.
        """
        while self._heap and not slots >> (first := self._classes[self._heap[0][3]].workload_class).slot & 1:
            if self.leaf.queue.fifo and first.is_waiting and self._start_together(first.gang):
                self._drop_first()
                remaining = [number for classes in self._by_namespace.values() for _, number in classes]
                self._rank(number for number in remaining if self._classes[number].workload_class.gang == first.gang)
            else:
                self.skip()


class Branch:
    """Cached state of one queue in the tournament."""

    def __init__(self, node: Node, offered: Slots) -> None:
        self.node = node
        self.offered = offered
        """The requirements that may compete in the branch."""
        self.fitting: Fitting | None = None
        """Those of them that fit this queue; ``None`` before they are found."""
        self.heap: list[tuple[_Key, int, int, Head | None]] = []
        """For each child its key, its number, the version of both, and its best head; ``None`` while it is unknown."""
        self.versions = [0] * len(node.children)
        self.stale: set[int] = set()
        """The children in which a head has changed."""
        self.is_stale = True
        self.best: Head | None = None
        """The best head, unless it is stale."""
        self.exceeding = ExceedingRequests()
        """The requirements that exceed the limit of this queue."""
        self.exceeding_unreserved = ExceedingRequests()
        """Those that exceed its unreserved quota."""
        self.is_fuller = True
        """Whether a head was admitted below, so that less may be left of the limit."""


class Tournament(ABC):
    """Compares the branches of the queue tree by their best heads; subclasses say which heads compete."""

    def __init__(self, shares: QueueShares) -> None:
        self._shares = shares
        self._branches: dict[QueueName, Branch] = {}

    @abstractmethod
    def _eligible(self, branch: Branch, child: Node) -> Slots:
        """Return the requirements that may compete in *child*, of those that fit the queue of *branch*."""

    @abstractmethod
    def _head(self, branch: Branch) -> Head | None:
        """Return the head of a leaf."""

    def _fitting(self, branch: Branch) -> Fitting:
        """Return the offered requirements of *branch* that fit its queue."""
        return branch.offered, branch.offered

    def _invalidate(self, leaf: Node, *, is_fuller: bool = False) -> None:
        """Compare the branches above *leaf* again; *is_fuller*: its usage has increased."""
        child: Node | None = None
        for node in leaf.path():
            branch = self._branches.get(node.name)
            if branch is not None:
                branch.is_stale = True
                branch.is_fuller |= is_fuller
                if child is not None:
                    branch.stale.add(child.index)
            child = node

    def _best_head(self, node: Node, offered: Slots) -> Head | None:
        """Return the best head of *node* with requirements in *offered*, which only become fewer for a leaf."""
        branch = self._branches.get(node.name)
        if branch is None or (branch.offered != offered and not node.is_leaf):
            branch = self._branches[node.name] = Branch(node, offered)
        elif branch.offered != offered:
            branch.offered, branch.is_stale = offered, True
        if branch.is_stale:
            branch.best = self._head(branch) if node.is_leaf else self._best_child_head(branch)
            branch.is_stale = False
        return branch.best

    def _best_child_head(self, branch: Branch) -> Head | None:
        """Return the best head of the children; visit only children that may have it."""
        self._refresh(branch)
        while branch.heap:
            _, number, version, head = branch.heap[0]
            if version != branch.versions[number]:
                heappop(branch.heap)
            elif head is not None:
                return head
            else:
                child = branch.node.children[number]
                head = self._best_head(child, self._eligible(branch, child))
                if head is None:
                    heappop(branch.heap)
                else:
                    heapreplace(branch.heap, (self._rank(child, head), number, version, head))
        return None

    def _refresh(self, branch: Branch) -> None:
        """Update the keys of the children after a change below a branch."""
        before = branch.fitting
        if branch.is_fuller:
            branch.fitting, branch.is_fuller = self._fitting(branch), False
        if branch.fitting != before:
            branch.heap = [
                (self._shares.ratio_key(child.name, _NO_RESOURCES), number, branch.versions[number], None)
                for number, child in enumerate(branch.node.children)
                if self._eligible(branch, child)
            ]
            heapify(branch.heap)
        else:
            for number in branch.stale:
                self._refresh_child(branch, number)
        branch.stale.clear()

    def _refresh_child(self, branch: Branch, number: int) -> None:
        """Update the key of a child in which a head has changed, which is mostly the first one."""
        branch.versions[number] += 1
        child = branch.node.children[number]
        if self._eligible(branch, child):
            ratio = self._shares.ratio_key(child.name, _NO_RESOURCES)
            entry = ratio, number, branch.versions[number], None
            if branch.heap and branch.heap[0][1] == number:
                heapreplace(branch.heap, entry)
            else:
                heappush(branch.heap, entry)

    def _rank(self, node: Node, head: Head) -> Rank:
        workload = head.workload
        ratio = self._shares.ratio_key(node.name, head.resources)
        return *ratio, -workload.priority, workload.created_at, workload.queue


OpenLeaf = Callable[[Node, Slots], LeafIterator]
"""Returns the iterator over the schedulable classes of a leaf that have the given requirements."""


class FittingTournament(Tournament):
    """Selects the next head among queues of one priority, for requirements that fit (``queueOrder: PriorityFirst``)."""

    def __init__(
        self, shares: QueueShares, pending: SlotsByQueue, charges: RequestIndex, *, open_leaf: OpenLeaf
    ) -> None:
        super().__init__(shares)
        self._quota = shares.quota
        self._pending = pending
        self._charges = charges
        """The charges of one workload with each requirements."""
        self._open_leaf = open_leaf
        self._leaves: dict[QueueName, LeafIterator] = {}
        self._refused: dict[QueueName, Node] = {}
        """The leaves of which a class was refused."""
        self._share_changes = shares.changes
        self._slots: Slots = 0
        """The requirements among which the last head was selected."""

    def can_continue(self, shares: QueueShares, pending: SlotsByQueue, charges: RequestIndex, slots: Slots) -> bool:
        """Return whether the next cycle selects the same heads: the order is the same, and no further *slots* fit."""
        is_same_order = self._shares is shares and self._share_changes == shares.changes
        return is_same_order and self._pending is pending and self._charges is charges and not slots & ~self._slots

    def resume(self, open_leaf: OpenLeaf) -> None:
        """Continue in the next cycle, which tries refused classes again."""
        self._open_leaf = open_leaf
        for leaf in self._refused.values():
            del self._leaves[leaf.name], self._branches[leaf.name]
            self._invalidate(leaf)
        self._refused.clear()

    def next(self, slots: Slots) -> Head | None:
        """Return the next head among those with requirements in *slots*, ``None`` when all are done."""
        self._slots = slots
        return self._best_head(self._quota.tree.root, slots)

    def on_admitted(self, head: Head) -> None:
        """Continue after *head* was admitted and removed from its class."""
        self._leaves[head.leaf.name].advance()
        self._invalidate(head.leaf, is_fuller=True)

    def on_skipped(self, head: Head) -> None:
        """Continue after *head* was refused: skip its class, or the whole queue if it is fifo."""
        self._leaves[head.leaf.name].skip()
        self._refused[head.leaf.name] = head.leaf
        self._invalidate(head.leaf)

    def _head(self, branch: Branch) -> Head | None:
        leaf, fitting = branch.node, self._within_limit(branch)
        iterator = self._leaves.get(leaf.name)
        if iterator is None:
            iterator = self._leaves[leaf.name] = self._open_leaf(leaf, fitting)
        iterator.restrict_to(fitting)
        return iterator.head()

    def _within_limit(self, branch: Branch) -> Slots:
        if self._quota.limiting(branch.node)[0] is not branch.node:
            return branch.offered
        return branch.offered & ~self._quota.exceeding(branch.node, self._charges, branch.exceeding)

    def _fitting(self, branch: Branch) -> Fitting:
        fitting = self._within_limit(branch)
        if not self._quota.guaranteed:
            return fitting, fitting
        # Reserved quota is available only to queues that have a guarantee.
        exceeding = self._quota.exceeding_unreserved(branch.node, self._charges, branch.exceeding_unreserved)
        return fitting, fitting & ~exceeding

    def _eligible(self, branch: Branch, child: Node) -> Slots:
        """Return the requirements pending in *child* that fit the quota above it."""
        if branch.fitting is None:
            return 0
        return branch.fitting[child.name not in self._quota.guaranteed] & self._pending.get(child.name, 0)
