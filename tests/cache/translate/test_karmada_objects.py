"""Translation of objects as Karmada writes them, and of Jobs from users."""

import pytest

from controller.cache.objects import BindingDetails, ClusterProgress, Suspension, TemplateKey, WorkloadPhase
from controller.cache.store import Store
from controller.engine.state.clusters import Affinity, ApiKind, Assignment, Placement, Spread
from tests.cache.objects import raw
from tests.files import DATA, read_object

BOTH = Affinity(names=("member1", "member2"))
ONE_CLUSTER = (Spread("cluster", 1, 1),)
JOB = ApiKind("batch.volcano.sh/v1alpha1", "Job")


def read_raw(name: str) -> bytes:
    return raw(read_object(DATA / f"{name}.yaml"))


def cached_binding(name: str):
    return Store().bindings.decode(read_raw(name))


@pytest.mark.parametrize(
    ("name", "placement", "clusters", "suspension"),
    [
        pytest.param("binding-placed", BOTH, ["member1"], None, id="placed"),
        pytest.param("binding-with-components", BOTH, ["member1"], None, id="with-components"),
        pytest.param("binding-running", Affinity(names=("member2",)), ["member2"], Suspension(), id="running"),
        pytest.param("binding-suspended", BOTH, None, Suspension(scheduling=True), id="suspended"),
    ],
)
def test_binding_of_a_volcano_job(name, placement, clusters, suspension):
    binding = cached_binding(name)
    assert binding.api == JOB
    assert binding.placement == Placement(placement, spread=ONE_CLUSTER, divided=True, aggregated=True)
    assert binding.clusters == (None if clusters is None else tuple(map(Assignment, clusters)))
    assert binding.suspension == suspension
    assert binding.details == BindingDetails(has_annotations=True)
    assert binding.requests is None, "the components of a Volcano Job undercount, so they are not read"


def test_metadata_and_progress_of_a_running_binding_are_read():
    binding = cached_binding("binding-running")
    assert binding.progress == (ClusterProgress("member2", WorkloadPhase.RUNNING),)
    assert binding.template == TemplateKey("Job.batch.volcano.sh", "ml", "train")
    assert (binding.uid, binding.resource_version, binding.generation) == ("uid-resourcebinding-train-job", 1234, 2)


def test_deployment_is_divided_by_available_replicas():
    binding = cached_binding("binding-of-deployment")
    assert binding.api == ApiKind("apps/v1", "Deployment")
    assert binding.clusters == (Assignment("member1", 4), Assignment("member2", 2))
    assert binding.placement == Placement(BOTH, divided=True)


def test_cluster_of_karmada_is_decoded_with_its_usage():
    decoded = Store().clusters.decode(read_raw("cluster-member1"))
    cluster = decoded.cluster
    fields = (cluster.name, cluster.provider, cluster.region, cluster.zones)
    assert fields == ("member1", "example", "north", ("north-a",))
    assert cluster.labels == {"tier": "gpu"}
    assert JOB in cluster.enablements
    assert cluster.is_usable
    assert cluster.allocatable == {"cpu": 64_000, "memory": 256 * 2**30, "nvidia.com/gpu": 8_000, "pods": 220_000}
    assert cluster.used == {"cpu": 1_500, "pods": 3_000}
    assert decoded.decode_error == ""
    assert Store().clusters.decode(read_raw("cluster-member2")).cluster.used == {}


@pytest.mark.parametrize(
    ("conditions", "changed_at"),
    [
        pytest.param([{"status": "False", "lastTransitionTime": "1970-01-01T01:00:00Z"}], 3_600_000, id="outage"),
        pytest.param([{"status": "True", "lastTransitionTime": "1970-01-01T00:05:00Z"}], 300_000, id="is-back"),
        pytest.param([{"status": "True", "lastTransitionTime": "1970-01-01T00:04:59Z"}], None, id="has-joined"),
        pytest.param([{"status": "True"}], None, id="no-time"),
        pytest.param([], None, id="no-condition"),
    ],
)
def test_last_change_of_readiness_is_read(conditions, changed_at):
    cluster = read_object(DATA / "cluster-member1.yaml")
    cluster["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"
    cluster["status"]["conditions"] = [{"type": "Ready", **condition} for condition in conditions]
    assert Store().clusters.decode(raw(cluster)).cluster.ready_changed_at == changed_at


def test_manifest_of_a_work_is_counted_with_its_limits():
    (manifest,) = read_object(DATA / "work-running.yaml")["spec"]["workload"]["manifests"]
    job = Store().jobs.decode(raw(manifest))
    assert (job.queue, job.priority_class, job.classes) == ("research", "high", {"high"})
    assert job.requests is not None
    assert job.requests.total == {"cpu": 13_000, "memory": 26 * 2**30, "nvidia.com/gpu": 3_000, "pods": 4_000}
    assert job.decode_error == ""


def test_captured_bindings_are_readable(captured_objects):
    for captured in captured_objects("rb-*"):
        binding, spec = Store().bindings.decode(raw(captured)), captured["spec"]
        assert (binding.uid, binding.decode_error) == (captured["metadata"]["uid"], "")
        assert [assignment.name for assignment in binding.clusters or ()] == [
            cluster["name"] for cluster in spec.get("clusters", ())
        ]
        assert binding.is_suspended is bool(spec.get("suspension", {}).get("scheduling"))


def test_captured_clusters_are_usable(captured_objects):
    for captured in captured_objects("cluster-*"):
        decoded = Store().clusters.decode(raw(captured))
        assert (decoded.cluster.is_usable, decoded.decode_error) == (True, "")
        assert JOB in decoded.cluster.enablements
