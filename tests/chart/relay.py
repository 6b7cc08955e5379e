"""Relays connections between network namespaces, like Services."""

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chart.sandbox import Network

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Endpoint:
    """A port in a network; without a network, on this machine."""

    port: int
    network: Network | None = None

    def socket(self) -> socket.socket:
        return self.network.socket() if self.network else socket.socket(socket.AF_INET, socket.SOCK_STREAM)


class Relay:
    """Listens on addresses and relays each connection to one of the current endpoints, in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()
        self._turn = itertools.count()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="relay")
        self._thread.start()

    def listen(
        self,
        behind: Callable[[], Sequence[Endpoint]],
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        network: Network | None = None,
    ) -> int:
        """Listen on an address of a network and return the port; *behind* returns the current endpoints."""
        listening = Endpoint(port, network).socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        self._call(self._serve(listening, behind))
        return int(listening.getsockname()[1])

    def close(self) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, listening: socket.socket, behind: Callable[[], Sequence[Endpoint]]) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._pass_on(behind(), reader, writer))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

        self._servers.append(await asyncio.start_server(accept, sock=listening))

    async def _pass_on(
        self, places: Sequence[Endpoint], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # The network of a stopped pod creates no socket: RuntimeError.
        with contextlib.closing(writer), contextlib.suppress(OSError, RuntimeError, asyncio.IncompleteReadError):
            if not places:
                return
            place = places[next(self._turn) % len(places)]
            outgoing = await self._loop.run_in_executor(None, place.socket)
            outgoing.setblocking(False)
            try:
                await self._loop.sock_connect(outgoing, ("127.0.0.1", place.port))
            except BaseException:
                outgoing.close()
                raise
            inner, outer = await asyncio.open_connection(sock=outgoing)
            with contextlib.closing(outer):
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pipe(reader, outer))
                    both.create_task(_pipe(inner, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
