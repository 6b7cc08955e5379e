"""Queues as operators define them, and their tree with the limits and guarantees that follow from it.

An invalid branch is set aside; the rest of the tree works (Q1).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NewType

from controller.engine.reasons import Reason, Refusal
from controller.engine.state.resources import EMPTY, PODS, Resources, elementwise_max, subtract, total

QueueName = NewType("QueueName", str)

ROOT = QueueName("root")

QueueOrder = Literal["PriorityFirst", "FairShareFirst"]

TenantFairness = Literal["None", "Namespace", "NamespaceFirst"]
"""Whether namespaces share a queue evenly: among workloads of equal job priority, or before job priority (O2)."""

MAX_DEPTH = 5
Guarantees = Mapping[QueueName, Resources]


class QueueState(StrEnum):
    """A Queue's ``status.state``; an empty one is open (Q5)."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Queue:
    """One Volcano Queue: its limit, weight, deserved amounts and guarantee."""

    name: QueueName
    parent: QueueName = ROOT
    weight: int = 1
    priority: int = 0
    capability: Resources = EMPTY
    """The most it may hold; a resource that is missing is limited by the parent only."""
    deserved: Resources = EMPTY
    guarantee: Resources = EMPTY
    reclaimable: bool = True
    fifo: bool = False
    """``dequeueStrategy: fifo``; ``traverse`` otherwise."""
    state: QueueState = QueueState.OPEN

    def names(self, resource: str) -> bool:
        """Return whether this queue names *resource* in any of its amounts."""
        return resource in self.capability or resource in self.deserved or resource in self.guarantee


