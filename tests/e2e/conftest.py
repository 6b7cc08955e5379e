"""Fixtures: the whole system with webhook, policies, controller, and the stand-in or the Karmada in KARMADA_BIN."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from controller.kube.client import Api
from localup.apply import create_namespace
from localup.controlplane import ControlPlane
from localup.processes import ProcessOptions, tail
from localup.realkarmada.processes import programs_from_environment
from localup.stack import Stack
from tests.e2e.environment import Environment, open_environment


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
    """Yield an empty test environment whose objects are deleted after the test.

    The last lines of the logs are printed, which pytest shows for failed tests.
    """
    stack.check()
    name = f"arena-{uuid.uuid4().hex[:8]}"
    create_namespace(stack.plane.admin, name)
    async with Api.connect(stack.plane.kubeconfig("admin")) as api, open_environment(api, name) as made:
        yield made
        for part in ("controller", "karmada"):
            print(f"--- {part}", tail(stack.log(part), lines=40), sep="\n")  # noqa: T201 -- for the report of a failure
    stack.check()
