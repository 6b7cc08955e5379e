"""Failures, evictions and status of a HyperJob; `test_crashes` has suspension, cleanup and the TTL."""

import msgspec
import pytest

from controller.api.hyperjobs import SplitStatus
from controller.api.keys import JOBS, PROPAGATION_POLICIES
from controller.controllers.hyperjob.observed import ObservedParts, PartPlacement, decode_part_job
from controller.controllers.hyperjob.split import split
from controller.controllers.hyperjob.state import compute_state, retry_failed_parts
from controller.controllers.hyperjob.status import compute_status, to_json
from controller.engine.state.clusters import Taint
from controller.kube.errors import ApiError
from tests.controllers.hyperjob.objects import (
    auto,
    capacity,
    cluster,
    document,
    gpus,
    hyperjob,
    replicated,
    split_in_two,
    task,
    two_copies,
)
from tests.work import work_of


async def test_failed_part_is_retried_up_to_max_retries(harness):
    await harness.start(split_in_two(failurePolicy={"maxRetries": 1}))
    first = harness.uids()
    harness.report("llm-t-0", "Failed")
    await harness.reconcile()
    assert harness.uids()["llm-t-0"] != first["llm-t-0"]
    assert harness.phases() == ["Pending", "Pending"]
    harness.report("llm-t-0", "Failed")
    await harness.reconcile()
    assert (harness.status()["phase"], harness.status()["message"]) == (
        "Failed",
        "1 parts remain of the 2 that it needs; failed: llm-t-0; all parts were stopped",
    )
    assert harness.names() == ["llm-t-0"]


async def test_failed_part_of_an_auto_split_changes_cluster(harness):
    harness.capacity = gpus(a=40, b=40, c=40)
    policy = {"maxRetries": 1, "retryOn": "AnyCluster"}
    auto = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})
    await harness.start(document(auto, failurePolicy=policy))
    harness.place("a", "b")
    await harness.reconcile()
    harness.report("llm-t-1", "Failed")
    harness.capacity = gpus(c=40)
    await harness.run()
    harness.place("a")
    await harness.reconcile()
    parts = harness.status()["split"]["parts"]
    assert [(part["cluster"], part.get("retries", 0)) for part in parts] == [("a", 0), ("c", 1)]
    placement = harness.get(PROPAGATION_POLICIES, "llm-t-1")["spec"]["placement"]
    assert placement["clusterAffinity"] == {"clusterNames": ["c"]}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, ["x", "y", "c"], id="as-many-as-fit"),
        pytest.param({"maxDomains": 3}, ["x", "y", "c"], id="max-domains"),
        pytest.param({"clusterAffinity": {"clusterNames": ["a", "b", "c", "x"]}}, ["x", "b", "c"], id="affinity"),
    ],
)
async def test_parts_that_fail_together_move_to_different_clusters(harness, more, expected):
    harness.capacity = gpus(a=40, b=40, c=40)
    auto = replicated("t", task(replicas=120), splitPolicy={"mode": "auto"})
    await harness.start(document(auto, failurePolicy={"maxRetries": 1, "retryOn": "AnyCluster"}, **more))
    harness.place("a", "b", "c")
    await harness.reconcile()
    for name in ("llm-t-0", "llm-t-1", "llm-t-2"):
        harness.report(name, "Failed")
    harness.capacity = gpus(x=40, y=40)
    await harness.run()
    assert [part["cluster"] for part in harness.status()["split"]["parts"]] == expected


@pytest.mark.parametrize(
    ("policy", "more", "expected"),
    [
        pytest.param({}, {"clusterAffinity": {"clusterNames": ["a", "b", "y"]}}, "y", id="affinity"),
        pytest.param({}, {}, "x", id="taint"),
        pytest.param({}, {"maxDomains": 2}, "x", id="max-domains-allow-another"),
        pytest.param({"strategy": "ByResources", "clusters": [{"name": "a"}, {"name": "b"}]}, {}, "b", id="named"),
    ],
)
async def test_failed_part_moves_only_to_clusters_that_its_spec_allows(harness, policy, more, expected):
    harness.capacity = gpus(a=40, b=40)
    split = replicated("t", task(replicas=64), splitPolicy={"mode": "auto", **policy})
    await harness.start(document(split, failurePolicy={"maxRetries": 1, "retryOn": "AnyCluster"}, **more))
    harness.place("a", "b")
    await harness.reconcile()
    harness.report("llm-t-1", "Failed")
    tainted = cluster("tainted", 40, taints=(Taint("gpu", "broken", "NoSchedule"),))
    harness.capacity = capacity(tainted, cluster("x", 40), cluster("y", 40))
    await harness.run()
    parts = harness.status()["split"]["parts"]
    assert [(part["cluster"], part.get("retries", 0)) for part in parts] == [("a", 0), (expected, 1)]


