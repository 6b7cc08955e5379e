"""Delays of member clusters and of their summaries."""

import sys
import time
import uuid

import pytest

from localup.apply import create_namespace, delete_namespace, wait_until
from localup.processes import ChildProcess
from tests.localup.karmada.harness import CLUSTERS, Harness, create_cluster, is_ready

LONG = {"volcano-global.io/runtime": "1h"}
DELAYS = ("--pods-late", "2s", "--summary-late", "1s")


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    plane = fresh_control_plane()
    service = ChildProcess("stand-in", plane.folder / "stand-in.log")
    command = [sys.executable, "-m", "localup.karmada", "--kubeconfig", plane.kubeconfig("karmada"), *DELAYS]
    service.start([*command, "--status-period", "100ms"])
    for name in ("member1", "member2"):
        create_cluster(plane.admin, name, {"cpu": "8"})
    wait_until(lambda: all(is_ready(item) for item in plane.admin.get(CLUSTERS)["items"]), "members ready")
    yield plane
    service.check()
    service.stop()


@pytest.fixture
def harness(plane):
    name = f"team-{uuid.uuid4().hex[:8]}"
    create_namespace(plane.admin, name)
    yield Harness(plane.admin, name)
    delete_namespace(plane.admin, name)


def test_delayed_pods_and_summary_show_an_earlier_state(harness):
    harness.propagate(clusters=["member2"])
    harness.submit("train", annotations=LONG)
    harness.wait_for_phase("Pending")
    began = time.monotonic()
    summary = harness.api.get(f"{CLUSTERS}/member2")["status"]["resourceSummary"]
    assert {"allocated", "allocating"}.isdisjoint(summary)
    harness.wait_for_phase("Running")
    wait_until(lambda: "allocated" in harness.api.get(f"{CLUSTERS}/member2")["status"]["resourceSummary"], "use shown")
    assert time.monotonic() - began > 2
