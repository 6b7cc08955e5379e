"""The controller process on a real API server: start, failures and shutdown."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.waiting import LIMIT_SECONDS

ROOT = Path(__file__).parents[1]
# One identity for all, so that each takes the lease of the one before, and short times.
FLAGS = (
    *("--host", "127.0.0.1", "--port", "0", "--identity", "tested", "--write-seconds", "1", "--connect-seconds", "1"),
    *("--lease-seconds", "4", "--renew-seconds", "1.5", "--retry-seconds", "0.5"),
)


class Running:
    """A controller process with its log output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._heard = asyncio.Condition()

    async def listen(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._heard:
                self.lines.append(json.loads(line) if line.startswith(b"{") else {"event": line.decode().strip()})
                self._heard.notify_all()

    async def says(self, text: str, **expected: Any) -> dict[str, Any]:
        def matching_line() -> dict[str, Any] | None:
            matches = (line for line in self.lines if text in line["event"] and expected.items() <= line.items())
            return next(matches, None)

        async with asyncio.timeout(LIMIT_SECONDS), self._heard:
            await self._heard.wait_for(matching_line)
            return matching_line() or {}

    async def page(self, path: str) -> str:
        port = (await self.says("controller started"))["port"]
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return await answer.text()

    async def ends(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def running(*flags: str | Path) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "controller", *FLAGS, *map(str, flags)),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    controller = Running(process)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.listen())
        try:
            yield controller
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    return fresh_control_plane(controllers=False)


async def test_controller_is_not_ready_without_api_server(plane, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(re.sub(r"https://127.0.0.1:\d+", "https://127.0.0.1:1", plane.kubeconfig("admin").read_text()))
    async with running("--kubeconfig", path) as controller:
        assert "cannot connect" in (await controller.says("page failed"))["error"]
        assert "not listed yet" in await controller.page("/readyz")
        assert "volcano_global_leader 0.0" in await controller.page("/metrics")
        assert await controller.page("/healthz") == "ok"
        assert await controller.ends() == 0


async def test_missing_kubeconfig_is_waited_for(plane, tmp_path):
    path = tmp_path / "kubeconfig"
    async with running("--kubeconfig", path) as controller:
        assert "no such file" in (await controller.says("cannot connect"))["error"]
        path.write_text(plane.kubeconfig("volcano-global-controller").read_text())
        await controller.says("controller started")
        assert await controller.ends(signal.SIGINT) == 0
    async with running("--kubeconfig", tmp_path / "none") as controller:
        await controller.says("cannot connect")
        assert await controller.ends() == 0


async def test_missing_hyperjob_kubeconfig_is_waited_for(plane, tmp_path):
    path = tmp_path / "hyperjobs"
    ours = ("--kubeconfig", plane.kubeconfig("volcano-global-controller"))
    async with running(*ours, "--hyperjob-kubeconfig", path) as controller:
        assert f"{path} cannot be used: no such file" in (await controller.says("cannot connect"))["error"]
        path.write_text(plane.kubeconfig("volcano-global-hyperjobs").read_text())
        await controller.says("controller started")
        await controller.says("watch started", resource="propagationpolicies")
        assert await controller.ends() == 0


async def test_disabled_hyperjobs_are_not_listed(plane):
    async with running("--kubeconfig", plane.kubeconfig("admin"), "--hyperjobs", "false") as controller:
        await controller.says("leadership acquired")
        async with asyncio.timeout(LIMIT_SECONDS):
            while await controller.page("/readyz") != "ok":  # noqa: ASYNC110 -- another process
                await asyncio.sleep(0.1)
        assert not [line for line in controller.lines if "hyperjob" in line["event"]]
        assert await controller.ends() == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        pytest.param(["--port", "many"], "--port 'many'", id="bad-flag"),
        pytest.param(["--watch-seconds", "60"], "silence-seconds must be more", id="flags-out-of-proportion"),
        pytest.param(["--admission-configuration", "/nonexistent"], "cannot be read", id="no-configuration"),
    ],
)
async def test_contradictory_flags_are_rejected_at_start(flags, says):
    async with running(*flags) as controller:
        assert "Traceback" not in str(controller.lines)
        await controller.says(says)
        assert await controller.process.wait() == 1
