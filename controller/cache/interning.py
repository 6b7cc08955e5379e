"""Gives equal values one identity, so that thousands of equal templates cost one.

Sharing only saves; a pool that has grown too large forgets everything and
starts again.
"""

from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")

_ENCODER = msgspec.json.Encoder()


class InternPool(Generic[V]):
    """Values by what they were made from."""

    def __init__(self, size: int = 8192) -> None:
        self._size = size
        self._values: dict[Hashable, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of *key*, made on the first request."""
        value = self._values.get(key)
        if value is None:
            if len(self._values) >= self._size:
                self._values.clear()
            value = self._values[key] = make()
        return value


def fingerprint(*parts: msgspec.Struct | object) -> bytes:
    """Return 16 bytes that equal parts share and unequal ones do not."""
    return blake2b(_ENCODER.encode(parts), digest_size=16).digest()
