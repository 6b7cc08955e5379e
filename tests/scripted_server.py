"""An API server in memory with scripted answers, for responses that a real one cannot be made to give."""

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class ScriptedServer:
    """Gives the answers of each verb and path in order; the last answer repeats."""

    port: int = 0
    requests: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=lambda: defaultdict(list))

    def says(self, verb: str, path: str, *answers: Answer) -> None:
        self.answers[verb, path] = list(answers)

    def seen(self, verb: str) -> list[Mapping[str, str]]:
        """Return the query parameters of all requests of one verb."""
        return [parameters for seen, _, parameters in self.requests if seen == verb]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        verb = "WATCH" if "watch" in request.query else request.method
        self.requests.append((verb, request.path, dict(request.query)))
        self.bodies.append(await request.read())
        answers = self.answers[verb, request.path]
        return await (answers.pop(0) if len(answers) > 1 else answers[0])(request)

    def kubeconfig(self, path: Path) -> Path:
        names = {"cluster": "scripted", "user": "scripted"}
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "scripted",
                    "contexts": [{"name": "scripted", "context": names}],
                    "clusters": [{"name": "scripted", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                    "users": [{"name": "scripted", "user": {"token": "t0"}}],
                }
            )
        )
        return path


@asynccontextmanager
async def scripted_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


def thing(name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version)}, **more}


def listing(*objects: dict[str, Any], version: int, token: str = "") -> Answer:
    body = {"metadata": {"resourceVersion": str(version), "continue": token}, "items": objects}
    return answering(200, body)


def paging(*objects: dict[str, Any], version: int, expires_at: int = -1) -> Answer:
    """Return pages of *objects* of the requested limit; one continue token has expired, once."""
    expired = [expires_at]

    async def answer(request: web.Request) -> web.StreamResponse:
        begin, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        if begin == expired[0]:
            expired.clear()
            expired.append(-1)
            return await refusing(410, "the provided continue parameter is too old")(request)
        end = begin + limit
        token = str(end) if end < len(objects) else ""
        return await listing(*objects[begin:end], version=version, token=token)(request)

    return answer


def answering(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def refusing(status: int, message: str = "no", *, retry_after: float | None = None) -> Answer:
    details = {"retryAfterSeconds": retry_after} if retry_after else {}
    return answering(status, {"kind": "Status", "code": status, "message": message, "details": details})


async def silent(_: web.Request) -> web.StreamResponse:
    """Send no answer."""
    await asyncio.sleep(10)
    return web.Response()


async def cut(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    if request.transport:
        request.transport.abort()
    return await silent(request)


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def watching(*lines: bytes, then: str = "end") -> Answer:
    """Send *lines*, then ``end`` the stream, ``hang`` without an event, or ``cut`` the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        if then == "hang":
            await asyncio.sleep(60)
        if then == "cut" and request.transport:
            request.transport.abort()
        return response

    return answer
