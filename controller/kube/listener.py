"""An open port, whose callers cannot use up the memory with connections in a TLS handshake.

Any client that reaches the port may open many connections.
"""

import asyncio
import errno
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import structlog

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Connections wait here until they are accepted; a flood of them must not block others.
_BACKLOG = 1024
#: asyncio allocates this much for each TLS connection before its handshake, by default 256 KiB; a record has 16 KiB.
_TLS_BUFFER_BYTES = 16 << 10
#: A caller that never answers the end of TLS must not delay the end of the process.
_CLOSING_SECONDS = 1.0
#: Takes the caller one round trip.
HANDSHAKE_SECONDS = 5.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RETRY_SECONDS = 1.0
#: A host name may have an IPv6 address on a machine without IPv6.
_UNAVAILABLE = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True)
class Handshakes:
    """How the connections of a port become TLS connections: of more than *most* at once the oldest is closed."""

    context: ssl.SSLContext
    most: int
    seconds: float = HANDSHAKE_SECONDS


class Listener:
    """Accepts connections until it is closed; each becomes a transport with a protocol."""

    def __init__(
        self, factory: Callable[[], asyncio.Protocol], sockets: Sequence[socket.socket], tls: Handshakes | None
    ) -> None:
        self._factory = factory
        self._sockets = sockets
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """Connections whose handshake is not complete, the oldest first."""
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in sockets]

    @classmethod
    async def open(
        cls, factory: Callable[[], asyncio.Protocol], host: str, port: int, tls: Handshakes | None = None
    ) -> Self:
        """Listen on every address of *host* that the machine has, on any free port if *port* is 0; raise `OSError`."""
        if tls is not None:
            sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        unavailable: OSError | None = None
        for family, _, _, _, address in dict.fromkeys(addresses):
            try:
                listening = socket.create_server(address, family=family, backlog=_BACKLOG)
            except OSError as error:
                if error.errno in _UNAVAILABLE:
                    unavailable = error
                    continue
                for opened in sockets:
                    opened.close()
                raise
            listening.setblocking(False)
            sockets.append(listening)
        if unavailable is not None and not sockets:
            raise unavailable
        return cls(factory, sockets, tls)

    @property
    def port(self) -> int:
        """The port number, also if any free port was requested."""
        return int(self._sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop accepting connections; those that are complete stay open."""
        tasks = [*self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                # Any other error is that of a caller which has gone already.
                if error.errno in _EXHAUSTED:
                    log.warning("connections not accepted", error=str(error), again_in=_RETRY_SECONDS)
                    await asyncio.sleep(_RETRY_SECONDS)
                continue
            task = loop.create_task(self._connect(connection))
            self._handshakes[task] = None
            task.add_done_callback(lambda ended: self._handshakes.pop(ended, None))
            # The handshake begins, so that its cancellation closes the connection.
            await asyncio.sleep(0)
            if self._tls is not None and len(self._handshakes) > self._tls.most:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()

    async def _connect(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        # Callers that fail or end the handshake are no errors.
        with suppress(OSError):
            if self._tls is None:
                await loop.connect_accepted_socket(self._factory, connection)
                return
            await loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._tls.seconds,
                ssl_shutdown_timeout=_CLOSING_SECONDS,
            )


def abort(transport: asyncio.Transport) -> None:
    """Close a connection at once."""
    # In early Python 3.11 a closed TLS transport has no connection left, and abort raises.
    with suppress(AttributeError):
        transport.abort()
