"""Fixtures: a control plane, the objects of the chart, and the commands of the installer."""

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from install.__main__ import main
from localup.api import ApiError
from localup.apply import create_namespace
from localup.controlplane import ControlPlane
from tests.chart.site import OURS

FILES = Path(__file__).parents[2] / "charts" / "volcano-global" / "files"
HOST = "host"


@dataclass(frozen=True)
class CommandResult:
    """Exit code and log of a command."""

    code: int | str
    lines: list[dict[str, Any]]

    def logged(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event and fields.items() <= line.items()]


def run(*arguments: Any) -> CommandResult:
    """Run `python -m install` in the test process and return its exit code and log."""
    stdout, code = io.StringIO(), 0
    with contextlib.redirect_stdout(stdout):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            code = exit_.code
        finally:
            structlog.reset_defaults()
    return CommandResult(code, [json.loads(line) for line in stdout.getvalue().splitlines()])


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
    return lambda name, *flags: run(name, *where, *flags)
