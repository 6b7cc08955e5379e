"""A store in Kubernetes Secrets, each set one Secret that is written over what was read, or not at all.

The set that is served has the Secret's own name and is mounted by the webhook; every other set, the authority with
its key among them, is a Secret with the set's name behind it, which nobody mounts.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from certs.rotation import SERVING
from certs.store import ConflictError, Stored
from controller.kube import Api, Conflict, NotFound

_AGENT = "volcano-global-certs"
_PARAMETERS = {"fieldManager": _AGENT}


class _Metadata(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, bytes] | None = None


_SECRET = msgspec.json.Decoder(_Secret)


class SecretStore:
    """Sets of files in the Secrets of one namespace; each call reads the credentials anew."""

    def __init__(self, kubeconfig: Path | None, namespace: str, name: str) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._name = name

    def read(self, name: str) -> Stored | None:
        """Return the set *name*, or ``None`` while there is none."""
        return asyncio.run(self._read(name))

    def write(self, name: str, files: Mapping[str, bytes], *, expected: Stored | None) -> None:
        """Replace the set that was read as *over* (``None``: there was none), or raise `ConflictError`."""
        try:
            asyncio.run(self._create(name, files) if expected is None else self._update(name, files, expected))
        except (Conflict, NotFound) as error:
            raise ConflictError(f"Secret {self._secret(name)!r} was written by somebody else meanwhile") from error

    def _secret(self, name: str) -> str:
        return self._name if name == SERVING else f"{self._name}-{name}"

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/secrets"

    async def _read(self, name: str) -> Stored | None:
        async with Api.connect(self._kubeconfig, user_agent=_AGENT) as api:
            try:
                found = _SECRET.decode(await api.get(f"{self._path}/{self._secret(name)}"))
            except NotFound:
                return None
        return Stored(found.data or {}, found.metadata.version)

    async def _create(self, name: str, files: Mapping[str, bytes]) -> None:
        head = {"name": self._secret(name), "labels": {"app.kubernetes.io/name": "volcano-global"}}
        secret: dict[str, Any] = {"metadata": head, "type": "kubernetes.io/tls", "data": files}
        async with Api.connect(self._kubeconfig, user_agent=_AGENT) as api:
            await api.create(self._path, msgspec.json.encode(secret), _PARAMETERS)

    async def _update(self, name: str, files: Mapping[str, bytes], expected: Stored) -> None:
        # A patch that names a version other than the newest is refused as a conflict.
        patch = [
            {"op": "add", "path": "/metadata/resourceVersion", "value": expected.revision},
            {"op": "add", "path": "/data", "value": files},
        ]
        async with Api.connect(self._kubeconfig, user_agent=_AGENT) as api:
            await api.patch(f"{self._path}/{self._secret(name)}", msgspec.json.encode(patch), parameters=_PARAMETERS)
