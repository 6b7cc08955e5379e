"""F6: the controller is killed at each of its writes; started work is finished exactly once."""

import asyncio
import random
from typing import get_args

import pytest

from tests.rig.faults import Kill, When
from tests.rig.harness import open_harness
from tests.rig.scenarios import SCENARIOS, Scenario
from tests.waiting import LIMIT_SECONDS

SEED = 20_261_121
POINTS = [
    (scenario, n, when) for scenario in SCENARIOS for n in range(1, scenario.writes + 1) for when in get_args(When)
]


def named(points: list[tuple[Scenario, int, When]]) -> list:
    return [pytest.param(*point, id=f"{point[0].name}-{point[1]}-{point[2]}") for point in points]


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(item, id=item.name, marks=() if item.name in {"gangs", "mended"} else pytest.mark.long)
        for item in SCENARIOS
    ],
)
async def test_scenario_without_faults_has_its_number_of_writes(plane, tmp_path, scenario):
    async with open_harness(plane, tmp_path) as harness:
        await scenario.before(harness)
        await harness.controller.start()
        await scenario.play(harness)
        # A job that is deleted before its admission needs one write less.
        assert scenario.writes - 1 <= len(harness.requests()) <= scenario.writes


async def shot(plane, tmp_path, scenario: Scenario, n: int, when: When) -> None:
    async with open_harness(plane, tmp_path) as harness:
        await scenario.before(harness)
        controller = harness.controller
        kill = Kill(n, when, controller.kill)
        harness.proxy.add(kill)
        await asyncio.to_thread(controller.part.begin)
        playing = asyncio.create_task(scenario.then(harness))
        async with asyncio.timeout(LIMIT_SECONDS):
            await kill.struck.wait()
        await controller.start()
        await playing
        await scenario.finish(harness)


@pytest.mark.parametrize(("scenario", "n", "when"), named(random.Random(SEED).sample(POINTS, 3)))
async def test_kill_at_sampled_writes_reaches_the_same_end(plane, tmp_path, scenario, n, when):
    await shot(plane, tmp_path, scenario, n, when)


@pytest.mark.long
@pytest.mark.parametrize(("scenario", "n", "when"), named(POINTS))
async def test_kill_at_any_write_reaches_the_same_end(plane, tmp_path, scenario, n, when):
    await shot(plane, tmp_path, scenario, n, when)
