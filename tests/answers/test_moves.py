"""R1: others move admitted workloads to other clusters, or pause them and take their clusters away."""

import json
from typing import Any

from controller.api.keys import ADMISSION_ANNOTATION
from tests.answers.events import wait_for_event
from tests.rig.harness import Harness, open_harness


def record(stage: Harness, name: str) -> dict[str, Any]:
    stored = stage.history.now["resourcebindings"][stage.karmada.namespace, f"{name}-job"]
    found: dict[str, Any] = json.loads(stored["metadata"].get("annotations", {}).get(ADMISSION_ANNOTATION, "{}"))
    return found


async def change(stage: Harness, name: str, **spec: Any) -> None:
    await stage.karmada.merge(stage.karmada.path(name), {"spec": spec})


async def test_r1_one_moved_where_it_fits_is_charged_and_recorded_there(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="2")
        await stage.karmada.cluster("m2", cpu="9")
        await stage.controller.start()
        await stage.karmada.job("moves", "q", cpu=2)
        await stage.admitted("moves")
        assert stage.bindings()["moves"].clusters == ("m1",)
        await change(stage, "moves", clusters=[{"name": "m2"}])
        event = await wait_for_event(stage, "Moved", "Job", "moves")
        assert "another client changed its clusters from m1 to m2" in event["note"]
        await stage.until(lambda seen: seen["moves"].record.get("clusters") == ["m2"], "recorded")
        kept = record(stage, "moves")
        assert (kept["charge"]["cpu"], kept["evictions"]) == ("2", 0)
        assert kept["clustersChangedAt"] >= kept["admittedAt"]
        await stage.expect_no_writes(seconds=0.5)
        assert stage.bindings()["moves"].clusters == ("m2",)


async def test_r1_one_moved_where_it_does_not_fit_is_evicted_and_blocks_nobody(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="4")
        await stage.karmada.cluster("m2", cpu="3")
        await stage.controller.start()
        await stage.karmada.job("there", "q", cpu=3)
        await stage.admitted("there")
        await stage.karmada.phase("there", "Running")
        assert stage.bindings()["there"].clusters == ("m2",)
        await stage.karmada.job("moves", "q", cpu=4)
        await stage.admitted("moves")
        await change(stage, "moves", clusters=[{"name": "m2"}])
        event = await wait_for_event(stage, "ClusterChanged", "Job", "moves", action="Evict")
        assert "it was moved to m2, where it does not fit" in event["note"]
        # Its place is m1, which is free.
        await stage.until(lambda seen: seen["moves"].admitted and seen["moves"].clusters == ("m1",), "back")
        assert (record(stage, "moves")["attempts"], record(stage, "moves")["evictions"]) == (1, 0)
        await stage.karmada.phase("moves", "Running")
        await stage.expect_no_writes(seconds=0.5)


async def test_r1_one_that_runs_is_never_evicted_for_a_move(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="4")
        await stage.karmada.cluster("m2", cpu="1")
        await stage.controller.start()
        await stage.karmada.job("runs", "q", cpu=4)
        await stage.admitted("runs")
        told = [{"clusterName": "m2", "status": {"state": {"phase": "Running"}}}]
        await stage.karmada.merge(f"{stage.karmada.path('runs')}/status", {"status": {"aggregatedStatus": told}})
        await change(stage, "runs", clusters=[{"name": "m2"}])
        await stage.until(lambda seen: seen["runs"].record.get("clusters") == ["m2"], "recorded")
        await stage.expect_no_writes(seconds=0.5)
        assert stage.bindings()["runs"].clusters == ("m2",)


async def test_an_accepted_growth_is_recorded(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="9")
        await stage.controller.start()
        await stage.karmada.job("grows", "q")
        await stage.admitted("grows")
        path = f"{stage.karmada.folder('jobs')}/grows"
        task = stage.history.now["jobs"][stage.karmada.namespace, "grows"]["spec"]["tasks"][0]
        await stage.karmada.merge(path, {"spec": {"tasks": [{**task, "replicas": 3}]}})
        await stage.until(lambda seen: seen["grows"].record["charge"]["cpu"] == "3", "recorded")
        await stage.expect_no_writes(seconds=0.5)


async def test_one_paused_by_hand_keeps_its_place_and_is_resumed_though_its_queue_is_closed(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q", capability={"cpu": "4"})
        await stage.karmada.cluster("m1", cpu="9")
        await stage.controller.start()
        await stage.karmada.job("held", "q", cpu=4)
        await stage.admitted("held")
        await stage.karmada.job("waits", "q", cpu=4)
        await change(stage, "held", suspension={"scheduling": True})
        await wait_for_event(stage, "ResuspendedAfterAdmission", "Job", "held")
        await stage.admitted("held")
        assert stage.bindings()["waits"].suspended


async def test_one_paused_and_cleared_by_hand_waits_behind_who_gets_its_place(plane, tmp_path):
    """The leak of Karmada's event filter places it once more: that is no admission."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q", capability={"cpu": "4"})
        await stage.karmada.cluster("m1", cpu="9")
        await stage.controller.start()
        await stage.karmada.job("held", "q", cpu=4)
        await stage.admitted("held")
        await stage.karmada.phase("held", "Running")
        await stage.karmada.job("next", "q", cpu=4)
        await change(stage, "held", suspension={"scheduling": True}, clusters=None)
        await wait_for_event(stage, "EvictedByOthers", "Job", "held")
        await stage.until(lambda seen: not seen["held"].record["charge"], "recorded as evicted")
        await change(stage, "held", clusters=[{"name": "m1"}])
        await stage.until(lambda seen: not seen["held"].clusters, "cleared again")
        assert stage.bindings()["held"].suspended
        await stage.karmada.merge(f"{stage.karmada.path('held')}/status", {"status": {"aggregatedStatus": []}})
        await stage.until(lambda seen: seen["held"].admitted or seen["next"].admitted, "one of them")
        await stage.expect_no_writes(seconds=0.5)
        assert sum(binding.admitted for binding in stage.bindings().values()) == 1
