"""Closed-loop load generator: each caller sends a review, waits for the answer, and sends the next."""

import asyncio
import ssl
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Caller(asyncio.Protocol):
    """A connection that always has one request in flight."""

    request: bytes
    ends: float
    seconds: list[float] = field(default_factory=list)
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _transport: asyncio.Transport | None = None
    _answer: bytearray = field(default_factory=bytearray)
    _sent: float = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first review."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        """Send the next review after an answer."""
        self._answer += data
        head, separator, rest = self._answer.partition(b"\r\n\r\n")
        if not separator or len(rest) < _length(head):
            return
        now = time.perf_counter()
        assert head.startswith(b"HTTP/1.1 200 "), bytes(head)
        self.seconds.append(now - self._sent)
        self._answer.clear()
        if now < self.ends:
            self._send()
        else:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if answers are still expected."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("closed before the end"))

    def _send(self) -> None:
        assert self._transport
        self._sent = time.perf_counter()
        self._transport.write(self.request)

    def _end(self) -> None:
        assert self._transport
        self.done.set_result(None)
        self._transport.close()


async def call(port: int, trust: ssl.SSLContext, request: bytes, *, callers: int, seconds: float) -> list[float]:
    """Return the duration of each answer."""
    loop = asyncio.get_running_loop()
    ends = time.perf_counter() + seconds
    started = [
        await loop.create_connection(
            lambda: Caller(request, ends), "127.0.0.1", port, ssl=trust, server_hostname="localhost"
        )
        for _ in range(callers)
    ]
    await asyncio.gather(*(caller.done for _, caller in started))
    return [taken for _, caller in started for taken in caller.seconds]


def post(path: str, body: bytes) -> bytes:
    """Return the bytes of a request as an API server sends it."""
    head = (
        f"POST {path}?timeout=5s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def _length(head: bytearray) -> int:
    for line in bytes(head).split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
