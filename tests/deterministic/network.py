"""Connects the product's client to the in-memory API server without HTTP: a session that takes the place of aiohttp's.

Requests, responses and watch events take time, and faults may change any of them. Everything above the session is the
code of the product: paths, parameters, timeouts, errors and the lines of a watch.
"""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self

import aiohttp
import msgspec
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from tests.deterministic.apiserver import ApiServer
from tests.deterministic.clock import PROCESS
from tests.deterministic.objects import Object
from tests.deterministic.parsing import Request
from tests.deterministic.reads import Response
from tests.deterministic.watches import Watch

WATCH_SECONDS = 1800
"""Duration of a watch without ``timeoutSeconds``."""
_KEY = ConnectionKey("apiserver", 80, is_ssl=False, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)
_NOBODY = contextvars.Context()
"""Context of the server's work, which belongs to no simulated process."""
_ENCODED_OBJECTS = 4096


@dataclass(eq=False)
class Call:
    """One request of a client."""

    client: str
    """Name of the process that sent it."""
    request: Request

    @property
    def is_watch(self) -> bool:
        return "watch" in self.request.query

    @property
    def is_write(self) -> bool:
        return self.request.method != "GET"


@dataclass
class Route:
    """How one request and its response travel; faults change it."""

    there: float
    """Seconds until the server processes the request."""
    back: float
    """Seconds until the response arrives."""
    refused: bool = False
    """The connection is refused."""
    lost: bool = False
    """The request never arrives."""
    response: Response | None = None
    """The response instead of the server's, which does not process the request."""
    answer_lost: bool = False
    """The server processes the request, and its response never arrives."""
    reset: bool = False
    """The connection breaks instead of the response."""


Event = tuple[str, Object]
"""Type and object of a watch event."""


class NoFaults:
    """The behaviour of a network without faults; a simulation overrides it."""

    def on_request(self, call: Call, route: Route) -> None:
        """Change *route*."""

    def on_events(self, call: Call, stream: "EventStream", events: Sequence[Event]) -> Iterable[tuple[float, Event]]:
        """Yield the events that arrive, each with an additional delay."""
        return ((0, event) for event in events)


Handler = Callable[[Request], Awaitable[Response]]
Observer = Callable[[Call, Response], None]


