"""A control plane with an audit log, for the tests of faults."""

from collections.abc import Iterator

import pytest

from localup.controlplane import ControlPlane
from localup.etcd import Etcd


@pytest.fixture(scope="session")
def plane(etcd: Etcd) -> Iterator[ControlPlane]:
    """Yield a control plane that records who writes; nobody but one test at a time and its controllers does."""
    with ControlPlane(etcd, prefix="/faults", controllers=False, audit=True) as running:
        yield running
