import json
from datetime import datetime

import msgspec
import pytest

from controller.api.keys import (
    BATCH_HYPERJOBS,
    GROUP_ANNOTATION,
    HYPERJOBS,
    JOBS,
    PREFERRED_CLUSTERS_ANNOTATION,
    PROPAGATION_POLICIES,
)
from controller.cache.objects import ObjectKey
from controller.controllers.hyperjob.children import build_parts, cached_hyperjob_of
from controller.controllers.hyperjob.observed import PartPlacement
from controller.controllers.hyperjob.reconciler import Reconciler
from tests.controllers.hyperjob.objects import capacity, cluster, document, gpus, replicated, task, two_copies
from tests.files import EXAMPLES, read_object

# -- what it becomes ------------------------------------------------------------


async def test_documented_hyperjob_becomes_two_pinned_jobs(harness):
    found = read_object(EXAMPLES / "hyperjob-conceptual.yaml")
    await harness.submit(found, BATCH_HYPERJOBS)
    await harness.reconcile_until_stable("llm-train-hyperjob", BATCH_HYPERJOBS)
    names = ["llm-train-hyperjob-0", "llm-train-hyperjob-1"]
    assert await harness.names() == await harness.names(PROPAGATION_POLICIES) == names
    for name, place in zip(names, ["cluster-a", "cluster-b"], strict=True):
        job, policy = await harness.job(name), await harness.policy(name)
        assert (job["spec"]["minAvailable"], job["spec"]["tasks"][0]["replicas"]) == (32, 32)
        assert job["spec"]["queue"] == "global-ai"
        amounts = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
        assert amounts["limits"] == {"nvidia.com/gpu": "1"}, "Volcano refuses a device without a limit"
        assert policy["spec"]["placement"]["clusterAffinity"] == {"clusterNames": [place]}
    status = await harness.status("llm-train-hyperjob", BATCH_HYPERJOBS)
    assert (status["phase"], status["splitCount"], status["partsRunning"]) == ("Pending", 2, "0/2")
    assert status["clusters"] == "cluster-a,cluster-b"


async def test_upstream_256_gpus_become_two_jobs_of_128(harness):
    await harness.submit(document(replicated("trainer", task(replicas=128), replicas=2), minAvailable=2, maxDomains=2))
    await harness.reconcile_until_stable("llm")
    assert await harness.names() == ["llm-trainer-0", "llm-trainer-1"]
    job, policy = await harness.job("llm-trainer-1"), await harness.policy("llm-trainer-1")
    assert job["spec"]["tasks"][0]["replicas"] == 128
    assert job["metadata"]["labels"] == {"volcano.sh/hyperjob-name": "llm", "volcano.sh/replicatedjob-name": "trainer"}
    assert policy["spec"]["placement"]["spreadConstraints"] == [
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}
    ]
    assert policy["spec"]["propagateDeps"] is True
    assert policy["spec"]["resourceSelectors"] == [
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "llm-trainer-1"}
    ]


async def test_upstream_accelerators_prefer_their_named_clusters(harness):
    jobs = [
        replicated("trainer-910b", task(replicas=64), clusterNames=["b-1", "b-2"]),
        replicated("trainer-910c", task(replicas=64), clusterNames=["c-1"]),
    ]
    await harness.submit(document(*jobs, minAvailable=2))
    await harness.reconcile_until_stable("llm")
    preferred = {
        name: json.loads((await harness.job(name))["metadata"]["annotations"][PREFERRED_CLUSTERS_ANNOTATION])
        for name in await harness.names()
    }
    assert preferred == {"llm-trainer-910b-0": ["b-1", "b-2"], "llm-trainer-910c-0": ["c-1"]}


async def test_each_part_has_the_group_annotation(harness):
    stored = await harness.submit(two_copies(minAvailable=1))
    await harness.reconcile_until_stable("llm")
    groups = [
        json.loads((await harness.job(name))["metadata"]["annotations"][GROUP_ANNOTATION])
        for name in await harness.names()
    ]
    assert groups[0] == groups[1]
    said = cached_hyperjob_of(harness.hyperjob(HYPERJOBS, ObjectKey(harness.namespace, "llm")))
    assert groups[0] == {"uid": stored["metadata"]["uid"], "split": said.split}
    assert (said.namespace, said.parts, said.minimum) == (harness.namespace, {"llm-t-0", "llm-t-1"}, 1)
    created = datetime.fromisoformat(stored["metadata"]["creationTimestamp"])
    assert said.created_at == created.timestamp() * 1000


async def test_large_hyperjob_is_created_in_several_passes(harness):
    """Other HyperJobs are reconciled between the passes."""
    await harness.submit(document(replicated("t", task(replicas=1), replicas=80)))
    asked = []
    get, harness.api.get = harness.api.get, lambda path: asked.append(path) or get(path)
    again_at = await harness.run("llm")
    assert again_at == harness.now
    assert sum(write.startswith("apply") for write in harness.api.writes) == 64 + 1  # and the status
    assert asked == []
    await harness.reconcile_until_stable("llm")
    assert len(await harness.names()) == len(await harness.names(PROPAGATION_POLICIES)) == 80