@dataclass(eq=False)
class Network:
    """Carries the requests of all clients to *server*."""

    server: ApiServer
    random: random.Random
    admit: Handler | None = None
    """Processes the requests that admission webhooks review."""
    is_reviewed: Callable[[Request], bool] = lambda _: False
    faults: NoFaults = field(default_factory=NoFaults)
    observers: list[Observer] = field(default_factory=list)
    """Called with each request that the server has processed."""
    is_listening: bool = True
    streams: dict["EventStream", None] = field(default_factory=dict)
    requests: int = 0
    unanswered: set[str] = field(default_factory=set)
    """Paths of the writes that took effect without an answer."""
    _encoded: dict[tuple[int, str], tuple[Object, bytes]] = field(default_factory=dict)

    def latency(self) -> float:
        return 0.001 + 0.004 * self.random.random()

    def send(self, call: Call, answer: asyncio.Future[Any]) -> None:
        """Deliver *call*; its response becomes the result of *answer*."""
        self.requests += 1
        loop = asyncio.get_running_loop()
        route = Route(self.latency(), self.latency())
        self.faults.on_request(call, route)
        if route.refused or not self.is_listening:
            _resolve(answer, aiohttp.ClientConnectorError(_KEY, ConnectionRefusedError("refused")))
        elif not route.lost:
            loop.call_later(route.there, self._arrive, call, route, answer, context=_NOBODY.copy())

    def _arrive(self, call: Call, route: Route, answer: asyncio.Future[Any]) -> None:
        if not self.is_listening:
            _resolve(answer, aiohttp.ClientOSError("the server is down"))
        elif route.response is not None:
            self._answer(call, route, answer, route.response)
        elif self.admit is not None and self.is_reviewed(call.request):
            task = asyncio.get_running_loop().create_task(self._review(call, route, answer), context=_NOBODY.copy())
            self._reviews.add(task)
            task.add_done_callback(self._reviews.discard)
        else:
            self._answer(call, route, answer, self._process(call, self.server.handle(call.request)))

    _reviews: set[asyncio.Task[None]] = field(default_factory=set)

    async def _review(self, call: Call, route: Route, answer: asyncio.Future[Any]) -> None:
        assert self.admit is not None
        self._answer(call, route, answer, self._process(call, await self.admit(call.request)))

    def _process(self, call: Call, response: Response) -> Response:
        for observer in self.observers:
            observer(call, response)
        return response

    def _answer(self, call: Call, route: Route, answer: asyncio.Future[Any], response: Response) -> None:
        loop = asyncio.get_running_loop()
        if call.is_write and (answer.done() or route.answer_lost or route.reset):
            self.unanswered.add(call.request.path)
        if response.watch is not None and (answer.done() or route.answer_lost or route.reset):
            self.server.end_watch(response.watch)
        if answer.done() or route.answer_lost:
            return
        result: Any
        if route.reset:
            result = aiohttp.ServerDisconnectedError
        elif response.watch is not None:
            result = EventStream(self, call, response.watch)
        else:
            result = MemoryResponse(response.status, self.encode_body(response.body), _headers(response))
        loop.call_later(route.back, _resolve, answer, result, context=_NOBODY.copy())

    def cut(self) -> None:
        """Break all watches."""
        for stream in list(self.streams):
            stream.fail(aiohttp.ClientOSError("the connection was reset"))

    # -- encoding ------------------------------------------------------------

    def encode(self, obj: Object) -> bytes:
        """Return *obj* as JSON; stored objects never change, so each is encoded once."""
        version = obj["metadata"].get("resourceVersion", "") if "metadata" in obj else ""
        key = id(obj), version
        encoded = self._encoded.get(key)
        if encoded is None or encoded[0] is not obj:
            encoded = obj, msgspec.json.encode(obj)
            if len(self._encoded) >= _ENCODED_OBJECTS:
                del self._encoded[next(iter(self._encoded))]
            self._encoded[key] = encoded
        return encoded[1]

    def encode_body(self, body: Object) -> bytes:
        """Return the body of a response as JSON."""
        if "items" in body:
            return msgspec.json.encode({**body, "items": [msgspec.Raw(self.encode(item)) for item in body["items"]]})
        return self.encode(body)


