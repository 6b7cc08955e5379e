"""A control plane with nothing of ours in it, the chart's objects, and the installer's commands against both."""

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from install.__main__ import main
from localup.api import ApiError
from localup.controlplane import ControlPlane
from localup.namespaces import create_namespace
from tests.chart.site import OURS

FILES = Path(__file__).parents[2] / "charts" / "volcano-global" / "files"
HOST = "host"


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended."""

    code: int | str
    lines: list[dict[str, Any]]

    def told(self, event: str, **facts: Any) -> list[dict[str, Any]]:
        return [each for each in self.lines if each["event"] == event and facts.items() <= each.items()]


def run(*arguments: Any) -> CommandResult:
    """Run `python -m install` in the test's own process and return what it said."""
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said):
        try:
            main([str(each) for each in arguments])
        except SystemExit as ended:
            code = ended.code
        finally:
            structlog.reset_defaults()
    return CommandResult(code, [json.loads(line) for line in said.getvalue().splitlines()])


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


def keep(folder: Path, file: str, **changed: Any) -> None:
    """Change members of the one object in a file of the folder."""
    found = yaml.safe_load((folder / file).read_text())
    (folder / file).write_text(yaml.safe_dump({**found, **changed}))
