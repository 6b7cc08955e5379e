import json
from dataclasses import replace
from datetime import datetime

import msgspec
import pytest

from controller.api.keys import (
    BATCH_HYPERJOBS,
    GROUP_ANNOTATION,
    HYPERJOBS,
    JOBS,
    PART_ANNOTATION,
    PREFERRED_CLUSTERS_ANNOTATION,
    PROPAGATION_POLICIES,
)
from controller.cache.objects import ObjectKey
from controller.controllers.hyperjob.children import build_parts, cached_hyperjob_of
from controller.kube.errors import ApiError, Conflict
from tests.controllers.hyperjob.harness import NAMESPACE, NOW
from tests.controllers.hyperjob.objects import GPU, capacity, cluster, document, gpus, replicated, task, two_copies
from tests.files import EXAMPLES, read_object

TWO_PARTS = {"strategy": "ByReplicas", "parts": 2}
AUTO = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})


def annotation(harness, name, key):
    return json.loads(harness.job(name)["metadata"]["annotations"][key])


def placement(harness, name):
    return harness.get(PROPAGATION_POLICIES, name)["spec"]["placement"]


# -- what it becomes ------------------------------------------------------------


async def test_documented_hyperjob_becomes_two_pinned_jobs(harness):
    await harness.start(read_object(EXAMPLES / "hyperjob-conceptual.yaml"), BATCH_HYPERJOBS)
    names = ["llm-train-hyperjob-0", "llm-train-hyperjob-1"]
    assert harness.names() == harness.names(PROPAGATION_POLICIES) == names
    for name, place in zip(names, ["cluster-a", "cluster-b"], strict=True):
        spec = harness.job(name)["spec"]
        assert (spec["minAvailable"], spec["tasks"][0]["replicas"], spec["queue"]) == (32, 32, "global-ai")
        amounts = spec["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
        assert amounts["limits"] == {"nvidia.com/gpu": "1"}, "Volcano refuses a device without a limit"
        assert placement(harness, name)["clusterAffinity"] == {"clusterNames": [place]}
    status = harness.status("llm-train-hyperjob", BATCH_HYPERJOBS)
    assert (status["phase"], status["splitCount"], status["partsRunning"]) == ("Pending", 2, "0/2")
    assert status["clusters"] == "cluster-a,cluster-b"


async def test_upstream_256_gpus_become_two_jobs_of_128(harness):
    await harness.start(document(replicated("trainer", task(replicas=128), replicas=2), minAvailable=2, maxDomains=2))
    assert harness.names() == ["llm-trainer-0", "llm-trainer-1"]
    job, policy = harness.job("llm-trainer-1"), harness.get(PROPAGATION_POLICIES, "llm-trainer-1")["spec"]
    assert job["spec"]["tasks"][0]["replicas"] == 128
    assert job["metadata"]["labels"] == {"volcano.sh/hyperjob-name": "llm", "volcano.sh/replicatedjob-name": "trainer"}
    assert policy["placement"]["spreadConstraints"] == [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]
    assert policy["propagateDeps"] is True
    assert policy["resourceSelectors"] == [
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "llm-trainer-1"}
    ]


async def test_upstream_accelerators_prefer_their_named_clusters(harness):
    jobs = [replicated("b", task(), clusterNames=["b-1", "b-2"]), replicated("c", task(), clusterNames=["c-1"])]
    await harness.start(document(*jobs, minAvailable=2))
    preferred = {name: annotation(harness, name, PREFERRED_CLUSTERS_ANNOTATION) for name in harness.names()}
    assert preferred == {"llm-b-0": ["b-1", "b-2"], "llm-c-0": ["c-1"]}


async def test_min_success_grows_with_the_accelerators_and_is_divided(harness):
    policy = {"mode": "static", "accelerators": 128, "acceleratorType": GPU}
    spec = {"minAvailable": 3, "minSuccess": 3}
    job = replicated("t", task(replicas=4, gpu=8), spec=spec, replicas=2, splitPolicy=policy)
    await harness.start(document(job))
    specs = [harness.job(name)["spec"] for name in harness.names()]
    assert [(spec["minAvailable"], spec["minSuccess"]) for spec in specs] == [(6, 6), (6, 6)]


