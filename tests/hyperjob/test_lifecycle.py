"""Start and stop from one object, failures, and a status that is right whatever its parts tell, and when."""

from controller.api.keys import HYPERJOBS, PROPAGATION_POLICIES
from controller.hyperjob.observed import PartPlacement
from tests.hyperjob.objects import document, gpus, replicated, split_in_two, task, two_copies


async def test_suspending_stops_all_parts_and_resuming_makes_them_again(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    await yard.change("llm", {"suspend": True})
    await yard.settle("llm")
    status = await yard.status("llm")
    assert (status["phase"], await yard.names(), await yard.names(PROPAGATION_POLICIES)) == ("Suspended", [], [])
    await yard.change("llm", {"suspend": False})
    await yard.settle("llm")
    assert (await yard.status("llm"))["phase"] == "Pending"
    assert await yard.names() == ["llm-t-0", "llm-t-1"]


async def test_a_finished_hyperjob_is_deleted_after_its_ttl(yard):
    await yard.submit(two_copies(ttlSecondsAfterFinished=60))
    await yard.settle("llm")
    for name in ("llm-t-0", "llm-t-1"):
        await yard.tell(name, "Completed")
    await yard.settle("llm")
    assert await yard.run("llm") == yard.now + 60_000
    yard.now += 60_000
    await yard.run("llm")
    assert await yard.names(HYPERJOBS) == []


async def test_a_failed_part_is_tried_again_as_often_as_allowed(yard):
    await yard.submit(split_in_two(failurePolicy={"maxRetries": 1}))
    await yard.settle("llm")
    first = (await yard.job("llm-t-0"))["metadata"]["uid"]
    await yard.tell("llm-t-0", "Failed")
    await yard.settle("llm")
    assert (await yard.job("llm-t-0"))["metadata"]["uid"] != first
    assert await yard.phases() == ["Pending", "Pending"]
    await yard.tell("llm-t-0", "Failed")
    await yard.settle("llm")
    status = await yard.status("llm")
    assert (status["phase"], status["message"]) == (
        "Failed",
        "1 parts are left of the 2 that it needs; failed: llm-t-0; all parts were stopped",
    )
    assert await yard.names() == ["llm-t-0"]


async def test_a_failed_part_of_an_auto_split_goes_to_another_cluster(yard):
    yard.prospects = gpus(a=40, b=40, c=40)
    policy = {"maxRetries": 1, "retryOn": "AnyCluster"}
    await yard.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"}), failurePolicy=policy))
    await yard.settle("llm")
    yard.places = {"llm-t-0": PartPlacement(("a",)), "llm-t-1": PartPlacement(("b",))}
    await yard.settle("llm")
    await yard.tell("llm-t-1", "Failed")
    yard.prospects = gpus(c=40)
    await yard.run("llm")
    del yard.places["llm-t-1"]
    await yard.settle("llm")
    parts = (await yard.status("llm"))["split"]["parts"]
    assert [(part["cluster"], part.get("retries", 0)) for part in parts] == [("a", 0), ("c", 1)]
    assert (await yard.policy("llm-t-1"))["spec"]["placement"]["clusterAffinity"] == {"clusterNames": ["c"]}


async def test_it_goes_on_while_enough_parts_are_left(yard):
    await yard.submit(two_copies(minAvailable=1))
    await yard.settle("llm")
    await yard.tell("llm-t-0", "Failed", failed=4)
    await yard.tell("llm-t-1", "Running", running=4)
    await yard.settle("llm")
    assert (await yard.status("llm"))["phase"] == "Running"
    await yard.tell("llm-t-1", "Completed", succeeded=4)
    await yard.settle("llm")
    status = await yard.status("llm")
    assert (status["phase"], status["message"]) == ("Completed", "1 of 2 parts completed; failed: llm-t-0")


async def test_a_rollback_starts_all_parts_again_as_often_as_allowed(yard):
    await yard.submit(two_copies(failurePolicy={"maxRestarts": 1}))
    await yard.settle("llm")
    before = {name: (await yard.job(name))["metadata"]["uid"] for name in await yard.names()}
    await yard.tell("llm-t-0", "Failed")
    await yard.tell("llm-t-1", "Running")
    await yard.settle("llm")
    after = {name: (await yard.job(name))["metadata"]["uid"] for name in await yard.names()}
    assert set(before) == set(after)
    assert not set(before.values()) & set(after.values())
    await yard.tell("llm-t-0", "Failed")
    await yard.settle("llm")
    assert (await yard.status("llm"))["phase"] == "Failed"


async def test_keep_lets_the_others_run_to_their_end(yard):
    await yard.submit(two_copies(failurePolicy={"belowMinimum": "Keep"}))
    await yard.settle("llm")
    await yard.tell("llm-t-0", "Failed")
    await yard.tell("llm-t-1", "Running")
    await yard.settle("llm")
    assert (await yard.status("llm"))["phase"] == "Running"
    await yard.tell("llm-t-1", "Completed")
    await yard.settle("llm")
    assert (await yard.status("llm"))["phase"] == "Failed"


async def test_cleanup_all_deletes_the_parts_of_a_finished_hyperjob(yard):
    await yard.submit(two_copies(cleanupPolicy="All"))
    await yard.settle("llm")
    for name in ("llm-t-0", "llm-t-1"):
        await yard.tell(name, "Completed")
    await yard.settle("llm")
    assert ((await yard.status("llm"))["phase"], await yard.names(), await yard.names(PROPAGATION_POLICIES)) == (
        "Completed",
        [],
        [],
    )


async def test_late_news_of_a_part_that_is_over_changes_nothing(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    await yard.tell("llm-t-0", "Completed", succeeded=4)
    await yard.settle("llm")
    await yard.tell("llm-t-0", "Running", running=4, succeeded=0)
    assert await yard.settle("llm") == []
    assert await yard.phases() == ["Completed", "Pending"]


async def test_an_evicted_part_waits_again_whatever_its_job_last_said(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    for name in ("llm-t-0", "llm-t-1"):
        yard.places[name] = PartPlacement(("a",))
        await yard.tell(name, "Running", running=4)
    await yard.settle("llm")
    assert (await yard.status("llm"))["phase"] == "Running"
    yard.places["llm-t-1"] = PartPlacement()
    await yard.settle("llm")
    assert await yard.phases() == ["Running", "Pending"]


async def test_an_admitted_hyperjob_says_so_before_it_runs(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    yard.places = {"llm-t-0": PartPlacement(("a",)), "llm-t-1": PartPlacement(("b",))}
    await yard.settle("llm")
    status = await yard.status("llm")
    assert (status["phase"], status["clusters"]) == ("Admitted", "a,b")
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {"Pending": "False", "Admitted": "True"}


async def test_a_spec_that_cannot_be_split_says_why_and_leaves_the_parts_alone(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    await yard.change(
        "llm", {"replicatedJobs": [replicated("t", task(replicas=4), splitPolicy={"strategy": "ByReplicas"})]}
    )
    await yard.settle("llm")
    status = await yard.status("llm")
    assert status["message"].startswith("it cannot be split: replicated job 't': a split ByReplicas needs")
    assert await yard.names() == ["llm-t-0", "llm-t-1"]


async def test_a_running_part_is_resized_in_place_and_made_anew_for_another_image(yard):
    await yard.submit(split_in_two())
    await yard.settle("llm")
    yard.places = {"llm-t-0": PartPlacement(("a",)), "llm-t-1": PartPlacement(("b",))}
    await yard.settle("llm")
    uid = (await yard.job("llm-t-0"))["metadata"]["uid"]
    clusters = [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 2}]
    policy = {"strategy": "ByCluster", "clusters": clusters}
    await yard.change("llm", {"replicatedJobs": [replicated("t", task(replicas=5), splitPolicy=policy)]})
    await yard.settle("llm")
    job = await yard.job("llm-t-0")
    assert (job["metadata"]["uid"], job["spec"]["tasks"][0]["replicas"]) == (uid, 3)
    await yard.change("llm", {"replicatedJobs": [replicated("t", task(replicas=5, cpu="2"), splitPolicy=policy)]})
    await yard.settle("llm")
    assert (await yard.job("llm-t-0"))["metadata"]["uid"] != uid
