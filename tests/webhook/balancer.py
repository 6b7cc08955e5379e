"""Balances TCP connections over ready webhook replicas, like a Service."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from tests.webhook.process import WebhookProcess

_POLL_SECONDS = 0.05
_CHUNK = 1 << 16


class Balancer:
    """Runs in its own thread; `replicas` may change at any time."""

    def __init__(self) -> None:
        self.replicas: list[WebhookProcess] = []
        self.refused = 0
        self._ready: list[int] = []
        self._turn = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port: int = self._call(self._start())

    def close(self) -> None:
        """Close all connections."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._polling = asyncio.create_task(self._poll())
        return self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        tasks = [self._polling, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self) -> None:
        timeout = aiohttp.ClientTimeout(total=1)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            while True:
                self._ready = [
                    replica.port for replica in list(self.replicas) if await _is_ready(client, replica.plain_port)
                ]
                await asyncio.sleep(_POLL_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._ready:
            self.refused += 1
            writer.close()
            return
        port = self._ready[next(self._turn) % len(self._ready)]
        with contextlib.suppress(OSError):
            behind = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer), contextlib.closing(behind[1]):
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pipe(reader, behind[1].write, behind[1]))
                    both.create_task(_pipe(behind[0], writer.write, writer))


async def _pipe(reader: asyncio.StreamReader, write: Callable[[bytes], None], writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def _is_ready(client: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with client.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
