"""Translation of objects captured from a running Karmada, and of Jobs from users."""

import pytest

from controller.cache.objects import ClusterProgress, Suspension, TemplateKey, WorkloadPhase
from controller.cache.store import Store
from controller.engine.clusters import Affinity, ApiKind, Assignment, Placement, Spread
from controller.engine.requests import gang_minimum
from controller.engine.workloads import WorkloadState
from tests.cache.fake_event_handler import FakeEventHandler
from tests.cache.objects import load, needs_shared, raw

pytestmark = needs_shared

THREE = Affinity(names=("member1", "member2", "member3"))
ONE_CLUSTER = (Spread("cluster", 1, 1),)
JOB = ApiKind("batch.volcano.sh/v1alpha1", "Job")


def facts(name: str):
    store = Store()
    (document,) = load(f"objects/{name}.yaml")
    return store.bindings.decode(raw(document))


@pytest.mark.parametrize(
    ("name", "uid", "placement", "clusters", "suspension"),
    [
        pytest.param(
            "rb-gateoff-single-job", "ddbd9118-12d6-4987-85c4-7663dd15a235", THREE, ["member1"], None, id="single"
        ),
        pytest.param(
            "rb-gateoff-two-task-job", "9670a455-217f-4199-97fc-10ab85a81f2c", THREE, ["member1"], None, id="two-task"
        ),
        pytest.param(
            "rb-gateon-single-job", "c0323090-f3fd-48d9-aeee-0f3f545d4c89", THREE, ["member1"], None, id="gate-on"
        ),
        pytest.param(
            "rb-gateon-two-task-job", "fbf208a6-ce30-46d4-a4bb-a006cc7318d7", THREE, ["member1"], None, id="gate-on-two"
        ),
        pytest.param(
            "rb-running-two-task-job",
            "a6cff32f-df71-446a-a9a7-b0f1951156c2",
            Affinity(names=("real1",)),
            ["real1"],
            Suspension(),
            id="running",
        ),
        pytest.param(
            "rb-suspended-at-create-single-job",
            "4ae850ec-6228-4dfb-a7ed-8a982676b6c1",
            THREE,
            None,
            Suspension(scheduling=True),
            id="paused",
        ),
    ],
)
def test_captured_binding_of_a_volcano_job(name, uid, placement, clusters, suspension):
    binding = facts(name)
    assert binding.uid == uid
    assert binding.api == JOB
    assert binding.placement == Placement(placement, spread=ONE_CLUSTER, divided=True, aggregated=True)
    assert binding.clusters == (None if clusters is None else tuple(Assignment(each) for each in clusters))
    assert binding.suspension == suspension
    assert (binding.has_policy, binding.has_annotations, binding.deleting, binding.decode_error) == (
        True,
        True,
        False,
        "",
    )
    assert binding.requests is None, "the components of a Volcano Job undercount, so they are never looked at"


def test_running_binding_has_a_phase():
    binding = facts("rb-running-two-task-job")
    assert binding.progress == (ClusterProgress("real1", WorkloadPhase.RUNNING),)
    assert binding.template == TemplateKey("Job.batch.volcano.sh", "team-r", "two-task")
    assert (binding.resource_version, binding.generation) == (21819, 3)


def test_deployment_is_divided_by_available_replicas():
    binding = facts("rb-gateoff-web-deployment")
    assert binding.api == ApiKind("apps/v1", "Deployment")
    assert binding.clusters == (Assignment("member1", 4), Assignment("member2", 2))
    assert binding.placement == Placement(Affinity(names=("member1", "member2")), divided=True)


def test_captured_cluster():
    (document,) = load("objects/cluster-member1.yaml")
    found = Store().clusters.decode(raw(document))
    cluster = found.cluster
    assert (cluster.name, cluster.provider, cluster.region, cluster.zones) == ("member1", "fake", "east", ("east-a",))
    assert cluster.labels == {"tier": "gpu"}
    assert JOB in cluster.enablements
    assert cluster.is_usable
    assert cluster.allocatable == {
        "cpu": 100_000,
        "memory": 400 * 2**30,
        "nvidia.com/gpu": 16_000,
        "pods": 1_100_000,
    }
    assert not any(cluster.used.values())
    assert found.decode_error == ""


def test_cluster_without_pods_has_no_usage():
    (document,) = load("objects/cluster-real1.yaml")
    cluster = Store().clusters.decode(raw(document)).cluster
    assert cluster.used == {}
    assert cluster.allocatable is not None
    assert cluster.allocatable["pods"] == 220_000


def test_captured_work_template_is_counted_with_its_limits():
    (listed,) = load("objects/work-real1.yaml")
    (manifest,) = listed["items"][0]["spec"]["workload"]["manifests"]
    job = Store().jobs.decode(raw(manifest))
    assert job.queue == "q-a"
    assert job.priority_class == "high"
    assert job.classes == {"high"}
    assert job.requests is not None
    assert job.requests.total == {
        "cpu": 17_000,
        "memory": 33 * 2**30,
        "nvidia.com/gpu": 4_000,
        "pods": 5_000,
    }
    assert job.decode_error == ""


@pytest.mark.parametrize(
    ("name", "demand"),
    [
        pytest.param("torchrun-gang", {"nvidia.com/gpu": 3_000, "pods": 3_000}, id="gpus-under-limits-only"),
        pytest.param("mpi-gang", {"pods": 3_000}, id="no-resources-at-all"),
    ],
)
def test_captured_gangs_are_counted_completely(name, demand):
    (document,) = load(f"manifests/{name}.yaml")
    job = Store().jobs.decode(raw(document))
    assert job.requests is not None
    assert job.requests.job is not None
    assert job.requests.total == demand
    assert gang_minimum(job.requests.job, lambda name: 0) == demand
    assert job.queue == "default"


def test_captured_bindings_are_adopted_or_pending():
    store, ear = Store(), FakeEventHandler()
    for name in ("rb-running-two-task-job", "rb-suspended-at-create-single-job", "rb-gateoff-web-deployment"):
        store.bindings.upsert(facts(name))
    store.sync_to(ear, 0)
    states = {workload.name: (workload.state, bool(workload.admission)) for workload in ear.workloads.values()}
    assert states == {"two-task": (WorkloadState.ADMITTED, True), "single": (WorkloadState.PENDING, False)}
