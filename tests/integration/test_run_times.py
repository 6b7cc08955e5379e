"""Learned run times in the ConfigMap of a real API server: writes, restart, hostile content."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.api.keys import CONFIG_MAPS, RUN_TIMES_KEY, RUN_TIMES_NAME
from controller.forecast.codec import MAX_BYTES, RunTimesError, decode_run_times
from controller.forecast.run_times import Level, RunTimes
from controller.kube.errors import NotFound
from tests.rig import audit
from tests.rig.harness import Harness, open_harness
from tests.waiting import LIMIT_SECONDS

PATH = CONFIG_MAPS.item_path("karmada-system", RUN_TIMES_NAME)


async def stored(harness: Harness) -> str:
    """Return the document in the ConfigMap."""
    manifest: dict[str, Any] = json.loads(await harness.karmada.api.get(PATH))
    text: str = manifest["data"][RUN_TIMES_KEY]
    return text


async def learned(harness: Harness, count: int) -> None:
    """Wait until the stored run times include *count* runs."""
    known = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LIMIT_SECONDS):
            while known < count:
                with contextlib.suppress(RunTimesError):
                    known = runs(decode_run_times(await stored(harness))[0])
                await asyncio.sleep(0.1)
    assert known == count


def runs(run_times: RunTimes) -> int:
    """Return how many runs of all jobs are known."""
    return sum(len(history.runs) for key, history in run_times if key.level is Level.ALL)


def writes(harness: Harness) -> list[audit.Request]:
    log = harness.plane.audit_log
    return [
        each for each in audit.read(log, since=harness.logged) if each.name == RUN_TIMES_NAME and each.verb == "patch"
    ]


async def finish(harness: Harness, *names: str, late: bool) -> None:
    """Run jobs to their end, reported in whole seconds as Volcano does: rounded up where *late*."""
    for name in names:
        await harness.karmada.job(name, "q")
    await harness.admitted(*names)
    for name in names:
        await harness.karmada.phase(name, "Running")
        ended = (datetime.now(UTC) + timedelta(seconds=late)).strftime("%Y-%m-%dT%H:%M:%SZ")
        state = {"phase": "Completed", "lastTransitionTime": ended}
        status = {"aggregatedStatus": [{"clusterName": "m1", "applied": True, "status": {"state": state}}]}
        await harness.karmada.merge(f"{harness.karmada.path(name)}/status", {"status": status})
    await harness.done(*names)


async def test_run_times_are_written_once_a_minute_and_read_again(plane, tmp_path):
    async with open_harness(plane, tmp_path, controllers=2, plays=False) as harness:
        first, second = harness.controllers
        with contextlib.suppress(NotFound):
            await harness.karmada.delete(PATH)
        hostile = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": RUN_TIMES_NAME, "namespace": "karmada-system"},
            "data": {RUN_TIMES_KEY: '{"version": 1, "until": 0, "histories": [[9'},
        }
        await harness.karmada.create(PATH.removesuffix(f"/{RUN_TIMES_NAME}"), hostile)
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="100")
        await first.start()
        await finish(harness, "one", late=False)
        await learned(harness, 1)
        assert "stored run times unreadable" in first.part.output
        # The next write is a minute later; these end after the first one.
        await finish(harness, "two", "three", late=True)
        await harness.expect_no_writes()
        assert len(writes(harness)) == 1

        first.kill()
        harness.controllers.reverse()
        await second.start()
        # The new leader reads the first run, and adds those that finished after the last write.
        await learned(harness, 3)
        assert len(writes(harness)) == 2
        assert len(await stored(harness)) < MAX_BYTES
        await harness.karmada.delete(PATH)