async def test_copies_keep_min_success(harness):
    await harness.start(document(replicated("t", replicas=2, spec={"minSuccess": 3})))
    assert [harness.job(name)["spec"]["minSuccess"] for name in harness.names()] == [3, 3]


async def test_each_part_has_the_group_annotation(harness):
    await harness.start(two_copies(minAvailable=1))
    metadata = harness.get(HYPERJOBS, "llm")["metadata"]
    said = cached_hyperjob_of(harness.hyperjob(HYPERJOBS, ObjectKey(NAMESPACE, "llm")))
    groups = [annotation(harness, name, GROUP_ANNOTATION) for name in harness.names()]
    assert groups == [{"uid": metadata["uid"], "split": said.split}] * 2
    assert (said.namespace, said.parts, said.minimum) == (NAMESPACE, {"llm-t-0", "llm-t-1"}, 1)
    assert said.created_at == datetime.fromisoformat(metadata["creationTimestamp"]).timestamp() * 1000


async def test_parts_do_not_inherit_reserved_annotations(harness):
    hyperjob = two_copies()
    reserved = {PREFERRED_CLUSTERS_ANNOTATION: '["a"]', PART_ANNOTATION: "{}", GROUP_ANNOTATION: "{}"}
    hyperjob["metadata"]["annotations"] = {"example.io/own": "x", **reserved}
    await harness.start(hyperjob)
    annotations = harness.job("llm-t-0")["metadata"]["annotations"]
    assert annotations.keys() == {"example.io/own", PART_ANNOTATION, GROUP_ANNOTATION}
    assert "{}" not in annotations.values()


async def test_large_hyperjob_is_created_in_several_passes(harness):
    """Other HyperJobs are reconciled between the passes, and new names are looked up by lists."""
    harness.submit(document(replicated("t", task(replicas=1), replicas=80)))
    assert await harness.run() == harness.now
    assert len(harness.traffic.writes) == 64 + 1, "and the status"
    assert [request for request in harness.traffic.requests if request.startswith("GET") and "llm-" in request] == []
    await harness.reconcile()
    assert len(harness.names()) == len(harness.names(PROPAGATION_POLICIES)) == 80


async def test_pass_ends_when_leadership_is_lost(harness):
    """The writes of a pass may take longer than the lease."""
    harness.submit(two_copies())
    reconciler = replace(harness.new_reconciler(), may_write=lambda: len(harness.traffic.writes) < 2)
    assert await reconciler.reconcile(HYPERJOBS, ObjectKey(NAMESPACE, "llm")) == harness.now
    assert len(harness.traffic.writes) == 2


async def test_up_to_date_objects_are_not_built_again(harness, monkeypatch):
    await harness.start(document(replicated("t", task(replicas=1), replicas=3)))
    made = []
    monkeypatch.setattr(
        "controller.controllers.hyperjob.reconciler.build_parts",
        lambda hyperjob, parts, skipped=(): (
            made.append(len(parts) - len(skipped)) or build_parts(hyperjob, parts, skipped)
        ),
    )
    reconciler, key = harness.new_reconciler(), ObjectKey(NAMESPACE, "llm")
    for _ in range(2):
        await reconciler.reconcile(HYPERJOBS, key)
    harness.merge(JOBS, "llm-t-1", {"metadata": {"annotations": {GROUP_ANNOTATION: "x"}}})
    harness.new_reconciler()
    await reconciler.reconcile(HYPERJOBS, key)
    assert made == [3, 0, 1]
    assert harness.job("llm-t-1")["metadata"]["annotations"][GROUP_ANNOTATION] != "x"


