"""Writes the webhook configurations once the webhook is reachable, with the CA bundle of its certificate.

They are replaced as a whole instead of applied on the server side: `certs` owns the bundle, and an owner of one field
of a webhook prevents that webhook from being renamed or removed.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from controller.kube.client import Api
from controller.kube.errors import Conflict, Invalid, NotFound
from controller.kube.kubeconfig import client_context
from install.objects import FIELD_MANAGER, InstallError, Manifest, find, name_of, path_of, poll_until

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_ATTEMPTS = 5
_POLL_SECONDS = 1.0
_CONNECT_TIMEOUT_SECONDS = 5.0
#: OpenSSL's codes for a valid certificate without the DNS name or the address.
_NAME_MISMATCHES = (62, 64)


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a process within its own cluster."""

    host: str
    port: int
    name: str
    """Name that its certificate must cover."""


async def register(api: Api, configurations: Iterable[Manifest], bundle: bytes) -> None:
    """Create or replace *configurations*; existing webhooks keep their bundle, and new ones get *bundle*."""
    for configuration in configurations:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await _write(api, configuration, bundle)
                break
            except (Conflict, Invalid) as error:  # changed by another process: try again
                if attempt == _ATTEMPTS:
                    raise InstallError(
                        f"{name_of(configuration)} was changed by other processes {_ATTEMPTS} times: {error}"
                    ) from error


async def _write(api: Api, configuration: Manifest, bundle: bytes) -> None:
    path = path_of(configuration)
    parameters = {"fieldManager": FIELD_MANAGER}
    try:
        current = msgspec.json.decode(await api.get(path))
    except NotFound:
        body = msgspec.json.encode(with_bundles(configuration, {}, bundle))
        await api.create(path.rpartition("/")[0], body, parameters)
        log.info("webhook configuration created", object=name_of(configuration))
        return
    new = with_bundles(configuration, bundles(current), bundle)
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": current["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/labels", "value": new["metadata"]["labels"]},
        {"op": "add", "path": "/webhooks", "value": new["webhooks"]},
    ]
    await api.patch(path, msgspec.json.encode(patch), parameters=parameters)
    log.info("webhook configuration updated", object=name_of(configuration))


def bundles(configuration: Manifest) -> dict[str, str]:
    """Return the base64 bundle of each webhook that has one, by name."""
    clients = {webhook["name"]: webhook["clientConfig"] for webhook in configuration.get("webhooks") or []}
    return {name: client["caBundle"] for name, client in clients.items() if client.get("caBundle")}


def with_bundles(configuration: Manifest, existing: Mapping[str, str], bundle: bytes) -> Manifest:
    """Return *configuration* with the bundle in *existing* for each webhook, or *bundle* for a new webhook."""
    encoded = base64.b64encode(bundle).decode()

    def with_bundle(webhook: dict[str, Any]) -> dict[str, Any]:
        client = {**webhook["clientConfig"], "caBundle": existing.get(webhook["name"], encoded)}
        return {**webhook, "clientConfig": client}

    return {**configuration, "webhooks": [with_bundle(webhook) for webhook in configuration["webhooks"]]}


async def wait_for_webhook(address: Address, bundle: bytes, *, seconds: float) -> None:
    """Wait until the webhook serves a certificate that *bundle* covers, or raise `InstallError`."""
    last_error: str | None = None

    async def is_reachable() -> bool:
        nonlocal last_error
        error = await asyncio.to_thread(_connection_error, address, bundle)
        if error and error != last_error:
            log.info("waiting for the webhook", address=f"{address.host}:{address.port}", reason=error)
        last_error = error
        return error is None

    if not await poll_until(is_reachable, seconds=seconds, every=_POLL_SECONDS):
        raise InstallError(
            f"the webhook at {address.host}:{address.port} was not reachable within {seconds:g} s ({last_error});"
            " nothing was registered, so no request is blocked. Check its pods, then run this Job again (helm upgrade)"
        )


async def wait_for_rollout(host: Api, namespace: str, name: str, *, seconds: float) -> None:
    """Wait until a Deployment has no replicas of an earlier version: they may refuse what only the new one reviews.

    After *seconds* this gives up with a warning, since new replicas may need the registration to become ready.
    """
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"

    async def is_complete() -> bool:
        deployment = await find(host, path)
        if deployment is None:
            return True
        status = deployment.get("status") or {}
        is_observed = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
        return bool(is_observed and status.get("updatedReplicas", 0) == status.get("replicas", 0))

    if not await poll_until(is_complete, seconds=seconds, every=_POLL_SECONDS):
        reason = f"Deployment {name!r} still has replicas of an earlier version after {seconds:g} s"
        log.warning("webhook registered before its rollout has ended", reason=reason)


def _connection_error(address: Address, bundle: bytes) -> str | None:
    """Return why the API server cannot call the webhook at *address* yet, or ``None``.

    One reachable address suffices, since others may belong to replicas that stop, or that serve a certificate of the
    previous CA until they are replaced. But a replica whose certificate lacks only the name loads the new one soon.
    """
    context = client_context(pem=bundle.decode())
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return str(error)
    errors = [_handshake_error(host, address, context) for host in sorted({str(info[4][0]) for info in infos})]
    failures = [error for error in errors if error is not None]
    misnamed = [error for error in failures if getattr(error, "verify_code", None) in _NAME_MISMATCHES]
    if misnamed or len(failures) == len(errors):
        reported = (misnamed or failures)[0]
        return str(reported) or type(reported).__name__
    return None


def _handshake_error(host: str, address: Address, context: ssl.SSLContext) -> Exception | None:
    try:
        with (
            socket.create_connection((host, address.port), timeout=_CONNECT_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=address.name),
        ):
            return None
    except (OSError, ValueError) as error:
        return error
