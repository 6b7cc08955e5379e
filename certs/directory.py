"""Stores sets of files in folders, for control planes without Secrets; a symbolic link switches the version.

The layout is that of a mounted Secret: `NAME/tls.crt` points to `NAME/..data/tls.crt`, and `NAME/..data` to the newest
version. A reader that resolves one of the files finds the others of the same version next to it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from certs.store import ConflictError, Stored

_CURRENT = "..data"


class DirectoryStore:
    """Sets of files in folders below *root*, readable by their owner only."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> Stored | None:
        """Return the set *name*, or ``None`` if it does not exist."""
        with self._locked():
            return self._read(name)

    def write(self, name: str, files: Mapping[str, bytes], *, expected: Stored | None) -> None:
        """Replace the version that was read as *expected* (``None``: no set), or raise `ConflictError`."""
        with self._locked():
            current = self._read(name)
            if (current and current.revision) != (expected and expected.revision):
                raise ConflictError(f"{self._root / name} was changed by another process")
            self._replace(self._root / name, files)

    def _read(self, name: str) -> Stored | None:
        current = self._root / name / _CURRENT
        if not current.exists():
            return None
        version = current.resolve()
        return Stored({file.name: file.read_bytes() for file in sorted(version.iterdir())}, version.name)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _replace(self, folder: Path, files: Mapping[str, bytes]) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        version = Path(tempfile.mkdtemp(prefix="..", dir=folder))
        for name, contents in files.items():
            _write(version / name, contents)
        _sync(version)
        _replace_link(folder / _CURRENT, version.name)
        for name in files:
            _replace_link(folder / name, f"{_CURRENT}/{name}")
        _sync(folder)
        _remove_old_versions(folder, keep=version.name)


def _write(file: Path, contents: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(contents)
        out.flush()
        os.fsync(descriptor)


def _replace_link(link: Path, target: str) -> None:
    if link.is_symlink() and link.readlink() == Path(target):
        return
    new_link = link.with_name(f"{link.name}.new")
    new_link.unlink(missing_ok=True)
    new_link.symlink_to(target)
    new_link.rename(link)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_old_versions(folder: Path, *, keep: str) -> None:
    # The previous version stays, since a reader may still use it.
    versions = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink() and entry.name != keep]
    for version in sorted(versions, key=lambda version: version.stat().st_mtime_ns)[:-1]:
        shutil.rmtree(version)
