"""Our webhook configurations: written once the webhook answers, with the bundle that covers its certificate.

They are replaced as a whole and not applied on the server's side: the bundle in them belongs to `certs`, and who owns
a part of one webhook keeps all of it from being renamed or dropped.
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

from controller.kube import Api, Conflict, Invalid, NotFound
from install.objects import FIELD_MANAGER, InstallError
from install.polling import poll_until
from install.rest_mapping import Manifest, name_of, path_of

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_ATTEMPTS = 5
_POLL_SECONDS = 1.0
_CONNECT_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the webhook is called from within its own cluster."""

    host: str
    port: int
    name: str
    """What its certificate must be made out to."""


async def register(api: Api, configurations: Iterable[Manifest], bundle: bytes) -> None:
    """Make *configurations* what the API server has; each webhook keeps its bundle, and a new one gets *bundle*."""
    for wanted in configurations:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await _write(api, wanted, bundle)
                break
            except (Conflict, Invalid) as error:  # somebody else was faster: look again
                if attempt == _ATTEMPTS:
                    raise InstallError(f"{name_of(wanted)} was changed again and again meanwhile: {error}") from error


async def _write(api: Api, wanted: Manifest, bundle: bytes) -> None:
    path = path_of(wanted)
    parameters = {"fieldManager": FIELD_MANAGER}
    try:
        found = msgspec.json.decode(await api.get(path))
    except NotFound:
        body = msgspec.json.encode(with_bundles(wanted, {}, bundle))
        await api.create(path.rpartition("/")[0], body, parameters)
        log.info("registered", object=name_of(wanted))
        return
    new = with_bundles(wanted, bundles(found), bundle)
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/labels", "value": new["metadata"]["labels"]},
        {"op": "add", "path": "/webhooks", "value": new["webhooks"]},
    ]
    await api.patch(path, msgspec.json.encode(patch), parameters=parameters)
    log.info("registered again", object=name_of(wanted))


def bundles(found: Manifest) -> dict[str, str]:
    """Return the bundle of each webhook, as it is written, by the webhook's name."""
    clients = {each["name"]: each["clientConfig"] for each in found.get("webhooks") or []}
    return {name: client["caBundle"] for name, client in clients.items() if client.get("caBundle")}


def with_bundles(wanted: Manifest, known: Mapping[str, str], bundle: bytes) -> Manifest:
    """Return *wanted* with the bundle in *known* for each webhook, and with *bundle* where there is none."""
    fresh = base64.b64encode(bundle).decode()

    def trusting(webhook: dict[str, Any]) -> dict[str, Any]:
        client = {**webhook["clientConfig"], "caBundle": known.get(webhook["name"], fresh)}
        return {**webhook, "clientConfig": client}

    return {**wanted, "webhooks": [trusting(each) for each in wanted["webhooks"]]}


async def wait_for_webhook(address: Address, bundle: bytes, *, seconds: float) -> None:
    """Return once the webhook shows a certificate that *bundle* covers; raise when it does not in time."""
    last: str | None = None

    async def answers() -> bool:
        nonlocal last
        trouble = await asyncio.to_thread(_connection_error, address, bundle)
        if trouble and trouble != last:
            log.info("waiting for the webhook", address=f"{address.host}:{address.port}", reason=trouble)
        last = trouble
        return trouble is None

    if not await poll_until(answers, seconds=seconds, every=_POLL_SECONDS):
        raise InstallError(
            f"the webhook at {address.host}:{address.port} was not there within {seconds:g} s ({last}); nothing was "
            "registered, so nothing is held up. Look at its pods, then run this Job again (helm upgrade)"
        )


def _connection_error(address: Address, bundle: bytes) -> str | None:
    context = ssl.create_default_context(cadata=bundle.decode())
    try:
        with (
            socket.create_connection((address.host, address.port), timeout=_CONNECT_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=address.name),
        ):
            return None
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
