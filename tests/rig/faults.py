"""What can go wrong between controller and API server, one class for each way."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from tests.rig.proxy import Call, CutError, Fault, Lines

CallFilter = Callable[[Call], bool]
When = Literal["before", "after-unacknowledged", "after"]


def writes(call: Call) -> bool:
    """Choose the controller's writes."""
    return call.is_write


def leases(call: Call) -> bool:
    """Choose all that is about the lease."""
    return call.is_lease


def watches(call: Call) -> bool:
    """Choose every watch."""
    return call.is_watch


def everything(_: Call) -> bool:
    """Choose every call."""
    return True


def watch_of(resource: str) -> CallFilter:
    """Choose the watches of one kind."""
    return lambda call: call.is_watch and call.resource == resource


@dataclass
class CountedFault(Fault):
    """A fault of the chosen calls, so many times."""

    chosen: CallFilter
    times: float = float("inf")

    def strikes(self, call: Call) -> bool:
        """Say whether it is this one's turn, and count it if so."""
        if self.times <= 0 or not self.chosen(call):
            return False
        self.times -= 1
        return True


@dataclass
class ErrorReply(CountedFault):
    """The server's words, put into its mouth."""

    status: int = 500
    message: str = "put into the server's mouth"
    retry_after: int | None = None

    async def before(self, call: Call) -> web.Response | None:
        if not self.strikes(call):
            return None
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after is not None else {}
        body = {"kind": "Status", "apiVersion": "v1", "code": self.status, "message": self.message}
        return web.json_response(body, status=self.status, headers=headers)


@dataclass
class DropRequest(CountedFault):
    """It never gets there."""

    async def before(self, call: Call) -> None:
        if self.strikes(call):
            raise CutError


@dataclass
class DropReply(CountedFault):
    """It is done, and nobody is told."""

    async def after(self, call: Call) -> None:
        if self.strikes(call):
            raise CutError


@dataclass
class Hold(CountedFault):
    """It waits at the door until it is let in."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def before(self, call: Call) -> None:
        if self.strikes(call):
            self.arrived.set()
            await self.opened.wait()


@dataclass
class Delay(CountedFault):
    """It takes its time."""

    seconds: float = 0.2

    async def before(self, call: Call) -> None:
        if self.strikes(call):
            await asyncio.sleep(self.seconds)


@dataclass
class LimitBandwidth(Fault):
    """All answers together come no faster than *rate* bytes a second."""

    rate: float
    brought: int = 0
    _free_at: float = 0

    async def after(self, call: Call) -> None:
        await self._bring(call.size)

    async def events(self, call: Call, lines: Lines) -> Lines:
        async for line in lines:
            await self._bring(len(line))
            yield line

    async def _bring(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        self.brought += size
        self._free_at = max(self._free_at, now) + size / self.rate
        await asyncio.sleep(self._free_at - now)


@dataclass
class Kill(Fault):
    """The controller dies at its *n*-th write."""

    n: int
    when: When
    kill: Callable[[], object]
    struck: asyncio.Event = field(default_factory=asyncio.Event)

    def _strike(self, call: Call, when: When) -> None:
        if call.is_write and call.number == self.n and self.when == when and not self.struck.is_set():
            self.kill()
            self.struck.set()
            raise CutError

    async def before(self, call: Call) -> None:
        self._strike(call, "before")

    async def after(self, call: Call) -> None:
        self._strike(call, "after-unacknowledged")

    async def before_reply(self, call: Call) -> None:
        self._strike(call, "after")


Disturbance = Literal["drop", "duplicate", "delay", "reorder"]


@dataclass
class DisturbEvent(Fault):
    """One event of the watches of one kind comes to grief: the *n*-th, counted over all of them."""

    resource: str
    n: int
    how: Disturbance
    seconds: float = 0.3
    seen: int = 0

    async def events(self, call: Call, lines: Lines) -> Lines:
        if not call.is_watch or call.resource != self.resource:
            async for line in lines:
                yield line
            return
        async for line in lines:
            self.seen += not is_bookmark(line)
            if self.seen != self.n or is_bookmark(line):
                yield line
                continue
            async for spoiled in self._spoil(line, lines):
                yield spoiled

    async def _spoil(self, line: bytes, lines: Lines) -> Lines:
        if self.how == "drop":
            # It is lost with what follows until the connection breaks; then only a list tells what is.
            await asyncio.sleep(self.seconds)
            yield expired()
            raise CutError
        if self.how == "duplicate":
            yield line
            yield line
        elif self.how == "delay":
            await asyncio.sleep(self.seconds)
            yield line
        else:
            following = await _next(lines, self.seconds)
            for item in (following, line):
                if item:
                    yield item


@dataclass
class DropEvent(Fault):
    """The first event of a kind and a change never comes, and nobody is told so."""

    resource: str
    change: str
    lost: int = 0

    async def events(self, call: Call, lines: Lines) -> Lines:
        begins = f'{{"type":"{self.change}"'.encode()
        async for line in lines:
            if call.resource == self.resource and line.startswith(begins) and not self.lost:
                self.lost += 1
            else:
                yield line


@dataclass
class ScriptedWatch(Fault):
    """A watch of one kind says what it is told to say, and ends as it is told to, once each time it is armed."""

    resource: str
    wait_for_log: bytes = b""
    then: Literal["cut", "hang", "end", "go on"] = "cut"
    times: int = 1

    async def events(self, call: Call, lines: Lines) -> Lines:
        if call.resource == self.resource and self.times > 0:
            self.times -= 1
            yield self.wait_for_log
            if self.then == "cut":
                raise CutError
            if self.then == "hang":
                await asyncio.sleep(3600)
            if self.then == "end":
                return
        async for line in lines:
            yield line


def is_bookmark(line: bytes) -> bool:
    """Say whether *line* only tells how far the watch is."""
    return line.startswith(b'{"type":"BOOKMARK"')


def expired() -> bytes:
    """Return the event that ends a watch whose version is too old."""
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


async def _next(lines: Lines, seconds: float) -> bytes:
    """Return the next line, or nothing when none comes in time; an interrupted watch ends here."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(lines)
    except (TimeoutError, StopAsyncIteration):
        return b""
