import asyncio
import json
import subprocess
import sys

import aiohttp
import pytest

from controller.reporting.metrics import ControllerMetrics
from controller.reporting.probes import Readiness, serve_probes


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
