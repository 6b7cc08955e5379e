"""How Queues open and close, those below them with them, as Volcano's queue controller has it.

Pure. A queue that somebody still has workloads in is `Closing` until they are
gone; what was closed because its parent was opens again with it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.api.queues import Queue
from controller.engine.queues import ROOT, QueueState

#: Volcano's mark on a queue that was closed because its parent was.
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"

HasWorkloads = Callable[[str], bool]
"""Whether somebody waits or runs in a queue."""


class CommandError(Exception):
    """The command cannot be carried out; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What is to be written to one queue."""

    queue: str
    state: QueueState
    by_parent: str | None = None
    """The mark of `CLOSED_BY_PARENT`; ``None`` leaves it as it is."""


@dataclass(frozen=True, slots=True)
class QueueHierarchy:
    """The queues by name, and who hangs under whom."""

    queues: Mapping[str, Queue]

    @classmethod
    def of(cls, queues: Iterable[Queue]) -> "QueueHierarchy":
        """Return the tree of *queues*."""
        return cls({queue.metadata.name: queue for queue in queues})

    def children(self, name: str) -> list[Queue]:
        """Return the queues right below *name*, by name."""
        return [self.queues[each] for each in sorted(self.queues) if each != name and self._parent(each) == name]

    def state(self, name: str) -> str:
        """Return what the queue's status says, open where it says nothing."""
        return self.queues[name].status.state or QueueState.OPEN

    def closed_ancestor(self, name: str) -> str | None:
        """Return the parent of *name* where that is closed, or closing."""
        parent = self._parent(name)
        closed = {QueueState.CLOSED, QueueState.CLOSING}
        return parent if parent in self.queues and self.state(parent) in closed else None

    def _parent(self, name: str) -> str:
        return self.queues[name].spec.parent or ROOT


def close_queue(hierarchy: QueueHierarchy, name: str, has_workloads: HasWorkloads) -> list[QueueChange]:
    """Return what closes the queue *name* and all below it."""
    if name == ROOT:
        raise CommandError("queue 'root' cannot be closed; close its children")
    return list(_close(hierarchy, name, has_workloads, by_parent=None, seen=set()))


def _close(
    hierarchy: QueueHierarchy, name: str, has_workloads: HasWorkloads, *, by_parent: str | None, seen: set[str]
) -> Iterator[QueueChange]:
    if name in seen:
        return  # a tree that bites its tail
    seen.add(name)
    if hierarchy.state(name) != QueueState.CLOSED or by_parent is None:
        yield QueueChange(name, QueueState.CLOSING if has_workloads(name) else QueueState.CLOSED, by_parent)
    for child in hierarchy.children(name):
        if hierarchy.state(child.metadata.name) not in {QueueState.CLOSED, QueueState.CLOSING}:
            yield from _close(hierarchy, child.metadata.name, has_workloads, by_parent="true", seen=seen)


def open_queue(hierarchy: QueueHierarchy, name: str) -> list[QueueChange]:
    """Return what opens the queue *name*, and those below it that were closed with it."""
    parent = hierarchy.closed_ancestor(name)
    if parent is not None:
        raise CommandError(f"queue {name!r} cannot be opened while its parent {parent!r} is closed; open that first")
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
