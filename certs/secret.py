"""Stores sets of files in Kubernetes Secrets, one Secret per set.

The serving set has the Secret's own name, which the webhook mounts. Every other set, such as the CA with its key, is a
Secret with the name of the set as suffix, which no pod mounts.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from certs.rotation import SERVING
from certs.store import ConflictError, Stored
from controller.kube.client import Api
from controller.kube.errors import Conflict, NotFound

_AGENT = "volcano-global-certs"
_PARAMETERS = {"fieldManager": _AGENT}


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
            raise ConflictError(f"Secret {self._secret(name)!r} was changed by another process") from error

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
