"""Caches the newest observation of every object of one kind, in whatever order lists, watches and writes report them.

An older observation never replaces a newer one; an empty list clears the collection, newer observations included.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

K_co = TypeVar("K_co", bound=Hashable, covariant=True)
F = TypeVar("F", bound="Observation[Hashable]")
K = TypeVar("K", bound=Hashable)

_MAX_DELETED_UIDS = 10_000


def _namespaced_key(namespace: str, name: str) -> tuple[str, str]:
    """Return the key of an object in a collection of a single kind; equal to `ObjectKey`."""
    return namespace, name


class Observation(Protocol[K_co]):
    """One object at one resourceVersion."""

    @property
    def key(self) -> K_co:
        """Namespace and name, which a later object may reuse."""

    @property
    def uid(self) -> str:
        """UID, which no other object ever has."""

    @property
    def resource_version(self) -> int:
        """The object's resourceVersion."""


class Collection(Generic[F]):
    """Objects of one kind, updated by an informer and by responses to writes; calls *changed* for each difference.

    ``decode`` turns an object's JSON into the type that the other methods take.
    """

    def __init__(
        self,
        decode: Callable[[bytes], F],
        changed: Callable[[F | None, F | None], None],
        *,
        key: Callable[[str, str], Hashable] = _namespaced_key,
        complete: Callable[[F | None, F], F] = lambda _, obj: obj,
    ) -> None:
        self.decode = decode
        self.key = key
        """Builds an object's key from its namespace and name."""
        self._complete = complete
        """Completes an object with what only its cached version contains."""
        self.is_complete = False
        """Whether a complete list was applied."""
        self._on_change = changed
        self._objects: dict[Hashable, F] = {}
        self._deleted_uids: dict[str, float] = {}
        """Version at the deletion of each object. An object with a later version exists: it had only stopped matching
        the selector of the watch.
        """

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[F]:
        return iter(self._objects.values())

    def get(self, key: Hashable) -> F | None:
        """Return the object with that key, ``None`` if there is none."""
        return self._objects.get(key)

    def replace(self, objects: Iterable[F], *, unreadable: Iterable[tuple[str, str]] = ()) -> None:
        """Apply a complete list at once, as `replace_in_steps` does."""
        for _ in self.replace_in_steps(objects, unreadable=unreadable):
            pass

    def replace_in_steps(self, objects: Iterable[F], *, unreadable: Iterable[tuple[str, str]] = ()) -> Iterator[None]:
        """Apply a complete list, one object in each step; cached objects that are not in it are deleted at the end.

        *unreadable* names existing objects that could not be read: their cached versions stay. Between steps, objects
        may be changed by responses to writes, which are newer than the list.
        """
        self._deleted_uids.clear()
        missing = dict.fromkeys(self._objects)
        for name in unreadable:
            missing.pop(self.key(*name), None)
        for obj in objects:
            missing.pop(obj.key, None)
            self.upsert(obj)
            yield
        for key in missing:
            known = self._objects.pop(key, None)
            if known is not None:
                self._on_change(known, None)
            yield
        self.is_complete = True

    def upsert(self, obj: F) -> None:
        """Store *obj*, unless a newer version is cached or the object was deleted."""
        before = self._objects.get(obj.key)
        if (
            before is obj
            or self._deleted_uids.get(obj.uid, -1) >= obj.resource_version
            or (before is not None and before.resource_version > obj.resource_version)
        ):
            return
        obj = self._complete(before, obj)
        self._objects[obj.key] = obj
        self._on_change(before, obj)

    def remove(self, obj: F) -> None:
        """Delete an object; *obj* is its last state, in the version of its deletion."""
        self._delete(obj, obj.resource_version)

    def _delete(self, obj: F, version: float) -> None:
        self._record_deletion(obj.uid, version)
        known = self._objects.get(obj.key)
        if known is not None and known.uid == obj.uid:
            del self._objects[obj.key]
            self._on_change(known, None)

    def forget(self, namespace: str, name: str) -> None:
        """Delete the object with that name; its last state could not be read, or is not known."""
        known = self._objects.get(self.key(namespace, name))
        if known is not None:
            self._delete(known, math.inf)

    def _record_deletion(self, uid: str, version: float) -> None:
        """Record that *uid* was deleted, so that a late response to a write does not restore it."""
        self._deleted_uids[uid] = version
        if len(self._deleted_uids) > _MAX_DELETED_UIDS:
            del self._deleted_uids[next(iter(self._deleted_uids))]
