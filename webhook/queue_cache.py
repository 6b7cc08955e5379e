"""The queues there are, as far as this process has heard: a sink of the informer, and what can be looked up.

What is looked up may be a moment old. Nothing is refused on its word alone: a refusal is judged again over a fresh
list (`App`), and while the queues have never been listed nothing is said about them at all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from webhook.queue_types import ROOT, CachedQueue, QueueName

#: As deep as queues may lie, and so as far as is looked; a circle ends there too.
MAX_DEPTH = 5


class QueueCache:
    """All queues by name."""

    def __init__(self) -> None:
        # Never changed in place: a review that is judged in another thread goes on with what it has begun with.
        self._queues: Mapping[QueueName, CachedQueue] = {}
        self._children: Mapping[QueueName, Sequence[QueueName]] | None = None
        """The queues below each queue, ``None`` until they are asked for."""
        self.is_synced = False
        """Whether the queues were ever listed; until then there is nothing to say about them."""

    def replace(self, objects: Sequence[CachedQueue], *, unreadable: Iterable[tuple[str, str]] = ()) -> None:
        """Take *objects* as all there is, besides what *unreadable* names and stays as it was known."""
        kept = {name: self._queues[name] for _, each in unreadable if (name := QueueName(each)) in self._queues}
        self._set(kept | {queue.name: queue for queue in objects})
        self.is_synced = True

    def upsert(self, obj: CachedQueue) -> None:
        """Take a queue as it is now."""
        self._set({**self._queues, obj.name: obj})

    def remove(self, obj: CachedQueue) -> None:
        """Forget a queue."""
        self._delete(obj.name)

    def forget(self, _: str, name: str) -> None:
        """Forget the queue of that name, whose last state cannot be read."""
        self._delete(QueueName(name))

    def _delete(self, gone: QueueName) -> None:
        self._set({name: queue for name, queue in self._queues.items() if name != gone})

    def _set(self, queues: Mapping[QueueName, CachedQueue]) -> None:
        self._queues, self._children = queues, None

    @property
    def queues(self) -> Mapping[QueueName, CachedQueue]:
        """All of them."""
        return self._queues

    def why_unusable(self, name: str) -> str | None:
        """Return why the queue *name* takes no jobs, or ``None``."""
        if name == ROOT:
            return "can not submit job to root queue: name a leaf queue in spec.queue"
        queues = self._queues
        queue = queues.get(QueueName(name))
        if queue is None:
            return f"unable to find job queue: queue {name!r} does not exist: create it, or name another in spec.queue"
        if children := self._children_of(QueueName(name)):
            count = "1 child queue" if len(children) == 1 else f"{len(children)} child queues"
            return (
                f"can only submit job to leaf queue, queue {name!r} has {count}: name one of them, as {children[0]!r}"
            )
        for place in (queue, *ancestors(queues, queue)):
            if not place.is_open and place.name != ROOT:
                above = "" if place is queue else f", which lies above {name!r},"
                return (
                    f"can only submit job to queue with state `Open`, queue {place.name!r}{above}"
                    f" status is `{place.state}`: open it, or name another in spec.queue"
                )
        return None

    def _children_of(self, name: QueueName) -> Sequence[QueueName]:
        """Return the children of the queue *name* in order."""
        known = self._children
        if known is None:
            known = self._children = children_of(self._queues)
        return known.get(name, ())


def children_of(queues: Mapping[QueueName, CachedQueue]) -> Mapping[QueueName, Sequence[QueueName]]:
    """Return the children of each queue that has some, in order."""
    found: dict[QueueName, list[QueueName]] = {}
    for name in sorted(queues):
        found.setdefault(queues[name].parent, []).append(name)
    return found


def ancestors(queues: Mapping[QueueName, CachedQueue], queue: CachedQueue) -> Iterator[CachedQueue]:
    """Yield what lies above *queue*, the nearest first, as far as it is there and no deeper than is allowed."""
    for _ in range(MAX_DEPTH + 1):
        above = queues.get(queue.parent)
        if above is None:
            return
        yield above
        queue = above
