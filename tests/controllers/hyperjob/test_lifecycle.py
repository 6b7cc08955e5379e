"""Start, suspension, failures and status of a HyperJob."""

import pytest

from controller.api.keys import HYPERJOBS, PROPAGATION_POLICIES
from controller.controllers.hyperjob.observed import PartPlacement
from tests.controllers.hyperjob.objects import document, gpus, replicated, split_in_two, task, two_copies


async def test_suspend_stops_all_parts_and_resume_recreates_them(harness):
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    await harness.change("llm", {"suspend": True})
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert (status["phase"], await harness.names(), await harness.names(PROPAGATION_POLICIES)) == ("Suspended", [], [])
    await harness.change("llm", {"suspend": False})
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["phase"] == "Pending"
    assert await harness.names() == ["llm-t-0", "llm-t-1"]


async def test_finished_hyperjob_is_deleted_after_its_ttl(harness):
    await harness.submit(two_copies(ttlSecondsAfterFinished=60))
    await harness.reconcile_until_stable("llm")
    for name in ("llm-t-0", "llm-t-1"):
        await harness.report(name, "Completed")
    await harness.reconcile_until_stable("llm")
    assert await harness.run("llm") == harness.now + 60_000
    harness.now += 60_000
    await harness.run("llm")
    assert await harness.names(HYPERJOBS) == []


async def test_failed_part_is_retried_up_to_max_retries(harness):
    await harness.submit(split_in_two(failurePolicy={"maxRetries": 1}))
    await harness.reconcile_until_stable("llm")
    first = (await harness.job("llm-t-0"))["metadata"]["uid"]
    await harness.report("llm-t-0", "Failed")
    await harness.reconcile_until_stable("llm")
    assert (await harness.job("llm-t-0"))["metadata"]["uid"] != first
    assert await harness.phases() == ["Pending", "Pending"]
    await harness.report("llm-t-0", "Failed")
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert (status["phase"], status["message"]) == (
        "Failed",
        "1 parts remain of the 2 that it needs; failed: llm-t-0; all parts were stopped",
    )
    assert await harness.names() == ["llm-t-0"]


async def test_failed_part_of_an_auto_split_changes_cluster(harness):
    harness.capacity = gpus(a=40, b=40, c=40)
    policy = {"maxRetries": 1, "retryOn": "AnyCluster"}
    await harness.submit(
        document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"}), failurePolicy=policy)
    )
    await harness.reconcile_until_stable("llm")
    harness.placements = {"llm-t-0": PartPlacement(("a",)), "llm-t-1": PartPlacement(("b",))}
    await harness.reconcile_until_stable("llm")
    await harness.report("llm-t-1", "Failed")
    harness.capacity = gpus(c=40)
    await harness.run("llm")
    del harness.placements["llm-t-1"]
    await harness.reconcile_until_stable("llm")
    parts = (await harness.status("llm"))["split"]["parts"]
    assert [(part["cluster"], part.get("retries", 0)) for part in parts] == [("a", 0), ("c", 1)]
    assert (await harness.policy("llm-t-1"))["spec"]["placement"]["clusterAffinity"] == {"clusterNames": ["c"]}


async def test_hyperjob_continues_while_enough_parts_remain(harness):
    await harness.submit(two_copies(minAvailable=1))
    await harness.reconcile_until_stable("llm")
    await harness.report("llm-t-0", "Failed", failed=4)
    await harness.report("llm-t-1", "Running", running=4)
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["phase"] == "Running"
    await harness.report("llm-t-1", "Completed", succeeded=4)
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert (status["phase"], status["message"]) == ("Completed", "1 of 2 parts completed; failed: llm-t-0")


async def test_rollback_restarts_all_parts_up_to_max_restarts(harness):
    await harness.submit(two_copies(failurePolicy={"maxRestarts": 1}))
    await harness.reconcile_until_stable("llm")
    before = {name: (await harness.job(name))["metadata"]["uid"] for name in await harness.names()}
    await harness.report("llm-t-0", "Failed")
    await harness.report("llm-t-1", "Running")
    await harness.reconcile_until_stable("llm")
    after = {name: (await harness.job(name))["metadata"]["uid"] for name in await harness.names()}
    assert set(before) == set(after)
    assert not set(before.values()) & set(after.values())
    await harness.report("llm-t-0", "Failed")
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["phase"] == "Failed"


