"""The folder of one run: data, keys, logs. It goes with the run.

What a killed run could not remove is removed by the next one.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "volcano-global-run-"
_OWNER: Final = "owner"


class RunFolder:
    """A folder, readable by us alone, and the lock that says that it is in use.

    Where it will be is known before it is there, so that whoever is interrupted while it is made can remove it.
    """

    def __init__(self) -> None:
        self.path: Final = Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(6)}"
        self._lock: int | None = None

    def open(self) -> None:
        """Make it, and remove those whose run is over."""
        remove_stale_folders()
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / "new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / _OWNER)  # appears locked, so that no sweep comes in between

    def close(self) -> None:
        """Remove it with all that is in it, as far as it is there."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_stale_folders() -> None:
    """Remove the folders of runs that ended without removing them."""
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        with contextlib.suppress(OSError), owner.open("r+") as file:  # another account's, in use, or just gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)
