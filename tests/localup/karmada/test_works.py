"""Works of the stand-in compared with real ones, and status aggregation."""

import copy

import pytest

from localup.karmada import objects as names
from localup.karmada.status import aggregate_status, template_status
from localup.karmada.works import with_applied_status, with_refused_condition, work_for, work_key

NOON = 1_800_000_000.0


@pytest.fixture
def real_work(captured_objects):
    (work,) = captured_objects("work-*")
    return work


@pytest.fixture
def real_binding(captured_objects):
    (binding,) = captured_objects("rb-running-*")
    return binding


def template_behind(work):
    """Return the template of a Work."""
    manifest = work["spec"]["workload"]["manifests"][0]
    own = {"propagationpolicy.karmada.io", "kubectl.kubernetes.io"}
    kept = {k: v for k, v in manifest["metadata"]["annotations"].items() if k.partition("/")[0] in own}
    labels = {k: v for k, v in manifest["metadata"]["labels"].items() if k == names.POLICY_ID}
    told = manifest["metadata"]["annotations"]
    metadata = {
        "annotations": kept,
        "creationTimestamp": "2026-11-20T22:24:18Z",
        "generation": int(told[names.TEMPLATE_GENERATION]),
        "labels": labels,
        "name": manifest["metadata"]["name"],
        "namespace": manifest["metadata"]["namespace"],
        "resourceVersion": "21773",
        "uid": told[names.TEMPLATE_UID],
    }
    return manifest | {"metadata": metadata, "status": {"running": 5}}


def test_work_equals_that_of_a_real_karmada(real_work, real_binding):
    metadata = real_work["metadata"]
    target = {"name": "real1", "components": []}
    made = work_for(real_binding, template_behind(real_work), target, permanent_id=metadata["labels"][names.WORK_ID])
    kept = ("annotations", "finalizers", "labels", "name", "namespace")
    assert made["metadata"] == {name: metadata[name] for name in kept}
    assert made["spec"] == real_work["spec"]


def test_status_of_work_and_binding_equal_real_ones(real_work, real_binding):
    status = real_work["status"]["manifestStatuses"][0]["status"]
    computed = with_applied_status(real_work | {"status": {}}, status, "Healthy", now=NOON)["status"]
    expected = copy.deepcopy(real_work["status"])
    for item in (*computed["conditions"], *expected["conditions"]):
        item.pop("lastTransitionTime")
    assert computed == expected
    bare = {k: v for k, v in real_binding["status"].items() if k != "aggregatedStatus"}
    assert aggregate_status(real_binding | {"status": bare}, [real_work], now=NOON) == real_binding


def test_works_of_a_template_have_one_name_in_every_cluster():
    template = {"kind": "Job", "metadata": {"name": "two-task", "namespace": "team-r"}}
    assert str(work_key(template, "real1")) == "karmada-es-real1/two-task-cc9dc9fb4"


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "a", "uid": "t1", "generation": 3},
    "spec": {"replicas": 6},
    "status": {},
}


def binding(**spec):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "a", "name": "web"}
    return {"metadata": {"name": "web-deployment", "namespace": "a"}, "spec": {"resource": reference, **spec}}


def test_work_has_the_replicas_of_its_cluster():
    made = work_for(binding(), DEPLOYMENT, {"name": "m1", "replicas": 2}, permanent_id="w")
    assert made["spec"]["workload"]["manifests"][0]["spec"] == {"replicas": 2}


@pytest.mark.parametrize(
    ("suspension", "is_suspended"),
    [
        pytest.param({"dispatching": True}, True, id="everywhere"),
        pytest.param({"dispatchingOnClusters": {"clusterNames": ["m1"]}}, True, id="here"),
        pytest.param({"dispatchingOnClusters": {"clusterNames": ["m2"]}}, False, id="elsewhere"),
        pytest.param({"scheduling": True}, False, id="scheduling-is-something-else"),
    ],
)
def test_dispatching_is_suspended(suspension, is_suspended):
    made = work_for(binding(suspension=suspension), DEPLOYMENT, {"name": "m1"}, permanent_id="w")
    assert made["spec"]["suspendDispatching"] is is_suspended


def work(cluster, status):
    key = work_key(DEPLOYMENT, cluster)
    metadata, spec = {"name": key.name, "namespace": key.namespace}, {"workload": {"manifests": [DEPLOYMENT]}}
    return with_applied_status({"metadata": metadata, "spec": spec}, status, "Healthy", now=NOON)


def test_binding_without_works_has_no_aggregated_status():
    told = aggregate_status(binding(), [], now=NOON)["status"]
    assert "aggregatedStatus" not in told
    assert told["conditions"][0]["reason"] == "FullyAppliedFailed"


def test_refused_work_has_no_status_in_the_binding():
    refused = with_refused_condition(work("m1", {"replicas": 4}), "immutable field", now=NOON)
    told = aggregate_status(binding(clusters=[{"name": "m1"}]), [refused], now=NOON)["status"]
    message = "Failed to apply all manifests (0/1): immutable field"
    assert told["aggregatedStatus"] == [{"clusterName": "m1", "appliedMessage": message, "health": "Unknown"}]
    assert told["conditions"][0]["reason"] == "FullyAppliedFailed"
    assert refused["status"]["manifestStatuses"][0]["status"] == {"replicas": 4}


def test_replicas_of_all_clusters_add_up():
    both = [work("m1", {"replicas": 4, "readyReplicas": 4}), work("m2", {"replicas": 2, "readyReplicas": 1})]
    told = aggregate_status(binding(clusters=[{"name": "m1"}, {"name": "m2"}]), both, now=NOON)
    assert template_status(DEPLOYMENT, told, now=NOON)["status"] == {
        "replicas": 6,
        "readyReplicas": 5,
        "observedGeneration": 3,
    }


@pytest.mark.parametrize(
    ("phases", "phase"),
    [
        pytest.param(["Running"], "Running", id="one"),
        pytest.param(["Running", "Completed"], None, id="running-copies-have-no-phase"),
        pytest.param(["Completed", "Completed"], "Completed", id="all-completed"),
        pytest.param(["Running", "Failed"], "Failed", id="one-failed"),
        pytest.param([], "Running", id="evicted-job-keeps-its-phase"),
    ],
)
def test_the_phase_of_a_volcano_job(phases, phase):
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"generation": 1}}
    items = [
        {"clusterName": f"m{index}", "status": {"running": 1, "state": {"phase": reported}}}
        for index, reported in enumerate(phases)
    ]
    binding_with_status = {"status": {"aggregatedStatus": items}}
    updated = template_status(job | {"status": {"state": {"phase": "Running"}}}, binding_with_status, now=NOON)
    assert updated["status"].get("state", {}).get("phase") == phase
