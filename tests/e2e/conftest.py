"""The whole system for tests: webhook, policies, controller, and the stand-in or the Karmada that KARMADA_BIN names."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from controller.kube import Api
from localup.controlplane import ControlPlane
from localup.namespaces import open_namespace
from localup.part import Options
from localup.processes import tail
from localup.realkarmada.programs import named_by_environment
from localup.stack import Stack
from tests.e2e.arena import Arena, opened


@pytest.fixture(scope="module")
def stack(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[Stack]:
    """Yield everything at work on a control plane of the module's own."""
    plane = fresh_control_plane()
    # A controller that was killed writes again after the time of a write.
    options = {
        "karmada": Options(flags=["--status-period", "200ms"]),
        "controller": Options(flags=["--write-seconds", "0.5"]),
    }
    with Stack(plane, options=options, karmada=named_by_environment() or True) as running:
        yield running


@pytest.fixture
async def arena(stack: Stack) -> AsyncIterator[Arena]:
    """Yield a world without clusters, queues and jobs; nothing of it outlives the test.

    The logs' last lines are printed, which pytest shows of a test that fails.
    """
    stack.check()
    name = f"arena-{uuid.uuid4().hex[:8]}"
    open_namespace(stack.plane.admin, name)
    async with Api.connect(stack.plane.kubeconfig("admin")) as api, opened(api, name) as made:
        yield made
        for part in ("controller", "karmada"):
            print(f"--- {part}", tail(stack.log(part), lines=40), sep="\n")  # noqa: T201 -- for the report of a failure
    stack.check()
