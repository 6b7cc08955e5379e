"""Serves the pages, their data as JSON under `/api/v1/`, the login and the streams of live updates.

Requests are limited in rate, size and number of connections; every page and stream is for a reviewed user.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec
import structlog
from aiohttp import web

from console.identity import Identity
from console.pages import STATIC, render
from console.reader import Reader, RightsKey
from console.renders import PAGES, Page, Renders, Shared, event
from console.settings import ConsoleSettings
from console.views.listing import BadQueryError, ForbiddenError, NotVisibleError, Query
from controller.kube.access_reviews import RefusedError, User, failure
from controller.kube.errors import ApiError
from controller.kube.limited_server import LimitedServer
from controller.kube.serving_certificate import Certificate

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MAX_BODY = 64 << 10
#: Less than aiohttp's limit of a request line, and enough for a page's address within that of its stream.
_MAX_PATH = 8_000
_MAX_PARAMETERS = 20
#: A connection without a complete request is closed after this time, and an idle one after the other.
_FIRST_REQUEST_SECONDS, _KEEPALIVE_SECONDS = 10, 20
#: Rights of open streams are reviewed in this interval; with the lifetime of cached answers less than a minute.
_REVIEW_SECONDS = 15.0
#: Namespaces that a stream knows to be denied, so that a page that stays open for weeks does not collect all of them.
_MAX_DENIED = 1_000
_STREAM_WRITE_SECONDS = 10
#: Interval of trying again to update a page of a user whose rate is used up.
_BEHIND_SECONDS = 1.0
_STATIC_FILES: Mapping[str, Path] = {path.name: path for path in STATIC.iterdir()}
_GZIP_HEADER = bytes.fromhex("1f8b0800000000000003")
_IMMUTABLE = "private, max-age=31536000, immutable"

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`, with which browsers send forms without their origin.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_STATUSES: Mapping[type[Exception], tuple[int, str]] = {
    BadQueryError: (400, "BadRequest"),
    ForbiddenError: (403, "Forbidden"),
    NotVisibleError: (404, "NotFound"),
}

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ConsoleServer:
    """Answers requests."""

    def __init__(self, renders: Renders, identity: Identity, settings: ConsoleSettings) -> None:
        self._renders = renders
        self._identity = identity
        self._settings = settings
        self._streams: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._busy: set[asyncio.BaseProtocol] = set()
        """Connections with a running request, such as an open stream."""
        self._stopping = False
        self.app = web.Application(client_max_size=_MAX_BODY, middlewares=[self._guard])
        self.app.router.add_get("/login", self._login_page)
        self.app.router.add_post("/login", self._login)
        self.app.router.add_post("/logout", self._logout)
        self.app.router.add_get("/events", self._events, allow_head=False)
        self.app.router.add_get("/static/{file}", self._static)
        for page in PAGES.values():
            self.app.router.add_get(page.route, self._page(page, is_json=False))
            path = "/overview" if page.route == "/" else page.route
            self.app.router.add_get(f"/api/v1{path}", self._page(page, is_json=True))

    def on_update(self) -> None:
        """Send what has changed to the open streams."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def stop(self) -> None:
        """End the open streams."""
        self._stopping = True
        self.on_update()

    # -- every request -----------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Limit requests, turn errors into answers and set the security headers."""
        self._busy.add(request.protocol)
        try:
            return await self._answer(request, handler)
        finally:
            self._busy.discard(request.protocol)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._identity.check_host(request)
            self._identity.check_origin(request)
            self._identity.limit(request)
            if len(request.path_qs) > _MAX_PATH or len(request.query) > _MAX_PARAMETERS:
                raise RefusedError(414, "URITooLong", "the address is too long")
            response = await handler(request)
        except RefusedError as error:
            response = self._refusal(request, error)
        except web.HTTPException as error:
            response = self._error(request, error.status, error.reason.replace(" ", ""), error.reason)
        except (ApiError, msgspec.MsgspecError) as error:
            log.warning("caller not reviewed", error=str(error))
            response = self._error(request, 503, "ServiceUnavailable", "the API server did not review you; try again")
        except tuple(_STATUSES) as error:
            status, reason = next(answer for kind, answer in _STATUSES.items() if isinstance(error, kind))
            response = self._error(request, status, reason, str(error))
        except Exception as error:  # noqa: BLE001 -- the one outer guard: the answer must not have a trace in it
            log.error("request failed", path=request.path, error=repr(error))  # noqa: TRY400 -- one line suffices
            response = self._error(request, 500, "InternalError", "the console failed to answer; its log says why")
        if not response.prepared:
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    def _refusal(self, request: web.Request, error: RefusedError) -> web.Response:
        """Send a browser without a session to the login; answer everything else with the error."""
        wants_page = request.method == "GET" and not request.path.startswith(("/api/", "/events", "/static/"))
        if error.status == 401 and wants_page and not request.headers.get("Authorization"):  # noqa: PLR2004 -- HTTP
            return web.Response(status=303, headers={"Location": _login_path(request)})
        return self._error(request, error.status, error.reason, str(error))

    def _error(self, request: web.Request, status: int, reason: str, message: str) -> web.Response:
        headers = {"Connection": "close"} if status in {408, 413, 429} else {}
        if request.path.startswith(("/api/", "/events")):
            return _json(failure(status, reason, message), status=status, headers=headers)
        page = render("message.html", None, Query(), path="/", title=reason, message=message)
        return web.Response(text=page, status=status, content_type="text/html", headers=headers)

    # -- pages -------------------------------------------------------------------

    def _page(self, page: Page, *, is_json: bool) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            user = await self._identity.user(request)
            reader = await self._renders.rights.reader(user)
            query = Query(dict(request.match_info), dict(request.query))
            path = request.path.removeprefix("/api/v1") if is_json else request.path
            shared = await self._build(page, path, query, user, reader)
            if is_json:
                response = web.Response(body=shared.json, content_type="application/json")
            else:
                more = {"username": user.username, "can_leave": self._identity.has_session(request)}
                text = self._renders.html(page, path, query, shared.data, **more)
                response = web.Response(text=text, content_type="text/html")
            response.enable_compression()
            return response

        return handle

    async def _build(self, page: Page, path: str, query: Query, user: User, reader: Reader) -> Shared:
        """Return a page, and count its CPU time for the user."""
        reader.seconds = 0
        try:
            return await self._renders.page(page, path, query, user, reader)
        finally:
            self._identity.charge(user, reader.seconds)

    async def _static(self, request: web.Request) -> web.StreamResponse:
        path = _STATIC_FILES.get(request.match_info["file"])
        if path is None:
            raise NotVisibleError("there is no such file")
        versioned = "v" in request.query
        # Without compression, which adds a body to the answers that have none.
        return web.FileResponse(path, headers={"Cache-Control": _IMMUTABLE if versioned else "private, max-age=300"})

    # -- login -------------------------------------------------------------------

    async def _login_page(self, request: web.Request) -> web.StreamResponse:
        return self._login_form(_safe_path(request.query.get("next", "/")))

    def _login_form(self, following: str, problem: str = "", status: int = 200) -> web.Response:
        more = {"next": following, "problem": problem}
        page = render("login.html", None, Query(), path="/", title="Sign in", **more)
        return web.Response(text=page, status=status, content_type="text/html")

    async def _login(self, request: web.Request) -> web.StreamResponse:
        self._identity.check_origin(request, is_form=True)
        form = await self._form(request)
        token, following = str(form.get("token", "")).strip(), _safe_path(str(form.get("next", "/")))
        if await self._identity.user_of(token) is None:
            return self._login_form(following, "The token is not valid, or has expired.", 401)
        response = web.Response(status=303, headers={"Location": following})
        self._identity.begin(response, token)
        return response

    async def _form(self, request: web.Request) -> Mapping[str, object]:
        """Return the body of *request*; until it is complete, the connection may be closed for a new one."""
        if request.content_type != "application/x-www-form-urlencoded":
            raise RefusedError(415, "UnsupportedMediaType", "send a form as application/x-www-form-urlencoded")
        self._busy.discard(request.protocol)
        try:
            async with asyncio.timeout(_FIRST_REQUEST_SECONDS):
                return await request.post()
        except (TimeoutError, ConnectionError) as error:
            raise RefusedError(408, "RequestTimeout", "the request is not complete; try again") from error
        except (ValueError, LookupError, web.RequestPayloadError) as error:
            raise RefusedError(400, "BadRequest", "the form cannot be read") from error
        finally:
            self._busy.add(request.protocol)

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        self._identity.check_origin(request, is_form=True)
        response = web.Response(status=303, headers={"Location": "/login"})
        self._identity.end(response)
        return response

    # -- streams -----------------------------------------------------------------

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send a page again whenever it has changed, until the client leaves or a right ends."""
        user = await self._identity.user(request)
        try:
            target = urlsplit(request.query.get("path", "/"))
            values = dict(parse_qsl(target.query, max_num_fields=_MAX_PARAMETERS))
        except ValueError as error:
            raise BadQueryError("path is not the address of a page") from error
        match = self._resolve(target.path)
        query = Query(match[1], values)
        reader = await self._renders.rights.reader(user)
        shared = await self._build(match[0], target.path, query, user, reader)
        if self._streams.total() >= self._settings.max_streams:
            raise RefusedError(429, "TooManyRequests", "too many streams are open; reload the page instead")
        if self._streams[user.username] >= self._settings.max_streams_per_user:
            raise RefusedError(429, "TooManyRequests", "you have too many pages open; reload the page instead")
        self._streams[user.username] += 1
        try:
            return await self._stream(request, match[0], target.path, query, user, reader, shared)
        finally:
            self._streams[user.username] -= 1
            self._streams += Counter()

    async def _stream(  # noqa: PLR0913, PLR0917 -- what identifies the stream
        self, request: web.Request, page: Page, path: str, query: Query, user: User, reader: Reader, shared: Shared
    ) -> web.StreamResponse:
        headers = {
            **_HEADERS,
            "Content-Type": "text/event-stream",
            "Content-Encoding": "gzip",
            "X-Accel-Buffering": "no",
        }
        response = web.StreamResponse(headers=headers)
        with _closing_unread(request):
            await response.prepare(request)
            # The page may have changed since the browser has loaded it.
            await _send(response, _GZIP_HEADER + shared.event + self._renders.time_event)
            last, rendered, reviewed_at, is_behind = shared.main, self._renders.version, time.monotonic(), False
            while not self._stopping:
                if is_behind or self._renders.version == rendered:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_BEHIND_SECONDS if is_behind else _REVIEW_SECONDS):
                            await self._changed.wait()
                if time.monotonic() >= reviewed_at + _REVIEW_SECONDS:
                    fresh = await self._reviewed(request, reader)
                    if fresh is None:
                        break
                    reader, reviewed_at = fresh, time.monotonic()
                if self._renders.version == rendered:
                    continue
                # The other pages of the user may have used up its rate.
                is_behind = not self._identity.admits(user)
                if is_behind:
                    continue
                rendered = self._renders.version
                try:
                    shared = await self._build(page, path, query, user, reader)
                except (BadQueryError, ForbiddenError, NotVisibleError, RefusedError, ApiError):
                    break
                # The time comes after its page, which a browser may hold back.
                await _send(response, (shared.event if shared.main != last else b"") + self._renders.time_event)
                last = shared.main
            await _send(response, event("reload", "rights"))
        return response

    async def _reviewed(self, request: web.Request, reader: Reader) -> Reader | None:
        """Return the rights that the user of a stream has now; ``None`` if one of them has ended."""
        before = reader.key
        try:
            user = await self._identity.user(request)
            fresh = await self._renders.rights.reader(user)
            # What was denied stays denied until the page is loaded again: reviews of many open pages would be too many.
            denied = [name for name, allowed in reader.namespaces.items() if not allowed]
            fresh.namespaces = dict.fromkeys(denied[-_MAX_DENIED:], False)
            fresh.unknown.update((name, None) for name, allowed in reader.namespaces.items() if allowed)
            await self._renders.rights.review(user, fresh)
        except (RefusedError, ApiError, msgspec.MsgspecError):
            return None
        return fresh if has_all_of(fresh.key, before) else None

    def _resolve(self, path: str) -> tuple[Page, dict[str, str]]:
        """Return the page at *path* and the parameters in it; raise `NotVisibleError`."""
        for resource in self.app.router.resources():
            page = PAGES.get(resource.canonical)
            if page is not None and (parameters := resource._match(path)) is not None:  # type: ignore[attr-defined] # noqa: SLF001 -- the only way to match a path without a request
                return page, dict(parameters)
        raise NotVisibleError("there is no such page")

    # -- connections ---------------------------------------------------------------

    @asynccontextmanager
    async def serve(self, certificate: Certificate | None) -> AsyncIterator[int]:
        """Listen; yield the port, which differs from the configured one if that is 0."""
        self.app.freeze()
        server = LimitedServer(
            self.app._handle,  # type: ignore[arg-type] # noqa: SLF001 -- requests are those of the application
            new_request=partial(web.Request, client_max_size=_MAX_BODY),
            max_connections=self._settings.max_connections,
            header_seconds=_FIRST_REQUEST_SECONDS,
            is_busy=self._busy.__contains__,
            keepalive_timeout=_KEEPALIVE_SECONDS,
        )
        await server.listen(
            self._settings.host, self._settings.port, certificate.context if certificate is not None else None
        )
        try:
            yield server.port
        finally:
            self.stop()
            await server.close(seconds=1)


def has_all_of(rights: RightsKey, before: RightsKey) -> bool:
    """Return whether *rights* has everything that *before* has."""
    *flags, own = rights
    *known, owned = before
    sees_all = bool(flags[0])
    return all(now or not was for now, was in zip(flags, known, strict=True)) and (sees_all or owned <= own)


@contextmanager
def _closing_unread(request: web.Request) -> Iterator[None]:
    """Close the connection where its client has left, or does not read what is sent."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()


async def _send(response: web.StreamResponse, data: bytes) -> None:
    """Write to a stream; raise ``TimeoutError`` if the client does not read."""
    async with asyncio.timeout(_STREAM_WRITE_SECONDS):
        await response.write(data)


def _login_path(request: web.Request) -> str:
    return (
        str(request.rel_url.with_path("/login").with_query(next=request.path_qs))
        if request.path_qs != "/"
        else "/login"
    )


def _safe_path(text: str) -> str:
    """Return a path of the console, never the address of another site."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_own and text.isprintable() and len(text) <= _MAX_PATH else "/"


def _json(body: object, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json", headers=headers)
