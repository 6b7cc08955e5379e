"""Reclaim on a real API server: what is written, when, and what a restart or a refusal does to it (P5, R2)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from localup.controlplane import ControlPlane
from tests.rig.binding_state import RECORD
from tests.rig.faults import CallFilter, ErrorReply
from tests.rig.harness import Harness, open_harness

CONFIGURATION = """\
apiVersion: config.volcano-global.io/v1alpha1
kind: VolcanoGlobalConfiguration
clusterStatusSettlePeriod: 1s
reclaim: {enabled: true, minRuntime: 0s, gracePeriod: 0s}
"""
BORROWERS = ("first", "second")


@asynccontextmanager
async def borrowed(plane: ControlPlane, folder: Path, *flags: str | Path) -> AsyncIterator[Harness]:
    """A queue that has borrowed all of the cluster; another is entitled to half of it."""
    file = folder / "admission.yaml"
    file.write_text(CONFIGURATION)
    async with open_harness(plane, folder, "--admission-configuration", file, *flags, plays=False) as stage:
        for name in ("lender", "borrower"):
            await stage.karmada.queue(name, deserved={"cpu": "2"})
        await stage.karmada.cluster("m1", cpu="4")
        for name in BORROWERS:
            await stage.karmada.job(name, "borrower", cpu=2)
        await stage.controller.start()
        await stage.admitted(*BORROWERS)
        for name in BORROWERS:
            await stage.karmada.phase(name, "Running")
        yield stage


def record(stage: Harness, name: str) -> dict[str, Any]:
    """Return what our record on a binding says."""
    binding = stage.history.now["resourcebindings"][stage.karmada.namespace, f"{name}-job"]
    return dict(json.loads(binding["metadata"].get("annotations", {}).get(RECORD, "{}")))


async def evicted(stage: Harness) -> str:
    """Wait until one of the borrowers is evicted; return which."""
    await stage.until(lambda seen: any(seen[name].suspended for name in BORROWERS), "one is evicted")
    [name] = [name for name in BORROWERS if stage.bindings()[name].suspended]
    return name


async def gone(stage: Harness, name: str) -> None:
    """Let no cluster tell of it any more."""
    await stage.karmada.merge(f"{stage.karmada.path(name)}/status", {"status": {"aggregatedStatus": []}})


def _of(name: str) -> CallFilter:
    return lambda call: call.is_write and f"/{name}-job" in call.path


def for_whom_is_held(stage: Harness) -> bool:
    return record(stage, "entitled").get("nominatedCluster") == "m1"


@pytest.mark.smoke
async def test_who_is_entitled_gets_in_when_the_one_evicted_for_him_is_seen_to_be_gone(plane, tmp_path):
    async with borrowed(plane, tmp_path) as stage:
        await stage.karmada.job("entitled", "lender", cpu=2)
        victim = await evicted(stage)
        await stage.history.until(lambda _: for_whom_is_held(stage), "it is written down for whom")
        assert (record(stage, victim)["charge"], record(stage, victim)["evictions"]) == ({}, 1)
        await stage.expect_pending_reasons()
        await stage.expect_no_writes(seconds=0.5)
        assert stage.bindings()["entitled"].suspended
        assert not stage.bindings()[victim].clusters
        await gone(stage, victim)
        await stage.admitted("entitled")
        assert record(stage, "entitled")["nominatedCluster"] is None
        assert sum(stage.bindings()[name].suspended for name in BORROWERS) == 1


async def test_a_restart_goes_on_in_the_middle_of_an_exchange(plane, tmp_path):
    async with borrowed(plane, tmp_path) as stage:
        await stage.karmada.job("entitled", "lender", cpu=2)
        victim = await evicted(stage)
        await stage.history.until(lambda _: for_whom_is_held(stage), "it is written down for whom")
        stage.controller.kill()
        await stage.karmada.job("earlier", "borrower", cpu=2)
        await stage.controller.start()
        await stage.expect_pending_reasons()
        await stage.expect_no_writes(seconds=1)
        assert sum(stage.bindings()[name].suspended for name in BORROWERS) == 1
        await gone(stage, victim)
        await stage.admitted("entitled")
        assert stage.bindings()["earlier"].suspended


async def test_an_eviction_that_is_refused_is_made_later_and_the_exchange_comes_about(plane, tmp_path):
    async with borrowed(plane, tmp_path) as stage:
        for name in BORROWERS:
            stage.proxy.add(ErrorReply(_of(name), status=403, message="not today"))
        await stage.karmada.job("entitled", "lender", cpu=2)
        await stage.controller.wait_for_log("patch rejected")
        await asyncio.sleep(1)
        assert not any(stage.bindings()[name].suspended for name in BORROWERS)
        stage.proxy.clear_faults()
        await gone(stage, await evicted(stage))
        await stage.admitted("entitled")
