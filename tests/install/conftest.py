"""Fixtures: a control plane, the objects of the chart, and the commands of the installer."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from install.__main__ import main
from localup.api import ApiError
from localup.apply import create_namespace
from localup.controlplane import ControlPlane
from tests.chart.site import OURS
from tests.commands import CommandResult, run

FILES = Path(__file__).parents[2] / "charts" / "volcano-global" / "files"
HOST = "host"


@pytest.fixture(scope="module")
def plane(fresh_control_plane) -> ControlPlane:
    plane = fresh_control_plane()
    for path in OURS:
        with contextlib.suppress(ApiError):
            plane.admin.delete(path)
    create_namespace(plane.admin, HOST)
    create_namespace(plane.admin, "left")
    return plane


@pytest.fixture
def objects(tmp_path) -> Path:
    """Return a folder with the chart's objects, as they are mounted."""
    folder = tmp_path / "objects"
    folder.mkdir()
    for file in (*FILES.glob("*.yaml"), *FILES.glob("crds/*.yaml")):
        if file.stem not in {"alerts", "interpreter", "queue-propagation"}:
            (folder / file.name).write_text(file.read_text())
    return folder


@pytest.fixture
def command(plane, objects) -> Callable[..., CommandResult]:
    """Return a function that runs a command against the control plane, as its administrator."""
    where = ("--kubeconfig", plane.kubeconfig("admin"), "--objects", objects)
    return lambda name, *flags: run(main, name, *where, *flags)
