"""Caches the queues that the informer observes, and answers whether a queue accepts jobs.

The cache may be stale. A denial that depends on it is reviewed again with a fresh list (`App`), and queues are not
checked at all before the first list.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import msgspec

from controller.api.meta import Quantities, decode_watched
from controller.api.quantity import QuantityError, parse_quantity
from controller.api.queues import ROOT_QUEUE, Queue, QueueSpec, QueueStatus

QueueName = NewType("QueueName", str)
Amounts = Mapping[str, int]
"""Amounts in base units, by resource."""

ROOT = QueueName(ROOT_QUEUE)
OPEN_STATES = frozenset({"", "Open"})
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"

#: Maximum depth of the queue hierarchy, also the limit for walking up a cycle.
MAX_DEPTH = 5


class ReviewedQueueStatus(QueueStatus, frozen=True):
    """Status of a queue, with the resources of its pods."""

    allocated: Quantities | None = None


class ReviewedQueue(Queue, frozen=True):
    """A Volcano Queue."""

    status: ReviewedQueueStatus | None = None

    def annotation(self, name: str) -> str:
        """Return an annotation, or an empty string if it is missing."""
        return self.metadata.annotations.get(name, "")

    @property
    def quantities(self) -> Mapping[str, Quantities]:
        """Return capability, deserved and guarantee, by field name."""
        return (self.spec or QueueSpec()).quantities


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """What is cached of a queue."""

    name: QueueName
    parent: QueueName
    state: str
    hierarchy: str
    amounts: Mapping[str, Amounts]
    pods: int

    @property
    def is_open(self) -> bool:
        """Return whether the queue accepts jobs; an empty state means open."""
        return self.state in OPEN_STATES


_QUEUE = msgspec.json.Decoder(ReviewedQueue)


def read_queue(raw: bytes | msgspec.Raw) -> ReviewedQueue:
    """Return the Queue in *raw*, or raise `ValueError` if it cannot be decoded.

    Server-side apply may leave ``null`` where the manifest has an empty map.
    """
    queue = decode_watched(_QUEUE, bytes(raw))
    if queue.decode_errors:
        raise msgspec.ValidationError("; ".join(queue.decode_errors))
    return queue


def to_cached(queue: ReviewedQueue) -> QueueEntry:
    """Return what is cached of *queue*."""
    name = QueueName(queue.metadata.name)
    amounts = {field: _parse_amounts(quantities) for field, quantities in queue.quantities.items()}
    pods = _parse_amounts((queue.status and queue.status.allocated) or {}).get("pods", 0)
    return QueueEntry(name, QueueName(queue.parent), queue.state, queue.annotation(HIERARCHY), amounts, pods)


def decode_cached(raw: bytes) -> QueueEntry:
    """Return what is cached of the Queue in *raw*."""
    return to_cached(read_queue(raw))


def _parse_amounts(quantities: Quantities) -> Amounts:
    """Return the amounts that can be parsed; others limit no queue."""
    amounts = {}
    for resource, value in quantities.items():
        try:
            amounts[resource] = parse_quantity(resource, value)
        except QuantityError:
            continue
    return amounts


class QueueCache:
    """Queues by name."""

    def __init__(self) -> None:
        # Replaced, never changed in place: a review in the worker thread reads one version throughout.
        self._queues: Mapping[QueueName, QueueEntry] = {}
        self._children: Mapping[QueueName, Sequence[QueueName]] | None = None
        """Children of each queue, computed on demand."""
        self.is_synced = False
        """Whether the queues were ever listed."""

    def replace(self, objects: Sequence[QueueEntry], *, unreadable: Iterable[tuple[str, str]] = ()) -> None:
        """Replace all queues with *objects*; queues named in *unreadable* stay as they were."""
        unchanged = {name: self._queues[name] for _, item in unreadable if (name := QueueName(item)) in self._queues}
        self._set(unchanged | {queue.name: queue for queue in objects})
        self.is_synced = True

    def replace_in_steps(
        self, objects: Sequence[QueueEntry], *, unreadable: Iterable[tuple[str, str]] = ()
    ) -> Iterator[None]:
        """Replace all queues in one step, so that reviews never see a part of a list."""
        self.replace(objects, unreadable=unreadable)
        yield

    def upsert(self, obj: QueueEntry) -> None:
        """Add or update a queue."""
        self._set({**self._queues, obj.name: obj})

    def remove(self, obj: QueueEntry) -> None:
        """Delete a queue."""
        self._delete(obj.name)

    def forget(self, _: str, name: str) -> None:
        """Delete the queue *name*, whose last state cannot be decoded."""
        self._delete(QueueName(name))

    def _delete(self, deleted: QueueName) -> None:
        self._set({name: queue for name, queue in self._queues.items() if name != deleted})

    def _set(self, queues: Mapping[QueueName, QueueEntry]) -> None:
        self._queues, self._children = queues, None

    @property
    def queues(self) -> Mapping[QueueName, QueueEntry]:
        """All queues by name."""
        return self._queues

    def why_unusable(self, name: str, may_use: Callable[[str], bool]) -> str | None:
        """Return why the queue *name* accepts no jobs, or ``None``; a child queue is named if the user *may_use* it."""
        if name == ROOT:
            return "can not submit job to root queue: name a leaf queue in spec.queue"
        queues = self._queues
        queue = queues.get(QueueName(name))
        if queue is None:
            return f"unable to find job queue: queue {name!r} does not exist: create it, or name another in spec.queue"
        if children := self._children_of(QueueName(name)):
            count = "1 child queue" if len(children) == 1 else f"{len(children)} child queues"
            child = next(filter(may_use, children), None)
            remedy = f"use one of them, as {child!r}" if child is not None else "name another in spec.queue"
            return f"can only submit job to leaf queue, queue {name!r} has {count}: {remedy}"
        for level in (queue, *ancestors(queues, queue)):
            if not level.is_open and level.name != ROOT:
                ancestor = "" if level is queue else f", an ancestor of {name!r},"
                return (
                    f"can only submit job to queue with state `Open`, queue {level.name!r}{ancestor}"
                    f" status is `{level.state}`: open it, or name another in spec.queue"
                )
        return None

    def _children_of(self, name: QueueName) -> Sequence[QueueName]:
        """Return the sorted children of the queue *name*."""
        children = self._children
        if children is None:
            children = self._children = children_of(self._queues)
        return children.get(name, ())


def children_of(queues: Mapping[QueueName, QueueEntry]) -> Mapping[QueueName, Sequence[QueueName]]:
    """Return the sorted children of each queue that has any."""
    children: dict[QueueName, list[QueueName]] = {}
    for name in sorted(queues):
        children.setdefault(queues[name].parent, []).append(name)
    return children


def ancestors(queues: Mapping[QueueName, QueueEntry], queue: QueueEntry) -> Iterator[QueueEntry]:
    """Yield the ancestors of *queue*, nearest first, up to one level beyond `MAX_DEPTH`."""
    for _ in range(MAX_DEPTH + 1):
        ancestor = queues.get(queue.parent)
        if ancestor is None:
            return
        yield ancestor
        queue = ancestor
