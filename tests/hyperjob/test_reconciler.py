import json
from datetime import datetime

import msgspec
import pytest
import yaml

from controller.api.keys import (
    BATCH_HYPERJOBS,
    GROUP_ANNOTATION,
    HYPERJOBS,
    JOBS,
    PREFERRED_CLUSTERS_ANNOTATION,
    PROPAGATION_POLICIES,
)
from controller.cache.objects import ObjectKey
from controller.hyperjob.children import build_parts, cached_hyperjob_of
from controller.hyperjob.observed import PartPlacement
from controller.hyperjob.reconciler import Reconciler
from tests.cache.objects import SHARED, needs_shared
from tests.hyperjob.objects import capacity, cluster, document, gpus, replicated, task, two_copies

# -- what it becomes ------------------------------------------------------------


@needs_shared
async def test_the_documented_hyperjob_becomes_two_jobs_pinned_to_their_clusters(yard):
    (found,) = yaml.safe_load_all((SHARED / "manifests" / "hyperjob-conceptual.yaml").read_text())
    await yard.submit(found, BATCH_HYPERJOBS)
    await yard.settle("llm-train-hyperjob", BATCH_HYPERJOBS)
    names = ["llm-train-hyperjob-0", "llm-train-hyperjob-1"]
    assert await yard.names() == await yard.names(PROPAGATION_POLICIES) == names
    for name, place in zip(names, ["cluster-a", "cluster-b"], strict=True):
        job, policy = await yard.job(name), await yard.policy(name)
        assert (job["spec"]["minAvailable"], job["spec"]["tasks"][0]["replicas"]) == (32, 32)
        assert job["spec"]["queue"] == "global-ai"
        amounts = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
        assert amounts["limits"] == {"nvidia.com/gpu": "1"}, "Volcano refuses a device without a limit"
        assert policy["spec"]["placement"]["clusterAffinity"] == {"clusterNames": [place]}
    status = await yard.status("llm-train-hyperjob", BATCH_HYPERJOBS)
    assert (status["phase"], status["splitCount"], status["partsRunning"]) == ("Pending", 2, "0/2")
    assert status["clusters"] == "cluster-a,cluster-b"


async def test_upstreams_256_gpus_become_two_jobs_of_128(yard):
    await yard.submit(document(replicated("trainer", task(replicas=128), replicas=2), minAvailable=2, maxDomains=2))
    await yard.settle("llm")
    assert await yard.names() == ["llm-trainer-0", "llm-trainer-1"]
    job, policy = await yard.job("llm-trainer-1"), await yard.policy("llm-trainer-1")
    assert job["spec"]["tasks"][0]["replicas"] == 128
    assert job["metadata"]["labels"] == {"volcano.sh/hyperjob-name": "llm", "volcano.sh/replicatedjob-name": "trainer"}
    assert policy["spec"]["placement"]["spreadConstraints"] == [
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}
    ]
    assert policy["spec"]["propagateDeps"] is True
    assert policy["spec"]["resourceSelectors"] == [
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "llm-trainer-1"}
    ]


async def test_upstreams_two_kinds_of_accelerators_prefer_the_clusters_they_name(yard):
    jobs = [
        replicated("trainer-910b", task(replicas=64), clusterNames=["b-1", "b-2"]),
        replicated("trainer-910c", task(replicas=64), clusterNames=["c-1"]),
    ]
    await yard.submit(document(*jobs, minAvailable=2))
    await yard.settle("llm")
    preferred = {
        name: json.loads((await yard.job(name))["metadata"]["annotations"][PREFERRED_CLUSTERS_ANNOTATION])
        for name in await yard.names()
    }
    assert preferred == {"llm-trainer-910b-0": ["b-1", "b-2"], "llm-trainer-910c-0": ["c-1"]}


