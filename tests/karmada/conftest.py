"""Fixtures: the stand-in, or the real Karmada in KARMADA_BIN, with our webhook and policies in effect.

The tests cover behaviour that the project depends on, so they must pass on both.
"""

import os
import re
from pathlib import Path

import pytest

from localup.controlplane import CRDS, ControlPlane
from localup.processes import ProcessOptions
from localup.realkarmada.processes import programs_from_environment
from localup.stack import Stack
from tests.karmada.harness import create_members, opened

KINDS = ("volcano-job", "deployment", "batch-job", "priority-class")
OPTIONS = {
    "karmada": ProcessOptions(
        flags=["--status-period", "200ms", "--taint-eviction", *(f"--template={kind}" for kind in KINDS)]
    )
}
EVICTION = ["--feature-gates=Failover=true", "--enable-no-execute-taint-eviction=true"]


def real_options(karmada):
    """Return options that enable eviction by taints, and the priority queue that is the default since v1.19."""
    # Before 1.16 there was no such limit.
    fast = ["--resource-eviction-rate=10"] if karmada >= (1, 16) else []
    return {
        "karmada-controller-manager": ProcessOptions(flags=[*EVICTION, *fast]),
        "karmada-scheduler": ProcessOptions(flags=["--feature-gates=PriorityBasedScheduling=true"]),
    }


def pytest_collection_modifyitems(items):
    """Add the marker `karmada` to the tests of this folder."""
    for item in items:
        if "/karmada/" in item.nodeid and item.nodeid.startswith("tests/karmada/"):
            item.add_marker(pytest.mark.karmada)


@pytest.fixture(scope="session")
def programs():
    """Return the real programs, ``None`` for the stand-in."""
    return programs_from_environment()


@pytest.fixture(scope="session")
def karmada(programs):
    """Return the version of Karmada as numbers; the stand-in behaves as the newest."""
    return tuple(map(int, re.findall(r"\d+", programs.version)[:2])) if programs else (1, 19)


@pytest.fixture(scope="session")
def stack(etcd, programs, karmada):
    """Yield Karmada or the stand-in with two members, and our webhook."""
    crds = Path(os.environ.get("KARMADA_CRDS", CRDS))
    options = real_options(karmada) if programs else OPTIONS
    with (
        ControlPlane(etcd, prefix="/karmada", crds=crds) as plane,
        Stack(plane, karmada=programs or True, controller=False, options=options) as running,
    ):
        create_members(plane.admin)
        yield running


@pytest.fixture
def harness(stack):
    """Yield a harness in a new namespace."""
    with opened(stack) as harness:
        yield harness
