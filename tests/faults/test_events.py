"""F5: each event of a watch is lost, told twice, late, or after the one that follows it; the end stays the same."""

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
#: No story has more events of one kind than this; one that ends with its events ends the enumeration.
MOST = 60


async def spoiled(plane, tmp_path, scenario: Scenario, fault: DisturbEvent) -> bool:
    """Play *scenario* with *fault*; say whether it struck."""
    async with open_harness(plane, tmp_path) as harness:
        harness.proxy.add(fault)
        await harness.controller.start()
        await scenario.before(harness)
        await scenario.play(harness)
    return fault.seen >= fault.n


@pytest.mark.parametrize(("story", "kind", "how"), random.Random(SEED).sample(CASES, 3))
async def test_one_spoiled_event_of_the_sample_changes_nothing(plane, tmp_path, story, kind, how):
    assert await spoiled(plane, tmp_path, STORIES[story], DisturbEvent(kind, 2 if kind != "queues" else 1, how))


@pytest.mark.long
@pytest.mark.parametrize(("story", "kind", "how"), CASES)
async def test_whichever_event_is_spoiled_the_end_is_the_same(plane, tmp_path, story, kind, how):
    for n in range(1, MOST):
        if not await spoiled(plane, tmp_path, STORIES[story], DisturbEvent(kind, n, how)):
            return
    pytest.fail("a story has more events than it should")
