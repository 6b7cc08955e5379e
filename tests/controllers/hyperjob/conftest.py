"""A harness on the test run's control plane, with the RBAC rights of the HyperJob controller."""

from collections.abc import AsyncIterator

import pytest

from controller.kube.client import Api
from localup.controlplane import ControlPlane
from tests.controllers.hyperjob.harness import Harness


@pytest.fixture
async def harness(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Harness]:
    """Yield an empty namespace."""
    ours = control_plane.kubeconfig("volcano-global-hyperjobs")
    async with Api.connect(ours) as api, Api.connect(control_plane.kubeconfig("admin")) as admin:
        yield Harness(api, admin, namespace)
