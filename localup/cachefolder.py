"""Cache folder for built programs and lock files, outside of the repository."""

import fcntl
import os
import pwd
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the cache folder from the environment, by default in the home folder.

    Without a writable home folder it is in the folder for temporary files.
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
    """Hold the lock file *path*; *waiting* is called once if another process holds it."""
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
