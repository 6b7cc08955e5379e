"""Decides the order of heads, between queues and inside one (O1-O3).

Queue priority comes first; among equals, branches of the tree compete
bottom-up, the smaller usage ratio first. After an admission, only the ratios of
the branches that it changed are computed again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import floor

from controller.engine.fairness.fair_share import FairShares
from controller.engine.policy import Policy
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import OrderKey, WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.resources import PODS, Resources
from controller.engine.state.workloads import Workload
from controller.engine.steps import Steps

UsageRatio = tuple[int, Fraction]
"""Ordered: ``(0, ratio)``, or ``(1, 0)`` for an infinite ratio."""

RatioKey = tuple[int, int, Fraction]
"""A usage ratio with a coarse integer before the exact one, which is quicker to compare."""

ZERO = Fraction(0)
INFINITE: UsageRatio = (1, ZERO)
_INFINITE: RatioKey = (1, 0, ZERO)
_EQUAL: UsageRatio = (0, ZERO)


class QueueShares:
    """Fair shares of the queues, and their usage ratios: usage divided by fair share.

    Ratios are cached until ``invalidate`` is called for a queue with another usage or fair share.
    """

    def __init__(
        self, quota: Quota, entitlements: FairShares, tenants: Mapping[tuple[QueueName, str], Resources]
    ) -> None:
        self.quota = quota
        self.fair_shares = entitlements
        self.by_namespace = tenants
        """Usage of each namespace in each queue."""
        self._ratio_keys: dict[QueueName, tuple[RatioKey, frozenset[str]]] = {}
        self._whole_shares: dict[QueueName, dict[str, int]] = {}

    def invalidate(self, queues: Iterable[QueueName]) -> None:
        """Compute the ratios of *queues* again when they are needed."""
        for name in queues:
            self._ratio_keys.pop(name, None)

    def fair_shares_changed(self, queues: Collection[QueueName]) -> None:
        """Compute all that follows from the fair shares of *queues* again when it is needed."""
        self.invalidate(queues)
        for name in queues:
            self._whole_shares.pop(name, None)

    def usage_ratio(self, queue: QueueName, resources: frozenset[str]) -> UsageRatio:
        """Return the queue's usage ratio while its next workload requests *resources*."""
        is_infinite, _, share = self.ratio_key(queue, resources)
        return is_infinite, share

    def usage_ratio_with(self, queue: QueueName, usage: Resources) -> UsageRatio:
        """Return the usage ratio that *queue* would have with *usage*; not cached."""
        return _dominant(usage, self.fair_shares[queue])

    def ratio_key(self, queue: QueueName, resources: frozenset[str]) -> RatioKey:
        """Return a key that orders queues as their usage ratios do and is quicker to compare."""
        known = self._ratio_keys.get(queue)
        if known is None:
            due = self.fair_shares[queue]
            entitled = frozenset(name for name, amount in due.items() if amount)
            is_infinite, share = _dominant(self.quota.allocated[queue], due)
            known = self._ratio_keys[queue] = (is_infinite, _coarse(share), share), entitled
        return known[0] if resources <= known[1] else _INFINITE

    def has_fair_share_of(self, queue: QueueName, resources: frozenset[str]) -> bool:
        """Return whether *queue* has a fair share of all *resources*, so that its ratio is finite."""
        self.ratio_key(queue, resources)
        return resources <= self._ratio_keys[queue][1]

    def namespace_ratio(self, queue: QueueName, namespace: str) -> UsageRatio:
        """Return the namespace's usage divided by the queue's fair share, dominant over resources (O2)."""
        return _dominant(self.by_namespace.get((queue, namespace), {}), self.fair_shares[queue])

    def first_above_fair_share(self, node: Node, charge: Resources, quota: Quota | None = None) -> str | None:
        """Return the first resource of which *charge* would raise *node* above its fair share, by usage in *quota*."""
        due, usage = self._whole_share(node.name), (quota or self.quota).allocated[node.name]
        first: str | None = None
        for name, amount in charge.items():
            if amount > 0 and usage.get(name, 0) + amount > due.get(name, 0) and name != PODS:
                first = name if first is None else min(first, name)
        return first

    def borrows(self, leaf: Node, charge: Resources) -> bool:
        """Return whether *charge* would raise the queue or an ancestor below the root above its fair share."""
        return any(
            node.parent is not None and self.first_above_fair_share(node, charge) is not None for node in leaf.path()
        )

    def _whole_share(self, queue: QueueName) -> Mapping[str, int]:
        """Return the fair share rounded down, which is exceeded by the same whole amounts as the exact one."""
        known = self._whole_shares.get(queue)
        if known is None:
            known = self._whole_shares[queue] = {name: floor(due) for name, due in self.fair_shares[queue].items()}
        return known


