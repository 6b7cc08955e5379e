"""Folders outside of the repository: the cache of built programs and locks, and a temporary one for each run.

Folders of killed runs are deleted by the next run.
"""

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the cache folder from the environment, by default in the home folder.

    Without a writable home folder it is in the folder for temporary files.
    """
    if named := environment.get("VOLCANO_GLOBAL_CACHE"):
        return Path(named).absolute()
    if caches := environment.get("XDG_CACHE_HOME"):
        return Path(caches).absolute() / "volcano-global"
    for home in (environment.get("HOME"), _home_of_the_account()):
        if home and _can_be_created(folder := Path(home).absolute() / ".cache" / "volcano-global"):
            return folder
    return Path(tempfile.gettempdir()) / f"volcano-global-cache-{os.getuid()}"


@contextmanager
def exclusive(path: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file *path*; *waiting* is called once if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _home_of_the_account() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def _can_be_created(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK)


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