@dataclass(slots=True, eq=False)
class Node:
    """One queue in the tree; *depth* counts the steps from the root."""

    queue: Queue
    parent: "Node | None" = None
    depth: int = 0
    children: "list[Node]" = field(default_factory=list)
    is_leaf: bool = True
    is_open: bool = True
    """It and all its ancestors are open."""
    index: int = 0
    """Its index among its parent's children."""
    name: QueueName = field(init=False)
    """The queue's name; a field, because it is read far more often than nodes are created."""
    limits_pods: bool = field(init=False)
    """Whether the queue limits ``pods``: only one that names it does. A field for the same reason."""

    def __post_init__(self) -> None:
        self.name = self.queue.name
        self.limits_pods = self.queue.names(PODS)

    def path(self) -> "Iterator[Node]":
        """Yield this node and its ancestors, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def subtree(self) -> "Iterator[Node]":
        """Yield this node and those below it."""
        yield self
        for child in self.children:
            yield from child.subtree()

    def leaves(self) -> "Iterator[Node]":
        """Yield the leaves below this node, or the node itself where it is one."""
        return (node for node in self.subtree() if node.is_leaf)

    @property
    def branch(self) -> "Node":
        """Return the ancestor just below the root, which may be this node; the root for itself."""
        return next((node for node in self.path() if node.depth == 1), self)

    def limits_resource(self, resource: str) -> bool:
        """Return whether this queue limits *resource*: all but ``pods``, which only queues that name it limit."""
        return resource != PODS or self.limits_pods


class Tree:
    """The queues that are connected to the root, and why others are not."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        by_name = {queue.name: queue for queue in queues}
        children: dict[QueueName, list[Queue]] = {}
        for queue in sorted(by_name.values(), key=lambda queue: queue.name):
            if queue.name != ROOT:
                children.setdefault(queue.parent, []).append(queue)
        self._known = by_name
        self._parents = frozenset(children)
        self.root = Node(by_name.get(ROOT, Queue(ROOT)), is_leaf=False)
        self.root.is_open = self.root.queue.state is QueueState.OPEN
        self.nodes: dict[QueueName, Node] = {ROOT: self.root}
        self._attach(self.root, children)
        self.closed = self._closed()
        """The queues that take no workloads, children first; none where no such queue is guaranteed anything."""

    def _closed(self) -> tuple[Node, ...]:
        closed = tuple(node for node in self.bottom_up() if not node.is_open)
        return closed if any(node.queue.guarantee for node in closed) else ()

    def _attach(self, parent: Node, children: Mapping[QueueName, list[Queue]]) -> None:
        if parent.depth == MAX_DEPTH:
            return
        for queue in children.get(parent.name, ()):
            is_leaf = queue.name not in self._parents
            node = Node(queue, parent, parent.depth + 1, is_leaf=is_leaf, index=len(parent.children))
            node.is_open = parent.is_open and queue.state is QueueState.OPEN
            parent.children.append(node)
            self.nodes[queue.name] = node
            self._attach(node, children)

    def leaf(self, name: QueueName) -> Node | None:
        """Return the node of an open leaf, or ``None`` where workloads may not be admitted."""
        node = self.nodes.get(name)
        return node if node is not None and node.is_leaf and node.is_open else None

    def refusal(self, name: QueueName) -> Refusal | None:
        """Return why the queue accepts no workloads, or ``None`` for an open leaf (Q5)."""
        queue = self.root.queue if name == ROOT else self._known.get(name)
        if queue is None:
            return Refusal(Reason.QUEUE_NOT_FOUND, queue=name)
        closed = next((ancestor for ancestor in self._ancestors(queue) if ancestor.state is not QueueState.OPEN), None)
        if closed is not None:
            return Refusal(Reason.QUEUE_CLOSED, queue=closed.name, subject=closed.state)
        if name == ROOT or name in self._parents:
            return Refusal(Reason.QUEUE_NOT_LEAF, queue=name)
        if name not in self.nodes:
            return Refusal(Reason.QUEUE_HIERARCHY_INVALID, queue=name, subject=self._invalid_because(queue))
        return None

    def _ancestors(self, queue: Queue) -> Iterator[Queue]:
        """Yield *queue* and its known ancestors, each once."""
        seen = {ROOT}
        while queue.name not in seen:
            yield queue
            seen.add(queue.name)
            queue = self._known.get(queue.parent, self.root.queue)
        if queue.name == ROOT:
            yield self.root.queue

    def _invalid_because(self, queue: Queue) -> str:
        """Return why *queue* is not connected to the root."""
        seen = [queue.name]
        while queue.parent != ROOT:
            if queue.parent not in self._known:
                return f"queue '{queue.name}' names the parent '{queue.parent}', which does not exist"
            if queue.parent in seen:
                return f"queue '{queue.parent}' is its own ancestor"
            queue = self._known[queue.parent]
            seen.append(queue.name)
        return f"it lies {len(seen)} levels below the root, {MAX_DEPTH} are allowed"

    def shape(self) -> dict[QueueName, tuple[QueueName, int, bool]]:
        """Return the parent and the priority of each queue, and whether it is a leaf."""
        return {name: (node.queue.parent, node.queue.priority, node.is_leaf) for name, node in self.nodes.items()}

    def leaves(self) -> Iterator[Node]:
        """Yield the nodes without children, by name."""
        return (self.nodes[name] for name in sorted(self.nodes) if self.nodes[name].is_leaf)

    def bottom_up(self) -> list[Node]:
        """Return all nodes, children before their parents."""
        return sorted(self.nodes.values(), key=lambda node: (-node.depth, node.name))


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limit of a queue and its effective guarantee."""

    limit: Resources
    guarantee: Resources = EMPTY


def queue_limits(
    tree: Tree, pool: Resources, taken: Resources = EMPTY, closed: Guarantees = MappingProxyType({})
) -> dict[QueueName, QueueLimits]:
    """Return every queue's limit and effective guarantee, given the root's *pool* (Q1-Q3).

    Guarantees that together exceed their source are scaled down in proportion, so
    that reserved quota never exceeds it. At the root, the source excludes *taken*,
    the charges outside the tree. *closed* has the ``closed_guarantees`` that count.
    """
    claimed = _claimed_guarantees(tree, closed)
    capability = tree.root.queue.capability
    limit = {name: min(amount, capability.get(name, amount)) for name, amount in pool.items()}
    result = {ROOT: QueueLimits(limit)}
    for node in reversed(tree.bottom_up()):
        above = result[node.name]
        given_from = subtract(above.limit, taken) if node is tree.root else above.guarantee
        granted = _scale_down([claimed[child.name] for child in node.children], given_from)
        reserved = total(granted)
        for child, guarantee in zip(node.children, granted, strict=True):
            result[child.name] = QueueLimits(_limit(child.queue, above.limit, guarantee, reserved), guarantee)
    return result


def closed_guarantees(tree: Tree, charged: Mapping[QueueName, Resources]) -> dict[QueueName, Resources]:
    """Return the effective guarantees of closed queues: each up to its usage with the queues below it (Q3)."""
    usage: dict[QueueName, Resources] = {}
    claimed: dict[QueueName, Resources] = {}
    for node in tree.closed:
        usage[node.name] = total((charged.get(node.name, EMPTY), *(usage[child.name] for child in node.children)))
        claimed[node.name] = {
            name: min(amount, max(usage[node.name].get(name, 0), 0))
            for name, amount in _own_guarantee(node, claimed).items()
        }
    return claimed


def _claimed_guarantees(tree: Tree, closed: Guarantees) -> dict[QueueName, Resources]:
    """Return each queue's guarantee: the larger of its own and its children's sum, up to its own capability."""
    claimed: dict[QueueName, Resources] = {}
    for node in tree.bottom_up():
        claimed[node.name] = _own_guarantee(node, claimed) if node.is_open else closed.get(node.name, EMPTY)
    return claimed


def _own_guarantee(node: Node, claimed: Guarantees) -> dict[str, int]:
    requested = elementwise_max(node.queue.guarantee, total(claimed[child.name] for child in node.children))
    capability = node.queue.capability
    return {name: min(amount, capability.get(name, amount)) for name, amount in requested.items()}


def _scale_down(guarantees: list[Resources], given_from: Resources) -> list[Resources]:
    sums = total(guarantees)
    exceeded = {name: amount for name, amount in sums.items() if amount > max(given_from.get(name, 0), 0)}
    if not exceeded:
        return guarantees
    return [
        {
            name: amount * max(given_from.get(name, 0), 0) // exceeded[name] if name in exceeded else amount
            for name, amount in guarantee.items()
        }
        for guarantee in guarantees
    ]


def _limit(queue: Queue, above: Resources, guarantee: Resources, reserved: Resources) -> Resources:
    limit = {}
    for name, amount in above.items():
        siblings = reserved.get(name, 0) - guarantee.get(name, 0)
        limit[name] = min(amount - siblings, queue.capability.get(name, amount))
    return limit