def _resolve(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        if isinstance(result, EventStream):
            result.release()
    elif isinstance(result, BaseException) or (isinstance(result, type) and issubclass(result, BaseException)):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _headers(response: Response) -> dict[str, str]:
    seconds = (response.body.get("details") or {}).get("retryAfterSeconds") if response.status >= 400 else None
    return {"Retry-After": str(seconds)} if seconds is not None else {}


class MemoryResponse:
    """The part of aiohttp's response that the product uses."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.reason = HTTPStatus(status).phrase
        self.ok = status < 400
        self.content = self
        self._body = body

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._body

    async def readany(self) -> bytes:
        body, self._body = self._body, b""
        return body

    def release(self) -> None:
        """Nothing is open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()


class EventStream(MemoryResponse):
    """The response to a watch; events arrive in order, later than they happen."""

    def __init__(self, network: Network, call: Call, watch: Watch) -> None:
        super().__init__(200, b"", {})
        self.call = call
        self.watch = watch
        self.silence: float = 0
        """Seconds without a byte after which the client closes the stream."""
        self.is_stalled = False
        """Whether nothing arrives any more, although the connection stays open."""
        self._network = network
        self._arrived: list[bytes] = []
        self._error: Exception | None = None
        self._ended = False
        self._last_arrival = 0.0
        self._reader: asyncio.Future[None] | None = None
        self._is_scheduled = False
        network.streams[self] = None
        loop = asyncio.get_running_loop()
        seconds = float(call.request.query.get("timeoutSeconds", WATCH_SECONDS))
        self._end = loop.call_later(seconds, self._end_regularly, context=_NOBODY.copy())
        watch.notify = self._notify
        self._notify()

    def _notify(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take, context=_NOBODY.copy())

    def _take(self) -> None:
        self._is_scheduled = False
        network, loop = self._network, asyncio.get_running_loop()
        events = [(event["type"], event["object"]) for event in self.watch.take()]
        for delay, (change, obj) in network.faults.on_events(self.call, self, events):
            line = b'{"type":"%s","object":%s}\n' % (change.encode(), network.encode(obj))
            self._send(loop, delay, line)
        if self.watch.ended:
            self._send(loop, 0, b"")

    def _send(self, loop: asyncio.AbstractEventLoop, delay: float, line: bytes) -> None:
        self._last_arrival = max(self._last_arrival, loop.time() + self._network.latency() + delay)
        loop.call_at(self._last_arrival, self._receive, line, context=_NOBODY.copy())

    def _receive(self, line: bytes) -> None:
        if self.is_stalled:
            return
        if line:
            self._arrived.append(line)
        else:
            self._ended = True
        self._wake()

    def _end_regularly(self) -> None:
        self._network.server.send_bookmarks(self.watch)
        self._network.server.end_watch(self.watch)

    def fail(self, error: Exception) -> None:
        """Break the connection."""
        self._error = error
        self.release()
        self._wake()

    def truncate(self) -> None:
        """Break the connection in the middle of a line."""
        self._arrived.append(b'{"type":"MODIF')
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def readany(self) -> bytes:
        """Return what has arrived, empty at the end."""
        loop = asyncio.get_running_loop()
        while not self._arrived:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._reader = loop.create_future()
            timer = loop.call_later(self.silence, _resolve, self._reader, aiohttp.SocketTimeoutError("silence"))
            try:
                await self._reader
            finally:
                timer.cancel()
        arrived, self._arrived = self._arrived, []
        return b"".join(arrived)

    def release(self) -> None:
        """Close the stream."""
        self._end.cancel()
        self.watch.notify = _ignore
        self._network.server.end_watch(self.watch)
        self._network.streams.pop(self, None)


def _ignore() -> None:
    return


class MemorySession:
    """Takes the place of ``aiohttp.ClientSession`` in the product's client."""

    def __init__(self, network: Network, client: str, user_agent: str) -> None:
        self._network = network
        self._client = client
        self._user_agent = user_agent

    async def request(
        self,
        method: str,
        url: URL,
        *,
        data: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 -- aiohttp's signature
        **_: Any,
    ) -> MemoryResponse:
        """Send one request and return its response, as aiohttp does."""
        loop = asyncio.get_running_loop()
        process = PROCESS.get()
        if process is not None and process.is_killed:
            raise aiohttp.ClientConnectorError(_KEY, ConnectionRefusedError("the process was killed"))
        request = Request(
            method,
            url.path,
            dict(url.query),
            data or b"",
            headers.get("Content-Type", "application/json"),
            "PartialObjectMetadataList" in headers.get("Accept", ""),
            self._user_agent,
        )
        answer: asyncio.Future[MemoryResponse] = loop.create_future()
        seconds = timeout.total or timeout.sock_read
        assert seconds is not None
        timer = loop.call_later(seconds, _resolve, answer, TimeoutError("no response"))
        try:
            self._network.send(Call(self._client, request), answer)
            response = await answer
        finally:
            timer.cancel()
            if not answer.done():
                answer.cancel()
        if isinstance(response, EventStream):
            response.silence = timeout.sock_read or WATCH_SECONDS
        return response
