"""Tests what callers can make a server log."""

import asyncio
import logging
from contextlib import suppress

import pytest
from aiohttp import web

from controller.kube.limited_server import LimitedServer, MalformedRequestFilter
from tests.waiting import poll

MALFORMED = (
    b"GET /healthz HTTP/9.9.9\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nA: " + b"a" * 20_000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    b"\x16\x03\x01\x00",
)


@pytest.fixture
def server_log(caplog):
    """Return the log of servers, in which no malformed request has been logged yet."""
    logger = logging.getLogger("controller.kube.limited_server")
    (given,) = logger.filters
    fresh = MalformedRequestFilter()
    logger.removeFilter(given)
    logger.addFilter(fresh)
    yield caplog
    logger.removeFilter(fresh)
    logger.addFilter(given)


async def answer_to(handler, requests) -> list[bytes]:
    """Return the status lines of the answers to *requests*, each on a connection of its own."""
    server = LimitedServer(handler, max_connections=10)
    await server.listen("127.0.0.1", 0)
    lines = []
    for request in requests:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request)
        lines.append((await reader.readline()).strip())
        writer.close()
    await server.close(seconds=1)
    return lines


async def test_malformed_requests_are_logged_once_in_one_line(server_log):
    async def handler(request):
        await request.read()
        return web.Response()

    answers = await answer_to(handler, MALFORMED * 3)
    assert {line.split()[1] for line in answers} == {b"400"}
    (record,) = server_log.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage().startswith("malformed request refused")


async def test_busy_connection_is_not_closed_for_a_new_one():
    busy, writers, all_run, ended = set(), [], asyncio.Event(), asyncio.Event()

    async def handler(request):
        busy.add(request.protocol)
        if len(busy) == 2:
            all_run.set()
        await ended.wait()
        return web.Response()

    async def connect(server):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.append(writer)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        return reader

    server = LimitedServer(handler, max_connections=2, is_busy=busy.__contains__)
    await server.listen("127.0.0.1", 0)
    async with asyncio.timeout(30):
        first = [await connect(server) for _ in range(2)]
        await all_run.wait()
        refused = await connect(server)
        with suppress(ConnectionError):
            assert await refused.read() == b""
        ended.set()
        assert {await reader.readline() for reader in first} == {b"HTTP/1.1 200 OK\r\n"}
        busy.clear()
        assert await (await connect(server)).readline() == b"HTTP/1.1 200 OK\r\n"
    for writer in writers:
        writer.close()
    await server.close(seconds=1)


async def test_request_of_a_caller_that_left_is_dropped():
    async def handler(_):
        return web.Response()

    server = LimitedServer(handler, max_connections=2)
    await server.listen("127.0.0.1", 0)
    before = len(asyncio.all_tasks())
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbody")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.transport.abort()
    await poll(
        lambda: len(asyncio.all_tasks()) - before, "requests in memory", until=lambda count: count <= 0, seconds=5
    )
    await server.close(seconds=1)


async def test_each_error_of_a_handler_is_logged(server_log):
    async def handler(_):
        raise RuntimeError("broken")

    await answer_to(handler, [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"] * 2)
    assert [(record.levelname, str(record.exc_info[1])) for record in server_log.records] == [("ERROR", "broken")] * 2
