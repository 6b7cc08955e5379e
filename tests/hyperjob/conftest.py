"""A yard on the run's control plane, with the own rights of the stage."""

from collections.abc import AsyncIterator

import pytest

from controller.kube import Api
from localup.controlplane import ControlPlane
from tests.hyperjob.harness import Harness


@pytest.fixture
async def harness(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Harness]:
    """Yield a namespace with nothing in it."""
    ours = control_plane.kubeconfig("volcano-global-hyperjobs")
    async with Api.connect(ours) as api, Api.connect(control_plane.kubeconfig("admin")) as admin:
        yield Harness(api, admin, namespace)
