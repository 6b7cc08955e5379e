"""F5: lost, repeated, delayed or reordered watch events do not change the final state."""

import random
from typing import get_args

import pytest

from tests.rig.faults import Disturbance, DisturbEvent
from tests.rig.harness import open_harness
from tests.rig.scenarios import SCENARIOS, Scenario

SEED = 20_261_121
STORIES = {item.name: item for item in SCENARIOS if item.name in {"chain", "gangs", "again", "ebb"}}
WATCHED = ("resourcebindings", "jobs", "queues", "clusters")
CASES = [(story, kind, how) for story in STORIES for kind in WATCHED for how in get_args(Disturbance)]
#: Upper bound of events of one kind in a scenario; the enumeration ends with the scenario's events.
MOST = 60


async def spoiled(plane, tmp_path, scenario: Scenario, fault: DisturbEvent) -> bool:
    """Run *scenario* with *fault*; return whether it struck."""
    async with open_harness(plane, tmp_path) as harness:
        harness.proxy.add(fault)
        await harness.controller.start()
        await scenario.before(harness)
        await scenario.play(harness)
    return fault.seen >= fault.n


@pytest.mark.parametrize(("story", "kind", "how"), random.Random(SEED).sample(CASES, 3))
async def test_sampled_event_faults_keep_the_final_state(plane, tmp_path, story, kind, how):
    assert await spoiled(plane, tmp_path, STORIES[story], DisturbEvent(kind, 2 if kind != "queues" else 1, how))


@pytest.mark.long
@pytest.mark.parametrize(("story", "kind", "how"), CASES)
async def test_any_event_fault_keeps_the_final_state(plane, tmp_path, story, kind, how):
    for n in range(1, MOST):
        if not await spoiled(plane, tmp_path, STORIES[story], DisturbEvent(kind, n, how)):
            return
    pytest.fail("a story has more events than it should")
