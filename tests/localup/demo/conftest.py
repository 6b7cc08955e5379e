"""Fixtures: a gang job, its binding status, and the demo as a process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localup.demo.progress import BindingStatus
from localup.demo.scenario import DemoJob, volcano_job
from tests.localup.demo.demo_process import Start, demo_starter


@pytest.fixture
def demo(binaries, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts the demo with its own folder for temporary files."""
    with demo_starter(tmp_path) as start:
        yield start


@pytest.fixture
def demo_job() -> DemoJob:
    """Return a job of two pods with 2 CPUs each."""
    return DemoJob(volcano_job("team-a/train", "team-a", pods=2, cpu=2, memory="4Gi", runtime="4s"))


@pytest.fixture
def binding_status() -> Callable[..., BindingStatus]:
    """Return a factory of the job's binding status, suspended by default."""

    def make(**changes: Any) -> BindingStatus:
        plain: dict[str, Any] = {
            "job": "team-a/train",
            "suspended": True,
            "clusters": (),
            "phase": "",
            "pods": 0,
        }
        return BindingStatus(**(plain | changes))

    return make


@pytest.fixture
def admitted(binding_status) -> Callable[..., BindingStatus]:
    """Return a factory of the job's binding status, admitted to member1 by default."""
    return lambda **changes: binding_status(**({"suspended": False, "clusters": ("member1",)} | changes))
