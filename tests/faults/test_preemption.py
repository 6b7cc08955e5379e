"""Reclaim on a real API server: writes, their order, restarts and rejections (P5, R2)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from localup.controlplane import ControlPlane
from tests.rig.harness import Harness, open_harness

RECLAIM = {"enabled": True, "minRuntime": "0s", "gracePeriod": "0s"}
BORROWERS = ("first", "second")


@asynccontextmanager
async def borrowed(plane: ControlPlane, folder: Path) -> AsyncIterator[Harness]:
    """Yield a harness where one queue has borrowed the cluster and another one's fair share is half of it."""
    configuration = {"clusterStatusSettlePeriod": "1s", "reclaim": RECLAIM}
    async with open_harness(plane, folder, configuration=configuration, plays=False) as harness:
        for name in ("lender", "borrower"):
            await harness.karmada.queue(name, deserved={"cpu": "2"})
        await harness.karmada.cluster("m1", cpu="4")
        for name in BORROWERS:
            await harness.karmada.job(name, "borrower", cpu=2)
        await harness.controller.start()
        await harness.admitted(*BORROWERS)
        for name in BORROWERS:
            await harness.karmada.phase(name, "Running")
        yield harness


@pytest.mark.smoke
async def test_preemptor_is_admitted_once_its_victim_has_stopped(plane, tmp_path):
    """A controller that starts meanwhile continues the preemption."""
    async with borrowed(plane, tmp_path) as harness:
        await harness.karmada.job("preemptor", "lender", cpu=2)
        await harness.until(lambda seen: any(seen[name].suspended for name in BORROWERS), "one is evicted")
        await harness.history.until(
            lambda _: harness.record("preemptor").get("nominatedCluster") == "m1", "the nomination is recorded"
        )
        [victim] = [name for name in BORROWERS if harness.bindings()[name].suspended]
        assert (harness.record(victim)["charge"], harness.record(victim)["evictions"]) == ({}, 1)
        assert not harness.bindings()[victim].clusters
        harness.controller.kill()
        await harness.karmada.job("earlier", "borrower", cpu=2)
        await harness.controller.start()
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["preemptor"].suspended
        await harness.karmada.delete_works(victim)
        await harness.admitted("preemptor")
        assert harness.record("preemptor")["nominatedCluster"] is None
        assert harness.bindings()["earlier"].suspended
        assert sum(harness.bindings()[name].suspended for name in BORROWERS) == 1