async def test_object_that_a_webhook_changes_is_applied_once(harness, monkeypatch):
    """I7: a webhook of others names another registry in each Job."""
    handle = harness.server.handle

    def handle_rewritten(request):
        return handle(replace(request, body=request.body.replace(b'"image":"train"', b'"image":"mirror/train"')))

    harness.submit(two_copies())
    monkeypatch.setattr(harness.server, "handle", handle_rewritten)
    reconciler, key = harness.new_reconciler(), ObjectKey(NAMESPACE, "llm")
    await reconciler.reconcile(HYPERJOBS, key)
    assert harness.names() == ["llm-t-0", "llm-t-1"]
    harness.traffic.writes = []
    await reconciler.reconcile(HYPERJOBS, key)
    assert harness.traffic.writes == []
    harness.merge(JOBS, "llm-t-1", {"metadata": {"annotations": {GROUP_ANNOTATION: "x"}}})
    harness.new_reconciler()
    for _ in range(2):
        await reconciler.reconcile(HYPERJOBS, key)
    assert [write.rpartition("/")[2] for write in harness.traffic.writes] == ["llm-t-1"]


async def test_changed_part_is_repaired(harness):
    await harness.start(two_copies())
    harness.merge(JOBS, "llm-t-0", {"spec": {"minAvailable": 1, "queue": "x"}})
    await harness.reconcile()
    assert harness.job("llm-t-0")["spec"]["queue"] == "ml"
    assert await harness.reconcile() == []


async def test_pods_get_their_rank_environment(harness):
    job = replicated(
        "t",
        task("master", 1),
        task("worker", 7),
        spec={"plugins": {"pytorch": ["--master=master", "--worker=worker"]}},
        splitPolicy=TWO_PARTS,
    )
    await harness.start(document(job))
    told = {}
    for name in harness.names():
        spec = harness.job(name)["spec"]
        for job_task in spec["tasks"]:
            variables = {one["name"]: one["value"] for one in job_task["template"]["spec"]["containers"][0]["env"]}
            told[name, job_task["name"]] = (variables["HYPERJOB_RANK_OFFSET"], variables["HYPERJOB_WORLD_SIZE"])
            assert variables["HYPERJOB_MASTER"] == "llm-t-0-master-0.llm-t-0"
        told[name] = sorted(spec["plugins"])
    assert told == {
        ("llm-t-0", "master"): ("0", "8"),
        ("llm-t-0", "worker"): ("1", "8"),
        ("llm-t-1", "worker"): ("5", "8"),
        "llm-t-0": ["env", "pytorch", "svc"],
        "llm-t-1": ["env", "svc"],
    }


@pytest.mark.parametrize("arguments", [["--head=main"], ["-head", "main"]], ids=["joined", "separate"])
async def test_only_the_part_with_the_head_has_the_ray_plugin(harness, arguments):
    tasks = task("main", 1), task("worker", 4)
    await harness.start(document(replicated("t", *tasks, spec={"plugins": {"ray": arguments}}, splitPolicy=TWO_PARTS)))
    head, workers = (harness.job(name)["spec"] for name in harness.names())
    assert (sorted(head["plugins"]), sorted(workers["plugins"])) == (["env", "ray", "svc"], ["env", "svc"])
    environment = workers["tasks"][0]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "HYPERJOB_MASTER", "value": "llm-t-0-main-0.llm-t-0"} in environment


async def test_plugins_of_the_hyperjob_are_those_of_its_templates(harness):
    job = replicated("t", task("boss", 2), task("worker", 4), spec={"plugins": {"ssh": ["x"]}}, splitPolicy=TWO_PARTS)
    await harness.start(document(job, plugins={"mpi": ["--master=boss"], "ssh": ["y"]}))
    first, second = (harness.job(name)["spec"] for name in harness.names())
    assert [(job_task["name"], job_task["replicas"]) for job_task in first["tasks"]] == [("boss", 2), ("worker", 2)]
    assert first["plugins"] == {"mpi": ["--master=boss"], "ssh": ["x"], "env": [], "svc": []}
    assert second["plugins"] == {"ssh": ["x"], "env": [], "svc": []}


async def test_task_without_a_name_has_the_same_name_in_every_part(harness):
    await harness.start(document(replicated("t", task("", 1), task("", 4), splitPolicy=TWO_PARTS)))
    names = [[job_task["name"] for job_task in harness.job(name)["spec"]["tasks"]] for name in harness.names()]
    assert names == [["default0", "default1"], ["default1"]]