def _coarse(share: Fraction) -> int:
    """Return *share* in 2**-40ths, rounded down, which suffices to compare most ratios."""
    return (share.numerator << 40) // share.denominator


def _dominant(usage: Resources, due: Mapping[str, Fraction]) -> UsageRatio:
    used, of = 0, 1
    for name, amount in usage.items():
        if name == PODS or amount <= 0:
            continue
        share = due.get(name)
        if not share:
            return INFINITE
        # Compared by cross-multiplication, which is much faster than fractions are.
        if amount * share.denominator * of > used * share.numerator:
            used, of = amount * share.denominator, share.numerator
    return 0, Fraction(used, of)


@dataclass(frozen=True, slots=True)
class Head:
    """The next workload of a queue, with the class that it leads."""

    workload: Workload
    workload_class: WorkloadClass
    leaf: Node
    resources: frozenset[str]
    """The resources that count for usage ratios."""


Rank = tuple[RatioKey, int, int, QueueName]


@dataclass(frozen=True, slots=True)
class SchedulableClass:
    """A class that may be tried, with the resources of its requirements that count for usage ratios."""

    workload_class: WorkloadClass
    resources: frozenset[str]


class LeafIterator:
    """The schedulable classes of one leaf queue, in order."""

    def __init__(self, leaf: Node, entries: Iterable[SchedulableClass], shares: QueueShares, policy: Policy) -> None:
        self.leaf = leaf
        self._shares = shares
        self._by_tenant = policy.is_by_tenant
        self._by_tenant_first = policy.tenant_fairness == "NamespaceFirst"
        self._classes = list(entries)
        self._heap = [self._key(number) for number in range(len(self._classes))]
        heapify(self._heap)

    def _key(self, number: int) -> tuple[int, UsageRatio, OrderKey, int]:
        workload_class = self._classes[number].workload_class
        share = self._shares.namespace_ratio(self.leaf.name, workload_class.namespace) if self._by_tenant else _EQUAL
        first = workload_class.order_key
        return 0 if self._by_tenant_first else first[0], share, first, number

    def head(self) -> Head | None:
        """Return the first remaining head."""
        if not self._heap:
            return None
        entry = self._classes[self._heap[0][3]]
        return Head(entry.workload_class.head, entry.workload_class, self.leaf, entry.resources)

    def charges(self) -> Iterable[Resources]:
        """Return the charges of the remaining classes."""
        return (self._classes[key[3]].workload_class.charge for key in self._heap)

    def skip_class(self) -> None:
        """Drop the class of the head."""
        heappop(self._heap)

    def skip_all(self) -> None:
        """Drop all classes."""
        self._heap.clear()

    def advance(self) -> None:
        """Continue after the head was admitted: with the next workload of its class, and namespaces ranked again."""
        number = heappop(self._heap)[3]
        if self._classes[number].workload_class.workloads:
            heappush(self._heap, self._key(number))
        if self._by_tenant:
            self._heap = [self._key(rest[3]) for rest in self._heap]
            heapify(self._heap)

    def restrict_to(self, requirement_ids: AbstractSet[int]) -> None:
        """Drop the classes with other requirements; in a fifo queue drop all, if its head has other ones."""
        if not self.leaf.queue.fifo:
            self._heap = [
                key for key in self._heap if id(self._classes[key[3]].workload_class.requirements) in requirement_ids
            ]
            heapify(self._heap)
        elif self._heap and id(self._classes[self._heap[0][3]].workload_class.requirements) not in requirement_ids:
            self._heap.clear()


