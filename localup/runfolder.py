"""The folder of one run: data, keys, logs. It goes with the run.

What a killed run could not remove is removed by the next one.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_PREFIX: Final = "volcano-global-run-"
_OWNER: Final = "owner"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """An open folder, readable by us alone, and the lock that says that it is in use."""

    path: Path
    _lock: int

    @classmethod
    def open(cls) -> Self:
        """Make a new folder, and remove those whose run is over."""
        sweep()
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(path / "new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (path / "new").rename(path / _OWNER)  # appears locked, so that no sweep comes in between
        return cls(path, lock)

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep() -> None:
    """Remove the folders of runs that ended without removing them."""
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        with contextlib.suppress(OSError), owner.open("r+") as file:  # another account's, in use, or just gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)