async def test_task_without_pods_is_kept_and_scaled_in_place(harness):
    tasks = task("head", 1), task("worker", 0)
    await harness.start(document(replicated("t", *tasks)))
    before = harness.uids()
    assert [job_task["replicas"] for job_task in harness.job("llm-t-0")["spec"]["tasks"]] == [1, 0]
    harness.place("a")
    harness.report("llm-t-0", "Running", running=1)
    await harness.change(replicatedJobs=[replicated("t", tasks[0], task("worker", 3))])
    assert [job_task["replicas"] for job_task in harness.job("llm-t-0")["spec"]["tasks"]] == [1, 3]
    assert harness.uids() == before


# -- an automatic split that waits ------------------------------------------------


async def test_pending_auto_split_moves_when_capacity_appears(harness):
    harness.capacity = capacity(cluster("a", 100, used=90), cluster("b", 100, used=95))
    await harness.start(document(AUTO))
    status = harness.status()
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Pending", "InsufficientCapacity")
    assert status["message"] == "its candidate clusters have 15 nvidia.com/gpu of 64 free"
    assert status["clusters"] == "a"
    harness.capacity = capacity(cluster("a", 100, used=80), cluster("b", 100, used=95))
    assert await harness.reconcile() == [], "the changed amount alone is not written"
    harness.capacity = capacity(cluster("a", 100, used=90), cluster("b", 100))
    await harness.reconcile()
    assert (harness.status()["clusters"], harness.status()["split"]["fits"]) == ("b", True)
    assert placement(harness, "llm-t-0")["clusterAffinity"] == {"clusterNames": ["b"]}


async def test_changed_message_with_the_same_reason_is_written(harness):
    harness.capacity = gpus(a=40)
    await harness.start(document(AUTO, maxDomains=1))
    assert harness.names() == []
    assert harness.status()["message"].endswith("have 40 nvidia.com/gpu of 64 free")
    harness.capacity = gpus(a=40, b=40)
    await harness.reconcile()
    assert harness.status()["conditions"][0]["reason"] == "ExceedsEveryCluster"
    assert harness.status()["message"].endswith("but not in parts that fit on at most 1 cluster")
    harness.capacity = gpus(a=40, b=64)
    await harness.reconcile()
    assert harness.names() == ["llm-t-0"]


async def test_split_is_not_moved_once_a_part_has_started(harness):
    harness.capacity = gpus(a=40, b=40)
    await harness.start(document(AUTO))
    harness.place("a")
    await harness.reconcile()
    harness.capacity = gpus(c=64)
    await harness.reconcile()
    assert harness.status()["clusters"] == "a,b"


# -- defects of the Go implementation, and threats ------------------------------


async def test_regression_jobs_deleted_by_ttl_are_not_recreated(harness):
    await harness.start(two_copies())
    for name in ("llm-t-0", "llm-t-1"):
        harness.report(name, "Completed", succeeded=4)
        await harness.reconcile()
        harness.remove(JOBS, name)
        await harness.reconcile()
        admitted = cached_hyperjob_of(harness.hyperjob(HYPERJOBS, ObjectKey(NAMESPACE, "llm")))
        assert name in admitted.finished, "the other part may start without it"
    status = harness.status()
    assert (status["phase"], harness.names()) == ("Completed", [])
    states = {"llm-t-0": {"phase": "Completed"}, "llm-t-1": {"phase": "Completed"}}
    assert status["replicatedJobsStatus"] == [{"name": "t", "jobStates": states, "succeeded": 8}]


async def test_hyperjob_with_a_ttl_removed_meanwhile_is_not_deleted(harness):
    await harness.start(two_copies(ttlSecondsAfterFinished=60))
    for name in ("llm-t-0", "llm-t-1"):
        harness.report(name, "Completed", succeeded=4)
    await harness.reconcile()
    late = harness.new_reconciler()
    harness.merge(HYPERJOBS, "llm", {"spec": {"ttlSecondsAfterFinished": None}})
    harness.now = NOW + 60_000
    with pytest.raises(Conflict):
        await late.reconcile(HYPERJOBS, ObjectKey(NAMESPACE, "llm"))
    assert harness.names(HYPERJOBS) == ["llm"]


