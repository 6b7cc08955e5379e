"""Where keys and certificates are kept: named sets of files, each written as a whole and only over what was read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class ConflictError(Exception):
    """Somebody else wrote the set since it was read: read it again and decide anew."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A set as it was read, and the revision that tells this writing of it from any other."""

    files: Mapping[str, bytes]
    revision: str


class Store(Protocol):
    """A place for sets of files; readers see a set wholly old or wholly new."""

    def read(self, name: str) -> Stored | None:
        """Return the set *name*, or ``None`` while there is none."""

    def write(self, name: str, files: Mapping[str, bytes], *, expected: Stored | None) -> None:
        """Replace the set that was read as *over* (``None``: there was none), or raise `ConflictError`."""
