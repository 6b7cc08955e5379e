"""A job of one gang and what is seen of its binding; and the demo as a process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localup.demo.cast import Role, volcano_job
from localup.demo.sighting import Sighting
from tests.localup.demo.performance import Start, starting


@pytest.fixture
def demo(binaries, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts the demo with a folder for temporary files of its own."""
    with starting(tmp_path) as start:
        yield start


@pytest.fixture
def role() -> Role:
    """Return a job of two pods with 2 CPUs each."""
    return Role(volcano_job("team-a/train", "team-a", pods=2, cpu=2, memory="4Gi", runtime="4s"))


@pytest.fixture
def sighting() -> Callable[..., Sighting]:
    """Return a function that makes a sighting of that job, paused unless told otherwise."""

    def make(**changes: Any) -> Sighting:
        plain: dict[str, Any] = {
            "version": 1,
            "job": "team-a/train",
            "binding": "team-a/train-job",
            "paused": True,
            "recorded": False,
            "clusters": (),
            "phase": "",
            "pods": 0,
        }
        return Sighting(**(plain | changes))

    return make


@pytest.fixture
def admitted(sighting) -> Callable[..., Sighting]:
    """Return a function that makes a sighting of that job, admitted to member1."""
    return lambda **changes: sighting(**({"paused": False, "recorded": True, "clusters": ("member1",)} | changes))
