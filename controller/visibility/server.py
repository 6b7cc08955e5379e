"""Serves the workloads of a namespace to its readers over HTTPS; only the leader answers, others say so.

Callers are tenants: connections, their silence, headers, requests in progress and requests of each user are limited, a
body is refused, and answers have a bounded number of workloads.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from controller.api.visibility import VisibleWorkloads, namespace_path
from controller.engine.engine import Engine
from controller.kube.access_reviews import Access, RefusedError, bearer_token, failure, unauthenticated
from controller.kube.errors import ApiError
from controller.kube.serving_certificate import Certificate, abort
from controller.kube.timing import RequestRates
from controller.visibility.report import describe, queues_of, workloads_of
from controller.visibility.scan import Scanner

#: Workloads in one answer.
MAX_ITEMS = 500

_MAX_CONNECTIONS = 256
_MAX_IN_PROGRESS = 32
#: Requests of one user: so many a second, and so many at once.
_REQUESTS_PER_SECOND, _BURST = 5.0, 10.0
_HANDSHAKE_SECONDS = 5
#: Time for a whole connection: each answer closes its connection.
_CONNECTION_SECONDS = 30
#: Workloads that are described without a pause for decisions.
_SLICE = 10

_PATH = re.compile(namespace_path(r"(?P<namespace>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)"))
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")

_CLOSE = {"Connection": "close"}

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Visibility:
    """Answers requests."""

    def __init__(
        self,
        access: Access,
        state: Callable[[], Engine],
        *,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._state = state
        self._leads = leads
        self._scanner = Scanner(clock)
        self._rates = RequestRates(_REQUESTS_PER_SECOND, burst=_BURST, clock=clock)
        self._in_progress = 0

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one request."""
        if self._in_progress >= _MAX_IN_PROGRESS:
            return _error(429, "TooManyRequests", "too many requests are in progress; try again")
        self._in_progress += 1
        try:
            return await self._answer(request)
        except RefusedError as error:
            return _error(error.status, error.reason, str(error))
        except (ApiError, msgspec.MsgspecError) as error:
            log.warning("caller not reviewed", error=str(error))
            return _error(503, "ServiceUnavailable", "the API server did not review the caller; try again")
        finally:
            self._in_progress -= 1

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        token, namespace, kind, name = _parse(request)
        user = await self._access.user(token)
        if user is None:
            raise unauthenticated()
        if not self._rates.admits(user.username):
            raise RefusedError(429, "TooManyRequests", "you send too many requests; try again after a second")
        await self._access.require(token, namespace, "get" if name else "list")
        state = self._state()
        if not self._leads() or state.queue_shares is None:
            text = (
                "this replica is not the leader, or has made no plan yet; try again: each connection may reach another"
            )
            raise RefusedError(503, "ServiceUnavailable", text)
        scan = await self._scanner.scan(state)
        chosen = workloads_of(state, scan.workloads.get(namespace, ()), kind=kind, name=name)
        items = []
        for number, workload in enumerate(chosen[:MAX_ITEMS]):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            if state.workloads.get(workload.uid) is workload:
                items.append(describe(state, workload))
        items.sort(key=lambda item: (item.position is None, item.queue, item.position or 0, item.name))
        remaining = max(len(chosen) - MAX_ITEMS, 0)
        parts = scan.parts.get(namespace, {})
        shown = {item.queue for item in items} if name else set(parts)
        queues = queues_of(state, {queue: part for queue, part in parts.items() if queue in shown})
        return _json(200, VisibleWorkloads(namespace, tuple(items), remaining, tuple(queues)))


def _parse(request: web.BaseRequest) -> tuple[str, str, str, str]:
    """Return token, namespace, kind and name of a request; raise `RefusedError`."""
    path = _PATH.fullmatch(request.path)
    if path is None or request.method != "GET":
        raise RefusedError(404, "NotFound", f"only GET {namespace_path('NAMESPACE')} is served")
    kind, name = request.query.get("kind", ""), request.query.get("name", "")
    token = bearer_token(request.headers.get("Authorization", ""))
    if not token:
        raise unauthenticated()
    if (name and not _NAME.fullmatch(name)) or (kind and not _KIND.fullmatch(kind)):
        raise RefusedError(400, "BadRequest", "the name or the kind is not valid; write a kind like Job")
    if request.body_exists:
        raise RefusedError(400, "BadRequest", "the request must not have a body")
    return token, path["namespace"], kind, name


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json", headers=_CLOSE)


def _error(status: int, reason: str, message: str) -> web.Response:
    return _json(status, failure(status, reason, message))


class _LimitedServer(web.Server):
    """aiohttp's server with a limited number and duration of connections."""

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Close the connection at once if there are too many, and otherwise after its time."""
        super().connection_made(handler, transport)
        if len(self.connections) > _MAX_CONNECTIONS:
            abort(transport)
        else:
            asyncio.get_running_loop().call_later(_CONNECTION_SECONDS, abort, transport)


@asynccontextmanager
async def serve_visibility(
    visibility: Visibility, certificate: Certificate, *, host: str, port: int
) -> AsyncIterator[int]:
    """Serve *visibility*; yield the port, which differs from *port* if that is 0."""
    server = _LimitedServer(visibility.handle, access_log=None, auto_decompress=False)
    sockets = await asyncio.get_running_loop().create_server(
        server, host, port, ssl=certificate.context, ssl_handshake_timeout=_HANDSHAKE_SECONDS
    )
    try:
        yield int(sockets.sockets[0].getsockname()[1])
    finally:
        sockets.close()
        server.pre_shutdown()
        await server.shutdown(1)