async def test_failed_part_stays_within_max_domains(harness):
    harness.capacity = gpus(a=8)
    jobs = [replicated(name, task(replicas=4), splitPolicy={"mode": "auto"}) for name in ("t", "u")]
    policy = {"maxRetries": 1, "retryOn": "AnyCluster"}
    await harness.start(document(*jobs, maxDomains=1, failurePolicy=policy))
    harness.placements = {name: PartPlacement(("a",)) for name in ("llm-t-0", "llm-u-0")}
    await harness.reconcile()
    harness.report("llm-u-0", "Failed")
    harness.capacity = gpus(a=0, x=8)
    await harness.run()
    assert [part["cluster"] for part in harness.status()["split"]["parts"]] == ["a", "a"]


async def test_rollback_without_capacity_counts_a_failure_once(harness):
    """The Job that failed may still exist when there is capacity again."""
    harness.capacity = gpus(a=64)
    auto = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})
    await harness.start(document(auto, failurePolicy={"maxRestarts": 1}))
    before = harness.uids()
    harness.report("llm-t-0", "Failed")
    harness.capacity = gpus(b=1)
    harness.traffic.writes, harness.traffic.fail_before = [], 1
    with pytest.raises(ApiError):
        await harness.run()
    harness.traffic.fail_before = None
    assert harness.uids() == before
    harness.capacity = gpus(b=64)
    await harness.reconcile()
    assert harness.status()["phase"] == "Pending"
    assert (harness.status()["clusters"], harness.uids().keys()) == ("b", before.keys())
    assert harness.uids() != before


async def test_parts_stay_until_a_changed_spec_can_be_split(harness):
    """A cluster is not ready for a moment, or the new spec fits into none."""
    harness.capacity = gpus(a=40, b=40)
    auto = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})
    await harness.start(document(auto))
    harness.place("a", "b")
    harness.report("llm-t-0", "Completed")
    harness.report("llm-t-1", "Running")
    await harness.reconcile()
    jobs = harness.uids()
    harness.capacity = gpus(b=16)
    await harness.change(clusterTolerations=[{"key": "gpu", "operator": "Exists"}])
    assert (harness.status()["reason"], harness.phases()) == ("ExceedsEveryCluster", ["Completed", "Running"])
    harness.capacity = gpus(a=40, b=16)
    await harness.reconcile()
    assert (harness.status()["phase"], harness.phases()) == ("Running", ["Completed", "Running"])
    assert harness.uids() == jobs


async def test_pending_parts_do_not_wait_with_an_outdated_spec(harness):
    harness.capacity = gpus(a=40)
    await harness.start(document(replicated("t", task(replicas=40), splitPolicy={"mode": "auto"})))
    await harness.change(replicatedJobs=[replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})])
    assert (harness.status()["reason"], harness.names()) == ("ExceedsEveryCluster", [])


async def test_rollback_to_a_split_of_too_many_parts_is_reported(harness):
    harness.capacity = capacity(cluster("a", 64), max_parts=1)
    auto = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})
    await harness.start(document(auto, failurePolicy={"maxRestarts": 1}))
    harness.capacity = capacity(cluster("a", 32), cluster("b", 32), max_parts=1)
    harness.report("llm-t-0", "Failed")
    await harness.reconcile()
    assert harness.status()["message"] == "it cannot be split: it would have 2 parts; 1 are allowed"


