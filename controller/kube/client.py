"""Client of the Kubernetes API server: raw paths, raw JSON, a timeout on every request.

A request is sent once and either returns or raises an ``ApiError``. The one exception is a 401, or a certificate
that is not accepted, after the credentials were renewed, since it had no effect.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from controller.api.meta import Page, decode_deeply_nested
from controller.kube.errors import (
    ApiError,
    BodyTooLong,
    Unreachable,
    error_for,
    read_status,
)
from controller.kube.kubeconfig import ApiServerAccess, KubeconfigError, load_access

Parameters = Mapping[str, str]

NO_PARAMETERS: Parameters = MappingProxyType({})

#: An object may have 1.5 MiB in etcd and somewhat more as JSON.
MAX_BODY = 128 * 1024 * 1024
#: A larger page of several objects is requested again with half as many; 500 ordinary objects have about 5 MiB.
MAX_PAGE = 16 * 1024 * 1024
MAX_LINE = 16 * 1024 * 1024

_CHUNK = 256 * 1024

_pages = msgspec.json.Decoder(Page)
PatchKind = Literal["json", "merge"]
_METADATA: Parameters = MappingProxyType({"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of the parts of a request, in seconds."""

    connect: float = 5
    read: float = 30
    write: float = 10
    """The server's own limit for a write; the client waits ``grace`` longer for the response."""
    grace: float = 5
    page: float = 60
    """One page of a list, which may be many megabytes over a slow connection."""
    renewal: float = 5
    """Minimum interval between two reads of rejected credentials."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    timeout: aiohttp.ClientTimeout
    parameters: Parameters
    body: bytes | None = None
    headers: Parameters = field(default_factory=lambda: NO_PARAMETERS)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def url(self, server: str) -> URL:
        return URL(f"{server}{self.path}{_query(tuple(self.parameters.items()))}", encoded=True)


@lru_cache(maxsize=256)
def _query(parameters: tuple[tuple[str, str], ...]) -> str:
    """Return the query string; cached, because all writes have the same one."""
    return f"?{urlencode(parameters)}" if parameters else ""


def _content_type(content_type: str) -> Parameters:
    return MappingProxyType({"Content-Type": content_type})


_JSON = _content_type("application/json")
_APPLY = _content_type("application/apply-patch+yaml")
_PATCHES: Mapping[PatchKind, Parameters] = {
    "json": _content_type("application/json-patch+json"),
    "merge": _content_type("application/merge-patch+json"),
}


@dataclass(slots=True)
class Api:
    """A connection to one API server, created by ``connect``, for concurrent requests."""

    access: ApiServerAccess
    session: aiohttp.ClientSession
    kubeconfig: Path | None = None
    context: str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    page_limits: dict[str, int] = field(default_factory=dict)
    """Page sizes by path, where fewer objects than requested fit into `MAX_PAGE`."""
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _renewed_at: float = float("-inf")

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        kubeconfig: Path | None,
        *,
        context: str | None = None,
        user_agent: str = "volcano-global",
        connections: int = 64,
        timeouts: Timeouts | None = None,
    ) -> AsyncIterator[Self]:
        """Read the credentials and open a session; no request is sent.

        *connections* limits all requests in flight and all watches together. Raises ``KubeconfigError``.
        """
        access = await load_access(kubeconfig, context)
        async with aiohttp.ClientSession(
            # A Go server closes idle connections after 90 s; the client must close them first.
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Close to the server, compression costs more than it saves.
            headers={"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
            read_bufsize=_CHUNK,
            trust_env=False,
        ) as session:
            yield cls(access, session, kubeconfig, context, timeouts or Timeouts())

    async def get(self, path: str, parameters: Parameters = NO_PARAMETERS) -> bytes:
        """Return the object at *path*."""
        request = _Request("GET", path, self._within(self.timeouts.read), parameters)
        return _json_object(request, await self._call(request))

    async def list_page(
        self,
        path: str,
        parameters: Parameters = NO_PARAMETERS,
        *,
        limit: int = 500,
        token: str = "",
        metadata_only: bool = False,
    ) -> Page:
        """Return the first page of a list, or with *token* the page after it.

        A page has at most *limit* objects, and fewer if they are larger than `MAX_PAGE`: the server accepts a different
        limit with each continue token.
        """
        headers = _METADATA if metadata_only else NO_PARAMETERS
        key = f"{path} as metadata" if metadata_only else path
        while True:
            most = min(limit, self.page_limits.get(key, limit))
            asked = {**parameters, "limit": str(most)} | ({"continue": token} if token else {})
            request = _Request("GET", path, self._within(self.timeouts.page), asked, headers=headers)
            try:
                body = await self._call(request, longest=MAX_PAGE if most > 1 else MAX_BODY)
            except BodyTooLong:
                if most == 1:
                    raise
                self.page_limits[key] = most // 2
                continue
            break
        if most < limit and len(body) < MAX_PAGE // 4:
            self.page_limits[key] = 2 * most
        try:
            return decode_deeply_nested(_pages.decode, body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Unreachable(str(request), f"the response is not a list: {error}") from error

    async def list_items(
        self, path: str, parameters: Parameters = NO_PARAMETERS, *, limit: int = 500, metadata_only: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield each object of a list, read page by page; raises `Gone` if the list expires between two pages."""
        token = ""
        while True:
            page = await self.list_page(path, parameters, limit=limit, token=token, metadata_only=metadata_only)
            for item in page.items or ():
                yield bytes(item)
            token = page.metadata.continue_token
            if not token:
                return

    async def create(self, path: str, body: bytes, parameters: Parameters = NO_PARAMETERS) -> bytes:
        """Create the object *body* in the collection *path*; return the stored object."""
        return await self._write("POST", path, body, parameters=parameters, headers=_JSON)

    async def patch(
        self, path: str, body: bytes, *, kind: PatchKind = "json", parameters: Parameters = NO_PARAMETERS
    ) -> bytes:
        """Patch the object at *path*; return the stored object."""
        return await self._write("PATCH", path, body, parameters=parameters, headers=_PATCHES[kind])

    async def apply(self, path: str, body: bytes, *, field_manager: str, force: bool = True) -> bytes:
        """Apply *body* with server-side apply as *field_manager*; return the stored object."""
        parameters = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return await self._write("PATCH", path, body, parameters=parameters, headers=_APPLY)

    async def delete(self, path: str, body: bytes | None = None, parameters: Parameters = NO_PARAMETERS) -> bytes:
        """Delete the object or collection at *path*; *body* may hold DeleteOptions."""
        return await self._write("DELETE", path, body, parameters=parameters, headers=_JSON if body else NO_PARAMETERS)

    @asynccontextmanager
    async def stream(
        self, path: str, parameters: Parameters = NO_PARAMETERS, *, idle_timeout: float, max_line: int = MAX_LINE
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open *path* and yield its lines as they arrive.

        Raises ``Unreachable`` after *idle_timeout* seconds without a byte, at an end of the stream inside a line,
        and on a line longer than *max_line*.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=self.timeouts.connect, sock_read=idle_timeout)
        request = _Request("GET", path, timeout, parameters)
        answer = await self._answer(request)
        async with answer, aclosing(_read_lines(request, answer.content, max_line)) as lines:
            yield lines

    async def _write(
        self, method: str, path: str, body: bytes | None, *, parameters: Parameters, headers: Parameters
    ) -> bytes:
        connect = self.timeouts.connect
        # A write must reach the server soon or never: a former leader must not write later.
        within = aiohttp.ClientTimeout(self.timeouts.write + self.timeouts.grace, connect=connect, sock_connect=connect)
        limited = {**parameters, "timeout": f"{self.timeouts.write:g}s"}
        request = _Request(method, path, within, limited, body, headers)
        return _json_object(request, await self._call(request))

    def _within(self, seconds: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=seconds, sock_connect=self.timeouts.connect)

    async def _call(self, request: _Request, *, longest: int = MAX_BODY) -> bytes:
        async with await self._answer(request) as answer:
            return await _read_body(request, answer, longest)

    async def _answer(self, request: _Request) -> aiohttp.ClientResponse:
        """Return the open response to *request*, or raise the error that it reports."""
        access = self.access
        try:
            answer = await self._send(request, access)
        except Unreachable as error:
            is_untrusted = isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError)
            if not is_untrusted or not await self._renew(access):
                raise
            answer = await self._send(request, self.access)
        if answer.status == HTTPStatus.UNAUTHORIZED and await self._renew(access):
            answer.release()
            answer = await self._send(request, self.access)
        if answer.ok:
            return answer
        async with answer:
            raise _error_from(request, answer, await _read_body(request, answer, MAX_BODY))

    async def _send(self, request: _Request, access: ApiServerAccess) -> aiohttp.ClientResponse:
        credentials = {"Authorization": access.authorization} if access.authorization else {}
        with _raise_unreachable(request):
            return await self.session.request(
                request.method,
                request.url(access.server),
                data=request.body,
                headers={**request.headers, **credentials},
                timeout=request.timeout,
                ssl=access.tls or True,
                server_hostname=access.server_name,
                proxy=access.proxy,
                allow_redirects=False,
            )

    async def _renew(self, refused: ApiServerAccess) -> bool:
        """Read the credentials again, at a limited rate; return whether they differ from the *refused* ones."""
        async with self._renewing:
            if self.access is refused and time.monotonic() >= self._renewed_at + self.timeouts.renewal:
                self._renewed_at = time.monotonic()
                with suppress(KubeconfigError):
                    fresh = await load_access(self.kubeconfig, self.context)
                    self.access = refused if fresh.credentials == refused.credentials else fresh
        return self.access is not refused


