"""Allocates loopback ports, each to one process at a time.

Ports are below 32768, where the kernel allocates none for outgoing connections. A claim is a byte lock in a file, so
it ends with its process.
"""

import errno
import fcntl
import os
import random
import socket
import threading
from pathlib import Path
from typing import Final

from localup.folders import cache_folder

FIRST: Final = 20000
LAST: Final = 32767
_ATTEMPTS: Final = 200

_guard: Final = threading.Lock()
_mine: Final[set[int]] = set()
_files: Final[dict[Path, int]] = {}


class NoPortError(Exception):
    """No free port was found."""


def claim() -> int:
    """Return a port on which nothing listens and that no other process has claimed."""
    with _guard:
        for _ in range(_ATTEMPTS):
            port = random.randint(FIRST, LAST)  # noqa: S311 - spreads runs apart, not used for secrets
            if port not in _mine and _lock(port):
                if _is_free(port):
                    _mine.add(port)
                    return port
                _unlock(port)
    raise NoPortError(
        f"no free port between {FIRST} and {LAST} in {_ATTEMPTS} attempts; stop servers that listen there"
    )


def release(port: int) -> None:
    """Release a claimed port."""
    with _guard:
        if port in _mine:
            _mine.remove(port)
            _unlock(port)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: ports of closed connections may be reused.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _unlock(port: int) -> None:
    fcntl.lockf(_claims(), fcntl.LOCK_UN, 1, port)


def _claims() -> int:
    # Never closed, because closing any descriptor of the file releases all claims of this process.
    path = cache_folder() / "ports.lock"
    if path not in _files:
        path.parent.mkdir(parents=True, exist_ok=True)
        _files[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return _files[path]
