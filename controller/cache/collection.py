"""The newest observation of every object of one kind, whatever order the news arrive in.

An older observation never replaces a newer one, be it from a list, a watch or
the answer to a write; the empty list forgets everything, also what was newer.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

K_co = TypeVar("K_co", bound=Hashable, covariant=True)
F = TypeVar("F", bound="Observation[Hashable]")
K = TypeVar("K", bound=Hashable)

_MAX_DELETED_UIDS = 10_000


def _namespaced_key(namespace: str, name: str) -> tuple[str, str]:
    """Return the key of an object whose kind is alone in its collection; equal to `ObjectKey`."""
    return namespace, name


class Observation(Protocol[K_co]):
    """One object as it was at one resourceVersion."""

    @property
    def key(self) -> K_co:
        """Its name, which another object may bear after it."""

    @property
    def uid(self) -> str:
        """Its identity, which nothing else ever bears."""

    @property
    def resource_version(self) -> int:
        """When it was so."""


class Collection(Generic[F]):
    """What an informer tells and an actuator's answers add to; *changed* hears of each difference.

    ``decode`` makes of an object's JSON what the other methods take.
    """

    def __init__(
        self,
        decode: Callable[[bytes], F],
        changed: Callable[[F | None, F | None], None],
        *,
        key: Callable[[str, str], Hashable] = _namespaced_key,
    ) -> None:
        self.decode = decode
        self.key = key
        """Makes the key of an object from its namespace and name."""
        self.is_complete = False
        """Whether a complete list was ever taken."""
        self._changed = changed
        self._known: dict[Hashable, F] = {}
        self._gone: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[F]:
        return iter(self._known.values())

    def get(self, key: Hashable) -> F | None:
        """Return the object of that name."""
        return self._known.get(key)

    def replace(self, objects: Iterable[F], *, unread: Iterable[tuple[str, str]] = ()) -> None:
        """Take *objects* as all there is: what is not among them is gone.

        *unread* names what is there, too, and could not be read: what is known of it stays as it was.
        """
        self._gone.clear()
        listed = {self.key(*name) for name in unread}
        for facts in objects:
            listed.add(facts.key)
            self.upsert(facts)
        for key in [key for key in self._known if key not in listed]:
            self._changed(self._known.pop(key), None)
        self.is_complete = True

    def upsert(self, facts: F) -> None:
        """Take *facts* as the object's state, unless a newer one is known or it is gone already."""
        before = self._known.get(facts.key)
        if facts.uid in self._gone or (before is not None and before.resource_version > facts.resource_version):
            return
        self._known[facts.key] = facts
        self._changed(before, facts)

    def remove(self, facts: F) -> None:
        """Forget the object; *facts* is its last state."""
        self._bury(facts.uid)
        known = self._known.get(facts.key)
        if known is not None and known.uid == facts.uid:
            del self._known[facts.key]
            self._changed(known, None)

    def forget(self, namespace: str, name: str) -> None:
        """Forget the object of that name, whose last state could not be read."""
        known = self._known.get(self.key(namespace, name))
        if known is not None:
            self.remove(known)

    def _bury(self, uid: str) -> None:
        """Remember that *uid* is gone, so that a late answer to a write does not bring it back."""
        self._gone[uid] = None
        if len(self._gone) > _MAX_DELETED_UIDS:
            del self._gone[next(iter(self._gone))]
