"""The objects of the in-memory API server, their versions, the owners of their fields, and the watches of them."""

import bisect
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile

from tests.deterministic.field_ownership import Ownership, managed_fields
from tests.deterministic.objects import NAMESPACES, Key, Kind, Object, empty_object, with_metadata
from tests.deterministic.watches import Change, Watch


class Storage:
    """Stores objects of *kinds* with a history, from *version* on."""

    def __init__(self, kinds: Iterable[Kind], version: int) -> None:
        self.version = version
        self.changes: list[Change] = []
        self.compacted = version
        """Changes up to this version are forgotten."""
        self.watches: list[Watch] = []
        self.observers: list[Callable[[Change], None]] = []
        """Called with every stored change."""
        self.expires_as_status = False
        """Whether a watch from a forgotten version gets 410 as its status, instead of an event in the stream."""
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in (NAMESPACES, *kinds)}
        self._objects: dict[Kind, dict[Key, Object]] = {kind: {} for kind in self._kinds.values()}
        self._owners: dict[str, Ownership] = {}

    @property
    def kinds(self) -> Iterable[Kind]:
        return self._kinds.values()

    def objects(self, kind: Kind) -> Mapping[Key, Object]:
        """Return the stored objects, which callers must not change."""
        return self._objects[kind]

    def managed_fields(self, uid: str) -> list[Object] | None:
        """Return the owners of the fields of a stored object, which responses omit."""
        return managed_fields(self._owners[uid]) if uid in self._owners else None

    def adopt(self, kind: Kind, key: Key, obj: Object) -> None:
        """Store *obj* without an event, as it was before the first change."""
        self._objects[kind][key] = obj

    def compact(self, version: int | None = None) -> None:
        """Forget all changes up to *version*, so that watches and pages from an earlier version get 410."""
        self.compacted = self.version if version is None else version
        del self.changes[: bisect.bisect_right(self.changes, self.compacted, key=lambda change: change.version)]

    def expire(self, kind: Kind, created_before: str) -> None:
        """Forget old objects of *kind* without watch events, as the storage does at the end of their lease."""
        objects = self._objects[kind]
        for key in list(takewhile(lambda key: objects[key]["metadata"]["creationTimestamp"] < created_before, objects)):
            self._owners.pop(objects.pop(key)["metadata"]["uid"], None)

    def send_bookmarks(self, watch: Watch) -> None:
        """Send a bookmark to *watch* if its client allows them."""
        if watch.bookmarks:
            watch.send("BOOKMARK", {**empty_object(watch.kind), "metadata": {"resourceVersion": str(self.version)}})

    def end_watch(self, watch: Watch) -> None:
        """End *watch*, for instance at its timeout."""
        if watch in self.watches:
            self.watches.remove(watch)
        watch.end()

    def objects_at(self, kind: Kind, version: int) -> Mapping[Key, Object]:
        """Return the objects of *kind* as they were at *version*."""
        if version == self.version:
            return self._objects[kind]
        objects = dict(self._objects[kind])
        for change in reversed(self.changes):
            if change.version <= version:
                break
            if change.kind == kind and change.previous is not None:
                objects[change.key] = change.previous
            elif change.kind == kind:
                objects.pop(change.key, None)
        return objects

    def _store(self, kind: Kind, key: Key, obj: Object, owners: Ownership) -> Object:
        stored = with_metadata(obj, resourceVersion=str(self.version + 1))
        self._owners[stored["metadata"]["uid"]] = owners
        previous = self._objects[kind].get(key)
        self._objects[kind][key] = stored
        self._publish(kind, key, stored, previous)
        return stored

    def _remove(self, kind: Kind, key: Key) -> None:
        previous = self._objects[kind].pop(key)
        self._owners.pop(previous["metadata"]["uid"], None)
        self._publish(kind, key, None, previous)

    def _publish(self, kind: Kind, key: Key, obj: Object | None, previous: Object | None) -> None:
        self.version += 1
        change = Change(self.version, kind, key, obj, previous)
        self.changes.append(change)
        for watch in self.watches:
            watch.observe(change)
        for observer in self.observers:
            observer(change)