async def test_regression_hyperjob_without_replicas_is_not_completed(harness):
    await harness.start(document(replicated("t", replicas=0)))
    assert (harness.status()["phase"], harness.status()["message"]) == (
        "Pending",
        "it has no parts; set replicas of a replicated job above zero",
    )


async def test_regression_foreign_jobs_with_our_labels_are_ignored(harness):
    await harness.start(two_copies())
    labels = {"volcano.sh/hyperjob-name": "llm", "volcano.sh/replicatedjob-name": "t"}
    harness.foreign("llm-t-7", labels=labels)
    harness.report("llm-t-7", "Failed")
    assert await harness.reconcile() == []
    assert harness.status()["phase"] == "Pending"
    assert "llm-t-7" in harness.names()


async def test_regression_policy_is_created_before_its_job(harness):
    made = [write for write in await harness.start(two_copies()) if "status" not in write]
    assert made == ["propagationpolicies/llm-t-0", "jobs/llm-t-0", "propagationpolicies/llm-t-1", "jobs/llm-t-1"]


def _claim(policy):
    """Return the metadata by which Karmada claims a Job for a policy of the namespace, or for a cluster policy."""
    if policy is None:
        return {
            "labels": {"clusterpropagationpolicy.karmada.io/permanent-id": "id"},
            "annotations": {"clusterpropagationpolicy.karmada.io/name": "all"},
        }
    return {
        "labels": {"propagationpolicy.karmada.io/permanent-id": "id"},
        "annotations": {"propagationpolicy.karmada.io/name": policy, "propagationpolicy.karmada.io/namespace": "ml"},
    }


@pytest.mark.parametrize(
    ("policy", "is_released"),
    [
        pytest.param("jobs", True, id="of-the-namespace"),
        pytest.param(None, True, id="of-all-namespaces"),
        pytest.param("llm-t-0", False, id="its-own"),
    ],
)
async def test_part_is_released_from_another_policy(harness, policy, is_released):
    """Karmada has seen the Job before its policy, or the policy was deleted for a while."""
    await harness.start(two_copies())
    before = harness.job("llm-t-0")
    harness.merge(JOBS, "llm-t-0", {"metadata": _claim(policy)})
    assert await harness.reconcile() == (["jobs/llm-t-0"] if is_released else [])
    after = harness.job("llm-t-0")
    assert (after["metadata"]["annotations"] == before["metadata"]["annotations"]) is is_released
    assert (after["metadata"]["labels"] == before["metadata"]["labels"]) is is_released
    assert after["spec"] == before["spec"]


async def test_finished_part_keeps_another_policy(harness):
    await harness.start(two_copies())
    harness.place("a", "b")
    harness.report("llm-t-0", "Completed")
    await harness.reconcile()
    harness.merge(JOBS, "llm-t-0", {"metadata": _claim("jobs")})
    assert await harness.reconcile() == []


async def test_part_is_released_again_only_after_a_minute(harness):
    await harness.start(two_copies())
    reconciler, key = harness.new_reconciler(), ObjectKey(NAMESPACE, "llm")
    harness.traffic.writes = []
    for _ in range(3):
        changed = harness.merge(JOBS, "llm-t-0", {"metadata": _claim("jobs")})
        harness.update(JOBS, msgspec.json.encode(changed))
        await reconciler.reconcile(HYPERJOBS, key)
        harness.now += 40_000
    assert len(harness.traffic.writes) == 2


@pytest.mark.parametrize("parts", [pytest.param(2, id="few"), pytest.param(80, id="names-from-lists")])
@pytest.mark.parametrize("kind", [JOBS, PROPAGATION_POLICIES], ids=lambda kind: kind.kind)
async def test_regression_name_conflict_creates_nothing(harness, kind, parts):
    last = f"llm-t-{parts - 1}"
    harness.foreign(last, kind=kind)
    before = harness.items(kind)
    await harness.start(document(replicated("t", task(replicas=1), replicas=parts)))
    assert harness.status()["conditions"][0]["reason"] == "NameTaken"
    assert harness.status()["message"] == (
        f"{kind.kind} ml/{last} belongs to another owner; delete it, or rename the HyperJob"
    )
    assert harness.items(kind) == before
    assert harness.names(JOBS if kind is PROPAGATION_POLICIES else PROPAGATION_POLICIES) == []
    harness.remove(kind, last)
    await harness.reconcile()
    assert len(harness.names()) == parts