@pytest.mark.parametrize(
    ("policy", "end", "message"),
    [
        pytest.param({"minAvailable": 1}, "Completed", "1 of 2 parts completed; failed: llm-t-0", id="enough-remain"),
        pytest.param(
            {"failurePolicy": {"belowMinimum": "Keep"}}, "Failed", "1 of 2 parts completed; failed: llm-t-0", id="keep"
        ),
    ],
)
async def test_remaining_parts_run_to_their_end(harness, policy, end, message):
    await harness.start(two_copies(**policy))
    harness.place("a", "b")
    harness.report("llm-t-0", "Failed", failed=4)
    harness.report("llm-t-1", "Running", running=4)
    await harness.reconcile()
    assert harness.status()["phase"] == "Running"
    harness.report("llm-t-1", "Completed", succeeded=4)
    await harness.reconcile()
    assert (harness.status()["phase"], harness.status()["message"]) == (end, message)


async def test_rollback_restarts_all_parts_up_to_max_restarts(harness):
    await harness.start(two_copies(failurePolicy={"maxRestarts": 1}))
    harness.placements = {"llm-t-1": PartPlacement(("b",))}
    before = harness.uids()
    harness.report("llm-t-0", "Failed")
    harness.report("llm-t-1", "Running")
    await harness.reconcile()
    after = harness.uids()
    assert set(before) == set(after)
    assert not set(before.values()) & set(after.values())
    harness.report("llm-t-0", "Failed")
    await harness.reconcile()
    assert harness.status()["phase"] == "Failed"


async def test_part_whose_binding_was_deleted_is_pending(harness):
    """Karmada creates another binding only once the Job changes; until then the status of the Job stays."""
    await harness.start(two_copies(minAvailable=1))
    harness.place("a", "b")
    for name in ("llm-t-0", "llm-t-1"):
        harness.report(name, "Running", running=4)
    await harness.reconcile()
    assert harness.status()["partsRunning"] == "2/2"
    del harness.placements["llm-t-0"]
    await harness.reconcile()
    assert harness.phases() == ["Pending", "Running"]
    assert harness.status()["partsRunning"] == "1/2"
    assert harness.status()["replicatedJobsStatus"][0]["running"] == 4


async def test_late_status_of_a_finished_part_is_ignored(harness):
    await harness.start(two_copies())
    harness.report("llm-t-0", "Completed", succeeded=4)
    await harness.reconcile()
    harness.report("llm-t-0", "Running", running=4, succeeded=0)
    assert await harness.reconcile() == []
    assert harness.phases() == ["Completed", "Pending"]


@pytest.mark.parametrize("phase", ["Running", "Completed", "Failed"])
async def test_evicted_part_is_pending_whatever_its_job_status(harness, phase):
    """Pods run until the grace period ends, and may complete before."""
    await harness.start(two_copies())
    harness.place("a", "b")
    await harness.reconcile()
    status = harness.status()
    assert (status["phase"], status["clusters"]) == ("Admitted", "a,b")
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert conditions == {"Pending": "False", "Admitted": "True"}
    for name in ("llm-t-0", "llm-t-1"):
        harness.report(name, "Running", running=4)
    await harness.reconcile()
    assert harness.status()["phase"] == "Running"
    harness.placements["llm-t-1"] = PartPlacement()
    harness.report("llm-t-1", phase)
    await harness.reconcile()
    assert harness.phases() == ["Running", "Pending"]


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
async def test_admitted_part_is_not_final_by_its_earlier_status(harness, phase):
    """It ended in its grace period, and starts again before its Job's status is corrected."""
    await harness.start(two_copies())
    harness.place("a", "b")
    harness.placements["llm-t-0"] = PartPlacement(("a",))
    harness.report("llm-t-0", phase, is_reported=False)
    await harness.reconcile()
    assert harness.phases() == ["Admitted", "Admitted"]
    assert harness.status()["phase"] == "Admitted"
    harness.report("llm-t-0", phase)
    await harness.reconcile()
    assert harness.phases()[0] == ("Completed" if phase == "Completed" else "Failed")


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
async def test_clusters_say_the_phase_of_a_part_if_its_job_does_not(harness, phase):
    """Karmada 1.15 and older do not copy the status of a Volcano Job to the control plane."""
    await harness.start(two_copies())
    for reported in ("Admitted", "Running", phase):
        harness.placements = {
            f"llm-t-{index}": PartPlacement((name,), reported=reported) for index, name in enumerate("ab")
        }
        for name in ("llm-t-0", "llm-t-1"):
            harness.report(name, "Pending", is_reported=False)
        await harness.reconcile()
        assert harness.phases() == [reported, reported]
    assert harness.status()["phase"] == phase


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("clusters", [("b",), ()])
@pytest.mark.parametrize("phase", ["Completed", "Failed"])
async def test_finished_part_does_not_run_again_elsewhere(harness, ended, clusters, phase):
    """Its cluster left, or the part was evicted while it finished."""
    await harness.start(two_copies(minAvailable=1))
    harness.place("a", "b")
    harness.report("llm-t-0", phase)
    harness.report("llm-t-1", "Completed" if ended else "Running")
    await harness.reconcile()
    assert harness.names() == ["llm-t-0", "llm-t-1"]
    harness.placements["llm-t-0"] = PartPlacement(clusters)
    harness.report("llm-t-0", "Running" if clusters else phase)
    await harness.reconcile()
    assert harness.names() == harness.names(PROPAGATION_POLICIES) == ["llm-t-1"]
    assert harness.phases() == [phase, "Completed" if ended else "Running"]
    assert harness.status()["phase"] == ("Completed" if ended else "Running")


