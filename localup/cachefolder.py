"""The folder that outlives a run: built programs and lock files, never inside the tree."""

import fcntl
import os
import pwd
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder named by the environment, else the one in the home folder.

    Where there is no home folder to write to, it lies beside the temporary files.
    """
    if named := environment.get("VOLCANO_GLOBAL_CACHE"):
        return Path(named).absolute()
    if caches := environment.get("XDG_CACHE_HOME"):
        return Path(caches).absolute() / "volcano-global"
    if home := environment.get("HOME"):
        return Path(home).absolute() / ".cache" / "volcano-global"
    return _home_of_the_account() or Path(tempfile.gettempdir()) / f"volcano-global-cache-{os.getuid()}"


@contextmanager
def exclusive(path: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file *path*, and call *waiting* once when another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _home_of_the_account() -> Path | None:
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None
    return home / ".cache" / "volcano-global" if home.is_dir() and os.access(home, os.W_OK) else None
