"""HyperJobs in the whole system: webhook, HyperJob controller, admission, clusters and status."""

import asyncio

import pytest

from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS, JOBS, PROPAGATION_POLICIES
from tests.e2e.environment import Environment
from tests.e2e.hyperjobs import auto, gone, submit, until, works
from tests.files import EXAMPLES, read_object


@pytest.mark.smoke
async def test_documented_hyperjob_completes_on_two_clusters(environment: Environment):
    await environment.cluster("cluster-a", cpu="1000", memory="4Ti", gpu="32")
    await environment.cluster("cluster-b", cpu="1000", memory="4Ti", gpu="40")
    await environment.queue("global-ai")
    found = read_object(EXAMPLES / "hyperjob-conceptual.yaml")
    await submit(environment, found, BATCH_HYPERJOBS, runtime="2s")
    running = await until(environment, "llm-train-hyperjob", "Running", resource=BATCH_HYPERJOBS)
    assert (running["partsRunning"], running["clusters"]) == ("2/2", "cluster-a,cluster-b")
    status = await until(environment, "llm-train-hyperjob", "Completed", resource=BATCH_HYPERJOBS)
    assert status["replicatedJobsStatus"][0]["succeeded"] == 64
    assert [part["runningOn"] for part in status["split"]["parts"]] == ["cluster-a", "cluster-b"]


async def test_suspended_and_deleted_hyperjob_leaves_nothing(environment: Environment):
    await environment.cluster("a", cpu="1000", gpu="4")
    await environment.cluster("b", cpu="1000", gpu="4")
    await environment.queue("ml")
    await submit(environment, auto(8), runtime="600s")
    await until(environment, "llm", "Running")
    path = HYPERJOBS.item_path(environment.namespace, "llm")
    await environment.api.patch(path, b'{"spec":{"suspend":true}}', kind="merge")
    await until(environment, "llm", "Suspended")
    await gone(environment, JOBS)
    await environment.observer.until(lambda seen: not seen.now, "bindings gone")
    await environment.api.patch(path, b'{"spec":{"suspend":false}}', kind="merge")
    await until(environment, "llm", "Running")
    await environment.api.delete(path)
    for resource in (JOBS, PROPAGATION_POLICIES):
        await gone(environment, resource)
    await environment.observer.until(lambda seen: not seen.now, "bindings gone")
    for _ in range(100):
        if not await works(environment):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"a member still has {await works(environment)}")
