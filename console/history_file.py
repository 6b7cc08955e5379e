"""The file with the decisions that the console has read, so that a new console process has them, too."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from controller.api.visibility import LoggedDecision

#: The file has at most so many times the bytes of the decisions in memory; then it is written again.
_MAX_FACTOR = 2
_MODE = 0o600

_decoder = msgspec.json.Decoder(LoggedDecision)
_encoder = msgspec.json.Encoder()


class HistoryFile:
    """Stores decisions as JSON Lines at *path*, at most *max_bytes* of them after it was replaced."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self._path = path
        self._most = _MAX_FACTOR * max_bytes
        self._size: int | None = None
        """Bytes in the file; ``None`` until this process has written all of them."""

    def read(self) -> list[LoggedDecision]:
        """Return the stored decisions without lines that cannot be read; raise ``OSError``."""
        try:
            with self._path.open("rb") as lines:
                lines.seek(max(lines.seek(0, os.SEEK_END) - self._most, 0))
                return list(_readable(lines))
        except FileNotFoundError:
            return []

    def is_due(self, size: int) -> bool:
        """Return whether the whole file must be written, instead of *size* more bytes."""
        return self._size is None or self._size + size > self._most

    def append(self, lines: Sequence[bytes]) -> None:
        """Add encoded decisions; raise ``OSError``."""
        before, self._size = self._size, None
        with self._path.open("ab") as file:
            file.writelines(lines)
        self._size = (before or 0) + sum(map(len, lines))

    def replace(self, decisions: Iterable[LoggedDecision]) -> None:
        """Write the whole file, at once or not at all; raise ``OSError``."""
        lines, new = [*map(encode, decisions)], self._path.with_name(f"{self._path.name}.new")
        self._size = None
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE), "wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._size = sum(map(len, lines))


def encode(decision: LoggedDecision) -> bytes:
    """Return the line of *decision*."""
    return _encoder.encode(decision) + b"\n"


def _readable(lines: Iterable[bytes]) -> Iterator[LoggedDecision]:
    for line in lines:
        try:
            yield _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # The process ended while it wrote.
            continue
