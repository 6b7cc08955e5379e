"""Shares equal values between cached objects, and computes the fingerprints by which they are found."""

import sys
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

from controller.cache.objects import GroupKind, TemplateKey

V = TypeVar("V")

_ENCODER = msgspec.json.Encoder()
#: Values of a pool, as JSON; they need about twice as much memory. There are about a dozen pools, and a hostile tenant
#: may fill most of them.
_MAX_POOL_BYTES = 16 << 20
_LENGTHS = msgspec.json.Encoder(enc_hook=repr)


class InternPool(Generic[V]):
    """Values by the key that they are computed from; a full pool is cleared, which costs memory, not correctness.

    A pool is full with *size* values, or with *max_bytes* of them as JSON: values of deleted objects stay in it, and
    tenants write objects of a megabyte.
    """

    def __init__(self, size: int = 8192, *, max_bytes: int = _MAX_POOL_BYTES) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: dict[Hashable, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of *key*, computed by *make* on the first request."""
        value = self._values.get(key)
        if value is None:
            value = make()
            length = len(_LENGTHS.encode(value))
            if len(self._values) >= self._size or self._bytes + length > self._max_bytes:
                self._values.clear()
                self._bytes = 0
            self._values[key] = value
            self._bytes += length
        return value


class TemplateNames:
    """Shares the names and UIDs of templates between their objects and their bindings.

    Both are listed at the same time in the same order, so the latest names suffice.
    """

    def __init__(self) -> None:
        self._keys: InternPool[TemplateKey] = InternPool()
        self._uids: InternPool[str] = InternPool()

    def key(self, kind: GroupKind, namespace: str, name: str) -> TemplateKey:
        """Return the key of a template."""
        key = TemplateKey(kind, sys.intern(namespace), name)
        return self._keys.get(key, lambda: key)

    def uid(self, uid: str) -> str:
        """Return *uid*."""
        return self._uids.get(uid, lambda: uid)


def fingerprint(*parts: msgspec.Struct | object) -> bytes:
    """Return a 16-byte hash of *parts*."""
    return blake2b(_ENCODER.encode(parts), digest_size=16).digest()