async def test_parts_that_end_while_the_spec_is_invalid_have_finished(harness):
    """They are not started again, whatever happens until the spec is corrected."""
    await harness.start(two_copies())
    harness.place("a", "b")
    for name in ("llm-t-0", "llm-t-1"):
        harness.report(name, "Running")
    await harness.change(minAvailable=3)
    harness.report("llm-t-0", "Completed", succeeded=4)
    await harness.reconcile()
    assert (harness.status()["reason"], harness.status()["partsRunning"]) == ("Invalid", "1/2")
    assert harness.phases() == ["Completed", "Running"]
    harness.placements["llm-t-0"] = PartPlacement(("c",), reported="Running")
    harness.report("llm-t-0", "Running")
    await harness.change(minAvailable=None)
    assert harness.phases() == ["Completed", "Running"]
    assert harness.names() == ["llm-t-1"]


async def test_invalid_spec_is_reported_and_keeps_the_parts(harness):
    await harness.start(two_copies())
    invalid = replicated("t", task(replicas=4), splitPolicy={"strategy": "ByReplicas"})
    await harness.change(replicatedJobs=[invalid])
    assert harness.status()["message"].startswith("it cannot be split: replicated job 't': a split ByReplicas needs")
    assert harness.names() == ["llm-t-0", "llm-t-1"]


async def test_many_violations_are_reported_in_a_short_message(harness):
    """A condition with a message above 32,768 characters would be invalid, and the status never written."""
    jobs = [replicated(f"t{number}", task(gpu=0), spec={"tasks": []}) for number in range(999)]
    await harness.start(document(replicated("t", task("x" * 100_000, minAvailable=9)), *jobs))
    message = harness.status()["message"]
    assert message.startswith("it cannot be split: replicated job 't': task 'xxx")
    assert len(message) == len(harness.status()["conditions"][0]["message"]) == 4096
    await harness.change(replicatedJobs=jobs)
    assert harness.status()["message"].endswith(
        "replicated job 't9': it has no tasks; give it at least one; and 989 more"
    )


@pytest.mark.parametrize("ended", [False, True])
async def test_unreadable_spec_does_not_start_finished_parts_again(harness, ended):
    """The definition accepts any pod template, and the webhook may be unavailable."""
    await harness.start(two_copies())
    for name in ("llm-t-0", "llm-t-1") if ended else ("llm-t-0",):
        harness.report(name, "Completed", succeeded=4)
        await harness.reconcile()
        harness.remove(JOBS, name)
    jobs = harness.uids()
    unreadable = task(template={"spec": {"containers": [{"name": "main", "env": {"A": "b"}}]}})
    await harness.change(replicatedJobs=[replicated("t", unreadable, replicas=2)])
    if not ended:
        assert harness.status()["message"].startswith("it cannot be read: spec.replicatedJobs[0]")
    await harness.change(**two_copies()["spec"])
    assert harness.uids() == jobs
    assert (harness.status()["phase"], harness.phases()[0]) == ("Completed" if ended else "Pending", "Completed")


