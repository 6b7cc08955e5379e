import asyncio
import contextlib
import json
import socket
import subprocess
import sys

import aiohttp
import pytest

from controller.reporting.metrics import ControllerMetrics
from controller.reporting.probes import Readiness, SharedPage, serve_probes


class Cache:
    lists = decode_failures = unreadable = 0

    def __init__(self, *, synced: bool = True, seconds_since_response: float = 0) -> None:
        self.is_synced = synced
        self.seconds_since_response = seconds_since_response


@pytest.mark.parametrize(
    ("cache", "trouble", "reason"),
    [
        pytest.param(Cache(), None, None, id="fresh"),
        pytest.param(Cache(synced=False), None, "jobs not listed yet", id="not-listed"),
        pytest.param(Cache(seconds_since_response=95), None, "no event for jobs since 95 s", id="silent"),
        pytest.param(Cache(), "the last cycle failed", "the last cycle failed", id="other-trouble"),
    ],
)
async def test_ready_when_caches_are_synced_and_fresh(cache, trouble, reason):
    readiness = Readiness({"jobs": cache}, 90, lambda: trouble)
    async with (
        serve_probes(
            readiness.reason_not_ready, host="127.0.0.1", port=0, exposition=ControllerMetrics().exposition
        ) as port,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, await answer.text()) == ((503, reason) if reason else (200, "ok"))
        async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "volcano_global_leader" in await answer.text()


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


async def test_silent_connections_are_limited_and_block_no_probe():
    async with serve_probes(lambda: None, host="127.0.0.1", port=0) as port, aiohttp.ClientSession() as session:
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(90)]
            for _ in range(3):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    assert (answer.status, answer.headers["Connection"]) == (200, "close")
            assert not is_open(silent[0]), "the oldest one"
            assert sum(map(is_open, silent)) <= 64


def test_scrapes_at_once_share_the_text_of_the_metrics():
    now, produced = [0.0], []

    def exposition() -> bytes:
        now[0] += 0.5
        produced.append(b"%d" % len(produced))
        return produced[-1]

    page = SharedPage(exposition, lambda: now[0])
    assert [page.text() for _ in range(50)] == [b"0"] * 50
    now[0] += 4.9
    assert page.text() == b"0"
    now[0] += 0.1
    assert page.text() == b"1"


async def test_unknown_paths_and_methods_are_refused():
    async with serve_probes(lambda: None, host="127.0.0.1", port=0) as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.status == 404
        async with session.post(f"http://127.0.0.1:{port}/readyz", data=b"x" * 100_000) as answer:
            assert answer.status == 405


async def test_every_log_line_is_one_json_object():
    program = (
        "from controller.kube.logs import configure_logging; configure_logging();"
        "import structlog, logging;"
        "structlog.get_logger().info('workload admitted', workload='Job a/b', clusters=('m1',));"
        "logging.getLogger('asyncio').warning('a %s', 'word')"
    )
    run = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True, check=True)
    ours, foreign = map(json.loads, run.stderr.splitlines())
    assert (ours["event"], ours["workload"], ours["clusters"]) == ("workload admitted", "Job a/b", ["m1"])
    assert (foreign["event"], foreign["level"]) == ("a word", "warning")
    assert not run.stdout


async def test_tracebacks_have_no_local_variables():
    program = (
        "from controller.kube.logs import configure_logging; configure_logging('stdout');"
        "import structlog, logging\n"
        "secret = 'token-of-a-tenant'\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: structlog.get_logger().exception('a'); logging.getLogger('b').exception('b')"
    )
    run = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True, check=True)
    assert [json.loads(line)["exception"][0]["exc_type"] for line in run.stdout.splitlines()] == [
        "ZeroDivisionError"
    ] * 2
    assert b"token-of-a-tenant" not in run.stdout + run.stderr
