"""An index from keys to their members; most keys have one."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Hashable)


class Index(Generic[K, M]):
    """Members by key."""

    def __init__(self) -> None:
        self._single: dict[K, M] = {}
        self._several: dict[K, dict[M, None]] = {}

    def __iter__(self) -> Iterator[K]:
        yield from self._single
        yield from self._several

    def of(self, key: K) -> Iterable[M]:
        """Return the members of *key*."""
        if key in self._single:
            return (self._single[key],)
        return tuple(self._several.get(key, ()))

    def count(self, key: K) -> int:
        """Return the number of members of *key*."""
        return 1 if key in self._single else len(self._several.get(key, ()))

    def add(self, key: K, member: M) -> None:
        """Add *member* to *key*."""
        if key in self._several:
            self._several[key][member] = None
        elif self._single.setdefault(key, member) != member:
            self._several[key] = {self._single.pop(key): None, member: None}

    def discard(self, key: K, member: M) -> None:
        """Remove *member* from *key*."""
        if self._single.get(key) == member:
            del self._single[key]
        elif key in self._several:
            self._several[key].pop(member, None)
            if not self._several[key]:
                del self._several[key]
