"""Connects aiohttp clients to the in-memory API server without sockets, through pairs of streams in memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from aiohttp import web

from controller.kube.client import Api
from controller.kube.kubeconfig import ApiServerAccess
from tests.deterministic.apiserver import ApiServer
from tests.deterministic.parsing import Request
from tests.deterministic.watches import Watch

URL = "http://apiserver"

BOOKMARK_SECONDS = 60
WATCH_SECONDS = 1800
"""Duration of a watch without ``timeoutSeconds``."""


class MemoryTransport(asyncio.Transport):
    """One end of a connection; what is written arrives at the protocol of the other end, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.peer: MemoryTransport | None = None
        self._loop = loop
        self._protocol = protocol
        self._received: list[bytes] = []
        self._paused = False
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("memory", 0) if name in {"peername", "sockname"} else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and self.peer is not None and data:
            self._loop.call_soon(self.peer._receive, bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """End the connection; what was written before still arrives."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            if self.peer is not None:
                self._loop.call_soon(self.peer._lose, None)

    def abort(self) -> None:
        """Cut the connection: the other end sees a reset."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            if self.peer is not None:
                self._loop.call_soon(self.peer._lose, ConnectionResetError("cut"))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        received, self._received = self._received, []
        for data in received:
            self._loop.call_soon(self._receive, data)

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def _receive(self, data: bytes) -> None:
        if self._paused:
            self._received.append(data)
        elif not self._closing:
            self._protocol.data_received(data)

    def _lose(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            for data in self._received:
                self._protocol.data_received(data)
            self._protocol.connection_lost(error)


class MemoryConnector(aiohttp.BaseConnector):
    """Opens connections to protocols that *listen* creates; ``None`` from it refuses the connection."""

    def __init__(self, listen: Callable[[], asyncio.Protocol | None], *, limit: int = 64) -> None:
        super().__init__(limit=limit, keepalive_timeout=60)
        self._listen = listen

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 -- its signature
        accepted = self._listen()
        if accepted is None:
            raise aiohttp.ClientConnectorError(req.connection_key, ConnectionRefusedError("refused"))
        protocol = self._factory()
        client, server = MemoryTransport(self._loop, protocol), MemoryTransport(self._loop, accepted)
        client.peer, server.peer = server, client
        accepted.connection_made(server)
        protocol.connection_made(client)
        return protocol


class ServedApi:
    """Serves *server* over HTTP/1.1 on memory transports; a request waits *latency* seconds before it is processed."""

    def __init__(self, server: ApiServer, latency: Callable[[], float] = lambda: 0.001) -> None:
        self.server = server
        self.is_listening = True
        self._latency = latency
        self._http = web.Server(self._handle, access_log=None)

    def listen(self) -> asyncio.Protocol | None:
        """Return the protocol of a new connection, ``None`` while the server is down."""
        return self._http() if self.is_listening else None

    def cut(self) -> None:
        """Cut all connections."""
        for protocol in self._http.connections:
            if protocol.transport is not None:
                protocol.transport.abort()

    async def close(self) -> None:
        await self._http.shutdown(0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = Request(
            request.method,
            request.path,
            dict(request.query),
            await request.read(),
            request.content_type,
            "PartialObjectMetadataList" in request.headers.get("Accept", ""),
            request.headers.get("User-Agent", "unknown"),
        )
        await asyncio.sleep(self._latency())
        response = self.server.handle(asked)
        if response.watch is None:
            return web.json_response(response.body, status=response.status)
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            # The client may have left: its connection is closed then.
            with suppress(ConnectionError):
                seconds = float(asked.query.get("timeoutSeconds", WATCH_SECONDS))
                await self._stream(request, stream, response.watch, seconds)
            return stream
        finally:
            self.server.end_watch(response.watch)

    async def _stream(self, request: web.BaseRequest, stream: web.StreamResponse, watch: Watch, seconds: float) -> None:
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        arrived = asyncio.Event()
        watch.notify = arrived.set
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while True:
            arrived.clear()
            if events := watch.take():
                await stream.write(b"".join(json.dumps(event).encode() + b"\n" for event in events))
            left = ends - loop.time()
            if watch.ended or left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, BOOKMARK_SECONDS)):
                    await arrived.wait()
            if not arrived.is_set() and left > BOOKMARK_SECONDS:
                self.server.send_bookmarks(watch)


@asynccontextmanager
async def connected(served: ServedApi, user_agent: str = "volcano-global") -> AsyncIterator[Api]:
    """Yield the product's client, connected to *served*."""
    access = ApiServerAccess(URL, None, None, None, None)
    headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=MemoryConnector(served.listen), cookie_jar=aiohttp.DummyCookieJar(), headers=headers
    ) as session:
        yield Api(access, session)