async def test_name_conflict_is_found_before_any_object_is_created(harness):
    body = {"apiVersion": JOBS.api_version, "kind": "Job", "metadata": {"name": "llm-t-40"}, "spec": {}}
    await harness.admin.create(JOBS.item_path(harness.namespace, "").rstrip("/"), msgspec.json.encode(body))
    await harness.submit(document(replicated("t", task(replicas=1), replicas=80)))
    await harness.run("llm")
    assert await harness.names() == ["llm-t-40"]
    assert "llm-t-40 belongs to another owner" in (await harness.status("llm"))["message"]


async def test_up_to_date_objects_are_not_built_again(harness, monkeypatch):
    await harness.submit(document(replicated("t", task(replicas=1), replicas=3)))
    await harness.reconcile_until_stable("llm")
    made = []
    monkeypatch.setattr(
        "controller.controllers.hyperjob.reconciler.build_parts",
        lambda hyperjob, parts, skipped=(): (
            made.append(len(parts) - len(skipped)) or build_parts(hyperjob, parts, skipped)
        ),
    )
    reconciler = Reconciler(harness.api, harness, lambda: harness.capacity, lambda: harness.now)
    key = ObjectKey(harness.namespace, "llm")
    await harness.relist()
    for _ in range(2):
        await reconciler.reconcile(HYPERJOBS, key)
    await harness.admin.patch(
        JOBS.item_path(harness.namespace, "llm-t-1"),
        b'{"metadata":{"annotations":{"volcano-global.io/group":"x"}}}',
        kind="merge",
    )
    await harness.relist()
    await reconciler.reconcile(HYPERJOBS, key)
    assert made == [3, 0, 1]
    assert (await harness.job("llm-t-1"))["metadata"]["annotations"][GROUP_ANNOTATION] != "x"


async def test_pods_get_their_rank_environment(harness):
    job = replicated(
        "t",
        task("master", 1),
        task("worker", 7),
        spec={"plugins": {"pytorch": ["--master=master", "--worker=worker"]}},
        splitPolicy={"strategy": "ByReplicas", "parts": 2},
    )
    await harness.submit(document(job))
    await harness.reconcile_until_stable("llm")
    told = {}
    for name in await harness.names():
        spec = (await harness.job(name))["spec"]
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


async def test_pending_auto_split_moves_when_capacity_appears(harness):
    harness.capacity = capacity(cluster("a", 100, used=90), cluster("b", 100, used=95))
    await harness.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})))
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Pending", "InsufficientCapacity")
    assert status["message"] == "its candidate clusters have 15 nvidia.com/gpu of 64 free"
    assert status["clusters"] == "a"
    harness.capacity = capacity(cluster("a", 100, used=90), cluster("b", 100))
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert (status["clusters"], status["split"]["fits"]) == ("b", True)
    assert (await harness.policy("llm-t-0"))["spec"]["placement"]["clusterAffinity"] == {"clusterNames": ["b"]}


async def test_pending_status_is_not_written_for_changed_amounts(harness):
    await harness.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})))
    harness.capacity = capacity(cluster("a", 100, used=90))
    await harness.reconcile_until_stable("llm")
    harness.capacity = capacity(cluster("a", 100, used=80))
    assert await harness.reconcile_until_stable("llm") == []


async def test_changed_message_with_the_same_reason_is_written(harness):
    job = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})
    await harness.submit(document(job, maxDomains=1))
    harness.capacity = gpus(a=40)
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["message"].endswith("have 40 nvidia.com/gpu of 64 free")
    harness.capacity = gpus(a=40, b=40)
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert status["conditions"][0]["reason"] == "ExceedsEveryCluster"
    assert status["message"].endswith("have enough capacity together, but not in parts that fit on at most 1 cluster")


async def test_no_parts_while_no_cluster_could_ever_fit(harness):
    harness.capacity = gpus(a=8)
    await harness.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})))
    await harness.reconcile_until_stable("llm")
    assert await harness.names() == []
    assert (await harness.status("llm"))["conditions"][0]["reason"] == "ExceedsEveryCluster"
    harness.capacity = gpus(a=8, b=60)
    await harness.reconcile_until_stable("llm")
    assert await harness.names() == ["llm-t-0", "llm-t-1"]


async def test_split_is_not_moved_once_a_part_has_started(harness):
    harness.capacity = gpus(a=40, b=40)
    await harness.submit(document(replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})))
    await harness.reconcile_until_stable("llm")
    harness.placements["llm-t-0"] = PartPlacement(("a",))
    await harness.reconcile_until_stable("llm")
    harness.capacity = gpus(c=64)
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["clusters"] == "a,b"


