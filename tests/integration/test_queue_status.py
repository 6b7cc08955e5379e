"""Statuses of Queues, which agree with the metrics and with `volcano-global queues`."""

import asyncio
import json
import re
import sys
from typing import Any

from controller.api.keys import QUEUES
from tests.rig.harness import Harness, open_harness
from tests.waiting import poll


async def wait_for_status(harness: Harness, name: str, **expected: Any) -> dict[str, Any]:
    """Wait until the status of a queue has these fields; return it."""
    queue = await poll(
        lambda: harness.karmada.read(f"{QUEUES.path}/{name}"),
        f"status of queue {name}",
        until=lambda seen: expected.items() <= seen.get("status", {}).items(),
        log=harness.controller.log,
    )
    return queue["status"]


async def test_status_of_queues_agrees_with_metrics_and_command(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("org")
        await harness.karmada.queue("team", parent="org")
        await harness.karmada.queue("idle")
        await harness.karmada.cluster("m1", cpu="3")
        await harness.controller.start()
        for name, cpu in (("runs", 1), ("starts", 2), ("waits", 2), ("over", 3)):
            await harness.karmada.job(name, "team", cpu=cpu)
            if name not in {"waits", "over"}:
                await harness.admitted(name)
        await harness.karmada.phase("runs", "Running")
        statuses = {
            "team": await wait_for_status(harness, "team", pending=2, inqueue=1, running=1, completed=0, state="Open"),
            "idle": await wait_for_status(harness, "idle", pending=0, running=0),
            "org": await wait_for_status(harness, "org", pending=0, state="Open"),
        }
        used = {name: status["allocated"]["cpu"] for name, status in statuses.items()}
        assert used == {"team": "3", "idle": "0", "org": "3"}

        page = await harness.controller.page("/metrics")
        shown = re.findall(
            r'^volcano_global_queue_resource_usage{queue="(.*)",resource="cpu"} (.*)$', page, re.MULTILINE
        )
        assert {name: float(value) for name, value in shown if name in used} == {k: float(v) for k, v in used.items()}
        flags = ("queues", "-o", "json", "--kubeconfig", str(harness.plane.kubeconfig("admin")))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "controller.cli", *flags, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        reports = {queue["name"]: queue for queue in json.loads(output)["queues"]}
        assert {name: reports[name]["allocated"]["cpu"] for name in used} == used
        assert reports["team"]["pending"] == 2
