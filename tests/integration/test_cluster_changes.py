"""R1: other clients move admitted workloads to other clusters, suspend them or remove their clusters."""

from typing import Any

from tests.integration.events import wait_for_event
from tests.rig.harness import Harness, open_harness


async def change(harness: Harness, name: str, **spec: Any) -> None:
    await harness.karmada.merge(harness.karmada.path(name), {"spec": spec})


async def test_r1_moved_or_resuspended_workload_stays_charged(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("q", capability={"cpu": "2"})
        await harness.karmada.cluster("m1", cpu="2")
        await harness.karmada.cluster("m2", cpu="9")
        await harness.controller.start()
        await harness.karmada.job("moves", "q", cpu=2)
        await harness.admitted("moves")
        assert harness.bindings()["moves"].clusters == ("m1",)
        await harness.karmada.job("waits", "q", cpu=2)
        await change(harness, "moves", clusters=[{"name": "m2"}])
        event = await wait_for_event(harness, "Moved", "Job", "moves")
        assert "another client changed its clusters from m1 to m2" in event["note"]
        await harness.until(lambda seen: seen["moves"].record.get("clusters") == ["m2"], "recorded")
        stored = harness.record("moves")
        assert (stored["charge"]["cpu"], stored["evictions"]) == ("2", 0)
        assert stored["clustersChangedAt"] >= stored["admittedAt"]
        await change(harness, "moves", suspension={"scheduling": True})
        await wait_for_event(harness, "ResuspendedAfterAdmission", "Job", "moves")
        await harness.admitted("moves")
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["moves"].clusters == ("m2",)
        assert harness.bindings()["waits"].suspended


async def test_externally_evicted_workload_is_queued_again(plane, tmp_path):
    """A late placement by Karmada's scheduler does not count as an admission."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="9", capability={"cpu": "4"})
        await harness.karmada.job("held", "q", cpu=4)
        await harness.admitted("held")
        await harness.karmada.phase("held", "Running")
        await harness.karmada.job("next", "q", cpu=4)
        await change(harness, "held", suspension={"scheduling": True}, clusters=None)
        await wait_for_event(harness, "EvictedByOthers", "Job", "held")
        await harness.until(lambda seen: not seen["held"].record["charge"], "recorded as evicted")
        await change(harness, "held", clusters=[{"name": "m1"}])
        await harness.until(lambda seen: not seen["held"].clusters, "cleared again")
        event = await wait_for_event(harness, "PlacedWithoutAdmission", "Job", "held")
        assert event["note"] == "another client placed it without admission; its clusters are removed"
        assert harness.bindings()["held"].suspended
        await harness.karmada.delete_works("held")
        await harness.until(lambda seen: seen["held"].admitted or seen["next"].admitted, "one of the two admitted")
        await harness.expect_no_writes(seconds=0.5)
        assert sum(binding.admitted for binding in harness.bindings().values()) == 1


async def test_pending_workload_resumed_by_others_is_charged(plane, tmp_path):
    """R2: its record does not admit it, and no patch of the controller is rejected for that."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="9", capability={"cpu": "4"})
        await harness.karmada.job("held", "q", cpu=4)
        await harness.admitted("held")
        await change(harness, "held", suspension={"scheduling": True}, clusters=None)
        await harness.until(lambda seen: not seen["held"].record["charge"], "recorded as evicted")
        harness.ungated.add("held")
        await change(harness, "held", suspension={"scheduling": False}, clusters=[{"name": "m1"}])
        event = await wait_for_event(harness, "ResumedByOthers", "Job", "held")
        assert event["note"].startswith("another client resumed it without admission")
        await harness.karmada.job("next", "q", cpu=4)
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["next"].suspended
