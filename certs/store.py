"""Stores keys and certificates as named sets of files in Secrets or folders, written as a whole and only if unchanged.

In Secrets, the serving set has the Secret's own name, which the webhook mounts. Every other set, such as the CA with
its key, is a Secret with the name of the set as suffix, which no pod mounts.

Folders are for control planes without Secrets, in the layout of a mounted Secret: `NAME/tls.crt` points to
`NAME/..data/tls.crt`, and `NAME/..data` to the newest version. A reader that resolves one of the files finds the others
of the same version next to it.
"""

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from controller.kube.client import Api
from controller.kube.errors import Conflict, Forbidden, NotFound

SERVING = "serving"
AUTHORITY = "authority"
_AGENT = "volcano-global-certs"
_PARAMETERS = {"fieldManager": _AGENT}
_CURRENT = "..data"


class ConflictError(Exception):
    """The set was written by another process since it was read: read it again."""


class MissingSecretError(Exception):
    """A Secret does not exist and may not be created."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A set of files with the revision that identifies this version."""

    files: Mapping[str, bytes]
    revision: str


class CertificateStore(Protocol):
    """Storage of sets of files; a reader sees either the old or the new version of a set."""

    def read(self, name: str) -> Stored | None:
        """Return the set *name*, or ``None`` if it does not exist."""

    def write(self, name: str, files: Mapping[str, bytes], *, expected: Stored | None) -> None:
        """Replace the version that was read as *expected* (``None``: no set), or raise `ConflictError`."""


class _Metadata(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, bytes] | None = None


_SECRET = msgspec.json.Decoder(_Secret)


class SecretStore:
    """Sets of files in the Secrets of one namespace; every call reads the credentials again."""

    def __init__(self, kubeconfig: Path | None, namespace: str, name: str) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._name = name

    def read(self, name: str) -> Stored | None:
        """Return the set *name*, or ``None`` if it does not exist."""
        return asyncio.run(self._read(name))

    def write(self, name: str, files: Mapping[str, bytes], *, expected: Stored | None) -> None:
        """Replace the version that was read as *expected* (``None``: no set), or raise `ConflictError`."""
        try:
            asyncio.run(self._create(name, files) if expected is None else self._update(name, files, expected))
        except (Conflict, NotFound) as error:
            if expected is None and isinstance(error, NotFound):
                raise  # its namespace does not exist
            raise ConflictError(f"Secret {self._secret(name)!r} was changed by another process") from error
        except Forbidden as error:
            if expected is None:
                raise MissingSecretError(
                    f"Secret {self._secret(name)!r} does not exist, and this user may create none: run helm upgrade,"
                    f" which creates and fills it ({error})"
                ) from error
            raise

    def _secret(self, name: str) -> str:
        return self._name if name == SERVING else f"{self._name}-{name}"

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/secrets"

    async def _read(self, name: str) -> Stored | None:
        async with Api.connect(self._kubeconfig, user_agent=_AGENT) as api:
            try:
                secret = _SECRET.decode(await api.get(f"{self._path}/{self._secret(name)}"))
            except NotFound:
                return None
        return Stored(secret.data or {}, secret.metadata.version)

    async def _create(self, name: str, files: Mapping[str, bytes]) -> None:
        metadata = {"name": self._secret(name), "labels": {"app.kubernetes.io/name": "volcano-global"}}
        secret: dict[str, Any] = {"metadata": metadata, "type": "kubernetes.io/tls", "data": files}
        async with Api.connect(self._kubeconfig, user_agent=_AGENT) as api:
            await api.create(self._path, msgspec.json.encode(secret), _PARAMETERS)

    async def _update(self, name: str, files: Mapping[str, bytes], expected: Stored) -> None:
        # The API server refuses a patch with an old resourceVersion as a conflict.
        patch = [
            {"op": "add", "path": "/metadata/resourceVersion", "value": expected.revision},
            {"op": "add", "path": "/data", "value": files},
        ]
        async with Api.connect(self._kubeconfig, user_agent=_AGENT) as api:
            await api.patch(f"{self._path}/{self._secret(name)}", msgspec.json.encode(patch), parameters=_PARAMETERS)


class DirectoryStore:
    """Sets of files in folders below *root*, readable by their owner only."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> Stored | None:
        """Return the set *name*, or ``None`` if it does not exist."""
        if not self._root.exists():
            return None
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
        try:
            for name, contents in files.items():
                _write(version / name, contents)
            _sync(version)
        except OSError:
            # Attempts on a full disk would otherwise leave a folder each.
            shutil.rmtree(version)
            raise
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