class _Tournament:
    """The leaves of one priority band, compared bottom-up through the tree."""

    def __init__(self, shares: QueueShares, heads: Iterable[Head]) -> None:
        self._shares = shares
        self._heaps: dict[QueueName, list[tuple[Rank, QueueName, int]]] = {}
        self._heads: dict[QueueName, tuple[int, Head]] = {}
        self._version = 0
        self._fill({head.leaf.name: (head.leaf, head) for head in heads})

    def _fill(self, offers: dict[QueueName, tuple[Node, Head]]) -> None:
        """Compare all at once, the deepest queues first."""
        by_depth: dict[int, dict[QueueName, tuple[Node, Head]]] = {}
        for name, (node, head) in offers.items():
            by_depth.setdefault(node.depth, {})[name] = node, head
        for depth in range(max(by_depth, default=0), 0, -1):
            parents: dict[QueueName, Node] = {}
            for node, head in by_depth.get(depth, {}).values():
                if node.parent is not None:
                    self._heads[node.name] = 0, head
                    entry = (self._rank(node, head), node.name, 0)
                    self._heaps.setdefault(node.parent.name, []).append(entry)
                    parents[node.parent.name] = node.parent
            for name, parent in parents.items():
                heapify(self._heaps[name])
                best = self.best(parent)
                if best is not None:
                    by_depth.setdefault(depth - 1, {})[name] = parent, best

    def update(self, leaf: Node, head: Head | None) -> None:
        """Set the head with which *leaf* competes, or remove the leaf with ``None``."""
        node, offer = leaf, head
        while node.parent is not None:
            self._version += 1
            self._heads.pop(node.name, None)
            if offer is not None:
                self._heads[node.name] = self._version, offer
                heap = self._heaps.setdefault(node.parent.name, [])
                heappush(heap, (self._rank(node, offer), node.name, self._version))
            node = node.parent
            offer = self.best(node)

    def _rank(self, node: Node, head: Head) -> Rank:
        workload = head.workload
        return (
            self._shares.ratio_key(node.name, head.resources),
            -workload.priority,
            workload.created_at,
            workload.queue,
        )

    def best(self, node: Node) -> Head | None:
        """Return the best head below *node*, or ``None``."""
        heap = self._heaps.get(node.name, [])
        while heap:
            _, branch, version = heap[0]
            current = self._heads.get(branch)
            if current is not None and current[0] == version:
                return current[1]
            heappop(heap)
        return None


PriorityBand = tuple[bool, int]
"""Whether the head borrows (only where others go first), and the queue priority, negated."""


