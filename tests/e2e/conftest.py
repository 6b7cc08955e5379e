"""The whole system for tests: webhook, policies, controller, and the stand-in or the Karmada that KARMADA_BIN names."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from controller.kube import Api
from localup.controlplane import ControlPlane
from localup.managed_process import ProcessOptions
from localup.namespaces import create_namespace
from localup.processes import tail
from localup.realkarmada.programs import programs_from_environment
from localup.stack import Stack
from tests.e2e.environment import Environment, open_environment


@pytest.fixture(scope="module")
def stack(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[Stack]:
    """Yield everything at work on a control plane of the module's own."""
    plane = fresh_control_plane()
    # A controller that was killed writes again after the time of a write.
    options = {
        "karmada": ProcessOptions(flags=["--status-period", "200ms"]),
        "controller": ProcessOptions(flags=["--write-seconds", "0.5"]),
    }
    with Stack(plane, options=options, karmada=programs_from_environment() or True) as running:
        yield running


@pytest.fixture
async def environment(stack: Stack) -> AsyncIterator[Environment]:
    """Yield a world without clusters, queues and jobs; nothing of it outlives the test.

    The logs' last lines are printed, which pytest shows of a test that fails.
    """
    stack.check()
    name = f"arena-{uuid.uuid4().hex[:8]}"
    create_namespace(stack.plane.admin, name)
    async with Api.connect(stack.plane.kubeconfig("admin")) as api, open_environment(api, name) as made:
        yield made
        for part in ("controller", "karmada"):
            print(f"--- {part}", tail(stack.log(part), lines=40), sep="\n")  # noqa: T201 -- for the report of a failure
    stack.check()
