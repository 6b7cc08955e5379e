"""Locates tables of Apache Amoro: asks its Iceberg REST catalog for the table's location, and maps that to clusters.

The server is not trusted: the answer is limited in size and time, redirects are not followed, and the location selects
only among the clusters of the settings.
"""

import asyncio
import random
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from controller.api.data_sources import DataSet
from controller.controllers.data_sources.plugins import LocateError, PluginOptions, map_location
from controller.kube.kubeconfig import client_context

NAME = "amoro"

#: Longest answer, in bytes: the metadata of a table with many snapshots are large.
_MAX_ANSWER = 8 << 20
_MAX_LOCATION = 2048
_NAME_PARTS = 3
_RETRIED = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})

Sleep = Callable[[float], Awaitable[None]]


class _Metadata(msgspec.Struct):
    location: str = ""


class _Table(msgspec.Struct):
    """The answer of the catalog; other fields are not read."""

    metadata: _Metadata


_TABLE = msgspec.json.Decoder(_Table)


class _Retry(Exception):  # noqa: N818 -- it is a request to repeat, with the error to report in the end
    def __init__(self, error: LocateError) -> None:
        self.error = error


class AmoroPlugin:
    """Asks one Amoro server; *session* returns the session of the process."""

    def __init__(
        self, options: PluginOptions, session: Callable[[], aiohttp.ClientSession], *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._options = options
        self._session = session
        self._sleep = sleep
        self._base = _base_url(options)
        self._headers = {"Accept": "application/json", **_credentials(options)}
        self._tls = _tls(options)

    async def locate(self, data_set: DataSet) -> tuple[str, ...]:
        """Return the clusters at the location of the table; its name is ``catalog.database.table``."""
        url = self._base / "api/iceberg/rest/v1/catalogs"
        url = URL(f"{url}/{_path(data_set.name)}", encoded=True)
        for attempt in range(self._options.retries + 1):
            try:
                return self._clusters_at(await self._location(url))
            except _Retry as retry:
                if attempt == self._options.retries:
                    raise retry.error from retry
                # Retries of several data sets spread over time.
                await self._sleep(self._options.backoff_seconds(attempt) * random.uniform(0.9, 1.1))  # noqa: S311 -- no secret
        raise AssertionError("the last attempt returns or raises")

    async def _location(self, url: URL) -> str:
        timeout = aiohttp.ClientTimeout(total=self._options.timeout_seconds)
        try:
            async with self._session().get(
                url, headers=self._headers, timeout=timeout, ssl=self._tls, allow_redirects=False
            ) as answer:
                _check_status(answer.status)
                body = await _read_body(answer)
        except TimeoutError as error:
            seconds = self._options.timeout_seconds
            raise _Retry(LocateError(f"Amoro did not answer within {seconds:g} s", reason="TimedOut")) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Retry(LocateError("Amoro cannot be reached", reason="Unreachable")) from error
        try:
            return _TABLE.decode(body).metadata.location
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise LocateError("the answer of Amoro cannot be read", reason="InvalidAnswer") from error

    def _clusters_at(self, location: str) -> tuple[str, ...]:
        """Return the clusters at *location*, which the server says."""
        if not 0 < len(location) <= _MAX_LOCATION or not location.isprintable():
            raise LocateError("the answer of Amoro has no valid location", reason="InvalidAnswer")
        if {".", ".."} & set(location.split("/")):
            raise LocateError("the answer of Amoro has no valid location", reason="InvalidAnswer")
        clusters = map_location(self._options.location_mapping, location)
        if not clusters:
            raise LocateError("its location is not mapped to a cluster", reason="LocationNotMapped", is_final=True)
        return clusters


def _path(name: str) -> str:
    """Return the path of a table below the catalogs; raise `LocateError` for an invalid name."""
    parts = name.split(".")
    if len(parts) != _NAME_PARTS or not all(parts):
        raise LocateError("the name of an Amoro table is catalog.database.table", reason="InvalidName", is_final=True)
    catalog, database, table = (quote(part, safe="") for part in parts)
    return f"{catalog}/namespaces/{database}/tables/{table}"


def _check_status(status: int) -> None:
    if status == HTTPStatus.OK:
        return
    if status == HTTPStatus.NOT_FOUND:
        raise LocateError("Amoro has no table of this name", reason="NotFound", is_final=True)
    error = LocateError(f"Amoro answered with HTTP status {status}", reason="Refused")
    raise _Retry(error) if status in _RETRIED or status >= HTTPStatus.INTERNAL_SERVER_ERROR else error


async def _read_body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > _MAX_ANSWER:
            raise LocateError("the answer of Amoro is too long", reason="InvalidAnswer")
    return bytes(body)


def _base_url(options: PluginOptions) -> URL:
    url = URL(options.endpoint.url)
    if not url.host or url.user or url.query_string or url.fragment:
        raise ValueError("endpoint.url is not an address; write for example https://amoro.example.com")
    return url.with_port(options.endpoint.port) if options.endpoint.port else url


def _credentials(options: PluginOptions) -> dict[str, str]:
    auth = options.endpoint.auth
    match auth.type.lower():
        case "" | "none":
            return {}
        case "basic" if auth.username and auth.password:
            return {"Authorization": f"Basic {b64encode(f'{auth.username}:{auth.password}'.encode()).decode()}"}
        case "bearer" | "token" if auth.token:
            return {"Authorization": f"Bearer {auth.token}"}
        case "apikey" if auth.token:
            return {auth.extra.get("header", "X-API-Key"): auth.token}
    raise ValueError("endpoint.auth: write type basic with username and password, or bearer or apikey with token")


def _tls(options: PluginOptions) -> ssl.SSLContext | bool:
    """Return how the server's certificate is verified."""
    tls = options.endpoint.tls
    if tls.insecure_skip_verify:
        return False
    if not tls.ca_file and not tls.cert_file:
        return True
    context = client_context(file=tls.ca_file)
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
    return context
