"""Whose turn it is: between queues, and inside one (O1-O3).

Queue priority comes first; among equals the branches of the tree compete
bottom-up, the smaller share first. Shares are recomputed after every
admission, for the branches it touched only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush

from controller.engine.backlog import Lane, Place, place
from controller.engine.entitlement import Entitlements
from controller.engine.policy import Policy
from controller.engine.queues import QueueName
from controller.engine.quota import Quota
from controller.engine.resources import PODS, Resources
from controller.engine.tree import Node
from controller.engine.workloads import Workload

Share = tuple[int, Fraction]
"""Ordered: ``(0, share)``, or ``(1, 0)`` for an infinite one."""

INFINITE: Share = (1, Fraction(0))


@dataclass(frozen=True, slots=True)
class Standing:
    """How the queues stand: what they hold beside what they are entitled to."""

    quota: Quota
    entitlements: Entitlements
    tenants: Mapping[tuple[QueueName, str], Resources]
    """Charges of each namespace in each queue."""

    def share(self, queue: QueueName, wanted: Resources) -> Share:
        """Return the queue's share while its next workload asks for *wanted*."""
        due = self.entitlements[queue]
        for name, amount in wanted.items():
            if amount > 0 and name != PODS and not due.get(name):
                return INFINITE
        return _dominant(self.quota.allocated[queue], due)

    def tenant_share(self, queue: QueueName, namespace: str) -> Share:
        """Return the namespace's dominant share of the queue's entitlement (O2)."""
        return _dominant(self.tenants.get((queue, namespace), {}), self.entitlements[queue])

    def borrows(self, leaf: Node, charge: Resources) -> bool:
        """Say whether *charge* would lift the queue or an ancestor above its entitlement."""
        for node in leaf.path():
            due, held = self.entitlements[node.name], self.quota.allocated[node.name]
            for name, amount in charge.items():
                if amount > 0 and name != PODS and held.get(name, 0) + amount > due.get(name, 0):
                    return True
        return False


def _dominant(held: Resources, due: Mapping[str, Fraction]) -> Share:
    largest = Fraction(0)
    for name, amount in held.items():
        if name == PODS or amount <= 0:
            continue
        if not due.get(name):
            return INFINITE
        largest = max(largest, amount / due[name])
    return 0, largest


@dataclass(frozen=True, slots=True)
class Head:
    """The next workload of a queue, with the lane it leads."""

    workload: Workload
    lane: Lane
    leaf: Node


Rank = tuple[Share, int, int, QueueName]


class _Line:
    """The lanes of one leaf, the next one first."""

    def __init__(self, leaf: Node, lanes: Iterable[Lane], standing: Standing, policy: Policy) -> None:
        self.leaf = leaf
        self._standing = standing
        self._by_tenant = policy.tenant_fairness == "Namespace"
        self._lanes = list(lanes)
        self._heap = [self._entry(number) for number in range(len(self._lanes))]
        heapify(self._heap)

    def _entry(self, number: int) -> tuple[tuple[int, Share, Place], int]:
        lane = self._lanes[number]
        share = self._standing.tenant_share(self.leaf.name, lane.namespace) if self._by_tenant else (0, Fraction(0))
        return (-lane.head.priority, share, place(lane.head)), number

    def head(self) -> Head | None:
        if not self._heap:
            return None
        lane = self._lanes[self._heap[0][1]]
        return Head(lane.head, lane, self.leaf)

    def drop_lane(self) -> None:
        heappop(self._heap)

    def drop(self) -> None:
        self._heap.clear()

    def moved_on(self) -> None:
        """The head was admitted: its lane goes on with the next workload, tenants are ranked anew."""
        _, number = heappop(self._heap)
        if self._lanes[number].entries:
            heappush(self._heap, self._entry(number))
        if self._by_tenant:
            self._heap = [self._entry(rest) for _, rest in self._heap]
            heapify(self._heap)


