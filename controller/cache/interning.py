"""Interns equal values, so that thousands of equal templates share one.

A pool that reaches its size limit is cleared; that costs memory, not correctness.
"""

from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")

_ENCODER = msgspec.json.Encoder()


class InternPool(Generic[V]):
    """Values by the key that they are computed from."""

    def __init__(self, size: int = 8192) -> None:
        self._size = size
        self._values: dict[Hashable, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of *key*, computed by *make* on the first request."""
        value = self._values.get(key)
        if value is None:
            if len(self._values) >= self._size:
                self._values.clear()
            value = self._values[key] = make()
        return value


def fingerprint(*parts: msgspec.Struct | object) -> bytes:
    """Return a 16-byte hash of *parts*."""
    return blake2b(_ENCODER.encode(parts), digest_size=16).digest()
