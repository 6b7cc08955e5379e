"""Learned run times in the ConfigMap of a real API server, which replace hostile content."""

from datetime import UTC, datetime

from controller.api.keys import CONFIG_MAPS, RUN_TIMES_KEY, RUN_TIMES_NAME
from controller.forecast.codec import RunTimesError, decode_run_times
from controller.forecast.run_times import Level
from tests.rig.harness import open_harness
from tests.waiting import poll

PATH = CONFIG_MAPS.item_path("karmada-system", RUN_TIMES_NAME)
HOSTILE = '{"version": 1, "until": 0, "histories": [[9'


async def test_run_times_replace_what_is_unreadable(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.delete(PATH)
        metadata = {"name": RUN_TIMES_NAME, "namespace": "karmada-system"}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {RUN_TIMES_KEY: HOSTILE}}
        await harness.karmada.create(PATH.rpartition("/")[0], manifest)
        await harness.start()
        await harness.karmada.job("one", "q")
        await harness.admitted("one")
        await harness.karmada.phase("one", "Running")
        state = {"phase": "Completed", "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        await harness.karmada.report("one", state=state)
        await harness.done("one")

        async def runs() -> int:
            histories, *_ = decode_run_times((await harness.karmada.read(PATH))["data"][RUN_TIMES_KEY])
            return sum(len(history.runs) for key, history in histories if key.level is Level.ALL)

        assert await poll(runs, "the learned run", ignoring=(RunTimesError,)) == 1
        assert "stored run times unreadable" in harness.controller.part.output
        await harness.karmada.delete(PATH)
