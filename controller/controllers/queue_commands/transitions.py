"""Computes the state changes that open or close a queue and its descendants, as Volcano's queue controller does.

Pure. A queue with workloads is `Closing` until they have finished. A queue that was closed together with its
parent opens together with it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from controller.api.queues import Queue
from controller.engine.state.hierarchy import ROOT, QueueState

#: Volcano's annotation on a queue that was closed together with its parent.
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"

HasWorkloads = Callable[[str], bool]
"""Whether a queue has pending or running workloads."""


class CommandError(Exception):
    """The Command cannot be executed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """The change to write to one queue."""

    queue: str
    state: QueueState | None
    """``None`` leaves it unchanged."""
    by_parent: str | None = None
    """Value of the annotation `CLOSED_BY_PARENT`; ``None`` leaves it unchanged."""
    resource_version: int | None = None
    """The version of the queue that it is for; ``None`` for any."""


@dataclass(frozen=True, slots=True)
class QueueHierarchy:
    """The queues by name, with their parents."""

    queues: Mapping[str, Queue]

    @classmethod
    def of(cls, queues: Iterable[Queue]) -> "QueueHierarchy":
        """Return the hierarchy of *queues*."""
        return cls({queue.metadata.name: queue for queue in queues})

    def children(self, name: str) -> list[Queue]:
        """Return the children of *name*, sorted by name."""
        return [
            self.queues[child] for child in sorted(self.queues) if child != name and self.queues[child].parent == name
        ]

    def state(self, name: str) -> str:
        """Return the state in the queue's status; the default is Open."""
        return self.queues[name].state or QueueState.OPEN

    def missing(self, changes: Iterable[QueueChange]) -> list[QueueChange]:
        """Return *changes* without what the queues show already."""
        missing = []
        for change in changes:
            queue = self.queues[change.queue]
            state = None if queue.state == change.state else change.state
            marked = queue.metadata.annotations.get(CLOSED_BY_PARENT)
            by_parent = None if marked == change.by_parent else change.by_parent
            if state is not None or by_parent is not None:
                missing.append(replace(change, state=state, by_parent=by_parent))
        return missing

    def closed_parent(self, name: str) -> str | None:
        """Return the parent of *name* if it is closed or closing."""
        parent = self.queues[name].parent
        closed = {QueueState.CLOSED, QueueState.CLOSING}
        return parent if parent in self.queues and self.state(parent) in closed else None


def close_queue(hierarchy: QueueHierarchy, name: str, has_workloads: HasWorkloads) -> list[QueueChange]:
    """Return the changes that close the queue *name* and its descendants."""
    if name == ROOT:
        raise CommandError("queue 'root' cannot be closed; close its children")
    return list(_close(hierarchy, name, has_workloads, by_parent=None, seen=set()))


def _close(
    hierarchy: QueueHierarchy, name: str, has_workloads: HasWorkloads, *, by_parent: str | None, seen: set[str]
) -> Iterator[QueueChange]:
    if name in seen:
        return  # the parents form a cycle
    seen.add(name)
    if hierarchy.state(name) != QueueState.CLOSED or by_parent is None:
        yield QueueChange(name, QueueState.CLOSING if has_workloads(name) else QueueState.CLOSED, by_parent)
    for child in hierarchy.children(name):
        if hierarchy.state(child.metadata.name) not in {QueueState.CLOSED, QueueState.CLOSING}:
            yield from _close(hierarchy, child.metadata.name, has_workloads, by_parent="true", seen=seen)


def open_queue(hierarchy: QueueHierarchy, name: str) -> list[QueueChange]:
    """Return the changes that open the queue *name*, and the descendants that were closed with it."""
    parent = hierarchy.closed_parent(name)
    if parent is not None:
        raise CommandError(
            f"queue {name!r} cannot be opened while its parent {parent!r} is closed; open the parent first"
        )
    return list(_open(hierarchy, name, seen=set()))


def _open(hierarchy: QueueHierarchy, name: str, *, seen: set[str]) -> Iterator[QueueChange]:
    if name in seen:
        return
    seen.add(name)
    marked = CLOSED_BY_PARENT in hierarchy.queues[name].metadata.annotations
    yield QueueChange(name, QueueState.OPEN, "false" if marked else None)
    for child in hierarchy.children(name):
        if child.metadata.annotations.get(CLOSED_BY_PARENT) == "true":
            yield from _open(hierarchy, child.metadata.name, seen=seen)
