"""Cached objects of one kind with event handlers.

The store is updated by an informer and by responses to own writes, so it is never older than the last own write.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from localup.karmada.kinds import Kind
from localup.karmada.objects import Key, Object, key_of, uid_of, version_of

EventHandler = Callable[[Object | None, Object | None], None]
"""Called with an object before and after a change; ``None`` where it does not exist."""

#: Number of remembered removals; responses to writes are never older than these.
_REMEMBERED: Final = 1024


class Store:
    """Objects of one kind by key."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._objects: dict[Key, Object] = {}
        self._event_handlers: list[EventHandler] = []
        self._removed_uids: deque[str] = deque(maxlen=_REMEMBERED)

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def get(self, key: Key) -> Object | None:
        """Return the object with *key*, ``None`` if absent."""
        return self._objects.get(key)

    def add_event_handler(self, handler: EventHandler) -> None:
        """Call *handler* at every later change."""
        self._event_handlers.append(handler)

    def replace(self, objects: Sequence[Object], *, unreadable: Iterable[tuple[str, str]] = ()) -> None:
        """Replace the content with *objects*; absent objects are removed unless listed in *unreadable*."""
        remaining = {key_of(item) for item in objects} | {Key(*name) for name in unreadable}
        for old in [each for key, each in self._objects.items() if key not in remaining]:
            self.remove(old)
        for item in objects:
            self.upsert(item)

    def forget(self, namespace: str, name: str) -> None:
        """Remove an object whose latest state cannot be decoded."""
        old = self._objects.get(Key(namespace, name))
        if old is not None:
            self.remove(old)

    def upsert(self, obj: Object) -> None:
        """Add or update *obj* unless a newer version is stored."""
        old = self._objects.get(key_of(obj))
        if old is not None and version_of(old) >= version_of(obj):
            return
        if old is not None and uid_of(old) != uid_of(obj):
            self.remove(old)
            old = None
        self._objects[key_of(obj)] = obj
        self._notify(old, obj)

    def remove(self, obj: Object) -> None:
        """Remove *obj* unless another object has its name."""
        old = self._objects.get(key_of(obj))
        if old is not None and uid_of(old) == uid_of(obj):
            del self._objects[key_of(obj)]
            self._removed_uids.append(uid_of(obj))
            self._notify(old, None)

    def observe(self, answer: Object) -> None:
        """Store the response to a write unless the object was removed meanwhile."""
        if uid_of(answer) not in self._removed_uids:
            self.upsert(answer)

    def _notify(self, old: Object | None, new: Object | None) -> None:
        for handler in self._event_handlers:
            handler(old, new)
