"""Generates load at a constant rate and counts failed calls."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from controller.kube.client import Api
from controller.kube.errors import ApiError
from tests.webhook.installation import BINDINGS, fresh
from tests.webhook.reviews import job_binding, review, wire

GOOD = wire(review(job_binding()))


class Load:
    """Calls *one* at a constant rate until stopped."""

    def __init__(self, one: Callable[[], Awaitable[None]], *, per_second: float) -> None:
        self._one = one
        self._pause = 1 / per_second
        self.failures: Counter[str] = Counter()
        self.calls = 0

    @asynccontextmanager
    async def running(self):
        """Call in the background until the end of the block, and wait for running calls."""
        stop = asyncio.Event()
        loop = asyncio.create_task(self._run(stop))
        try:
            yield self
        finally:
            stop.set()
            await loop

    async def _run(self, stop: asyncio.Event) -> None:
        due = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                tasks.create_task(self._call())
                due += self._pause
                await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))

    async def _call(self) -> None:
        self.calls += 1
        try:
            await self._one()
        except (ApiError, OSError, aiohttp.ClientError, TimeoutError, AssertionError) as error:
            self.failures[f"{type(error).__name__}: {error}"[:300]] += 1


def creates(api: Api, unsuspended: list[str], *, query: str = "") -> Callable[[], Awaitable[None]]:
    """Return a call that creates a binding and records its name if it was stored unsuspended."""

    async def one() -> None:
        new = fresh(job_binding())
        raw = await api.create(f"{BINDINGS}{query}", msgspec.json.encode(new))
        stored = msgspec.json.decode(raw)
        if stored["spec"].get("suspension") != {"scheduling": True}:
            unsuspended.append(stored["metadata"]["name"])

    return one


def reviews(url: str, trusted: Callable[[], ssl.SSLContext]) -> Callable[[], Awaitable[None]]:
    """Return a call that posts a review over its own connection, trusting the current result of *trusted*."""

    async def one() -> None:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=10)) as client:
            headers = {"Content-Type": "application/json"}
            async with client.post(url, data=GOOD, headers=headers, ssl=trusted()) as answer:
                assert answer.status == 200
                assert (await answer.json())["response"]["allowed"]

    return one
