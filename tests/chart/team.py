"""Creates a team with namespace, queue, policy and cluster, and runs jobs through an installation."""

import json

from localup.api import ApiError
from localup.apply import create_namespace
from tests.chart.site import Site

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs"
BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"


def create_objects(site: Site) -> None:
    """Create a team, a queue and a member cluster."""
    create_namespace(site.api, "team")
    site.api.create(
        QUEUES,
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"weight": 1},
        },
    )
    capacity = {"standin.volcano-global.io/allocatable": json.dumps({"cpu": "8", "memory": "64Gi", "pods": "100"})}
    head = {"name": "member1", "annotations": capacity}
    spec = {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1"}
    site.api.create(
        CLUSTERS, {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": head, "spec": spec}
    )
    policy = {
        "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
        "placement": {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]},
    }
    head = {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "jobs"}}
    site.api.create("/apis/policy.karmada.io/v1alpha1/namespaces/team/propagationpolicies", {**head, "spec": policy})


def job(name: str, queue: str = "q") -> dict:
    resources = {"requests": {"cpu": "3", "memory": "1Gi"}}
    pod = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", "resources": resources}]}
    }
    spec = {"minAvailable": 1, "queue": queue, "tasks": [{"name": "main", "replicas": 1, "template": pod}]}
    head = {"name": name, "annotations": {"volcano-global.io/runtime": "1s"}}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": head, "spec": spec}


def phase(site: Site, name: str) -> str:
    return site.api.get(f"{JOBS}/{name}").get("status", {}).get("state", {}).get("phase", "")


def run_through(site: Site, *names: str) -> None:
    """Submit jobs and wait until each was suspended, admitted and finished."""
    for name in names:
        site.api.create(JOBS, job(name))
    for name in names:
        site.until(lambda name=name: phase(site, name) == "Completed", f"job {name} done")
        found = site.api.get(f"{BINDINGS}/{name}-job")
        record = json.loads(found["metadata"]["annotations"]["volcano-global.io/admission"])
        assert record["queue"] == "q"
        assert found["spec"]["suspension"]["scheduling"] is False


def binding(site: Site, name: str) -> dict:
    try:
        return site.api.get(f"{BINDINGS}/{name}-job")
    except ApiError:
        return {}
