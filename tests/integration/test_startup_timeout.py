"""R1: a workload that does not start after its admission is queued again in Karmada, then evicted."""

from tests.integration.events import wait_for_event
from tests.rig.harness import Harness, open_harness

TIMEOUT = 10


def suspensions(harness: Harness, name: str) -> int:
    """Return how often a placed binding was suspended."""
    key = harness.karmada.namespace, f"{name}-job"
    states = [change.after["spec"] for change in harness.history.changes if change.key == key and change.after]
    return sum(bool(state.get("clusters")) and bool(state["suspension"]["scheduling"]) for state in states)


async def test_r1_unstarted_workload_is_requeued_then_moved(plane, tmp_path):
    short = {"startupTimeout": f"{TIMEOUT}s"}
    async with open_harness(plane, tmp_path, configuration=short, plays=False) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="2")
        await harness.karmada.cluster("m2", cpu="9")
        await harness.controller.start()
        for name, phase in (("stuck", "Pending"), ("runs", "Running")):
            await harness.karmada.job(name, "q")
            await harness.admitted(name)
            await harness.karmada.phase(name, phase)
        assert harness.bindings()["stuck"].clusters == ("m1",), "the best fit"
        await harness.history.until(lambda _: suspensions(harness, "stuck") == 1, "requeued")
        await harness.admitted("stuck")
        await wait_for_event(harness, "StartupTimeout", "Job", "stuck", action="Evict")
        assert harness.record("stuck")["attempts"] == 1
        assert {*harness.record("stuck")["excludedClusters"]} == {"m1"}
        # Karmada deletes its Works and their status.
        await harness.karmada.delete_works("stuck")
        await harness.until(lambda seen: seen["stuck"].admitted and seen["stuck"].clusters == ("m2",), "moved")
        await harness.karmada.phase("stuck", "Running")
        await harness.expect_no_writes(seconds=TIMEOUT * 2)
        assert (suspensions(harness, "runs"), harness.record("stuck")["attempts"]) == (0, 1)
        assert "ResuspendedAfterAdmission" not in harness.controller.part.output