async def test_invalid_hyperjob_can_be_suspended(harness):
    """It may have become invalid by a lower limit in the configuration."""
    await harness.start(two_copies())
    harness.capacity = capacity(max_parts=1)
    await harness.reconcile()
    assert (harness.status()["reason"], len(harness.names())) == ("Invalid", 2)
    await harness.change(suspend=True)
    assert (harness.status()["phase"], harness.names()) == ("Suspended", [])


async def test_started_hyperjob_completes_with_a_lower_maximum(harness):
    await harness.start(two_copies())
    harness.place("a", "b")
    await harness.reconcile()
    harness.capacity = capacity(max_parts=1)
    for name in harness.names():
        harness.report(name, "Completed")
    await harness.reconcile()
    assert harness.status()["phase"] == "Completed"


async def test_running_part_is_resized_or_recreated_for_new_image(harness):
    await harness.start(split_in_two())
    harness.place("a", "b")
    await harness.reconcile()
    uid = harness.uids()["llm-t-0"]
    clusters = [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 2}]
    policy = {"strategy": "ByCluster", "clusters": clusters}
    await harness.change(replicatedJobs=[replicated("t", task(replicas=5), splitPolicy=policy)])
    assert (harness.uids()["llm-t-0"], harness.job("llm-t-0")["spec"]["tasks"][0]["replicas"]) == (uid, 3)
    await harness.change(replicatedJobs=[replicated("t", task(replicas=5, cpu="2"), splitPolicy=policy)])
    assert harness.uids()["llm-t-0"] != uid


async def test_part_is_recreated_for_another_priority_of_its_pods_only(harness):
    """Volcano allows to change the PriorityClass of a job, not that of its pods."""
    pods = task(replicas=4)
    await harness.start(document(replicated("t", pods)))
    uids = harness.uids()
    await harness.change(replicatedJobs=[replicated("t", pods, spec={"priorityClassName": "high"})])
    assert (harness.uids(), harness.job("llm-t-0")["spec"]["priorityClassName"]) == (uids, "high")
    pods["template"]["spec"]["priorityClassName"] = "high"
    await harness.change(replicatedJobs=[replicated("t", pods, spec={"priorityClassName": "high"})])
    assert harness.uids() != uids


@pytest.mark.parametrize(
    ("fields", "minimums"),
    [
        pytest.param({}, [4, 2, 6], id="all-pods"),
        pytest.param({"minAvailable": 0}, [0, 0, 0], id="of-its-task"),
        pytest.param({"partitionPolicy": {"partitionSize": 2, "minPartitions": 1}}, [2, 2, 2], id="of-its-partitions"),
    ],
)
async def test_default_gang_minimum_follows_the_number_of_pods(harness, fields, minimums):
    """One that the webhook had set would stay: above the pods of a smaller part, which is refused."""
    seen = []
    for replicas in (4, 2, 6):
        job = replicated("t", task(replicas=replicas, **fields))
        await (harness.change(replicatedJobs=[job]) if seen else harness.start(document(job)))
        seen.append(harness.job("llm-t-0")["spec"]["minAvailable"])
    assert seen == minimums


COMPLETE_JOB = {"event": "TaskCompleted", "action": "CompleteJob"}


def led(*, job=(), master=(), worker=(), absent=(), **more):
    """Return a HyperJob with a master and one worker in its first part, and one worker in its second one."""
    tasks = (
        task("master", 1, gpu=0, policies=list(master)),
        task("worker", 2, policies=list(worker)),
        task("absent", 0, policies=list(absent)),
    )
    split = {"strategy": "ByReplicas", "parts": 2}
    return document(replicated("t", *tasks, spec={"policies": list(job)}, splitPolicy=split), **more)


