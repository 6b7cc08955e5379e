"""Fixtures: a control plane with the stand-in and three members of different sizes."""

import sys
import uuid
from dataclasses import dataclass

import pytest

from localup.api import Api
from localup.apply import create_namespace, delete_namespace, wait_until
from localup.processes import ChildProcess
from tests.localup.karmada.harness import CLUSTERS, Harness, create_cluster, is_ready

SIZES = {
    "member1": {"cpu": "8", "memory": "32Gi"},
    "member2": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"},
    "member3": {"cpu": "2", "memory": "8Gi"},
}


@dataclass
class StandIn:
    """Stand-in process that can be stopped and restarted."""

    api: Api
    service: ChildProcess
    command: list

    def start(self):
        self.service.start(self.command)


@pytest.fixture(scope="module")
def stand_in(fresh_control_plane):
    """Yield the running stand-in on a control plane of the module."""
    plane = fresh_control_plane()
    command = [sys.executable, "-m", "localup.karmada", "--kubeconfig", plane.kubeconfig("karmada")]
    options = ["--run-time", "1s", "--status-period", "200ms"]
    running = StandIn(plane.admin, ChildProcess("stand-in", plane.folder / "stand-in.log"), [*command, *options])
    running.start()
    for name, allocatable in SIZES.items():
        create_cluster(plane.admin, name, allocatable)
    wait_until(lambda: all(is_ready(item) for item in plane.admin.get(CLUSTERS)["items"]), "members ready")
    yield running
    running.service.check()
    running.service.stop()


@pytest.fixture
def harness(stand_in):
    """Yield a harness in a new namespace."""
    name = f"team-{uuid.uuid4().hex[:8]}"
    create_namespace(stand_in.api, name)
    yield Harness(stand_in.api, name)
    delete_namespace(stand_in.api, name)
