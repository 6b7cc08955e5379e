"""R1, G1: what was admitted and does not run is given to Karmada once more, and then taken back."""

import json
from typing import Any

from controller.api.keys import ADMISSION_ANNOTATION, HYPERJOBS, PROPAGATION_POLICIES
from tests.answers import gated_kinds
from tests.answers.events import wait_for_event
from tests.hyperjob.objects import document, replicated, task
from tests.rig.harness import Harness, open_harness

TIMEOUT = 3


def record(stage: Harness, name: str) -> dict[str, Any]:
    stored = stage.history.now["resourcebindings"][stage.karmada.namespace, f"{name}-job"]
    found: dict[str, Any] = json.loads(stored["metadata"].get("annotations", {}).get(ADMISSION_ANNOTATION, "{}"))
    return found


def pauses(stage: Harness, name: str) -> int:
    """Return how often a binding that was on a cluster was paused there."""
    key = stage.karmada.namespace, f"{name}-job"
    states = [change.after["spec"] for change in stage.history.changes if change.key == key and change.after]
    return sum(bool(state.get("clusters")) and bool(state["suspension"]["scheduling"]) for state in states)


async def test_r1_what_does_not_start_is_requeued_and_then_tried_elsewhere(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(startupTimeout=f"{TIMEOUT}s"))
    async with open_harness(plane, tmp_path, "--admission-configuration", file, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="2")
        await stage.karmada.cluster("m2", cpu="9")
        await stage.controller.start()
        await stage.karmada.job("stuck", "q")
        await stage.karmada.job("runs", "q")
        await stage.admitted("stuck", "runs")
        for name, phase in (("stuck", "Pending"), ("runs", "Running")):
            await stage.karmada.phase(name, phase)
        assert stage.bindings()["stuck"].clusters == ("m1",), "the tightest fit"
        await stage.history.until(lambda _: pauses(stage, "stuck") == 1, "requeued")
        await stage.admitted("stuck")
        await wait_for_event(stage, "StartupTimeout", "Job", "stuck", action="Evict")
        assert record(stage, "stuck")["attempts"] == 1
        # Its works are gone, and what they told with them.
        await stage.karmada.merge(f"{stage.karmada.path('stuck')}/status", {"status": {"aggregatedStatus": []}})
        await stage.until(lambda seen: seen["stuck"].admitted and seen["stuck"].clusters == ("m2",), "elsewhere")
        await stage.karmada.phase("stuck", "Running")
        await stage.expect_no_writes(seconds=TIMEOUT * 2)
        assert (pauses(stage, "runs"), record(stage, "stuck")["attempts"]) == (0, 1)
        assert "Repaused" not in stage.controller.part.output


async def settle_record(stage: Harness, name: str, **changes: Any) -> None:
    """Let the record of a binding say something else."""
    uid = stage.history.now["resourcebindings"][stage.karmada.namespace, f"{name}-job"]["metadata"]["uid"]
    text = json.dumps({"uid": uid, **record(stage, name), **changes})
    await stage.karmada.merge(stage.karmada.path(name), {"metadata": {"annotations": {ADMISSION_ANNOTATION: text}}})


async def leave(stage: Harness, *names: str) -> None:
    """Let the works be gone, and what they told with them."""
    for name in names:
        await stage.karmada.merge(f"{stage.karmada.path(name)}/status", {"status": {"aggregatedStatus": []}})


async def test_r2_who_takes_over_knows_the_pause_and_the_cluster_that_is_left_out(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(startupTimeout=f"{TIMEOUT}s"))
    flags = ("--admission-configuration", file)
    async with open_harness(plane, tmp_path, *flags, controllers=2, plays=False) as stage:
        first, second = stage.controllers
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="2")
        await stage.karmada.job("stuck", "q")
        # It has failed so often that the next pause outlasts this test; such a record tells of no place.
        await stage.until(lambda seen: "stuck" in seen, "bound")
        await settle_record(stage, "stuck", attempts=10)
        await first.start()
        await stage.admitted("stuck")
        await stage.karmada.phase("stuck", "Pending")
        await stage.until(lambda seen: seen["stuck"].record.get("attempts") == 11, "taken back")
        assert {*record(stage, "stuck")["excludedClusters"]} == {"m1"}
        assert record(stage, "stuck")["startupFailedAt"] < record(stage, "stuck")["backOffUntil"]
        first.kill()
        await leave(stage, "stuck")
        stage.controllers.reverse()
        await second.start()
        await second.wait_for_log('"event":"leadership acquired"')
        await second.wait_for_log("it did not start on m1 in time")
        await stage.expect_no_writes(seconds=TIMEOUT)
        # The pause is over, and yet that cluster is what it was.
        await settle_record(stage, "stuck", backOffUntil="2026-01-01T00:00:00Z")
        await stage.expect_no_writes(seconds=TIMEOUT)
        assert stage.bindings()["stuck"].suspended
        await stage.karmada.set_summary("m1", cpu="3")
        await stage.admitted("stuck")
        kept = record(stage, "stuck")
        assert (kept["attempts"], kept.keys() & {"excludedClusters", "backOffUntil", "startupFailedAt"}) == (11, set())
        await stage.karmada.phase("stuck", "Running")
        await stage.expect_no_writes(seconds=TIMEOUT)