async def test_each_part_carries_what_the_engine_needs_of_its_group(yard):
    stored = await yard.submit(two_copies(minAvailable=1))
    await yard.settle("llm")
    groups = [
        json.loads((await yard.job(name))["metadata"]["annotations"][GROUP_ANNOTATION]) for name in await yard.names()
    ]
    assert groups[0] == groups[1]
    said = cached_hyperjob_of(yard.hyperjob(HYPERJOBS, ObjectKey(yard.namespace, "llm")))
    assert groups[0] == {"uid": stored["metadata"]["uid"], "split": said.split}
    assert (said.namespace, said.parts, said.minimum) == (yard.namespace, {"llm-t-0", "llm-t-1"}, 1)
    created = datetime.fromisoformat(stored["metadata"]["creationTimestamp"])
    assert said.since == created.timestamp() * 1000


async def test_a_large_hyperjob_is_made_in_several_steps_and_looked_up_by_lists(yard):
    """Other HyperJobs have their turn between the steps."""
    await yard.submit(document(replicated("t", task(replicas=1), replicas=80)))
    asked = []
    get, yard.api.get = yard.api.get, lambda path: asked.append(path) or get(path)
    again_at = await yard.run("llm")
    assert again_at == yard.now
    assert sum(write.startswith("apply") for write in yard.api.writes) == 64 + 1  # and the status
    assert asked == []
    await yard.settle("llm")
    assert len(await yard.names()) == len(await yard.names(PROPAGATION_POLICIES)) == 80


async def test_a_name_taken_among_many_is_seen_before_anything_is_made(yard):
    body = {"apiVersion": JOBS.api_version, "kind": "Job", "metadata": {"name": "llm-t-40"}, "spec": {}}
    await yard.admin.create(JOBS.item_path(yard.namespace, "").rstrip("/"), msgspec.json.encode(body))
    await yard.submit(document(replicated("t", task(replicas=1), replicas=80)))
    await yard.run("llm")
    assert await yard.names() == ["llm-t-40"]
    assert "llm-t-40 belongs to somebody else" in (await yard.status("llm"))["message"]


async def test_objects_that_are_as_they_should_be_are_not_worked_out_again(yard, monkeypatch):
    await yard.submit(document(replicated("t", task(replicas=1), replicas=3)))
    await yard.settle("llm")
    made = []
    monkeypatch.setattr(
        "controller.hyperjob.diff.children",
        lambda hyperjob, parts, besides=(): (
            made.append(len(parts) - len(besides)) or build_parts(hyperjob, parts, besides)
        ),
    )
    reconciler = Reconciler(yard.api, yard, lambda: yard.prospects, lambda: yard.now)
    key = ObjectKey(yard.namespace, "llm")
    await yard.look()
    for _ in range(2):
        await reconciler.reconcile(HYPERJOBS, key)
    await yard.admin.patch(
        JOBS.item_path(yard.namespace, "llm-t-1"),
        b'{"metadata":{"annotations":{"volcano-global.io/group":"x"}}}',
        kind="merge",
    )
    await yard.look()
    await reconciler.reconcile(HYPERJOBS, key)
    assert made == [3, 0, 1]
    assert (await yard.job("llm-t-1"))["metadata"]["annotations"][GROUP_ANNOTATION] != "x"


async def test_pods_are_told_their_place_in_the_whole(yard):
    job = replicated(
        "t",
        task("master", 1),
        task("worker", 7),
        spec={"plugins": {"pytorch": ["--master=master", "--worker=worker"]}},
        splitPolicy={"strategy": "ByReplicas", "parts": 2},
    )
    await yard.submit(document(job))
    await yard.settle("llm")
    told = {}
    for name in await yard.names():
        spec = (await yard.job(name))["spec"]
        for each in spec["tasks"]:
            variables = {one["name"]: one["value"] for one in each["template"]["spec"]["containers"][0]["env"]}
            told[name, each["name"]] = (variables["HYPERJOB_RANK_OFFSET"], variables["HYPERJOB_WORLD_SIZE"])
            assert variables["HYPERJOB_MASTER"] == "llm-t-0-master-0.llm-t-0"
        told[name] = sorted(spec["plugins"])
    assert told == {
        ("llm-t-0", "master"): ("0", "8"),
        ("llm-t-0", "worker"): ("1", "8"),
        ("llm-t-1", "worker"): ("5", "8"),
        "llm-t-0": ["env", "pytorch", "svc"],
        "llm-t-1": ["env", "svc"],
    }