@contextmanager
def _raise_unreachable(request: _Request) -> Iterator[None]:
    """Convert every connection failure into ``Unreachable``."""
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise Unreachable(str(request), f"cannot connect: {connection_problem(error)}", sent=False) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise Unreachable(str(request), "no connection in time", sent=False) from error
    except TimeoutError as error:
        raise Unreachable(str(request), "no response in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(str(request), f"the connection failed: {_transfer_problem(error)}") from error


def connection_problem(error: aiohttp.ClientConnectorError) -> str:
    """Return why no connection was made, without the representation of objects that the exception's text has."""
    cause = error.os_error
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name {error.host} cannot be resolved"
    certificate = getattr(error, "certificate_error", cause)
    if isinstance(certificate, ssl.SSLCertVerificationError):
        return f"the certificate of {error.host}:{error.port} is not accepted: {certificate.verify_message}"
    if isinstance(certificate, ssl.SSLError):
        return f"TLS with {error.host}:{error.port} failed: {certificate.reason or 'the protocols differ'}"
    why = os.strerror(cause.errno).lower() if cause.errno else "the server does not answer"
    return f"{error.host}:{error.port}: {why}"


def _transfer_problem(error: aiohttp.ClientError | OSError) -> str:
    """Return why a connection failed after it was made."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed it"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return "the response is incomplete" if isinstance(error, aiohttp.ClientPayloadError) else type(error).__name__


async def _read_body(request: _Request, answer: aiohttp.ClientResponse, longest: int) -> bytes:
    """Read the whole response body, at most *longest* bytes."""
    parts, size = [], 0
    with _raise_unreachable(request):
        async for part in answer.content.iter_any():
            size += len(part)
            if size > longest:
                raise BodyTooLong(str(request), f"the response is longer than {longest} bytes; request smaller pages")
            parts.append(part)
    return b"".join(parts)


def _json_object(request: _Request, body: bytes) -> bytes:
    """Return *body*; raise ``Unreachable`` if it is no JSON object, since a proxy may answer in place of the server."""
    if not body[:64].lstrip().startswith(b"{"):
        raise Unreachable(str(request), "the response is not a JSON object")
    return body


def _error_from(request: _Request, answer: aiohttp.ClientResponse, body: bytes) -> ApiError:
    status = read_status(body)
    header = answer.headers.get("Retry-After", "")
    return error_for(answer.status, status.message)(
        str(request),
        answer.status,
        status.message or answer.reason or "no reason given",
        retry_after=float(header) if header.isdecimal() else status.retry_after,
    )


async def _read_lines(request: _Request, content: aiohttp.StreamReader, max_line: int) -> AsyncGenerator[bytes, None]:
    rest = b""
    while True:
        with _raise_unreachable(request):
            chunk = await content.readany()
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > max_line:
            raise Unreachable(str(request), f"a line is longer than {max_line} bytes")
    if rest:
        raise Unreachable(str(request), "the stream ended in the middle of a line")
