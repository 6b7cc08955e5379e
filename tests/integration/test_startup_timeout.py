"""R1, G1: workloads that do not start after admission are requeued in Karmada, then evicted."""

import json
from typing import Any

from controller.api.keys import ADMISSION_ANNOTATION, HYPERJOBS, PROPAGATION_POLICIES
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.integration import gated_kinds
from tests.integration.events import wait_for_event
from tests.rig.harness import Harness, open_harness

TIMEOUT = 3


def suspensions(harness: Harness, name: str) -> int:
    """Return how often a placed binding was suspended."""
    key = harness.karmada.namespace, f"{name}-job"
    states = [change.after["spec"] for change in harness.history.changes if change.key == key and change.after]
    return sum(bool(state.get("clusters")) and bool(state["suspension"]["scheduling"]) for state in states)


async def test_r1_unstarted_workload_is_requeued_then_moved(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(startupTimeout=f"{TIMEOUT}s"))
    async with open_harness(plane, tmp_path, "--admission-configuration", file, plays=False) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="2")
        await harness.karmada.cluster("m2", cpu="9")
        await harness.controller.start()
        await harness.karmada.job("stuck", "q")
        await harness.karmada.job("runs", "q")
        await harness.admitted("stuck", "runs")
        for name, phase in (("stuck", "Pending"), ("runs", "Running")):
            await harness.karmada.phase(name, phase)
        assert harness.bindings()["stuck"].clusters == ("m1",), "the best fit"
        await harness.history.until(lambda _: suspensions(harness, "stuck") == 1, "requeued")
        await harness.admitted("stuck")
        await wait_for_event(harness, "StartupTimeout", "Job", "stuck", action="Evict")
        assert harness.record("stuck")["attempts"] == 1
        # Karmada deletes its Works and their status.
        await harness.karmada.delete_works("stuck")
        await harness.until(lambda seen: seen["stuck"].admitted and seen["stuck"].clusters == ("m2",), "moved")
        await harness.karmada.phase("stuck", "Running")
        await harness.expect_no_writes(seconds=TIMEOUT * 2)
        assert (suspensions(harness, "runs"), harness.record("stuck")["attempts"]) == (0, 1)
        assert "ResuspendedAfterAdmission" not in harness.controller.part.output


async def change_record(harness: Harness, name: str, **changes: Any) -> None:
    """Change fields of the record of a binding."""
    uid = harness.history.now["resourcebindings"][harness.karmada.namespace, f"{name}-job"]["metadata"]["uid"]
    text = json.dumps({"uid": uid, **harness.record(name), **changes})
    await harness.karmada.merge(harness.karmada.path(name), {"metadata": {"annotations": {ADMISSION_ANNOTATION: text}}})


async def delete_works(harness: Harness, *names: str) -> None:
    """Remove the status of the Works, as Karmada does when it deletes them."""
    for name in names:
        await harness.karmada.delete_works(name)


async def test_r2_new_leader_honours_backoff_and_excluded_cluster(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(startupTimeout=f"{TIMEOUT}s"))
    flags = ("--admission-configuration", file)
    async with open_harness(plane, tmp_path, *flags, controllers=2, plays=False) as harness:
        first, second = harness.controllers
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="2")
        await harness.karmada.job("stuck", "q")
        # After ten failed attempts the next backoff is longer than this test.
        await harness.until(lambda seen: "stuck" in seen, "bound")
        await change_record(harness, "stuck", attempts=10)
        await first.start()
        await harness.admitted("stuck")
        await harness.karmada.phase("stuck", "Pending")
        await harness.until(lambda seen: seen["stuck"].record.get("attempts") == 11, "evicted")
        assert {*harness.record("stuck")["excludedClusters"]} == {"m1"}
        assert harness.record("stuck")["startupFailedAt"] < harness.record("stuck")["backOffUntil"]
        first.kill()
        await delete_works(harness, "stuck")
        harness.controllers.reverse()
        await second.start()
        await second.wait_for_log('"event":"leadership acquired"')
        await second.wait_for_log("it did not start on m1 in time")
        await harness.expect_no_writes(seconds=TIMEOUT)
        # The backoff is over, but the excluded cluster has not changed.
        await change_record(harness, "stuck", backOffUntil="2026-01-01T00:00:00Z")
        await harness.expect_no_writes(seconds=TIMEOUT)
        assert harness.bindings()["stuck"].suspended
        await harness.karmada.set_summary("m1", cpu="3")
        await harness.admitted("stuck")
        stored = harness.record("stuck")
        assert (stored["attempts"], stored.keys() & {"excludedClusters", "backOffUntil", "startupFailedAt"}) == (
            11,
            set(),
        )
        await harness.karmada.phase("stuck", "Running")
        await harness.expect_no_writes(seconds=TIMEOUT)


