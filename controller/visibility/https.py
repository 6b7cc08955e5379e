"""HTTPS server for requests of tenants and programs: every caller is reviewed, and everything that it sends is limited.

Connections, their silence, headers, requests in progress and requests of each user are limited, and a body is refused.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import structlog
from aiohttp import web

from controller.kube.access_reviews import Access, RefusedError, User, bearer_token, failure, unauthenticated
from controller.kube.errors import ApiError
from controller.kube.limited_server import LimitedServer
from controller.kube.serving_certificate import Certificate
from controller.kube.timing import RequestRates

_MAX_CONNECTIONS = 256
_MAX_IN_PROGRESS = 32
#: Time for a whole connection, besides that of a long answer: each answer closes its connection.
_CONNECTION_SECONDS = 30

_CLOSE = {"Connection": "close"}

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Endpoint:
    """Answers requests of users, each at most *per_second* of them and *burst* at once."""

    long_answer_seconds = 0.0
    """How long the longest answer takes; connections stay open for so much longer."""

    def __init__(
        self, access: Access, *, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.access = access
        self._rates = RequestRates(per_second, burst=burst, clock=clock)
        self._in_progress = 0

    async def answer(self, request: web.BaseRequest) -> object:
        """Return the body of the answer; raise `RefusedError`."""
        raise NotImplementedError

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one request."""
        if self._in_progress >= _MAX_IN_PROGRESS:
            return _error(429, "TooManyRequests", "too many requests are in progress; try again")
        self._in_progress += 1
        try:
            return _json(200, await self.answer(request))
        except RefusedError as error:
            return _error(error.status, error.reason, str(error))
        except (ApiError, msgspec.MsgspecError) as error:
            log.warning("caller not reviewed", error=str(error))
            return _error(503, "ServiceUnavailable", "the API server did not review the caller; try again")
        finally:
            self._in_progress -= 1

    async def user(self, token: str) -> User:
        """Return the user of *token* and count one request of it; raise `RefusedError`."""
        user = await self.access.user(token)
        if user is None:
            raise unauthenticated()
        if not self._rates.admits(user.username):
            raise RefusedError(429, "TooManyRequests", "you send too many requests; try again after a second")
        return user


def required_token(request: web.BaseRequest) -> str:
    """Return the token of *request*, which must not have a body; raise `RefusedError`."""
    token = bearer_token(request.headers.get("Authorization", ""))
    if not token:
        raise unauthenticated()
    if request.body_exists:
        raise RefusedError(400, "BadRequest", "the request must not have a body")
    return token


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json", headers=_CLOSE)


def _error(status: int, reason: str, message: str) -> web.Response:
    return _json(status, failure(status, reason, message))


@asynccontextmanager
async def serve_endpoint(
    endpoint: Endpoint, certificate: Certificate | None, *, host: str, port: int
) -> AsyncIterator[int]:
    """Serve *endpoint*; yield the port, which differs from *port* if that is 0."""
    server = LimitedServer(
        endpoint.handle,
        max_connections=_MAX_CONNECTIONS,
        header_seconds=_CONNECTION_SECONDS,
        lifetime_seconds=_CONNECTION_SECONDS + endpoint.long_answer_seconds,
    )
    await server.listen(host, port, certificate.context if certificate is not None else None)
    try:
        yield server.port
    finally:
        await server.close(seconds=1)
