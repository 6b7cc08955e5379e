"""Fixtures: the whole system with webhook, policies, controller, and the stand-in or the Karmada in KARMADA_BIN."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from localup.controlplane import ControlPlane
from localup.processes import ProcessOptions
from localup.realkarmada.processes import programs_from_environment
from localup.stack import Stack
from tests.e2e.environment import Environment, open_environment
from tests.rig.stacks import new_namespace


@pytest.fixture(scope="module")
def stack(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[Stack]:
    """Yield the running system on a control plane of the module."""
    plane = fresh_control_plane()
    # A restarted controller writes only after writes of its predecessor have timed out.
    options = {
        "karmada": ProcessOptions(flags=["--status-period", "200ms"]),
        "controller": ProcessOptions(flags=["--write-seconds", "0.5"]),
    }
    with Stack(plane, options=options, karmada=programs_from_environment() or True) as running:
        yield running


@pytest.fixture
async def environment(stack: Stack) -> AsyncIterator[Environment]:
    """Yield an empty test environment whose objects are deleted after the test."""
    with new_namespace(stack) as name:
        async with open_environment(stack.plane, name) as made:
            yield made
