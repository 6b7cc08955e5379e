"""F28 and F6 for HyperJobs: the controller is killed at each of its writes, from the split to the end.

The store's history shows that no part has two Jobs, none is created after the end, and all parts are admitted in one
plan (I1 to I5). A fake detector creates a binding for each Job, placed by its policy.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import get_args

import pytest

from controller.api.keys import HYPERJOBS, JOBS, PROPAGATION_POLICIES
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.rig.background import run_in_background
from tests.rig.binding_state import parse_binding
from tests.rig.faults import Kill, When
from tests.rig.harness import Harness, open_harness
from tests.rig.hyperjob_invariant import HyperJobChecker

SEED = 20_261_121
WRITES = 12
"""Split, two policies, two Jobs, two admissions, and status updates, some of which are combined."""
POINTS = [(number, when) for number in range(1, WRITES + 1) for when in get_args(When)]


async def detect(harness: Harness) -> None:
    """Create missing bindings of Jobs and copy the member's status to them, until cancelled."""
    bound: set[str] = set()
    told: dict[str, str] = {}
    while True:
        seen = harness.history.revision
        bindings = harness.history.now.get("resourcebindings", {})
        for (namespace, name), job in list(harness.history.now.get("jobs", {}).items()):
            binding = bindings.get((namespace, f"{name}-job"))
            policy = harness.history.now.get("propagationpolicies", {}).get((namespace, name))
            if namespace != harness.karmada.namespace or policy is None:
                continue
            uid = job["metadata"]["uid"]
            if binding is None:
                # A created binding may not be observed yet.
                if uid not in bound:
                    bound.add(uid)
                    await harness.karmada.bind(name, uid, placement=policy["spec"]["placement"])
            elif (phase := _phase(binding)) and told.get(name) != phase:
                path = f"{JOBS.item_path(namespace, name)}/status"
                await harness.karmada.merge(path, {"status": {"state": {"phase": phase}}})
                told[name] = phase
        await harness.history.until(lambda now, seen=seen: now.revision > seen, "anything", seconds=3600)


def _phase(binding) -> str:
    items = binding.get("status", {}).get("aggregatedStatus") or [{}]
    return (items[0].get("status") or {}).get("state", {}).get("phase", "")


@asynccontextmanager
async def hyperjob_harness(plane, folder) -> AsyncIterator[Harness]:
    """Yield a harness with capacity for a HyperJob of two parts, and check the HyperJob's history at the end."""
    async with open_harness(plane, folder) as harness:
        await harness.karmada.queue("ml")
        for name in ("m1", "m2"):
            await harness.karmada.cluster(name, cpu="4", **{"nvidia.com/gpu": "4"})
        found = document(replicated("t", task(replicas=4), replicas=2))
        found["metadata"] = {"name": "llm"}
        await harness.karmada.create(HYPERJOBS.item_path(harness.karmada.namespace, "").rstrip("/"), found)
        try:
            async with run_in_background(detect(harness)):
                yield harness
                await judged(harness)
        finally:
            for resource in (HYPERJOBS, PROPAGATION_POLICIES):
                await harness.karmada.api.delete(resource.item_path(harness.karmada.namespace, "").rstrip("/"))


def phase(harness: Harness) -> str:
    found = harness.history.now.get("hyperjobs", {}).get((harness.karmada.namespace, "llm"), {})
    return found.get("status", {}).get("phase", "")


async def over(harness: Harness) -> None:
    """Wait until the HyperJob has finished and nothing more is written."""
    await harness.history.until(lambda _: phase(harness) == "Completed", "the HyperJob over")
    await harness.expect_no_writes(seconds=0.3)


async def judged(harness: Harness) -> None:
    """Check that each part has one Job and that both parts have one plan."""
    families = HyperJobChecker()
    changes = list(harness.history.changes)
    assert [item for change in changes for item in families.apply(change)] == []
    assert list(families.unlike_their_split()) == []
    assert [len([item for item in changes if _is_new(harness, item, name)]) for name in ("llm-t-0", "llm-t-1")] == [
        1,
        1,
    ]
    # After a kill between the two patches the next controller admits the second part on its own.
    assert len(plans(harness) - {""}) == 1


def plans(harness: Harness) -> set[str]:
    """Return the plans that admitted several parts."""
    admitted = [parse_binding(item.after) for item in harness.history.of("resourcebindings") if item.after is not None]
    return {item.record["planID"] for item in admitted if item.admitted}


def _is_new(harness: Harness, change, name) -> bool:
    return change.kind == "jobs" and change.key == (harness.karmada.namespace, name) and change.before is None


async def test_run_without_faults_has_the_enumerated_writes(plane, tmp_path):
    async with hyperjob_harness(plane, tmp_path) as harness:
        await harness.controller.start()
        await over(harness)
        assert "" not in plans(harness)
        assert WRITES - 4 <= len(harness.requests()) <= WRITES + 2, [
            (request.verb, request.resource, request.name) for request in harness.requests()
        ]


async def shot(plane, folder, number: int, when: When) -> None:
    async with hyperjob_harness(plane, folder) as harness:
        kill = Kill(number, when, harness.controller.kill)
        harness.proxy.add(kill)
        await asyncio.to_thread(harness.controller.part.begin)
        ended = asyncio.create_task(harness.history.until(lambda _: phase(harness) == "Completed", "over"))
        struck = asyncio.create_task(kill.struck.wait())
        await asyncio.wait({ended, struck}, return_when=asyncio.FIRST_COMPLETED)
        struck.cancel()
        if kill.struck.is_set():
            await harness.controller.start()
        await ended
        await over(harness)


@pytest.mark.parametrize(("number", "when"), random.Random(SEED).sample(POINTS, 3))
async def test_kill_at_sampled_writes_creates_each_part_once(plane, tmp_path, number, when):
    await shot(plane, tmp_path, number, when)


@pytest.mark.long
@pytest.mark.parametrize(("number", "when"), POINTS)
async def test_kill_at_any_write_creates_each_part_once(plane, tmp_path, number, when):
    await shot(plane, tmp_path, number, when)
