"""G1 on a real API server: while one HyperJob part does not fit, no member cluster gets any part."""

import asyncio
from typing import Any

import pytest

from controller.api.keys import JOBS
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.e2e.environment import Environment
from tests.e2e.hyperjobs import auto, names, submit, until, works


def plans(environment: Environment) -> dict[str, str]:
    """Return the plan that first admitted each part."""
    found: dict[str, str] = {}
    for moment in environment.observer.moments:
        if moment.is_admitted and moment.record:
            found.setdefault(moment.job, moment.record["planID"])
    return found


async def pending(environment: Environment, reason: str, message: str) -> dict[str, Any]:
    """Wait until the HyperJob is pending with this reason; return its status."""
    for _ in range(300):
        status: dict[str, Any] = await until(environment, "llm", "Pending")
        if status["conditions"][0]["reason"] == reason and message in status["message"]:
            return status
        await asyncio.sleep(0.1)
    raise AssertionError(f"it is pending for another reason: {status}")


@pytest.mark.parametrize(
    ("manifest", "free", "added", "reason", "message", "places"),
    [
        pytest.param(
            document(replicated("trainer", task(replicas=128), replicas=2), minAvailable=2, maxDomains=2),
            {"one": 128, "two": 127},
            128,
            "HyperJobDoesNotFit",
            "llm-trainer-1",
            ["one", "three"],
            id="two-copies",
        ),
        pytest.param(
            auto(256, maxDomains=3),
            {"one": 128, "two": 64, "four": 48},
            100,
            "ExceedsEveryCluster",
            "nvidia.com/gpu of 256 free",
            ["one", "three", "four"],
            id="automatic-split",
        ),
    ],
)
async def test_no_part_is_dispatched_until_all_parts_fit(
    environment: Environment, *, manifest, free, added, reason, message, places
):
    for cluster, gpus in free.items():
        await environment.cluster(cluster, cpu="1000", gpu=str(gpus))
    await environment.queue("ml")
    await submit(environment, manifest, runtime="2s")
    before = await pending(environment, reason, message)
    assert [condition["type"] for condition in before["conditions"] if condition["status"] == "True"] == ["Pending"]
    await asyncio.sleep(1)
    assert (await pending(environment, reason, message))["message"] == before["message"]
    assert await works(environment) == []
    assert not any(moment.clusters for moment in environment.observer.moments)
    await environment.cluster("three", cpu="1000", gpu=str(added))
    status = await until(environment, "llm", "Completed")
    assert [part["runningOn"] for part in status["split"]["parts"]] == places
    assert len(plans(environment)) == len(places)
    assert len({*plans(environment).values()}) == 1, "all parts in one plan"


async def test_minimum_parts_start_together_and_the_rest_follows(environment: Environment):
    for name in ("a", "b"):
        await environment.cluster(name, cpu="1000", gpu="8")
    await environment.queue("ml")
    await submit(environment, document(replicated("t", task(replicas=8), replicas=3), minAvailable=2), runtime="2s")
    await environment.observer.until(lambda seen: len(seen.admitted()) == 2, "two of three")
    assert environment.observer.admitted() == ["llm-t-0", "llm-t-1"]
    assert len({*plans(environment).values()}) == 1
    status = await until(environment, "llm", "Completed")
    assert status["replicatedJobsStatus"][0]["succeeded"] == 24
    assert await names(environment, JOBS) == ["llm-t-0", "llm-t-1", "llm-t-2"]