@pytest.mark.parametrize(
    ("spec", "completes"),
    [
        pytest.param({}, False, id="no-policy"),
        pytest.param({"master": [COMPLETE_JOB]}, True, id="leader"),
        pytest.param({"job": [COMPLETE_JOB]}, True, id="job"),
        pytest.param({"job": [{"events": ["PodEvicted", "*"], "action": "CompleteJob"}]}, True, id="any-event"),
        pytest.param({"worker": [COMPLETE_JOB]}, False, id="task-in-both-parts"),
        pytest.param({"absent": [COMPLETE_JOB]}, False, id="task-without-pods"),
        pytest.param({"job": [COMPLETE_JOB], "master": [{**COMPLETE_JOB, "action": "RestartJob"}]}, False, id="first"),
        pytest.param({"master": [{**COMPLETE_JOB, "event": "PodFailed"}]}, False, id="other-event"),
    ],
)
async def test_task_completes_all_parts_of_its_job(harness, spec, completes):
    await harness.start(led(**spec))
    harness.place("a", "b")
    await harness.reconcile()
    harness.report("llm-t-0", "Completed")
    harness.report("llm-t-1", "Running")
    await harness.reconcile()
    assert harness.phases() == ["Completed", "Completed" if completes else "Running"]
    assert harness.status()["phase"] == ("Completed" if completes else "Running")
    assert harness.names() == (["llm-t-0"] if completes else ["llm-t-0", "llm-t-1"])
    parts = harness.status()["split"]["parts"]
    assert [part.get("completedBy") for part in parts] == [None, "llm-t-0" if completes else None]


@pytest.mark.parametrize("phase", ["", "Running", "Failed"])
async def test_leader_completes_parts_in_any_phase(harness, phase):
    await harness.start(led(master=[COMPLETE_JOB]))
    harness.place("a", "b")
    await harness.reconcile()
    harness.report("llm-t-0", "Completed")
    if phase:
        harness.report("llm-t-1", phase)
    await harness.reconcile()
    assert (harness.status()["phase"], harness.status()["message"]) == ("Completed", "2 of 2 parts completed")
    assert harness.names() == ["llm-t-0"]


async def test_part_that_failed_before_its_leader_stays_failed(harness):
    await harness.start(led(master=[COMPLETE_JOB], failurePolicy={"belowMinimum": "Keep"}))
    harness.place("a", "b")
    harness.report("llm-t-1", "Failed")
    await harness.reconcile()
    harness.report("llm-t-0", "Completed")
    await harness.reconcile()
    assert harness.phases() == ["Completed", "Failed"]


async def test_leader_completes_no_other_replicated_job(harness):
    two = led(master=[COMPLETE_JOB])
    two["spec"]["replicatedJobs"].append(replicated("other", task()))
    await harness.start(two)
    harness.place("a", "b")
    harness.placements["llm-other-0"] = PartPlacement(("c",))
    harness.report("llm-t-0", "Completed")
    harness.report("llm-other-0", "Running")
    await harness.reconcile()
    assert harness.phases() == ["Completed", "Completed", "Running"]
    assert harness.names() == ["llm-other-0", "llm-t-0"]
    harness.report("llm-other-0", "Completed")
    await harness.reconcile()
    assert harness.status()["phase"] == "Completed"


def test_status_of_the_largest_hyperjob_can_be_stored():
    """A template that the clusters refuse gives the Job of each part a message of a kilobyte."""
    largest = hyperjob(replicated("t" * 25, replicas=1000), name="n" * 32)
    state, jobs = compute_state(largest, ObservedParts({}, {}), gpus(a=1)), {}
    refused = {"phase": "Pending", "message": "m" * 1024}
    for part in state.parts:
        metadata = {"name": part.name, "namespace": "ml", "uid": part.name, "resourceVersion": "1"}
        jobs[part.name] = decode_part_job(msgspec.json.encode({"metadata": metadata, "status": {"state": refused}}))
    assert len(msgspec.json.encode(to_json(compute_status(largest, state, jobs, 0)))) < 2**20


def test_retry_of_many_failed_parts_takes_little_work():
    """All parts of a wrong template fail, and each looks for a cluster that the parts before it have left free."""
    rooms = capacity(*(cluster(f"c{number:03}", 4) for number in range(40)))
    failing = auto(task(replicas=4 * 40), failurePolicy={"maxRetries": 1, "retryOn": "AnyCluster"})
    parts = tuple(
        part.model_copy(update={"phase": "Failed", "running_on": part.cluster}) for part in split(failing, rooms).parts
    )
    assert work_of(lambda: retry_failed_parts(failing, SplitStatus(parts=parts), rooms)) < 300_000
    retried = retry_failed_parts(failing, SplitStatus(parts=parts), rooms).parts
    assert len({part.cluster for part in retried}) == len(parts) == 40
    assert all(part.cluster != before.cluster for part, before in zip(retried, parts, strict=True))