async def test_an_auto_split_waits_with_one_reason_and_moves_when_room_appears(yard):
    yard.prospects = capacity(cluster("a", 100, used=90), cluster("b", 100, used=95))
    await yard.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})))
    await yard.settle("llm")
    status = await yard.status("llm")
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Pending", "InsufficientCapacity")
    assert status["message"] == "its candidate clusters have 15 nvidia.com/gpu of 64 free"
    assert status["clusters"] == "a"
    yard.prospects = capacity(cluster("a", 100, used=90), cluster("b", 100))
    await yard.settle("llm")
    status = await yard.status("llm")
    assert (status["clusters"], status["split"]["fits"]) == ("b", True)
    assert (await yard.policy("llm-t-0"))["spec"]["placement"]["clusterAffinity"] == {"clusterNames": ["b"]}


async def test_waiting_while_only_amounts_change_writes_nothing(yard):
    await yard.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})))
    yard.prospects = capacity(cluster("a", 100, used=90))
    await yard.settle("llm")
    yard.prospects = capacity(cluster("a", 100, used=80))
    assert await yard.settle("llm") == []


async def test_another_obstacle_is_told_though_its_code_is_the_same(yard):
    job = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})
    await yard.submit(document(job, maxDomains=1))
    yard.prospects = gpus(a=40)
    await yard.settle("llm")
    assert (await yard.status("llm"))["message"].endswith("have 40 nvidia.com/gpu of 64 free")
    yard.prospects = gpus(a=40, b=40)
    await yard.settle("llm")
    status = await yard.status("llm")
    assert status["conditions"][0]["reason"] == "ExceedsEveryCluster"
    assert status["message"].endswith("have room, but not in parts that fit on at most 1 cluster")


async def test_what_no_cluster_could_hold_becomes_nothing_until_one_can(yard):
    yard.prospects = gpus(a=8)
    await yard.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})))
    await yard.settle("llm")
    assert await yard.names() == []
    assert (await yard.status("llm"))["conditions"][0]["reason"] == "ExceedsEveryCluster"
    yard.prospects = gpus(a=8, b=60)
    await yard.settle("llm")
    assert await yard.names() == ["llm-t-0", "llm-t-1"]


async def test_a_split_is_not_moved_once_a_part_has_started(yard):
    yard.prospects = gpus(a=40, b=40)
    await yard.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})))
    await yard.settle("llm")
    yard.places["llm-t-0"] = PartPlacement(("a",))
    await yard.settle("llm")
    yard.prospects = gpus(c=64)
    await yard.settle("llm")
    assert (await yard.status("llm"))["clusters"] == "a,b"


# -- defects of the Go implementation, and threats ------------------------------


