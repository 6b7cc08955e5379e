"""Faults between controller and API server, one class each."""

import asyncio
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


def watches(call: Call) -> bool:
    """Match all watches."""
    return call.is_watch


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
    """Sends given lines in the first watch of one kind, and cuts its connection or falls silent."""

    resource: str
    lines: bytes = b""
    then: Literal["cut", "hang"] = "cut"
    struck: bool = False

    async def events(self, call: Call, lines: Lines) -> Lines:
        if call.resource == self.resource and not self.struck:
            self.struck = True
            yield self.lines
            if self.then == "cut":
                raise CutError
            await asyncio.sleep(3600)
        async for line in lines:
            yield line