async def test_keep_lets_remaining_parts_finish(harness):
    await harness.submit(two_copies(failurePolicy={"belowMinimum": "Keep"}))
    await harness.reconcile_until_stable("llm")
    await harness.report("llm-t-0", "Failed")
    await harness.report("llm-t-1", "Running")
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["phase"] == "Running"
    await harness.report("llm-t-1", "Completed")
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["phase"] == "Failed"


async def test_cleanup_all_deletes_parts_of_finished_hyperjob(harness):
    await harness.submit(two_copies(cleanupPolicy="All"))
    await harness.reconcile_until_stable("llm")
    for name in ("llm-t-0", "llm-t-1"):
        await harness.report(name, "Completed")
    await harness.reconcile_until_stable("llm")
    assert (
        (await harness.status("llm"))["phase"],
        await harness.names(),
        await harness.names(PROPAGATION_POLICIES),
    ) == (
        "Completed",
        [],
        [],
    )


async def test_late_status_of_a_finished_part_is_ignored(harness):
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    await harness.report("llm-t-0", "Completed", succeeded=4)
    await harness.reconcile_until_stable("llm")
    await harness.report("llm-t-0", "Running", running=4, succeeded=0)
    assert await harness.reconcile_until_stable("llm") == []
    assert await harness.phases() == ["Completed", "Pending"]


@pytest.mark.parametrize("phase", ["Running", "Completed", "Failed"])
async def test_evicted_part_is_pending_whatever_its_job_status(harness, phase):
    """Pods run until the grace period ends, and may complete before."""
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    for name in ("llm-t-0", "llm-t-1"):
        harness.placements[name] = PartPlacement(("a",))
        await harness.report(name, "Running", running=4)
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["phase"] == "Running"
    harness.placements["llm-t-1"] = PartPlacement()
    await harness.report("llm-t-1", phase)
    await harness.reconcile_until_stable("llm")
    assert await harness.phases() == ["Running", "Pending"]


async def test_admitted_hyperjob_has_admitted_phase(harness):
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    harness.placements = {"llm-t-0": PartPlacement(("a",)), "llm-t-1": PartPlacement(("b",))}
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert (status["phase"], status["clusters"]) == ("Admitted", "a,b")
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {"Pending": "False", "Admitted": "True"}


async def test_invalid_spec_is_reported_and_keeps_the_parts(harness):
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    await harness.change(
        "llm", {"replicatedJobs": [replicated("t", task(replicas=4), splitPolicy={"strategy": "ByReplicas"})]}
    )
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert status["message"].startswith("it cannot be split: replicated job 't': a split ByReplicas needs")
    assert await harness.names() == ["llm-t-0", "llm-t-1"]


async def test_running_part_is_resized_or_recreated_for_new_image(harness):
    await harness.submit(split_in_two())
    await harness.reconcile_until_stable("llm")
    harness.placements = {"llm-t-0": PartPlacement(("a",)), "llm-t-1": PartPlacement(("b",))}
    await harness.reconcile_until_stable("llm")
    uid = (await harness.job("llm-t-0"))["metadata"]["uid"]
    clusters = [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 2}]
    policy = {"strategy": "ByCluster", "clusters": clusters}
    await harness.change("llm", {"replicatedJobs": [replicated("t", task(replicas=5), splitPolicy=policy)]})
    await harness.reconcile_until_stable("llm")
    job = await harness.job("llm-t-0")
    assert (job["metadata"]["uid"], job["spec"]["tasks"][0]["replicas"]) == (uid, 3)
    await harness.change("llm", {"replicatedJobs": [replicated("t", task(replicas=5, cpu="2"), splitPolicy=policy)]})
    await harness.reconcile_until_stable("llm")
    assert (await harness.job("llm-t-0"))["metadata"]["uid"] != uid
