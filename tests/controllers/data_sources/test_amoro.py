"""The plugin for Amoro against an HTTP server that answers, is slow, fails and lies."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.api.data_sources import DataSet
from controller.controllers.data_sources.amoro import AmoroPlugin
from controller.controllers.data_sources.plugins import LocateError, duration_seconds, map_location, read_options

TABLE = DataSet("amoro", "table", "prod.db.user")
MAPPING = {"s3://east/": ["m2", "m1"], "s3://east/db2/": ["m3"]}
HANGING = 30


class Amoro:
    """A catalog with one table, which a test makes answer otherwise."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.answers: list[Any] = []
        """Answers of the next requests: a status, a body, or a function; then the table."""
        self.location: Any = "s3://east/db/user"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else {"metadata": {"location": self.location}, "config": {}}
        if isinstance(answer, int):
            return web.Response(status=answer, text="secret details", headers={"Location": "/elsewhere"})
        if callable(answer):
            return await answer(request)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=body, content_type="application/json")


@pytest.fixture
async def amoro() -> Amoro:
    return Amoro()


@pytest.fixture
async def locate(amoro: Amoro) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Yield a function that locates a table with the given settings, and returns the clusters or the error."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", amoro.handle)
    server = TestServer(application)
    await server.start_server()

    async def sleep(_: float) -> None:
        return

    async with aiohttp.ClientSession() as session:

        async def locate(data_set: DataSet = TABLE, *, endpoint: Any = None, retry: Any = None) -> Any:
            settings = {
                "system": "amoro",
                "endpoint": {"url": f"http://{server.host}", "port": server.port} | (endpoint or {}),
                "locationMapping": MAPPING,
                "retryConfig": {"maxRetries": 2, "timeout": "5s"} | (retry or {}),
            }
            plugin = AmoroPlugin(read_options(json.dumps(settings)), lambda: session, sleep=sleep)
            try:
                return await plugin.locate(data_set)
            except LocateError as error:
                return error

        yield locate
    await server.close()


async def test_location_is_mapped_to_clusters_by_its_longest_prefix(amoro, locate):
    assert await locate() == ("m1", "m2")
    (request,) = amoro.requests
    assert request.path == "/api/iceberg/rest/v1/catalogs/prod/namespaces/db/tables/user"
    amoro.location = "s3://east/db2/user"
    assert await locate() == ("m3",)
    assert map_location({}, amoro.location) == ()


async def test_failures_are_retried_a_limited_number_of_times(amoro, locate):
    amoro.answers = [503, 429]
    assert await locate() == ("m1", "m2")
    amoro.requests.clear()
    amoro.answers = [500] * 9
    assert (await locate()).reason == "Refused"
    assert len(amoro.requests) == 3


@pytest.mark.parametrize(
    ("answer", "reason", "is_final"),
    [
        pytest.param(404, "NotFound", True, id="no-table"),
        pytest.param(403, "Refused", False, id="forbidden"),
        pytest.param(302, "Refused", False, id="redirect-is-not-followed"),
        pytest.param({"metadata": {"location": "s3://west/x"}}, "LocationNotMapped", True, id="unmapped"),
        pytest.param({"metadata": {"location": 7}}, "InvalidAnswer", False, id="type"),
        pytest.param({"metadata": {"location": "s3://east/../west"}}, "InvalidAnswer", False, id="parent-folder"),
        pytest.param({"metadata": {"location": "s3://east/\nx"}}, "InvalidAnswer", False, id="control-character"),
        pytest.param({"metadata": {"location": "s3://east/" + "x" * 5000}}, "InvalidAnswer", False, id="long"),
        pytest.param({"metadata": {}}, "InvalidAnswer", False, id="no-location"),
        pytest.param({}, "InvalidAnswer", False, id="no-metadata"),
        pytest.param(b"<html>", "InvalidAnswer", False, id="no-json"),
        pytest.param(b"[" * 100_000, "InvalidAnswer", False, id="nested"),
        pytest.param(b'{"metadata": {"location": "\xff"}}', "InvalidAnswer", False, id="not-utf-8"),
        pytest.param(b" " * (9 << 20), "InvalidAnswer", False, id="too-long"),
    ],
)
async def test_hostile_answer_is_an_error_without_details(amoro, locate, answer, reason, is_final):
    amoro.answers = [answer] * 3
    error = await locate()
    assert (error.reason, error.is_final) == (reason, is_final)
    assert not any(detail in str(error) for detail in ("secret", "s3:", "m1", "127.0.0.1"))


