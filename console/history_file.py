"""The file with the decisions that the console has read, so that a new console process has them, too."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from controller.api.visibility import LoggedDecision

#: The file has at most so many times the decisions in memory; then it is written again.
_MAX_FACTOR = 2
_MODE = 0o600

_decoder = msgspec.json.Decoder(LoggedDecision)
_encoder = msgspec.json.Encoder()


class HistoryFile:
    """Stores decisions as JSON Lines at *path*, at most *most* of them after it was replaced."""

    def __init__(self, path: Path, *, most: int) -> None:
        self._path = path
        self._most = most
        self._count: int | None = None
        """Lines in the file; ``None`` until this process has written all of them."""

    def read(self) -> list[LoggedDecision]:
        """Return the stored decisions without lines that cannot be read; raise ``OSError``."""
        try:
            with self._path.open("rb") as lines:
                return list(_readable(deque(lines, maxlen=_MAX_FACTOR * self._most)))
        except FileNotFoundError:
            return []

    def is_due(self, count: int) -> bool:
        """Return whether the whole file must be written, instead of *count* more decisions."""
        return self._count is None or self._count + count > _MAX_FACTOR * self._most

    def append(self, decisions: Iterable[LoggedDecision]) -> None:
        """Add decisions; raise ``OSError``."""
        lines = _encode(decisions)
        before, self._count = self._count, None
        with self._path.open("ab") as file:
            file.writelines(lines)
        self._count = (before or 0) + len(lines)

    def replace(self, decisions: Iterable[LoggedDecision]) -> None:
        """Write the whole file, at once or not at all; raise ``OSError``."""
        lines, new = _encode(decisions), self._path.with_name(f"{self._path.name}.new")
        self._count = None
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE), "wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._count = len(lines)


def _encode(decisions: Iterable[LoggedDecision]) -> list[bytes]:
    return [_encoder.encode(decision) + b"\n" for decision in decisions]


def _readable(lines: Iterable[bytes]) -> Iterator[LoggedDecision]:
    for line in lines:
        try:
            yield _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # The process ended while it wrote.
            continue
