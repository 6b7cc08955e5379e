"""Control plane shared by the integration tests of the controller."""

from collections.abc import Iterator

import pytest

from localup.controlplane import ControlPlane, Etcd


@pytest.fixture(scope="session")
def plane(etcd: Etcd) -> Iterator[ControlPlane]:
    """Yield a control plane with an audit log; tests use it one after the other."""
    with ControlPlane(etcd, prefix="/integration", controllers=False, audit=True) as running:
        yield running
