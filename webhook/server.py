"""Opens and closes the ports of the webhook, and limits connections."""

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from controller.kube.limited_server import Handler, LimitedServer
from webhook.settings import WebhookSettings

log = structlog.get_logger(__name__)

# Time for the answer to arrive after a refused body, which is not read to its end.
_LINGERING_SECONDS = 0.5
# asyncio allocates this much for each TLS connection before its handshake, by default 256 KiB; a record has 16 KiB.
_TLS_BUFFER_BYTES = 16 << 10
# A caller that never answers the end of TLS must not delay the end of the process.
_CLOSING_SECONDS = 1.0
# Connections wait here for their handshake; a flood of half-open ones must not block others.
_ACCEPT_BACKLOG = 1024


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
            lingering_time=_LINGERING_SECONDS,
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


class Listener:
    """An open port."""

    def __init__(self, server: Server, sockets: asyncio.Server) -> None:
        self._server = server
        self._sockets = sockets

    @property
    def port(self) -> int:
        """The port number, also if an arbitrary free port was requested."""
        return int(self._sockets.sockets[0].getsockname()[1])

    async def close(self, *, seconds: float) -> None:
        """Stop accepting connections, wait up to *seconds* for running requests, and close."""
        self._sockets.close()
        self._server.pre_shutdown()
        await self._server.shutdown(seconds)
        await self._sockets.wait_closed()


def certificate_names(transport: asyncio.BaseTransport) -> frozenset[str]:
    """Return the common name and the alternative names of the caller's certificate."""
    return frozenset(_iter_names(transport.get_extra_info("peercert") or {}))


def _iter_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for relative in certificate.get("subject", ()):
        yield from (value for field, value in relative if field == "commonName")
    yield from (value for _, value in certificate.get("subjectAltName", ()))


async def listen(handler: Handler, settings: WebhookSettings) -> Listener:
    """Open the plain HTTP port."""
    server = Server(handler, settings)
    sockets = await asyncio.get_running_loop().create_server(server, settings.plain_host, settings.plain_port)
    return Listener(server, sockets)


async def listen_tls(handler: Handler, settings: WebhookSettings, context: ssl.SSLContext) -> Listener:
    """Open the HTTPS port."""
    sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
    server = Server(handler, settings, client_names=frozenset(settings.client_names))
    sockets = await asyncio.get_running_loop().create_server(
        server,
        settings.host,
        settings.port,
        backlog=_ACCEPT_BACKLOG,
        ssl=context,
        ssl_handshake_timeout=settings.handshake_seconds,
        ssl_shutdown_timeout=_CLOSING_SECONDS,
    )
    return Listener(server, sockets)
