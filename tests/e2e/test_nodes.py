"""Gangs that fit a cluster in total but not its nodes: pending at once, or evicted when they do not start."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.api.keys import EVENTS
from controller.kube.client import Api
from localup.apply import create_namespace
from localup.controlplane import ControlPlane
from localup.processes import ProcessOptions, tail
from localup.realkarmada.processes import programs_from_environment
from localup.stack import Stack
from tests.e2e.environment import Environment, open_environment
from tests.e2e.observer import Observer
from tests.integration import gated_kinds
from tests.waiting import LIMIT_SECONDS

SHAPES = [{"clusters": ["c1"], "nodes": [{"count": 4, "allocatable": {"cpu": 64, "nvidia.com/gpu": 8}}]}]


@pytest.fixture(scope="module")
def plane(fresh_control_plane) -> ControlPlane:
    return fresh_control_plane()


@asynccontextmanager
async def state(plane: ControlPlane, folder: Path, **configuration: Any) -> AsyncIterator[Environment]:
    """Yield an environment with the whole system and a cluster of 4 nodes with 8 GPUs each."""
    file = folder / "admission.yaml"
    file.write_text(gated_kinds.configuration(**configuration))
    options = {
        "karmada": ProcessOptions(flags=["--status-period", "200ms"]),
        "controller": ProcessOptions(flags=["--write-seconds", "0.5", "--admission-configuration", file]),
    }
    name = f"nodes-{uuid.uuid4().hex[:8]}"
    create_namespace(plane.admin, name)
    with Stack(plane, options=options, karmada=programs_from_environment() or True) as stack:
        async with Api.connect(plane.kubeconfig("admin")) as api, open_environment(api, name) as environment:
            try:
                await environment.cluster("c1", cpu="64", gpu="8", nodes=4)
                await environment.queue(name)
                await environment.policy()
                yield environment
            finally:
                print("--- controller", tail(stack.log("controller"), lines=40), sep="\n")  # noqa: T201 -- for the report of a failure
        stack.check()


def phases(seen: Observer, name: str) -> tuple[str, ...]:
    return seen.now[name].phases if name in seen.now else ()


async def wait_for_event(environment: Environment, reason: str, name: str) -> str:
    """Wait for an event with *reason* on a job and return its note."""
    folder = EVENTS.item_path(environment.namespace, "").rstrip("/")
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            for item in json.loads(await environment.api.get(folder))["items"]:
                if (item["reason"], item["regarding"].get("name")) == (reason, name):
                    return str(item["note"])
            await asyncio.sleep(0.1)


async def test_gang_that_fits_no_described_nodes_stays_pending(plane, tmp_path):
    async with state(plane, tmp_path, nodeShapes=SHAPES) as environment:
        queue = environment.namespace
        await environment.job("scattered", queue, replicas=6, gpu=5, runtime="1h")
        await environment.job("giant", queue, gpu=9, runtime="1h")
        for name in ("scattered", "giant"):
            await wait_for_event(environment, "ExceedsEveryCluster", name)
        await environment.job("packed", queue, replicas=4, gpu=8, runtime="1h")
        await environment.observer.until(lambda seen: phases(seen, "packed") == ("Running",), "packed")
        assert environment.observer.order() == ["packed"]


async def test_gang_without_nodes_is_evicted_and_equal_ones_skipped(plane, tmp_path):
    async with state(plane, tmp_path, startupTimeout="2s") as environment:
        queue = environment.namespace
        await environment.job("scattered", queue, replicas=6, gpu=5, runtime="1h")
        await environment.observer.until(
            lambda seen: phases(seen, "scattered") == ("Pending",), "admitted, not started"
        )
        for number in range(3):
            await environment.job(f"equal-{number}", queue, replicas=6, gpu=5, runtime="1h")
        await wait_for_event(environment, "StartupTimeout", "scattered")
        await environment.job("packed", queue, replicas=4, gpu=8, runtime="1h")
        await environment.observer.until(lambda seen: phases(seen, "packed") == ("Running",), "packed")
        assert environment.observer.order() == ["scattered", "packed"]
        assert environment.observer.now["scattered"].record["excludedClusters"].keys() == {"c1"}
        # Twice the time of the first attempt: no other gang is tried, and no attempt is repeated.
        await asyncio.sleep(8)
        assert environment.observer.admitted() == ["packed"]
