"""Fixture: a control plane for tests of reactions to Karmada and tenants."""

from collections.abc import Iterator

import pytest

from localup.controlplane import ControlPlane
from localup.etcd import Etcd


@pytest.fixture(scope="session")
def plane(etcd: Etcd) -> Iterator[ControlPlane]:
    """Yield a control plane with an audit log; one test at a time uses it."""
    with ControlPlane(etcd, prefix="/integration", controllers=False, audit=True) as running:
        yield running