async def hyperjob(stage: Harness, name: str, *parts: str, minimum: int) -> None:
    """Submit a HyperJob of so many Jobs, of which so many must run together, and bind them as Karmada would."""
    jobs = [replicated(part, task(gpu=0, replicas=1), spec={"queue": "q"}) for part in parts]
    manifest = document(*jobs, minAvailable=minimum) | {"metadata": {"name": name}}
    await stage.karmada.create(HYPERJOBS.item_path(stage.karmada.namespace, "").rstrip("/"), manifest)
    keys = [(stage.karmada.namespace, f"{name}-{part}-0") for part in parts]
    await stage.history.until(lambda now: all(key in now.now.get("jobs", {}) for key in keys), "its Jobs")
    for key in keys:
        await stage.karmada.bind(key[1], stage.history.now["jobs"][key]["metadata"]["uid"])


def messages(stage: Harness) -> list[str]:
    return [item.get("status", {}).get("message", "") for item in stage.history.now["hyperjobs"].values()]


async def test_g1_a_part_that_never_starts_takes_those_back_that_cannot_go_on_without_it(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(startupTimeout=f"{TIMEOUT}s"))
    async with open_harness(plane, tmp_path, "--admission-configuration", file, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="5")
        await stage.controller.start()
        await hyperjob(stage, "whole", "runs", "stuck", minimum=2)
        await hyperjob(stage, "enough", "runs", "too", "stuck", minimum=2)
        names = ("whole-runs-0", "whole-stuck-0", "enough-runs-0", "enough-too-0", "enough-stuck-0")
        await stage.admitted(*names)
        for name in names:
            await stage.karmada.phase(name, "Pending" if name.endswith("stuck-0") else "Running")
        back = ("whole-runs-0", "whole-stuck-0", "enough-stuck-0")
        await stage.until(lambda seen: all(seen[name].suspended and not seen[name].clusters for name in back), "back")
        assert all(stage.bindings()[name].admitted for name in ("enough-runs-0", "enough-too-0"))
        counts = {name: (record(stage, name)["attempts"], record(stage, name)["evictions"]) for name in back}
        assert counts == {"whole-runs-0": (0, 1), "whole-stuck-0": (1, 0), "enough-stuck-0": (1, 0)}
        assert record(stage, "whole-runs-0")["backOffUntil"] == record(stage, "whole-stuck-0")["backOffUntil"]
        assert {name for name in back if "excludedClusters" in record(stage, name)} == {
            "whole-stuck-0",
            "enough-stuck-0",
        }
        why = (await wait_for_event(stage, "StartupTimeout", "Job", "whole-runs-0", action="Evict"))["note"]
        assert "a part that its HyperJob needs did not start in time" in why
        await stage.karmada.cluster("m2", cpu="5")
        await leave(stage, *back)
        await stage.admitted(*back)
        assert stage.bindings()["whole-stuck-0"].clusters == ("m2",)
        assert record(stage, "whole-runs-0")["planID"] == record(stage, "whole-stuck-0")["planID"] != ""
        for name in back:
            await stage.karmada.phase(name, "Running")
        whole = {"2 of 2 parts are admitted", "3 of 3 parts are admitted"}
        await stage.history.until(lambda _: set(messages(stage)) == whole, "the HyperJobs' last word")
        await stage.expect_no_writes(seconds=TIMEOUT)
        for resource in (HYPERJOBS, PROPAGATION_POLICIES):
            await stage.karmada.api.delete(resource.item_path(stage.karmada.namespace, "").rstrip("/"))
