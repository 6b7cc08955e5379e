"""A control plane with the stand-in at work on it, and three members of different sizes."""

import json
import sys
import uuid

import pytest

from localup.apply import wait_until
from localup.namespaces import close_namespace, open_namespace
from localup.processes import Service

CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
SIZES = {
    "member1": {"cpu": "8", "memory": "32Gi"},
    "member2": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"},
    "member3": {"cpu": "2", "memory": "8Gi"},
}


def start_stand_in(plane, *options):
    service = Service("stand-in", plane.folder / f"stand-in-{uuid.uuid4().hex[:6]}.log")
    service.start([sys.executable, "-m", "localup.karmada", "--kubeconfig", plane.kubeconfig("karmada"), *options])
    return service


def create_cluster(api, name, allocatable, **annotations):
    told = {"standin.volcano-global.io/allocatable": json.dumps(allocatable)}
    told |= {f"standin.volcano-global.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    manifest = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "annotations": told},
        "spec": {"syncMode": "Push"},
    }
    return api.create(CLUSTERS, manifest)


def is_ready(cluster):
    conditions = cluster.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    """Yield a control plane of the module's own, on which the stand-in runs."""
    running = fresh_control_plane()
    service = start_stand_in(running, "--run-time", "1s", "--status-period", "200ms")
    for name, allocatable in SIZES.items():
        create_cluster(running.admin, name, allocatable)
    wait_until(lambda: all(is_ready(each) for each in running.admin.get(CLUSTERS)["items"]), "members ready")
    yield running
    service.check()
    service.stop()


@pytest.fixture
def team(plane):
    """Yield a namespace on that control plane."""
    name = f"team-{uuid.uuid4().hex[:8]}"
    open_namespace(plane.admin, name)
    yield name
    close_namespace(plane.admin, name)
