"""Fixture: a control plane that faults and loads affect, apart from all other tests."""

from collections.abc import Iterator

import pytest

from localup.binaries import Binaries
from localup.controlplane import ControlPlane, Etcd


@pytest.fixture(scope="module")
def own_plane(binaries: Binaries) -> Iterator[ControlPlane]:
    """Yield a control plane on a store of its own."""
    with Etcd(binaries) as etcd, ControlPlane(etcd, controllers=False, audit=True) as running:
        yield running
