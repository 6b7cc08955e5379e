"""Temporary folder of a run for data, keys and logs.

Folders of killed runs are deleted by the next run.
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
    """Folder with mode 0700 and a lock that marks it as in use.

    The path is known before the folder exists, so that an interrupted start can remove it.
    """

    def __init__(self) -> None:
        self.path: Final = Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(6)}"
        self._lock: int | None = None

    def open(self) -> None:
        """Create the folder and delete those of ended runs."""
        remove_stale_folders()
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / "new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / _OWNER)  # renamed once locked, so that no other run deletes it

    def close(self) -> None:
        """Delete the folder with its content, if it exists."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_stale_folders() -> None:
    """Delete the folders of runs that ended without deleting them."""
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        with (
            contextlib.suppress(OSError),
            owner.open("r+") as file,
        ):  # owned by another user, in use, or already deleted
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)