async def hyperjob(harness: Harness, name: str, *parts: str, minimum: int) -> None:
    """Create a HyperJob of which *minimum* parts must run together, and the bindings of its Jobs."""
    jobs = [replicated(part, task(gpu=0, replicas=1), spec={"queue": "q"}) for part in parts]
    manifest = document(*jobs, minAvailable=minimum) | {"metadata": {"name": name}}
    await harness.karmada.create(HYPERJOBS.item_path(harness.karmada.namespace, "").rstrip("/"), manifest)
    keys = [(harness.karmada.namespace, f"{name}-{part}-0") for part in parts]
    await harness.history.until(lambda now: all(key in now.now.get("jobs", {}) for key in keys), "Jobs created")
    for key in keys:
        await harness.karmada.bind(key[1], harness.history.now["jobs"][key]["metadata"]["uid"])


def messages(harness: Harness) -> list[str]:
    return [item.get("status", {}).get("message", "") for item in harness.history.now["hyperjobs"].values()]


async def test_g1_startup_timeout_evicts_parts_below_the_minimum(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(startupTimeout=f"{TIMEOUT}s"))
    async with open_harness(plane, tmp_path, "--admission-configuration", file, plays=False) as harness:
        await harness.start(cpu="5")
        await hyperjob(harness, "whole", "runs", "stuck", minimum=2)
        await hyperjob(harness, "enough", "runs", "too", "stuck", minimum=2)
        names = ("whole-runs-0", "whole-stuck-0", "enough-runs-0", "enough-too-0", "enough-stuck-0")
        await harness.admitted(*names)
        for name in names:
            await harness.karmada.phase(name, "Pending" if name.endswith("stuck-0") else "Running")
        evicted = ("whole-runs-0", "whole-stuck-0", "enough-stuck-0")
        await harness.until(
            lambda seen: all(seen[name].suspended and not seen[name].clusters for name in evicted), "evicted"
        )
        assert all(harness.bindings()[name].admitted for name in ("enough-runs-0", "enough-too-0"))
        counts = {name: (harness.record(name)["attempts"], harness.record(name)["evictions"]) for name in evicted}
        assert counts == {"whole-runs-0": (0, 1), "whole-stuck-0": (1, 0), "enough-stuck-0": (1, 0)}
        assert harness.record("whole-runs-0")["backOffUntil"] == harness.record("whole-stuck-0")["backOffUntil"]
        assert {name for name in evicted if "excludedClusters" in harness.record(name)} == {
            "whole-stuck-0",
            "enough-stuck-0",
        }
        note = (await wait_for_event(harness, "StartupTimeout", "Job", "whole-runs-0", action="Evict"))["note"]
        assert "a part that its HyperJob needs did not start in time" in note
        await harness.karmada.cluster("m2", cpu="5")
        await delete_works(harness, *evicted)
        await harness.admitted(*evicted)
        assert harness.bindings()["whole-stuck-0"].clusters == ("m2",)
        assert harness.record("whole-runs-0")["planID"] == harness.record("whole-stuck-0")["planID"] != ""
        for name in evicted:
            await harness.karmada.phase(name, "Running")
        expected = {"2 of 2 parts are admitted", "3 of 3 parts are admitted"}
        await harness.history.until(lambda _: set(messages(harness)) == expected, "final messages of the HyperJobs")
        await harness.expect_no_writes(seconds=TIMEOUT)
        for resource in (HYPERJOBS, PROPAGATION_POLICIES):
            await harness.karmada.api.delete(resource.item_path(harness.karmada.namespace, "").rstrip("/"))