class _Contest:
    """The leaves of one level, compared bottom-up through the tree."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._heads: dict[QueueName, Head] = {}
        self._heaps: dict[QueueName, list[tuple[Rank, QueueName, int]]] = {}
        self._offers: dict[QueueName, tuple[int, Head]] = {}
        self._version = 0

    def enter(self, leaf: Node, head: Head | None) -> None:
        """Let *leaf* compete with *head*, or leave the contest with ``None``."""
        node, offer = leaf, head
        while node.parent is not None:
            self._version += 1
            self._offers.pop(node.name, None)
            if offer is not None:
                self._offers[node.name] = self._version, offer
                heap = self._heaps.setdefault(node.parent.name, [])
                heappush(heap, (self._rank(node, offer), node.name, self._version))
            node = node.parent
            offer = self.best(node)

    def _rank(self, node: Node, head: Head) -> Rank:
        workload = head.workload
        return (
            self._standing.share(node.name, head.lane.charge),
            -workload.priority,
            workload.since,
            workload.queue,
        )

    def best(self, node: Node) -> Head | None:
        """Return the head that *node* offers, or ``None`` when nobody competes below it."""
        heap = self._heaps.get(node.name, [])
        while heap:
            _, branch, version = heap[0]
            current = self._offers.get(branch)
            if current is not None and current[0] == version:
                return current[1]
            heappop(heap)
        return None


Level = tuple[bool, int]
"""Whether the head borrows (only where the entitled go first), and the queue priority, negated."""


class Turns:
    """Hands out one head after the other until everybody was admitted or passed over."""

    def __init__(self, standing: Standing, policy: Policy, lanes: Mapping[QueueName, Iterable[Lane]]) -> None:
        self._standing = standing
        self._entitled_first = policy.queue_order == "EntitlementFirst"
        self._root = standing.quota.tree.root
        self._seats: dict[Level, dict[QueueName, Head]] = {}
        self._levels: dict[QueueName, Level] = {}
        self._open: tuple[Level, _Contest] | None = None
        self._lines: dict[QueueName, _Line] = {}
        for name in sorted(lanes):
            leaf = standing.quota.tree.nodes[name]
            self._lines[name] = _Line(leaf, lanes[name], standing, policy)
            self._seat(leaf)

    def next(self) -> Head | None:
        """Return the head whose turn it is, or ``None`` when all are done."""
        while self._seats:
            level = min(self._seats)
            head = self._contest(level).best(self._root)
            if head is None:
                raise AssertionError(f"level {level} has seats but no head")
            if self._level(head) == level:
                return head
            self._seat(head.leaf)
        return None

    def admitted(self, head: Head) -> None:
        """Go on after *head* was admitted and taken out of its lane."""
        self._lines[head.leaf.name].moved_on()
        self._seat(head.leaf)

    def passed_over(self, head: Head) -> None:
        """Go on after *head* was refused: nobody else in its lane would fit; in a fifo queue nobody at all."""
        line = self._lines[head.leaf.name]
        if head.leaf.queue.fifo:
            line.drop()
        else:
            line.drop_lane()
        self._seat(head.leaf)

    def _seat(self, leaf: Node) -> None:
        """Put the leaf with its present head on the level where it belongs."""
        before = self._levels.pop(leaf.name, None)
        if before is not None:
            del self._seats[before][leaf.name]
            if not self._seats[before]:
                del self._seats[before]
        head = self._lines[leaf.name].head()
        level = self._level(head) if head else None
        if head is not None and level is not None:
            self._levels[leaf.name] = level
            self._seats.setdefault(level, {})[leaf.name] = head
        if self._open is not None and self._open[0] in (before, level):
            self._open[1].enter(leaf, head if self._open[0] == level else None)

    def _level(self, head: Head) -> Level:
        borrows = self._entitled_first and self._standing.borrows(head.leaf, head.lane.charge)
        return borrows, -head.leaf.queue.priority

    def _contest(self, level: Level) -> _Contest:
        """Return the contest of *level*; it begins anew when another level was served in between."""
        if self._open is None or self._open[0] != level:
            contest = _Contest(self._standing)
            for head in self._seats[level].values():
                contest.enter(head.leaf, head)
            self._open = level, contest
        return self._open[1]
