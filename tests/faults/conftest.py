"""Fixture: a control plane with an audit log for fault tests."""

from collections.abc import Iterator

import pytest

from localup.controlplane import ControlPlane, Etcd


@pytest.fixture(scope="session")
def plane(etcd: Etcd) -> Iterator[ControlPlane]:
    """Yield a control plane with an audit log; one test at a time uses it."""
    with ControlPlane(etcd, prefix="/faults", controllers=False, audit=True) as running:
        yield running
