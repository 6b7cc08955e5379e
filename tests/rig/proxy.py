"""What stands between a controller and its API server: it forwards everything, and spoils what it is told to.

TLS ends here, with a certificate of its own; who asks is told to the server as
it was told to us. Faults are values with a hook each way.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

_HOP = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding", "content-encoding", "date"}
_WRITES = {"POST", "PUT", "PATCH", "DELETE"}
_ENDING_SECONDS = 0.02
Lines = AsyncIterator[bytes]


class CutError(Exception):
    """The connection breaks off here."""


def _abort(transport: asyncio.Transport) -> None:
    # The TLS transport of early 3.11 forgets its connection when it is closed, and has nothing left to abort.
    with suppress(AttributeError):
        transport.abort()


@dataclass(slots=True)
class Call:
    """One request, and how many of its sort came before it."""

    method: str
    path: str
    query: str
    body: bytes
    number: int = 0
    """Its place among the writes that change the world, from 1."""
    size: int = 0
    """The length of the answer, once it is there."""

    @property
    def is_lease(self) -> bool:
        return "/leases" in self.path

    @property
    def is_event(self) -> bool:
        return "/events" in self.path

    @property
    def is_write(self) -> bool:
        """A lease and what tenants are told are no part of the world."""
        return self.method in _WRITES and not self.is_lease and not self.is_event

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.query

    @property
    def resource(self) -> str:
        """The plural that is asked for."""
        found = re.search(r"/(?:apis/[^/]+|api)/[^/]+/(?:namespaces/[^/]+/)?([^/]+)", self.path)
        return found.group(1) if found else ""

    @property
    def job(self) -> str:
        """The job whose binding it is about."""
        return self.path.rpartition("/")[2].removesuffix("-job")


class Fault:
    """What may go wrong with a call; each hook does nothing unless a fault of its own overrides it."""

    async def before(self, call: Call) -> web.Response | None:
        """Happen before the server hears of it: answer in its stead, wait, or raise ``CutError``."""

    async def after(self, call: Call) -> None:
        """Happen when the server has answered and nobody knows yet."""

    async def before_reply(self, call: Call) -> None:
        """Happen when the answer is on its way."""

    def events(self, call: Call, lines: Lines) -> Lines:
        """Return the lines of a watch as they shall come."""
        return lines


@dataclass(slots=True)
class Proxy:
    """A door to the API server at *target*."""

    target: str
    trust: ssl.SSLContext
    port: int = 0
    faults: list[Fault] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    writes: int = 0
    spoiled: bool = False
    """Whether there was ever any fault."""
    _open: set[asyncio.Transport] = field(default_factory=set)
    _session: aiohttp.ClientSession | None = None

    def add(self, fault: Fault) -> None:
        """Let *fault* be from now on."""
        self.faults.append(fault)
        self.spoiled = True

    def clear_faults(self) -> None:
        """End all faults."""
        self.faults.clear()

    def close_connections(self) -> None:
        """Break every connection off."""
        for transport in tuple(self._open):
            _abort(transport)

    def count(self, chosen: Callable[[Call], bool]) -> int:
        """Return how many calls of a sort there were."""
        return sum(map(chosen, self.calls))

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        call = self._call(request, await request.read())
        transport = request.transport
        if transport is None:
            raise CutError
        self._open.add(transport)
        try:
            return await self._pass(request, call)
        except (CutError, aiohttp.ClientError, OSError):
            _abort(transport)
            return web.Response()
        finally:
            self._open.discard(transport)

    def _call(self, request: web.Request, body: bytes) -> Call:
        call = Call(request.method, request.path, request.query_string, body)
        if call.is_write:
            self.writes += 1
            call.number = self.writes
        self.calls.append(call)
        return call

    async def _pass(self, request: web.Request, call: Call) -> web.StreamResponse:
        for fault in tuple(self.faults):
            answer = await fault.before(call)
            if answer is not None:
                return answer
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        assert self._session is not None
        url = f"{self.target}{request.raw_path}"
        async with self._session.request(
            call.method, url, data=call.body or None, headers=headers, ssl=self.trust
        ) as reply:
            if call.is_watch and reply.status == 200:
                return await self._stream(request, call, reply)
            return await self._whole(request, call, reply)

    async def _whole(self, request: web.Request, call: Call, reply: aiohttp.ClientResponse) -> web.StreamResponse:
        body = await reply.read()
        call.size = len(body)
        for fault in tuple(self.faults):
            await fault.after(call)
        headers = {name: value for name, value in reply.headers.items() if name.lower() not in _HOP}
        answer = web.Response(status=reply.status, body=body, headers=headers)
        await answer.prepare(request)
        await answer.write_eof()
        for fault in tuple(self.faults):
            await fault.before_reply(call)
        return answer

    async def _stream(self, request: web.Request, call: Call, reply: aiohttp.ClientResponse) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        lines: Lines = aiter(reply.content)
        for fault in tuple(self.faults):
            lines = fault.events(call, lines)
        async for line in lines:
            await answer.write(line)
        await answer.write_eof()
        return answer


@asynccontextmanager
async def open_proxy(target: str, *, ca: str, certificate: Path, key: Path) -> AsyncIterator[Proxy]:
    """Open a proxy on a free port while the block runs."""
    proxy = Proxy(target, ssl.create_default_context(cadata=ca))
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", proxy.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None)
    await runner.setup()
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.load_cert_chain(certificate, key)
    limitless = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=limitless, read_bufsize=2**24) as session:
        proxy._session = session
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=here)
        await site.start()
        proxy.port = runner.addresses[0][1]
        try:
            yield proxy
        finally:
            proxy.close_connections()
            await runner.cleanup()
            # A connection that was just being made is known to the loop alone, which has yet to see it end.
            await asyncio.sleep(_ENDING_SECONDS)


def proxied_kubeconfig(proxy: Proxy, kubeconfig: Path, *, ca: str, folder: Path) -> Path:
    """Return a copy of *kubeconfig* that leads to *proxy* and trusts it."""
    content = yaml.safe_load(kubeconfig.read_text())
    trusted = folder / f"proxy-{proxy.port}.ca"
    trusted.write_text(ca)
    content["clusters"][0]["cluster"] = {
        "server": f"https://127.0.0.1:{proxy.port}",
        "certificate-authority": str(trusted),
    }
    path = folder / f"proxy-{proxy.port}-{kubeconfig.name}"
    path.write_text(yaml.safe_dump(content))
    path.chmod(0o600)
    return path
