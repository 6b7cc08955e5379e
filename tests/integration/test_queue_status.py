"""Statuses of Queues, which agree with the metrics and with `volcano-global queues`."""

import asyncio
import json
import re
import sys
from typing import Any

from controller.api.keys import QUEUES
from tests.rig.harness import Harness, open_harness
from tests.waiting import LIMIT_SECONDS


async def status_of(harness: Harness, name: str) -> dict[str, Any]:
    return json.loads(await harness.karmada.api.get(f"{QUEUES.path}/{name}")).get("status") or {}


async def wait_for_status(harness: Harness, name: str, **expected: Any) -> dict[str, Any]:
    """Wait until the status of a queue has these fields; return it."""
    status: dict[str, Any] = {}
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not expected.items() <= status.items():
                status = await status_of(harness, name)
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise AssertionError(f"{name} has {status}; {harness.controller.part.output[-2000:]}") from error
    return status


async def queues_command(harness: Harness) -> dict[str, dict[str, Any]]:
    """Return the report of `volcano-global queues` by name."""
    flags = ("queues", "-o", "json", "--kubeconfig", str(harness.plane.kubeconfig("admin")))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "controller.cli", *flags, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return {queue["name"]: queue for queue in json.loads(output)["queues"]}


def sample(page: str, metric: str, **labels: str) -> float:
    """Return the sum of the samples of a metric with these labels."""
    found = 0.0
    for shown, value in re.findall(rf"^{metric}{{([^}}]*)}} (\S+)$", page, re.MULTILINE):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', shown))
        found += float(value) if labels.items() <= pairs.items() else 0
    return found


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
        status = await wait_for_status(harness, "team", pending=2, inqueue=1, running=1, completed=0, state="Open")
        assert status["allocated"]["cpu"] == "3"
        await wait_for_status(harness, "idle", pending=0, running=0, allocated={"cpu": "0", "memory": "0"})
        parent = await wait_for_status(harness, "org", pending=0, state="Open")
        assert parent["allocated"] == status["allocated"]

        page, reports = await harness.controller.page("/metrics"), await queues_command(harness)
        assert sample(page, "volcano_global_pending_workloads", queue="team") == status["pending"]
        assert reports["team"]["pending"] == status["pending"]
        for name in ("team", "org", "idle"):
            usage = sample(page, "volcano_global_queue_resource_usage", queue=name, resource="cpu")
            assert (
                f"{usage:g}"
                == reports[name]["allocated"]["cpu"]
                == (await status_of(harness, name))["allocated"]["cpu"]
            )

        await harness.karmada.phase("runs", "Completed")
        await wait_for_status(harness, "team", completed=1, running=0)
