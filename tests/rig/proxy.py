"""Proxy between a controller and its API server that forwards all requests and injects faults.

It terminates TLS with its own certificate and forwards the client's credentials. Faults have hooks for each
direction.
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
    """The proxy breaks the connection here."""


def _abort(transport: asyncio.Transport) -> None:
    # In early 3.11 a closed TLS transport has no connection left to abort.
    with suppress(AttributeError):
        transport.abort()


@dataclass(slots=True)
class Call:
    """Request with its position among similar ones."""

    method: str
    path: str
    query: str
    body: bytes
    number: int = 0
    """Position among the writes, from 1; leases and events do not count."""

    @property
    def is_lease(self) -> bool:
        return "/leases" in self.path

    @property
    def is_event(self) -> bool:
        return "/events" in self.path

    @property
    def is_status(self) -> bool:
        """Return whether it writes the status of a job or a queue, which no decision depends on."""
        return self.resource in {"jobs", "queues"} and self.path.endswith("/status")

    @property
    def is_write(self) -> bool:
        """Return whether it writes anything that decisions depend on: no lease, event, status or ConfigMap."""
        is_other = self.is_lease or self.is_event or self.is_status or self.resource == "configmaps"
        return self.method in _WRITES and not is_other

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.query

    @property
    def resource(self) -> str:
        """Plural of the requested resource."""
        match = re.search(r"/(?:apis/[^/]+|api)/[^/]+/(?:namespaces/[^/]+/)?([^/]+)", self.path)
        return match.group(1) if match else ""

    @property
    def job(self) -> str:
        """Name of the job whose binding is requested."""
        return self.path.rpartition("/")[2].removesuffix("-job")


class Fault:
    """Fault of a call; hooks do nothing by default."""

    async def before(self, call: Call) -> web.Response | None:
        """Run before the request is forwarded: reply, wait, or raise ``CutError``."""

    async def after(self, call: Call) -> None:
        """Run after the server has responded, before the client sees the response."""

    async def before_reply(self, call: Call) -> None:
        """Run while the response is sent."""

    def events(self, call: Call, lines: Lines) -> Lines:
        """Return the watch lines to send."""
        return lines


@dataclass(slots=True)
class Proxy:
    """Proxy for the API server at *target*."""

    target: str
    trust: ssl.SSLContext
    port: int = 0
    faults: list[Fault] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    writes: int = 0
    spoiled: bool = False
    """Whether any fault was ever added."""
    _open: set[asyncio.Transport] = field(default_factory=set)
    _session: aiohttp.ClientSession | None = None

    def add(self, fault: Fault) -> None:
        """Inject *fault* from now on."""
        self.faults.append(fault)
        self.spoiled = True

    def clear_faults(self) -> None:
        """Remove all faults."""
        self.faults.clear()

    def close_connections(self) -> None:
        """Close all connections."""
        for transport in tuple(self._open):
            _abort(transport)

    def count(self, chosen: Callable[[Call], bool]) -> int:
        """Return the number of matching calls."""
        return sum(map(chosen, self.calls))

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one request."""
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
            # Only the event loop knows connections that are being established; it must see them end.
            await asyncio.sleep(_ENDING_SECONDS)


def proxied_kubeconfig(proxy: Proxy, kubeconfig: Path, *, ca: str, folder: Path) -> Path:
    """Return a copy of *kubeconfig* that uses and trusts *proxy*."""
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
