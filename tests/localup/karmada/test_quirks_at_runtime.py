"""Quirks of the stand-in that need a running process: delays and repeated passes."""

import json
import sys
import time
import uuid

import pytest

from localup.apply import create_namespace, delete_namespace, wait_until
from localup.processes import ChildProcess
from tests.localup.karmada.harness import CLUSTERS, Harness, create_cluster, is_ready

LONG = {"volcano-global.io/runtime": "1h"}
SWITCHES = ("leak=off", "stale-status=off", "pods-late=2s", "summary-late=1s", "backoff-first=100ms")


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    plane = fresh_control_plane()
    service = ChildProcess("stand-in", plane.folder / "stand-in.log")
    switches = [word for switch in SWITCHES for word in ("--set", switch)]
    command = [sys.executable, "-m", "localup.karmada", "--kubeconfig", plane.kubeconfig("karmada"), *switches]
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


def test_without_leak_suspended_bindings_stay_unscheduled(harness):
    harness.propagate(clusters=["member1", "late"], placement={"spreadConstraints": [{"minGroups": 3, "maxGroups": 3}]})
    harness.submit("train")
    harness.wait_for_conditions(Scheduled="SchedulerError")
    harness.change_binding(suspension={"scheduling": True})
    create_cluster(harness.api, "late", {"cpu": "8"})
    harness.submit("after")
    harness.wait_for_binding("after")
    wait_until(lambda: len(harness.targets("after")) == 3, "the other placed")
    assert harness.targets() == []


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


def test_without_stale_status_eviction_clears_it(harness):
    harness.propagate(clusters=["member1"])
    harness.submit("train", annotations=LONG)
    harness.wait_for_phase("Running")
    harness.change_binding(suspension={"scheduling": True}, clusters=None)
    wait_until(lambda: harness.phase() is None, "status cleared")
    assert json.loads(harness.binding()["metadata"]["annotations"]["policy.karmada.io/applied-placement"])
