"""The files of a decision log: the present one and a limited number of older ones.

All methods block; call them in a thread.
"""

import fcntl
import os
from pathlib import Path


class RotatedFiles:
    """FILE and the older FILE.1, FILE.2 and so on, *keep* in all; one process writes them."""

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self.size = 0
        """Bytes written to the present file."""
        self._keep = keep
        self._open: int | None = None

    def start_file(self) -> None:
        """Start a new file; the present one is renamed to the next number. Raises ``OSError``."""
        self.close()
        if self.path.exists():
            self._rotate()
        opened = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._open, self.size = opened, 0

    def _rotate(self) -> None:
        """Rename every file to the next number; the last one is overwritten."""
        with self.path.open("rb") as former:
            # The lock fails if another process writes this file.
            fcntl.flock(former, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for number in range(self._keep - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self.path.unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def write(self, text: bytes) -> None:
        """Write all of *text*. Raises ``OSError``."""
        if self._open is None:
            raise OSError("the decision log is not open")
        rest = memoryview(text)
        while rest:
            written = os.write(self._open, rest)
            self.size += written
            rest = rest[written:]

    def close(self) -> None:
        """Close the present file, if it is open."""
        if self._open is not None:
            opened, self._open = self._open, None
            os.close(opened)
