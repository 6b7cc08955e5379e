"""Ports that any number of unfinished TLS handshakes neither block nor fill."""

import asyncio
import socket
import ssl
from contextlib import suppress

import pytest
import uvloop
from aiohttp import web

from controller.kube.limited_server import LimitedServer
from localup.credentials import issue

RUN = pytest.mark.parametrize("run", [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")])
SECONDS = 20


@pytest.fixture
def serving(tmp_path):
    """Return the contexts of a server and of a client that trusts it."""
    issue(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "apiserver.crt", tmp_path / "apiserver.key")
    return context, ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))


async def hello(_):
    return web.Response(text="hello")


async def read(streams):
    """Return what the server sends until it closes the connection."""
    with suppress(ConnectionError):
        async with asyncio.timeout(SECONDS):
            return await streams[0].read()
    return b""


async def ask(port, trust):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await read((reader, writer))
    writer.close()
    return answer


@RUN
def test_oldest_of_too_many_handshakes_is_closed(run, serving):
    context, trust = serving

    async def flood():
        server = LimitedServer(hello, max_connections=8)
        await server.listen("127.0.0.1", 0, context, handshake_seconds=SECONDS)
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(9)]
        assert await read(silent[0]) == b""
        assert (await ask(server.port, trust)).endswith(b"hello")
        assert await read(silent[1]) == b""
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(silent[8][0].read(), 0.1)
        await server.close(seconds=1)
        # The end of the server ends the handshakes, too.
        assert await read(silent[8]) == b""
        for _, writer in silent:
            writer.close()

    run(flood())


@RUN
def test_silent_handshake_ends_after_its_deadline(run, serving):
    async def wait():
        server = LimitedServer(hello, max_connections=8)
        await server.listen("127.0.0.1", 0, serving[0], handshake_seconds=0.1)
        silent = await asyncio.open_connection("127.0.0.1", server.port)
        assert await read(silent) == b""
        silent[1].close()
        await server.close(seconds=1)

    run(wait())


@RUN
def test_plain_port_answers_and_is_free_after_its_end(run):
    async def twice():
        port = 0
        for _ in range(2):
            server = LimitedServer(hello, max_connections=8)
            await server.listen("127.0.0.1", port)
            port = server.port
            assert (await ask(port, None)).endswith(b"hello")
            await server.close(seconds=1)
        with pytest.raises(ConnectionError):
            await ask(port, None)

    run(twice())


@RUN
def test_address_that_the_machine_does_not_have_is_skipped(run, monkeypatch):
    async def listen(*addresses):
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lambda *_, **__: asyncio.sleep(0, found))
        server = LimitedServer(hello, max_connections=8)
        await server.listen("localhost", 0)
        monkeypatch.undo()
        assert (await ask(server.port, None)).endswith(b"hello")
        await server.close(seconds=1)

    run(listen("192.0.2.1", "127.0.0.1"))
    with pytest.raises(OSError, match="assign"):
        run(listen("192.0.2.1"))
