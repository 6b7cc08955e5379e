"""Faults between controller and API server, one class each."""

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
    """Match the controller's writes."""
    return call.is_write


def leases(call: Call) -> bool:
    """Match all requests for leases."""
    return call.is_lease


def watches(call: Call) -> bool:
    """Match all watches."""
    return call.is_watch


def everything(_: Call) -> bool:
    """Match all requests."""
    return True


@dataclass
class CountedFault(Fault):
    """Fault that strikes a limited number of matching requests."""

    chosen: CallFilter
    times: float = float("inf")

    def strikes(self, call: Call) -> bool:
        """Return whether the fault strikes *call*, and count it."""
        if self.times <= 0 or not self.chosen(call):
            return False
        self.times -= 1
        return True


@dataclass
class ErrorReply(CountedFault):
    """Replies with an error instead of forwarding the request."""

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
    """Drops the request."""

    async def before(self, call: Call) -> None:
        if self.strikes(call):
            raise CutError


@dataclass
class DropReply(CountedFault):
    """Executes the request and drops the reply."""

    async def after(self, call: Call) -> None:
        if self.strikes(call):
            raise CutError


@dataclass
class Hold(CountedFault):
    """Holds the request until it is released."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def before(self, call: Call) -> None:
        if self.strikes(call):
            self.arrived.set()
            await self.opened.wait()


@dataclass
class Delay(CountedFault):
    """Delays the request."""

    seconds: float = 0.2

    async def before(self, call: Call) -> None:
        if self.strikes(call):
            await asyncio.sleep(self.seconds)


@dataclass
class LimitBandwidth(Fault):
    """Limits all replies together to *rate* bytes per second."""

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
    """Kills the controller at its *n*-th write."""

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
    """Disturbs the *n*-th watch event of one kind, counted over all its watches."""

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
            # Lost with all later events until the connection breaks; then only a list shows the state.
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
    """Silently drops the first event with a given kind and change."""

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
    """Sends given lines in a watch of one kind and ends it, once for each time it is armed."""

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
    """Return whether *line* is a bookmark."""
    return line.startswith(b'{"type":"BOOKMARK"')


def expired() -> bytes:
    """Return the event that ends a watch with an expired version."""
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


async def _next(lines: Lines, seconds: float) -> bytes:
    """Return the next line, or ``None`` after the timeout; an interrupted watch ends here."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(lines)
    except (TimeoutError, StopAsyncIteration):
        return b""
