"""The webhook's ports: who may stay connected, for how long, and how they are closed; knows no paths."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from webhook.settings import Settings

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

# A refused body is read no further; long enough for the answer to arrive.
_LINGERING_SECONDS = 0.5


class Server(web.Server):
    """aiohttp's server, which also parts from those who connect and then say nothing."""

    def __init__(self, handler: Handler, settings: Settings) -> None:
        super().__init__(
            handler,
            request_factory=self._greet,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=settings.keepalive_seconds,
            lingering_time=_LINGERING_SECONDS,
        )
        self._header_seconds = settings.header_seconds
        self._silent: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Give the caller until the deadline to send a request's headers."""
        super().connection_made(handler, transport)
        timer = asyncio.get_running_loop().call_later(self._header_seconds, transport.abort)
        self._silent[handler] = timer

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the caller."""
        self._heard(handler)
        super().connection_lost(handler, exc)

    def _greet(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        self._heard(protocol)
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop)

    def _heard(self, handler: RequestHandler) -> None:
        if timer := self._silent.pop(handler, None):
            timer.cancel()


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


async def listen(handler: Handler, settings: Settings) -> Listener:
    """Open the plain port."""
    server = Server(handler, settings)
    sockets = await asyncio.get_running_loop().create_server(server, settings.plain_host, settings.plain_port)
    return Listener(server, sockets)


async def listen_tls(handler: Handler, settings: Settings, context: ssl.SSLContext) -> Listener:
    """Open the HTTPS port."""
    server = Server(handler, settings)
    sockets = await asyncio.get_running_loop().create_server(
        server,
        settings.host,
        settings.port,
        ssl=context,
        ssl_handshake_timeout=settings.handshake_seconds,
    )
    return Listener(server, sockets)