class HeadIterator:
    """Yields one head after the other until all are admitted or skipped.

    Where workloads within their fair share go first, a head that would borrow takes
    its queue's turn only if *fits* returns true; otherwise it is skipped (O3).
    """

    def __init__(
        self,
        shares: QueueShares,
        policy: Policy,
        classes: Mapping[QueueName, Iterable[SchedulableClass]],
        *,
        fits: Callable[[Head], bool],
    ) -> None:
        self.refused: list[WorkloadClass] = []
        """Classes whose head was skipped."""
        self._fits = fits
        self._shares = shares
        self._fair_share_first = policy.queue_order == "FairShareFirst" or policy.reclaim.enabled
        self._root = shares.quota.tree.root
        self._heads: dict[PriorityBand, dict[QueueName, Head]] = {}
        self._bands: dict[QueueName, PriorityBand] = {}
        self._current: tuple[PriorityBand, _Tournament] | None = None
        self._leaves: dict[QueueName, LeafIterator] = {}
        self._hiding: dict[QueueName, Node] = {}
        """Queues whose borrowing head precedes workloads that would not borrow."""
        self._changed_leaves: list[Node] = []
        """Queues with another head since they were placed in a band."""
        self._is_stale = False
        """Whether an admission may have changed which borrowing heads fit."""
        for name in sorted(classes):
            leaf = shares.quota.tree.nodes[name]
            self._leaves[name] = LeafIterator(leaf, classes[name], shares, policy)
            self._changed_leaves.append(leaf)

    def next(self) -> Steps[Head | None]:
        """Return the next head, or ``None`` when all are done."""
        yield from self._place_changed_leaves()
        while self._heads:
            level = min(self._heads)
            if self._is_stale:
                yield from self._recheck_borrowing_heads()
                continue
            head = self._tournament(level).best(self._root)
            if head is None:
                raise AssertionError(f"level {level} has seats but no head")
            if self._band(head) == level:
                return head
            yield from self._place(head.leaf)
        return None

    def _place_changed_leaves(self) -> Steps[None]:
        """Place the queues with another head in their bands, in the order of the changes."""
        unseated, self._changed_leaves = self._changed_leaves, []
        for leaf in unseated:
            yield from self._place(leaf)

    def _recheck_borrowing_heads(self) -> Steps[None]:
        """Skip borrowing heads that no longer fit and precede workloads that would not borrow (O3)."""
        self._is_stale = False
        for name, leaf in list(self._hiding.items()):
            head = self._leaves[name].head()
            yield 1
            if head is None or not self._fits(head):
                yield from self._place(leaf)
            elif not self._hides(leaf):
                del self._hiding[name]

    def borrows(self, head: Head) -> bool:
        """Return whether the head is tried later because it would borrow."""
        return self._borrows(head)

    def skip_queue(self, head: Head) -> None:
        """Drop the whole queue of *head*."""
        self._leaves[head.leaf.name].skip_all()
        self._changed_leaves.append(head.leaf)

    def on_admitted(self, head: Head) -> None:
        """Continue after *head* was admitted and removed from its class."""
        self._leaves[head.leaf.name].advance()
        self._is_stale = bool(self._hiding)
        self._changed_leaves.append(head.leaf)

    def on_skipped(self, head: Head) -> None:
        """Continue after *head* was refused: skip its class, or the whole queue if it is fifo."""
        self._skip(head)
        self._changed_leaves.append(head.leaf)

    def _skip(self, head: Head) -> None:
        self.refused.append(head.workload_class)
        line = self._leaves[head.leaf.name]
        if head.leaf.queue.fifo:
            line.skip_all()
        else:
            line.skip_class()

    def _place(self, leaf: Node) -> Steps[None]:
        """Place the leaf with its present head in the band where it belongs."""
        before = self._bands.pop(leaf.name, None)
        if before is not None:
            del self._heads[before][leaf.name]
            if not self._heads[before]:
                del self._heads[before]
        self._hiding.pop(leaf.name, None)
        head = self._leaves[leaf.name].head()
        while head is not None and self._borrows(head) and not self._fits(head):
            self._skip(head)
            head = self._leaves[leaf.name].head()
            yield 1
        if head is not None and self._borrows(head) and self._hides(leaf):
            self._hiding[leaf.name] = leaf
        level = self._band(head) if head else None
        if head is not None and level is not None:
            self._bands[leaf.name] = level
            self._heads.setdefault(level, {})[leaf.name] = head
        if self._current is not None and self._current[0] in (before, level):
            self._current[1].update(leaf, head if self._current[0] == level else None)

    def _hides(self, leaf: Node) -> bool:
        """Return whether a workload of *leaf* would not borrow; usage only grows, so that none will later."""
        charges = self._leaves[leaf.name].charges()
        return not leaf.queue.fifo and not all(self._shares.borrows(leaf, charge) for charge in charges)

    def _band(self, head: Head) -> PriorityBand:
        return self._borrows(head), -head.leaf.queue.priority

    def _borrows(self, head: Head) -> bool:
        return self._fair_share_first and self._shares.borrows(head.leaf, head.workload_class.charge)

    def _tournament(self, level: PriorityBand) -> _Tournament:
        """Return the tournament of *level*; it is rebuilt after another band was served."""
        if self._current is None or self._current[0] != level:
            self._current = level, _Tournament(self._shares, self._heads[level].values())
        return self._current[1]
