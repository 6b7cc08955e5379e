"""R1: other clients move admitted workloads to other clusters, suspend them or remove their clusters."""

from typing import Any

from tests.integration.events import wait_for_event
from tests.rig.harness import Harness, open_harness


async def change(harness: Harness, name: str, **spec: Any) -> None:
    await harness.karmada.merge(harness.karmada.path(name), {"spec": spec})


async def test_r1_moved_workload_is_charged_to_its_new_cluster(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="2")
        await harness.karmada.cluster("m2", cpu="9")
        await harness.controller.start()
        await harness.karmada.job("moves", "q", cpu=2)
        await harness.admitted("moves")
        assert harness.bindings()["moves"].clusters == ("m1",)
        await change(harness, "moves", clusters=[{"name": "m2"}])
        event = await wait_for_event(harness, "Moved", "Job", "moves")
        assert "another client changed its clusters from m1 to m2" in event["note"]
        await harness.until(lambda seen: seen["moves"].record.get("clusters") == ["m2"], "recorded")
        stored = harness.record("moves")
        assert (stored["charge"]["cpu"], stored["evictions"]) == ("2", 0)
        assert stored["clustersChangedAt"] >= stored["admittedAt"]
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["moves"].clusters == ("m2",)


async def test_r1_job_moved_to_a_full_cluster_is_evicted(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="4")
        await harness.karmada.cluster("m2", cpu="3")
        await harness.controller.start()
        await harness.karmada.job("there", "q", cpu=3)
        await harness.admitted("there")
        await harness.karmada.phase("there", "Running")
        assert harness.bindings()["there"].clusters == ("m2",)
        await harness.karmada.job("moves", "q", cpu=4)
        await harness.admitted("moves")
        await change(harness, "moves", clusters=[{"name": "m2"}])
        event = await wait_for_event(harness, "ClusterChanged", "Job", "moves", action="Evict")
        assert "it was moved to m2, where it does not fit" in event["note"]
        # m1 has the free capacity that it needs.
        await harness.until(lambda seen: seen["moves"].admitted and seen["moves"].clusters == ("m1",), "moved back")
        assert (harness.record("moves")["attempts"], harness.record("moves")["evictions"]) == (1, 0)
        await harness.karmada.phase("moves", "Running")
        await harness.expect_no_writes(seconds=0.5)


async def test_r1_running_workload_is_not_evicted_for_a_move(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="4")
        await harness.karmada.cluster("m2", cpu="1")
        await harness.controller.start()
        await harness.karmada.job("runs", "q", cpu=4)
        await harness.admitted("runs")
        statuses = [{"clusterName": "m2", "status": {"state": {"phase": "Running"}}}]
        await harness.karmada.merge(
            f"{harness.karmada.path('runs')}/status", {"status": {"aggregatedStatus": statuses}}
        )
        await change(harness, "runs", clusters=[{"name": "m2"}])
        await harness.until(lambda seen: seen["runs"].record.get("clusters") == ["m2"], "recorded")
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["runs"].clusters == ("m2",)


async def test_accepted_resize_is_recorded(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="9")
        await harness.karmada.job("grows", "q")
        await harness.admitted("grows")
        path = f"{harness.karmada.folder('jobs')}/grows"
        task = harness.history.now["jobs"][harness.karmada.namespace, "grows"]["spec"]["tasks"][0]
        await harness.karmada.merge(path, {"spec": {"tasks": [{**task, "replicas": 3}]}})
        await harness.until(lambda seen: seen["grows"].record["charge"]["cpu"] == "3", "recorded")
        await harness.expect_no_writes(seconds=0.5)


async def test_resuspended_workload_is_resumed_and_stays_charged(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="9", capability={"cpu": "4"})
        await harness.karmada.job("held", "q", cpu=4)
        await harness.admitted("held")
        await harness.karmada.job("waits", "q", cpu=4)
        await change(harness, "held", suspension={"scheduling": True})
        await wait_for_event(harness, "ResuspendedAfterAdmission", "Job", "held")
        await harness.admitted("held")
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
        assert harness.bindings()["held"].suspended
        await harness.karmada.delete_works("held")
        await harness.until(lambda seen: seen["held"].admitted or seen["next"].admitted, "one of the two admitted")
        await harness.expect_no_writes(seconds=0.5)
        assert sum(binding.admitted for binding in harness.bindings().values()) == 1
