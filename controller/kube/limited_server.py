"""An aiohttp server whose callers cannot use up its connections.

Any client that reaches the port may open many connections.
"""

import asyncio
import logging
import resource
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from controller.kube.listener import HANDSHAKE_SECONDS, Handshakes, Listener, abort

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_MALFORMED_SECONDS = 60.0
#: Time for the answer to arrive after a refused body, which is not read to its end. aiohttp retains a request for so
#: long also where the caller has left, and such connections are not limited.
_LINGERING_SECONDS = 0.5

#: More than all limits of connections of a process together. Many container runtimes start a process with 1,024.
_OPEN_FILES = 16_384


class MalformedRequestFilter(logging.Filter):
    """Logs at most one malformed request a minute, in one line: any client may send many; each is answered 400."""

    def __init__(self) -> None:
        super().__init__()
        self._silent_until = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether *record* is logged; that of a malformed request becomes a warning without a traceback."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        now = time.monotonic()
        if now < self._silent_until:
            return False
        self._silent_until = now + _MALFORMED_SECONDS
        # Not what the caller sent, which may be long or secret.
        record.msg = "malformed request refused (%s); further ones within a minute are not logged"
        record.args = (type(error).__name__,)
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        return True


_logger = logging.getLogger(__name__)
_logger.addFilter(MalformedRequestFilter())


class LimitedServer(web.Server):
    """Closes connections without a request, and of too many the one that was silent for longest.

    *header_seconds* limit the time until the headers of the first request, *lifetime_seconds* that of the whole
    connection. A connection that *is_busy* is not closed for a new one: the new one is, if all others are busy.
    *options* are those of ``aiohttp.web.Server``.
    """

    def __init__(  # noqa: PLR0913 -- what differs between the servers
        self,
        handler: Handler,
        *,
        max_connections: int,
        header_seconds: float | None = None,
        lifetime_seconds: float | None = None,
        is_busy: Callable[[asyncio.BaseProtocol], bool] = lambda _: False,
        new_request: Callable[..., web.BaseRequest] = web.BaseRequest,
        **options: Any,
    ) -> None:
        super().__init__(
            handler,
            request_factory=self._make_request,
            access_log=None,
            logger=_logger,
            auto_decompress=False,
            lingering_time=_LINGERING_SECONDS,
            **options,
        )
        self._listener: Listener | None = None
        self._max_connections = max_connections
        self._header_seconds = header_seconds
        self._lifetime_seconds = lifetime_seconds
        self._is_busy = is_busy
        self._new_request = new_request
        self._transports: dict[RequestHandler, asyncio.Transport] = {}
        """Open connections, the one that was silent for longest first."""
        self._header_timers: dict[RequestHandler, asyncio.TimerHandle] = {}
        self._lifetime_timers: dict[RequestHandler, asyncio.TimerHandle] = {}

    @property
    def port(self) -> int:
        """The port on which it listens."""
        if self._listener is None:
            raise AssertionError("the server does not listen")
        return self._listener.port

    async def listen(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None = None,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        """Accept connections, with TLS if *context* is given, on any free port if *port* is 0; raise `OSError`."""
        tls = Handshakes(context, self._max_connections, handshake_seconds) if context is not None else None
        self._listener = await Listener.open(self, host, port, tls)

    async def close(self, *, seconds: float) -> None:
        """Stop accepting connections, wait up to *seconds* for running requests, and close."""
        if self._listener is not None:
            await self._listener.close()
        self.pre_shutdown()
        await self.shutdown(seconds)

    def is_authorized(self, _: asyncio.Transport) -> bool:
        """Return whether a new connection may send requests; any other is closed and does not count."""
        return True

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Start the timers of a connection, and close the one that was silent for longest if there are too many."""
        super().connection_made(handler, transport)
        if not self.is_authorized(transport):
            abort(transport)
            return
        loop = asyncio.get_running_loop()
        if self._header_seconds is not None:
            self._header_timers[handler] = loop.call_later(self._header_seconds, abort, transport)
        if self._lifetime_seconds is not None:
            self._lifetime_timers[handler] = loop.call_later(self._lifetime_seconds, abort, transport)
        self._transports[handler] = transport
        if len(self._transports) > self._max_connections:
            # It is the least likely to be that of the API server, or of a probe. The new one is last and not busy.
            abort(self._transports.pop(next(known for known in self._transports if not self._is_busy(known))))

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Release what belongs to a closed connection."""
        for timers in (self._header_timers, self._lifetime_timers):
            _cancel(timers, handler)
        self._transports.pop(handler, None)
        super().connection_lost(handler, exc)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        _cancel(self._header_timers, protocol)
        if transport := self._transports.pop(protocol, None):
            self._transports[protocol] = transport
        return self._new_request(message, payload, protocol, writer, task, self._loop)


def _cancel(timers: dict[RequestHandler, asyncio.TimerHandle], handler: RequestHandler) -> None:
    if timer := timers.pop(handler, None):
        timer.cancel()


def raise_open_files() -> None:
    """Allow this process more open files, which include connections, as far as its hard limit permits.

    The limits of connections shall apply first.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
