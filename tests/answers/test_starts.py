"""R1: what was admitted and does not run is given to Karmada once more, and then taken back."""

import json
from typing import Any

from controller.api.keys import ADMISSION
from tests.answers import kinds
from tests.answers.telling import until_told
from tests.rig.stage import Stage, staged

TIMEOUT = 3


def record(stage: Stage, name: str) -> dict[str, Any]:
    stored = stage.history.now["resourcebindings"][stage.cast.namespace, f"{name}-job"]
    found: dict[str, Any] = json.loads(stored["metadata"].get("annotations", {}).get(ADMISSION, "{}"))
    return found


def pauses(stage: Stage, name: str) -> int:
    """Return how often a binding that was on a cluster was paused there."""
    key = stage.cast.namespace, f"{name}-job"
    states = [each.after["spec"] for each in stage.history.changes if each.key == key and each.after]
    return sum(bool(each.get("clusters")) and bool(each["suspension"]["scheduling"]) for each in states)


async def test_r1_what_does_not_start_is_requeued_and_then_tried_elsewhere(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(kinds.configuration(admissionTimeout=f"{TIMEOUT}s"))
    async with staged(plane, tmp_path, "--admission-configuration", file, plays=False) as stage:
        await stage.cast.queue("q")
        await stage.cast.cluster("m1", cpu="2")
        await stage.cast.cluster("m2", cpu="9")
        await stage.controller.start()
        await stage.cast.job("stuck", "q")
        await stage.cast.job("runs", "q")
        await stage.admitted("stuck", "runs")
        for name, phase in (("stuck", "Pending"), ("runs", "Running")):
            await stage.cast.phase(name, phase)
        assert stage.sights()["stuck"].clusters == ("m1",), "the tightest fit"
        await stage.history.until(lambda _: pauses(stage, "stuck") == 1, "requeued")
        await stage.admitted("stuck")
        await until_told(stage, "NotStarted", "Job", "stuck", action="Evict")
        assert record(stage, "stuck")["attempts"] == 1
        # Its works are gone, and what they told with them.
        await stage.cast.merge(f"{stage.cast.path('stuck')}/status", {"status": {"aggregatedStatus": []}})
        await stage.until(lambda seen: seen["stuck"].admitted and seen["stuck"].clusters == ("m2",), "elsewhere")
        await stage.cast.phase("stuck", "Running")
        await stage.quiet(seconds=TIMEOUT * 2)
        assert (pauses(stage, "runs"), record(stage, "stuck")["attempts"]) == (0, 1)
        assert "Repaused" not in stage.controller.part.output