# -- defects of the Go implementation, and threats ------------------------------


async def test_regression_jobs_deleted_by_ttl_are_not_recreated(harness):
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    for name in ("llm-t-0", "llm-t-1"):
        await harness.report(name, "Completed", succeeded=4)
        await harness.reconcile_until_stable("llm")
        await harness.remove(name)
        await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert (status["phase"], await harness.names()) == ("Completed", [])
    assert status["replicatedJobsStatus"] == [
        {
            "name": "t",
            "jobStates": {"llm-t-0": {"phase": "Completed"}, "llm-t-1": {"phase": "Completed"}},
            "succeeded": 8,
        }
    ]


async def test_regression_hyperjob_without_replicas_is_not_completed(harness):
    await harness.submit(document(replicated("t", replicas=0)))
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert (status["phase"], status["message"]) == (
        "Pending",
        "it has no parts; set replicas of a replicated job above zero",
    )


async def test_regression_foreign_jobs_with_our_labels_are_ignored(harness):
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    labels = {"volcano.sh/hyperjob-name": "llm", "volcano.sh/replicatedjob-name": "t"}
    await foreign(harness, "llm-t-7", labels=labels)
    await harness.report("llm-t-7", "Failed")
    assert await harness.reconcile_until_stable("llm") == []
    assert (await harness.status("llm"))["phase"] == "Pending"
    assert "llm-t-7" in await harness.names()


async def test_regression_policy_is_created_before_its_job(harness):
    await harness.submit(two_copies())
    made = [write for write in await harness.reconcile_until_stable("llm") if "status" not in write]
    assert made == [
        "apply propagationpolicies/llm-t-0",
        "apply jobs/llm-t-0",
        "apply propagationpolicies/llm-t-1",
        "apply jobs/llm-t-1",
    ]


@pytest.mark.parametrize("kind", [JOBS, PROPAGATION_POLICIES], ids=lambda kind: kind.kind)
async def test_regression_name_conflict_creates_nothing(harness, kind):
    await foreign(harness, "llm-t-1", kind=kind)
    before = await harness.items(kind)
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    status = await harness.status("llm")
    assert status["conditions"][0]["reason"] == "NameTaken"
    assert status["message"] == (
        f"{kind.kind} {harness.namespace}/llm-t-1 belongs to another owner; delete it, or rename the HyperJob"
    )
    assert await harness.items(kind) == before
    assert await harness.names(JOBS if kind is PROPAGATION_POLICIES else PROPAGATION_POLICIES) == []
    await harness.admin.delete(kind.item_path(harness.namespace, "llm-t-1"))
    await harness.reconcile_until_stable("llm")
    assert await harness.names() == ["llm-t-0", "llm-t-1"]


async def test_tb8_job_of_another_owner_is_never_changed(harness):
    other = await harness.submit(document(name="other"))
    owner = {"apiVersion": HYPERJOBS.api_version, "kind": "HyperJob", "name": "other", "uid": other["metadata"]["uid"]}
    await foreign(
        harness, "llm-t-0", labels={"volcano.sh/hyperjob-name": "llm"}, ownerReferences=[{**owner, "controller": True}]
    )
    before = await harness.job("llm-t-0")
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    assert await harness.names() == ["llm-t-0"]
    assert await harness.job("llm-t-0") == before


async def foreign(harness, name, *, kind=JOBS, **metadata):
    spec = (
        {"minAvailable": 1, "tasks": []} if kind is JOBS else {"resourceSelectors": [{"apiVersion": "v1", "kind": "X"}]}
    )
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **metadata}, "spec": spec}
    await harness.admin.create(kind.item_path(harness.namespace, "").rstrip("/"), msgspec.json.encode(made))


async def test_f28_orphaned_children_are_not_adopted(harness):
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    orphaned = await harness.items(JOBS)
    body = msgspec.json.encode({"propagationPolicy": "Orphan"})
    await harness.admin.delete(HYPERJOBS.item_path(harness.namespace, "llm"), body)
    for _ in range(200):
        if not await harness.names(HYPERJOBS):
            break
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    assert (await harness.status("llm"))["conditions"][0]["reason"] == "NameTaken"
    assert [item["metadata"]["uid"] for item in await harness.items(JOBS)] == [
        each["metadata"]["uid"] for each in orphaned
    ]


async def test_changed_part_is_repaired(harness):
    await harness.submit(two_copies())
    await harness.reconcile_until_stable("llm")
    await harness.admin.patch(
        JOBS.item_path(harness.namespace, "llm-t-0"),
        msgspec.json.encode({"spec": {"minAvailable": 1, "queue": "x"}}),
        kind="merge",
    )
    await harness.reconcile_until_stable("llm")
    assert (await harness.job("llm-t-0"))["spec"]["queue"] == "ml"
    assert await harness.reconcile_until_stable("llm") == []
