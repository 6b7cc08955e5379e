"""Opens and closes the ports of the webhook, and limits connections."""

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from controller.kube.limited_server import Handler, LimitedServer
from webhook.settings import WebhookSettings

log = structlog.get_logger(__name__)


class Server(LimitedServer):
    """A limited server that also closes the connections of unauthorized callers."""

    def __init__(
        self, handler: Handler, settings: WebhookSettings, *, client_names: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(
            handler,
            max_connections=settings.max_connections,
            header_seconds=settings.header_seconds,
            keepalive_timeout=settings.keepalive_seconds,
        )
        self._client_names = client_names

    def is_authorized(self, transport: asyncio.Transport) -> bool:
        """Return whether the caller's certificate has one of the client names, if there are any."""
        if self._client_names and self._client_names.isdisjoint(presented := certificate_names(transport)):
            log.warning(
                "caller refused", names=sorted(presented), reason="the certificate has none of the client names"
            )
            return False
        return True


def certificate_names(transport: asyncio.BaseTransport) -> frozenset[str]:
    """Return the common name and the alternative names of the caller's certificate."""
    return frozenset(_iter_names(transport.get_extra_info("peercert") or {}))


def _iter_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for relative in certificate.get("subject", ()):
        yield from (value for field, value in relative if field == "commonName")
    yield from (value for _, value in certificate.get("subjectAltName", ()))


async def listen(handler: Handler, settings: WebhookSettings) -> Server:
    """Open the plain HTTP port."""
    server = Server(handler, settings)
    await server.listen(settings.plain_host, settings.plain_port)
    return server


async def listen_tls(handler: Handler, settings: WebhookSettings, context: ssl.SSLContext) -> Server:
    """Open the HTTPS port."""
    server = Server(handler, settings, client_names=frozenset(settings.client_names))
    await server.listen(settings.host, settings.port, context, handshake_seconds=settings.handshake_seconds)
    return server
