"""Switches of the stand-in that show only while it runs: what comes late, and what is looked at twice."""

import json
import sys
import time
import uuid

import pytest

from localup.apply import wait_until
from localup.namespaces import create_namespace, delete_namespace
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
    wait_until(lambda: all(is_ready(each) for each in plane.admin.get(CLUSTERS)["items"]), "members ready")
    yield plane
    service.check()
    service.stop()


@pytest.fixture
def desk(plane):
    name = f"team-{uuid.uuid4().hex[:8]}"
    create_namespace(plane.admin, name)
    yield Harness(plane.admin, name)
    delete_namespace(plane.admin, name)


def test_without_the_leak_what_is_paused_stays_paused(desk):
    desk.propagate(clusters=["member1", "late"], placement={"spreadConstraints": [{"minGroups": 3, "maxGroups": 3}]})
    desk.submit("train")
    desk.wait_for_conditions(Scheduled="SchedulerError")
    desk.change_binding(suspension={"scheduling": True})
    create_cluster(desk.api, "late", {"cpu": "8"})
    desk.submit("after")
    desk.wait_for_binding("after")
    wait_until(lambda: len(desk.targets("after")) == 3, "the other placed")
    assert desk.targets() == []


def test_late_pods_and_a_late_summary_show_what_happened_some_time_ago(desk):
    desk.propagate(clusters=["member2"])
    desk.submit("train", annotations=LONG)
    desk.wait_for_phase("Pending")
    began = time.monotonic()
    summary = desk.api.get(f"{CLUSTERS}/member2")["status"]["resourceSummary"]
    assert {"allocated", "allocating"}.isdisjoint(summary)
    desk.wait_for_phase("Running")
    wait_until(lambda: "allocated" in desk.api.get(f"{CLUSTERS}/member2")["status"]["resourceSummary"], "use shown")
    assert time.monotonic() - began > 2


def test_without_stale_status_an_eviction_clears_what_the_template_says(desk):
    desk.propagate(clusters=["member1"])
    desk.submit("train", annotations=LONG)
    desk.wait_for_phase("Running")
    desk.change_binding(suspension={"scheduling": True}, clusters=None)
    wait_until(lambda: desk.phase() is None, "status cleared")
    assert json.loads(desk.binding()["metadata"]["annotations"]["policy.karmada.io/applied-placement"])
