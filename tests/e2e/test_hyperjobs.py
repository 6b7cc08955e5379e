"""HyperJobs in the whole system: webhook, HyperJob controller, admission, clusters and status."""

import asyncio
import itertools

import pytest

from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS, JOBS, PROPAGATION_POLICIES
from controller.kube.errors import NotFound
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.e2e.environment import Environment
from tests.e2e.hyperjobs import auto, gone, names, read, submit, until, works
from tests.files import EXAMPLES, read_object
from tests.rig.history import followed, present
from tests.rig.hyperjob_invariant import HyperJobChecker


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


async def test_upstreams_256_gpus_run_on_two_clusters_of_128(environment: Environment):
    for name in ("one", "two"):
        await environment.cluster(name, cpu="1000", gpu="128")
    await environment.queue("ml")
    await submit(
        environment, document(replicated("trainer", task(replicas=128), replicas=2), minAvailable=2, maxDomains=2)
    )
    status = await until(environment, "llm", "Completed")
    assert (status["splitCount"], status["clusters"]) == (2, "one,two")


async def test_256_gpus_over_128_64_48_and_100_free_run_in_three_parts(environment: Environment):
    for name, free in (("a", 128), ("b", 64), ("c", 48), ("d", 100)):
        await environment.cluster(name, cpu="1000", gpu=str(free))
    await environment.queue("ml")
    await submit(environment, auto(256, maxDomains=3), runtime="2s")
    running = await until(environment, "llm", "Running")
    parts = running["split"]["parts"]
    assert [(part["cluster"], part["pods"]) for part in parts] == [("a", [128]), ("d", [100]), ("c", [28])]
    await until(environment, "llm", "Completed")


async def test_hyperjob_runs_when_capacity_is_added(environment: Environment):
    await environment.cluster("a", cpu="1000", gpu="8")
    await environment.queue("ml")
    await submit(environment, auto(16))
    status = await until(environment, "llm", "Pending")
    assert status["conditions"][0]["reason"] == "ExceedsEveryCluster"
    assert status["message"] == "even while empty, its candidate clusters have 8 nvidia.com/gpu of 16 free"
    assert await names(environment, JOBS) == []
    await environment.cluster("b", cpu="1000", gpu="8")
    status = await until(environment, "llm", "Completed")
    assert status["clusters"] == "a,b"


async def test_hyperjob_starts_after_others_have_finished(environment: Environment):
    await environment.cluster("a", cpu="1000", gpu="8")
    await environment.queue("ml")
    await environment.policy()
    await environment.job("before", "ml", gpu=8, runtime="3s")
    await environment.observer.until(lambda seen: seen.admitted() == ["before"], "the first admitted")
    await submit(environment, auto(8))
    status = await until(environment, "llm", "Pending")
    assert status["conditions"][0]["reason"] == "InsufficientCapacity"
    await environment.observer.until(lambda seen: "llm-t-0" in seen.now, "it has its place in the queue")
    assert not environment.observer.now["llm-t-0"].clusters
    await until(environment, "llm", "Completed")


async def test_deleted_hyperjob_leaves_nothing_on_any_cluster(environment: Environment):
    await environment.cluster("a", cpu="1000", gpu="4")
    await environment.cluster("b", cpu="1000", gpu="4")
    await environment.queue("ml")
    await submit(environment, auto(8), runtime="600s")
    await until(environment, "llm", "Running")
    await environment.api.delete(HYPERJOBS.item_path(environment.namespace, "llm"))
    for resource in (JOBS, PROPAGATION_POLICIES):
        await gone(environment, resource)
    await environment.observer.until(lambda seen: not seen.now, "bindings gone")
    for _ in range(100):
        if not await works(environment):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"a member still has {await works(environment)}")


async def test_suspend_stops_and_resume_restarts_the_hyperjob(environment: Environment):
    await environment.cluster("a", cpu="1000", gpu="8")
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


async def test_finished_hyperjob_is_deleted_after_its_ttl(environment: Environment):
    await environment.cluster("a", cpu="1000", gpu="8")
    await environment.queue("ml")
    await submit(environment, auto(8, ttlSecondsAfterFinished=1))
    for _ in itertools.count():
        try:
            await read(environment, "llm")
        except NotFound:
            break
        await asyncio.sleep(0.1)
    await gone(environment, JOBS)


@pytest.mark.parametrize("tries", [0, 1], ids=["given-up", "tried-again"])
async def test_failed_part_is_retried_or_fails_the_hyperjob(environment: Environment, tries: int):
    await environment.cluster("a", cpu="1000", gpu="8")
    await environment.queue("ml")
    found = auto(8, failurePolicy={"maxRetries": tries})
    found["metadata"]["annotations"] = {"volcano-global.io/outcome": "Failed"}
    await submit(environment, found, runtime="0.5s")
    status = await until(environment, "llm", "Failed")
    assert status["split"]["parts"][0].get("retries", 0) == tries


async def test_killed_controller_creates_each_part_once(stack, environment: Environment):
    await environment.cluster("a", cpu="1000", gpu="8")
    await environment.cluster("b", cpu="1000", gpu="8")
    await environment.queue("ml")
    store, families = stack.plane.etcd.url, HyperJobChecker()
    async with followed(store, stack.plane.prefix, since=await present(store)) as history:
        await submit(environment, auto(16), runtime="2s")
        for _ in range(3):
            await asyncio.to_thread(stack.controller.kill)
            await asyncio.to_thread(stack.start_controller)
        status = await until(environment, "llm", "Completed")
        await history.reached(await present(store))
    assert status["splitCount"] == 2
    assert [item for change in history.changes for item in families.apply(change)] == []
    assert list(families.unlike_their_split()) == []
    assert len(families.jobs) == 2


async def test_copies_prefer_their_clusters_until_these_are_full(environment: Environment):
    for name in ("a", "b", "c"):
        await environment.cluster(name, cpu="1000", gpu="64")
    await environment.queue("ml")
    jobs = [
        replicated("one", task(replicas=64), clusterNames=["b"]),
        replicated("two", task(replicas=64), clusterNames=["c", "b"], replicas=2),
    ]
    await submit(environment, document(*jobs, minAvailable=3), runtime="2s")
    status = await until(environment, "llm", "Running")
    places = {part["name"]: part["runningOn"] for part in status["split"]["parts"]}
    assert places == {"llm-one-0": "b", "llm-two-0": "c", "llm-two-1": "a"}
    await until(environment, "llm", "Completed")