async def test_part_that_lost_its_owner_is_kept_and_reported(harness):
    """As by `kubectl replace` of a manifest without ownerReferences."""
    await harness.start(two_copies())
    before, uids, path = harness.items(JOBS), harness.uids(), harness.path(JOBS, "llm-t-0")
    owners = next(job["metadata"]["ownerReferences"] for job in before if job["metadata"]["name"] == "llm-t-0")
    harness.send("PATCH", path, {"metadata": {"ownerReferences": None}})
    await harness.reconcile()
    assert harness.status()["reason"] == "NameTaken"
    assert harness.status()["message"] == (
        "Job ml/llm-t-0 is a part without controlling owner; restore its ownerReferences to keep it, or delete it"
    )
    harness.send("PATCH", path, {"metadata": {"ownerReferences": owners}})
    await harness.reconcile()
    assert "reason" not in harness.status()
    assert harness.uids() == uids


async def test_taken_name_is_looked_up_with_a_growing_delay(harness):
    harness.foreign("llm-t-0")
    harness.submit(two_copies())
    reconciler, key, lookup = harness.new_reconciler(), ObjectKey(NAMESPACE, "llm"), harness.path(JOBS, "llm-t-0")
    delays = []
    for _ in range(6):
        retry_at = await reconciler.reconcile(HYPERJOBS, key)
        assert await reconciler.reconcile(HYPERJOBS, key) == retry_at, "a resync changes nothing"
        delays.append(retry_at - harness.now)
        harness.now = retry_at
    assert harness.traffic.requests.count(f"GET {lookup}") == 6
    assert delays[0] <= 5_000
    assert 30_000 <= delays[-1] <= 60_000
    assert harness.status()["reason"] == "NameTaken"
    harness.remove(JOBS, "llm-t-0")
    await reconciler.reconcile(HYPERJOBS, key)
    assert harness.names() == ["llm-t-0", "llm-t-1"]
    assert not reconciler.conflicts


async def test_rejected_part_is_reported_until_it_is_accepted(harness):
    """The API server has stored the template, but the definition of Jobs or a policy does not accept it."""
    harness.submit(two_copies())
    reconciler, key = harness.new_reconciler(), ObjectKey(NAMESPACE, "llm")

    def reject(call):
        is_part = call.is_write and call.request.path.endswith("/jobs/llm-t-0")
        return (500, "field not declared in schema") if is_part else None

    harness.traffic.error = reject
    messages = []
    for _ in range(3):
        with pytest.raises(ApiError):
            await reconciler.reconcile(HYPERJOBS, key)
        messages.append((harness.status()["message"], harness.status().get("reason")))
    assert messages[:2] == [("2 of 2 parts are pending", None)] * 2, "one error may be an outage"
    assert messages[2][1] == "PartRejected"
    assert "jobs/llm-t-0: 500 field not declared in schema" in messages[2][0]
    writes = len(harness.traffic.writes)
    with pytest.raises(ApiError):
        await reconciler.reconcile(HYPERJOBS, key)
    assert len(harness.traffic.writes) == writes + 1, "the status is not written again"
    harness.traffic.error = lambda _: None
    for _ in range(2):
        await reconciler.reconcile(HYPERJOBS, key)
    assert (harness.status()["message"], harness.names()) == ("2 of 2 parts are pending", ["llm-t-0", "llm-t-1"])


async def test_tb8_job_of_another_owner_is_never_changed(harness):
    other = harness.submit(document(name="other"))
    owner = {"apiVersion": HYPERJOBS.api_version, "kind": "HyperJob", "name": "other", "uid": other["metadata"]["uid"]}
    labels = {"volcano.sh/hyperjob-name": "llm"}
    harness.foreign("llm-t-0", labels=labels, ownerReferences=[{**owner, "controller": True}])
    before = harness.job("llm-t-0")
    await harness.start(two_copies())
    assert harness.names() == ["llm-t-0"]
    assert harness.job("llm-t-0") == before
