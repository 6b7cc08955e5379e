"""Defines the store of keys and certificates: named sets of files, written as a whole with optimistic concurrency."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class ConflictError(Exception):
    """The set was written by another process since it was read: read it again."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A set of files with the revision that identifies this version."""

    files: Mapping[str, bytes]
    revision: str


class Store(Protocol):
    """Storage of sets of files; a reader sees either the old or the new version of a set."""

    def read(self, name: str) -> Stored | None:
        """Return the set *name*, or ``None`` if it does not exist."""

    def write(self, name: str, files: Mapping[str, bytes], *, expected: Stored | None) -> None:
        """Replace the version that was read as *expected* (``None``: no set), or raise `ConflictError`."""