async def test_slow_and_unreachable_servers_are_given_up(amoro, locate):
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(HANGING)
        return web.Response()

    amoro.answers = [hang] * 3
    assert (await locate(retry={"maxRetries": 1, "timeout": "200ms"})).reason == "TimedOut"
    assert (await locate(endpoint={"port": 1})).reason == "Unreachable"


@pytest.mark.parametrize("name", ["user", "db.user", "a.b.c.d", "..", "prod..user", "a.b."])
async def test_invalid_table_name_is_not_requested(amoro, locate, name):
    error = await locate(DataSet("amoro", "table", name))
    assert (error.reason, amoro.requests) == ("InvalidName", [])


async def test_name_cannot_leave_the_path_of_tables(amoro, locate):
    assert await locate(DataSet("amoro", "table", "a/b?c#.x%2f.y z")) == ("m1", "m2")
    (request,) = amoro.requests
    assert request.raw_path == "/api/iceberg/rest/v1/catalogs/a%2Fb%3Fc%23/namespaces/x%252f/tables/y%20z"


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        pytest.param({"type": "basic", "username": "u", "password": "p"}, "Authorization", "Basic dTpw", id="basic"),
        pytest.param({"type": "bearer", "token": "t"}, "Authorization", "Bearer t", id="bearer"),
        pytest.param({"type": "apikey", "token": "t"}, "X-API-Key", "t", id="api-key"),
        pytest.param({"type": "apikey", "token": "t", "extra": {"header": "X-K"}}, "X-K", "t", id="own-header"),
    ],
)
async def test_credentials_are_sent(amoro, locate, auth, header, value):
    await locate(endpoint={"auth": auth})
    assert amoro.requests[0].headers[header] == value


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param("{", id="no-json"),
        pytest.param('{"endpoint": {"url": "file:///etc/passwd"}}', id="scheme"),
        pytest.param('{"endpoint": {"url": "http://a", "port": 70000}}', id="port"),
        pytest.param('{"endpoint": {"url": "http://a"}, "retryConfig": {"timeout": "soon"}}', id="duration"),
        pytest.param('{"endpoint": {"url": "http://a"}, "locationMapping": {"x": "m1"}}', id="mapping"),
    ],
)
def test_invalid_settings_are_rejected(settings):
    with pytest.raises(ValueError, match=r".+"):
        read_options(settings)


def test_settings_with_go_durations_are_read():
    text = """{"system": "amoro", "endpoint": {"url": "http://amoro.example", "port": 1630},
      "locationMapping": {"s3://dc1/": ["cluster1", "cluster2"], "s3://dc2/": ["cluster3"]},
      "retryConfig": {"maxRetries": 3, "initialBackoff": "1s", "maxBackoff": "30s", "backoffMultiplier": 2.0,
        "timeout": "30s"}}"""
    options = read_options(text)
    assert (options.retries, options.timeout_seconds) == (3, 30)
    assert [options.backoff_seconds(attempt) for attempt in range(6)] == [1, 2, 4, 8, 16, 30]


@pytest.mark.parametrize(("text", "seconds"), [("", 0), ("500ms", 0.5), ("1m30s", 90), ("1.5s", 1.5), ("9000h", 300)])
def test_go_durations_are_read_and_limited(text, seconds):
    assert duration_seconds(text) == seconds
