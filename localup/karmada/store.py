"""What is known of all objects of one kind, and who wants to hear when that changes.

It is fed by an informer and by the answers to our own writes, so that we never
act on anything older than what we did ourselves.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from localup.karmada.kinds import Kind
from localup.karmada.objects import Key, Object, key_of, uid_of, version_of

EventHandler = Callable[[Object | None, Object | None], None]
"""Is called with an object before and after a change; ``None`` where there is none."""

#: How many of the last removals are remembered: an answer to a write is never older than that.
_REMEMBERED: Final = 1024


class Store:
    """The objects of one kind by key."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._objects: dict[Key, Object] = {}
        self._event_handlers: list[EventHandler] = []
        self._removed_uids: deque[str] = deque(maxlen=_REMEMBERED)

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def get(self, key: Key) -> Object | None:
        """Return the object of a key."""
        return self._objects.get(key)

    def add_event_handler(self, handler: EventHandler) -> None:
        """Call *listener* at every change from now on."""
        self._event_handlers.append(handler)

    def replace(self, objects: Sequence[Object], *, unreadable: Iterable[tuple[str, str]] = ()) -> None:
        """Take *objects* as all there is besides what *unreadable* names; what is not among them is gone."""
        remaining = {key_of(item) for item in objects} | {Key(*name) for name in unreadable}
        for old in [each for key, each in self._objects.items() if key not in remaining]:
            self.remove(old)
        for item in objects:
            self.upsert(item)

    def forget(self, namespace: str, name: str) -> None:
        """Forget the object of that name, whose last state cannot be read."""
        old = self._objects.get(Key(namespace, name))
        if old is not None:
            self.remove(old)

    def upsert(self, obj: Object) -> None:
        """Take *obj* as it is now, unless something newer is known."""
        old = self._objects.get(key_of(obj))
        if old is not None and version_of(old) >= version_of(obj):
            return
        if old is not None and uid_of(old) != uid_of(obj):
            self.remove(old)
            old = None
        self._objects[key_of(obj)] = obj
        self._notify(old, obj)

    def remove(self, obj: Object) -> None:
        """Forget *obj*, unless another one has its name already."""
        old = self._objects.get(key_of(obj))
        if old is not None and uid_of(old) == uid_of(obj):
            del self._objects[key_of(obj)]
            self._removed_uids.append(uid_of(obj))
            self._notify(old, None)

    def observe(self, answer: Object) -> None:
        """Take the answer to a write of ours, which may come after the news that the object is gone."""
        if uid_of(answer) not in self._removed_uids:
            self.upsert(answer)

    def _notify(self, old: Object | None, new: Object | None) -> None:
        for handler in self._event_handlers:
            handler(old, new)
