"""The whole system for tests: webhook, policies, the stand-in for Karmada, and the controller."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from controller.kube import Api
from localup.controlplane import ControlPlane
from localup.namespaces import open_namespace
from localup.part import Options
from localup.stack import Stack
from tests.e2e.arena import Arena, opened


@pytest.fixture(scope="module")
def stack(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[Stack]:
    """Yield everything at work on a control plane of the module's own."""
    plane = fresh_control_plane()
    options = {"karmada": Options(flags=["--status-period", "200ms"])}
    with Stack(plane, options=options) as running:
        yield running


@pytest.fixture
async def arena(stack: Stack) -> AsyncIterator[Arena]:
    """Yield a world without clusters, queues and jobs; nothing of it outlives the test."""
    stack.check()
    name = f"arena-{uuid.uuid4().hex[:8]}"
    open_namespace(stack.plane.admin, name)
    async with Api.connect(stack.plane.kubeconfig("admin")) as api, opened(api, name) as made:
        yield made
    stack.check()
