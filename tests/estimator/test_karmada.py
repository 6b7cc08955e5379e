"""Queries to a real karmada-scheduler-estimator; `KARMADA_BIN` is the folder of its binary."""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from controller.api.jobs import encode_node_claim
from tests.authority import Authority
from tests.estimator.test_client import CLAIM, GPU, EstimatorHarness, pods, query

FOLDER = os.environ.get("KARMADA_BIN")
PROGRAM = Path(FOLDER or "/nonexistent") / "karmada-scheduler-estimator"
LABELS = {"pool": "gpu", "zone": "a"}
SECONDS = 60

pytestmark = [
    pytest.mark.karmada,
    pytest.mark.skipif(not os.access(PROGRAM, os.X_OK), reason="KARMADA_BIN names no karmada-scheduler-estimator"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def add_node(api, name: str, *, taints=(), labels=None) -> None:
    api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels or {}}})
    api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}})
    has = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    api.merge(f"/api/v1/nodes/{name}/status", {"status": {"capacity": has, "allocatable": has}})


def add_pod(api, node: str, gpus: int) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"nodeName": node, "containers": [container], "automountServiceAccountToken": False}
    api.create("/api/v1/namespaces/default/pods", {"metadata": {"name": f"on-{node}"}, "spec": spec})


@pytest.fixture(scope="module")
def estimator(fresh_control_plane, tmp_path_factory):
    """Yield the port and the files of an estimator over four nodes: one tainted, on one of the others 5 GPUs taken."""
    plane, folder = fresh_control_plane(), tmp_path_factory.mktemp("estimator")
    for name in ("n1", "n2", "n3"):
        add_node(plane.admin, name)
    add_node(plane.admin, "n4", taints=(GPU,), labels=LABELS)
    plane.admin.apply(
        "/api/v1/namespaces/default/serviceaccounts/default",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}},
    )
    add_pod(plane.admin, "n1", 5)
    authority = Authority(folder)
    authority.issue("tls")
    certificate, key = authority.issue("localhost", usage=ExtendedKeyUsageOID.SERVER_AUTH)
    port = free_port()
    command = [
        str(PROGRAM),
        "--cluster-name=m1",
        f"--kubeconfig={plane.kubeconfig('admin')}",
        f"--server-port={port}",
        f"--grpc-auth-cert-file={certificate}",
        f"--grpc-auth-key-file={key}",
        f"--grpc-client-ca-file={folder / 'ca.crt'}",
        "--metrics-bind-address=127.0.0.1:0",
        "--health-probe-bind-address=127.0.0.1:0",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait(port, process, folder / "log")
            yield port, folder
        finally:
            process.terminate()


def wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        assert process.poll() is None, log.read_text()[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])


@pytest.mark.parametrize(
    ("sets", "count"),
    [
        # 3, 8 and 8 GPUs are free on the nodes without a taint.
        pytest.param((pods(5, 6),), 2, id="equal-pods"),
        pytest.param((pods(3, 1),), 5, id="small-pods"),
        pytest.param((pods(9, 1),), 0, id="too-large"),
        pytest.param((pods(8, 1), pods(3, 3)), 1, id="whole-gang"),
        pytest.param((pods(8, 2), pods(4, 1)), 0, id="gang-without-room"),
        pytest.param((pods(4, 9, encode_node_claim(CLAIM)),), 2, id="selector-affinity-toleration"),
        pytest.param((pods(4, 2, encode_node_claim(CLAIM)), pods(8, 2)), 1, id="gang-with-node-claim"),
    ],
)
async def test_real_estimator_counts_requested_pods(estimator, monkeypatch, sets, count):
    port, folder = estimator
    files = {"ca_file": folder / "ca.crt", "cert_file": folder / "tls.crt", "key_file": folder / "tls.key"}
    async with EstimatorHarness(monkeypatch, **files) as harness:
        harness.ports["m1"] = port
        assert (await harness.submit(query(*sets))).count == count


async def test_real_estimator_of_another_cluster_is_unavailable(estimator, monkeypatch):
    port, folder = estimator
    async with EstimatorHarness(
        monkeypatch, insecure_skip_verify=True, cert_file=folder / "tls.crt", key_file=folder / "tls.key"
    ) as harness:
        harness.ports["m2"] = port
        assert (await harness.submit(query(cluster="m2"))).is_silent
