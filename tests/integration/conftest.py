"""A control plane of their own for the answers to what Karmada and tenants do."""

from collections.abc import Iterator

import pytest

from localup.controlplane import ControlPlane
from localup.etcd import Etcd


@pytest.fixture(scope="session")
def plane(etcd: Etcd) -> Iterator[ControlPlane]:
    """Yield a control plane that records who writes; one test at a time acts on it."""
    with ControlPlane(etcd, prefix="/integration", controllers=False, audit=True) as running:
        yield running
