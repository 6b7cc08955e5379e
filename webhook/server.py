"""The webhook's ports: who may stay connected, for how long, and how they are closed; knows no paths."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import structlog
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from webhook.settings import Settings

log = structlog.get_logger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

# A refused body is read no further; long enough for the answer to arrive.
_LINGERING_SECONDS = 0.5
# Half-open connections wait here until their handshake; a flood of them must not keep others from it.
_ACCEPT_BACKLOG = 1024


def _abort(transport: asyncio.Transport) -> None:
    # The TLS transport of early 3.11 forgets its connection when it is closed, and has nothing left to abort.
    with contextlib.suppress(AttributeError):
        transport.abort()


class Server(web.Server):
    """aiohttp's server, which also parts from those who connect and then say nothing."""

    def __init__(self, handler: Handler, settings: Settings, *, client_names: frozenset[str] = frozenset()) -> None:
        super().__init__(
            handler,
            request_factory=self._make_request,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=settings.keepalive_seconds,
            lingering_time=_LINGERING_SECONDS,
        )
        self._header_seconds = settings.header_seconds
        self._max_connections = settings.max_connections
        self._client_names = client_names
        self._header_timers: dict[RequestHandler, tuple[asyncio.TimerHandle, asyncio.Transport]] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Give the caller until the deadline to send a request's headers, if he may call at all."""
        super().connection_made(handler, transport)
        if self._client_names and self._client_names.isdisjoint(shown := certificate_names(transport)):
            log.warning("caller refused", shown=sorted(shown), reason="his certificate bears none of the client names")
            _abort(transport)
            return
        timer = asyncio.get_running_loop().call_later(self._header_seconds, _abort, transport)
        self._header_timers[handler] = (timer, transport)
        if len(self.connections) > self._max_connections:
            # Who has been silent for longest is the least likely to be the API server.
            _abort(next(iter(self._header_timers.values()))[1])

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the caller."""
        self._cancel_header_timer(handler)
        super().connection_lost(handler, exc)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        self._cancel_header_timer(protocol)
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop)

    def _cancel_header_timer(self, handler: RequestHandler) -> None:
        if waiting := self._header_timers.pop(handler, None):
            waiting[0].cancel()


class Listener:
    """An open port."""

    def __init__(self, server: Server, sockets: asyncio.Server) -> None:
        self._server = server
        self._sockets = sockets

    @property
    def port(self) -> int:
        """The port that was opened, also where any free one was asked for."""
        return int(self._sockets.sockets[0].getsockname()[1])

    async def close(self, *, seconds: float) -> None:
        """Take no new connections, let requests under way end within *seconds*, and close."""
        self._sockets.close()
        self._server.pre_shutdown()
        await self._server.shutdown(seconds)
        await self._sockets.wait_closed()


def certificate_names(transport: asyncio.BaseTransport) -> frozenset[str]:
    """Return the names in the certificate that a caller has shown: its common name, and its alternative names."""
    return frozenset(_iter_names(transport.get_extra_info("peercert") or {}))


def _iter_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for relative in certificate.get("subject", ()):
        yield from (value for field, value in relative if field == "commonName")
    yield from (value for _, value in certificate.get("subjectAltName", ()))


async def listen(handler: Handler, settings: Settings) -> Listener:
    """Open the plain port."""
    server = Server(handler, settings)
    sockets = await asyncio.get_running_loop().create_server(server, settings.plain_host, settings.plain_port)
    return Listener(server, sockets)


async def listen_tls(handler: Handler, settings: Settings, context: ssl.SSLContext) -> Listener:
    """Open the HTTPS port."""
    server = Server(handler, settings, client_names=frozenset(settings.client_names))
    sockets = await asyncio.get_running_loop().create_server(
        server,
        settings.host,
        settings.port,
        backlog=_ACCEPT_BACKLOG,
        ssl=context,
        ssl_handshake_timeout=settings.handshake_seconds,
    )
    return Listener(server, sockets)