async def test_regression_completed_children_that_vanish_by_their_ttl_are_not_made_again(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    for name in ("llm-t-0", "llm-t-1"):
        await yard.tell(name, "Completed", succeeded=4)
        await yard.settle("llm")
        await yard.remove(name)
        await yard.settle("llm")
    status = await yard.status("llm")
    assert (status["phase"], await yard.names()) == ("Completed", [])
    assert status["replicatedJobsStatus"] == [
        {
            "name": "t",
            "jobStates": {"llm-t-0": {"phase": "Completed"}, "llm-t-1": {"phase": "Completed"}},
            "succeeded": 8,
        }
    ]


async def test_regression_no_replicas_are_not_completed(yard):
    await yard.submit(document(replicated("t", replicas=0)))
    await yard.settle("llm")
    status = await yard.status("llm")
    assert (status["phase"], status["message"]) == (
        "Pending",
        "it has no parts; set replicas of a replicated job above zero",
    )


async def test_regression_foreign_jobs_with_our_labels_change_nothing(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    labels = {"volcano.sh/hyperjob-name": "llm", "volcano.sh/replicatedjob-name": "t"}
    await foreign(yard, "llm-t-7", labels=labels)
    await yard.tell("llm-t-7", "Failed")
    assert await yard.settle("llm") == []
    assert (await yard.status("llm"))["phase"] == "Pending"
    assert "llm-t-7" in await yard.names()


async def test_regression_the_policy_is_made_before_its_job(yard):
    await yard.submit(two_copies())
    made = [write for write in await yard.settle("llm") if "status" not in write]
    assert made == [
        "apply propagationpolicies/llm-t-0",
        "apply jobs/llm-t-0",
        "apply propagationpolicies/llm-t-1",
        "apply jobs/llm-t-1",
    ]


@pytest.mark.parametrize("kind", [JOBS, PROPAGATION_POLICIES], ids=lambda kind: kind.kind)
async def test_regression_a_foreign_name_leaves_nothing_half_made_and_is_reported(yard, kind):
    await foreign(yard, "llm-t-1", kind=kind)
    before = await yard.items(kind)
    await yard.submit(two_copies())
    await yard.settle("llm")
    status = await yard.status("llm")
    assert status["conditions"][0]["reason"] == "NameTaken"
    assert status["message"] == (
        f"{kind.kind} {yard.namespace}/llm-t-1 belongs to somebody else; delete it, or give the HyperJob another name"
    )
    assert await yard.items(kind) == before
    assert await yard.names(JOBS if kind is PROPAGATION_POLICIES else PROPAGATION_POLICIES) == []
    await yard.admin.delete(kind.item_path(yard.namespace, "llm-t-1"))
    await yard.settle("llm")
    assert await yard.names() == ["llm-t-0", "llm-t-1"]


async def test_tb8_a_job_that_claims_another_owner_is_never_touched(yard):
    other = await yard.submit(document(name="other"))
    owner = {"apiVersion": HYPERJOBS.api_version, "kind": "HyperJob", "name": "other", "uid": other["metadata"]["uid"]}
    await foreign(
        yard, "llm-t-0", labels={"volcano.sh/hyperjob-name": "llm"}, ownerReferences=[{**owner, "controller": True}]
    )
    before = await yard.job("llm-t-0")
    await yard.submit(two_copies())
    await yard.settle("llm")
    assert await yard.names() == ["llm-t-0"]
    assert await yard.job("llm-t-0") == before


async def foreign(yard, name, *, kind=JOBS, **metadata):
    spec = (
        {"minAvailable": 1, "tasks": []} if kind is JOBS else {"resourceSelectors": [{"apiVersion": "v1", "kind": "X"}]}
    )
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **metadata}, "spec": spec}
    await yard.admin.create(kind.item_path(yard.namespace, "").rstrip("/"), msgspec.json.encode(made))


async def test_f28_children_orphaned_by_a_deleted_hyperjob_are_not_adopted(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    orphaned = await yard.items(JOBS)
    body = msgspec.json.encode({"propagationPolicy": "Orphan"})
    await yard.admin.delete(HYPERJOBS.item_path(yard.namespace, "llm"), body)
    for _ in range(200):
        if not await yard.names(HYPERJOBS):
            break
    await yard.submit(two_copies())
    await yard.settle("llm")
    assert (await yard.status("llm"))["conditions"][0]["reason"] == "NameTaken"
    assert [item["metadata"]["uid"] for item in await yard.items(JOBS)] == [
        each["metadata"]["uid"] for each in orphaned
    ]


async def test_what_somebody_changes_of_a_part_is_put_right(yard):
    await yard.submit(two_copies())
    await yard.settle("llm")
    await yard.admin.patch(
        JOBS.item_path(yard.namespace, "llm-t-0"),
        msgspec.json.encode({"spec": {"minAvailable": 1, "queue": "x"}}),
        kind="merge",
    )
    await yard.settle("llm")
    assert (await yard.job("llm-t-0"))["spec"]["queue"] == "ml"
    assert await yard.settle("llm") == []
