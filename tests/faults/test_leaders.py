"""F7 and F8: several controllers at once, and unavailable leases."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from tests.rig.faults import DropReply, DropRequest, ErrorReply
from tests.rig.harness import LEASE, Harness, open_harness
from tests.rig.proxy import Call, Fault


def lease_writes(call: Call) -> bool:
    """Match writes of the lease."""
    return call.is_lease and call.method != "GET"


def releases(call: Call) -> bool:
    """Match releases of the lease."""
    changes = json.loads(call.body or b"null")
    sets = {change.get("path"): change.get("value") for change in changes} if isinstance(changes, list) else {}
    return lease_writes(call) and sets.get("/spec/holderIdentity") == ""


def renewals(call: Call) -> bool:
    """Match renewals of the lease."""
    return lease_writes(call) and not releases(call)


@dataclass
class Overtake(Fault):
    """Delays a renewal until the release has read the lease."""

    under_way: asyncio.Event = field(default_factory=asyncio.Event)
    follows: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def before(self, call: Call) -> None:
        if renewals(call) and not self.under_way.is_set():
            self.under_way.set()
            await self.follows.wait()
        elif releases(call) and not self.follows.is_set():
            self.follows.set()
            await self.arrived.wait()

    async def after(self, call: Call) -> None:
        if renewals(call) and self.follows.is_set():
            self.arrived.set()


async def start(harness: Harness, *names: str) -> None:
    """Create capacity for one of these jobs, and start all controllers; the first leads."""
    await harness.prepare(*names, cpu="9", capability={"cpu": "1"})
    first, *others = harness.controllers
    await first.start()
    await first.wait_for_log('"event":"leadership acquired"')
    for controller in others:
        await controller.start()


async def holder(harness: Harness) -> str:
    """Return the holder of the lease; empty if it was released."""
    return (await harness.karmada.read(LEASE))["spec"]["holderIdentity"]


@pytest.mark.smoke
async def test_standby_takes_over_at_once_after_a_release(plane, tmp_path):
    """A wait ends with an error long before the lease would expire."""
    async with open_harness(plane, tmp_path, "--lease-seconds", "3600", controllers=2) as harness:
        first, second = harness.controllers
        await start(harness)
        for name in ("j0", "j00"):
            await harness.karmada.job(name, "q")
        await harness.done("j0", "j00")
        assert (await first.metric("volcano_global_leader"), await second.metric("volcano_global_leader")) == (1, 0)
        assert second.proxy.writes == 0
        await first.stop()
        await harness.karmada.job("j1", "q")
        await harness.done("j1")
        harness.controllers.reverse()
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.3)


async def test_release_is_retried_after_a_late_renewal(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        await start(harness)
        late = Overtake()
        harness.proxy.add(late)
        await late.under_way.wait()
        await harness.controller.stop()
        assert late.arrived.is_set()
        assert await holder(harness) == ""


async def test_failed_release_is_retried(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        await start(harness)
        fault = ErrorReply(releases, 1, status=500)
        harness.proxy.add(fault)
        await harness.controller.stop()
        assert fault.times == 0
        assert await holder(harness) == ""


async def test_lease_acquired_without_a_reply_is_used(plane, tmp_path):
    """The next read shows that this controller holds the lease."""
    async with open_harness(plane, tmp_path) as harness:
        lost = DropReply(lease_writes, 1)
        harness.proxy.add(lost)
        await start(harness, "j0")
        await harness.done("j0")
        assert lost.times == 0


@pytest.mark.long
async def test_dead_leader_is_followed_after_lease_expiry(plane, tmp_path):
    async with open_harness(plane, tmp_path, controllers=2) as harness:
        first, second = harness.controllers
        await start(harness, "j0")
        await harness.done("j0")
        first.kill()
        await harness.karmada.job("j1", "q")
        await asyncio.sleep(2)
        assert second.proxy.writes == 0
        await harness.done("j1")


async def test_frozen_leader_writes_nothing_after_it_resumes(plane, tmp_path):
    """It is frozen with pending decisions of its own, while other objects change."""
    async with open_harness(plane, tmp_path, controllers=2) as harness:
        first = harness.controller
        await start(harness, "j0")
        await harness.done("j0")
        first.part.freeze()
        await harness.karmada.job("j1", "q", endless=True)
        await harness.karmada.job("j2", "q", endless=True)
        await harness.until(
            lambda seen: sum(item.admitted and not item.is_finished for item in seen.values()) == 1, "one runs"
        )
        before = first.proxy.writes
        first.part.resume()
        await first.wait_for_log("leadership lost")
        await harness.expect_no_writes()
        assert first.proxy.writes == before
        assert await first.metric("volcano_global_leader") == 0
        assert "event loop blocked" in first.part.output


@pytest.mark.long
async def test_leader_that_cannot_renew_steps_down_in_time(plane, tmp_path):
    async with open_harness(plane, tmp_path, controllers=2) as harness:
        first, second = harness.controllers
        await start(harness, "j0")
        await harness.done("j0")
        first.proxy.add(DropRequest(lambda call: call.is_lease))
        await first.wait_for_log("leadership lost")
        before = first.proxy.writes
        await harness.karmada.job("j1", "q")
        await harness.done("j1")
        assert first.proxy.writes == before
        assert second.proxy.writes == 1
        first.proxy.clear_faults()
        second.kill()
        await harness.karmada.job("j2", "q")
        await harness.done("j2")


async def test_missing_lease_permission_is_reported(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        harness.proxy.add(ErrorReply(lambda call: call.is_lease, status=403))
        await harness.start("j0")
        await harness.controller.wait_for_log("lease request failed")
        await harness.expect_no_writes(seconds=1)
        assert harness.bindings()["j0"].suspended
