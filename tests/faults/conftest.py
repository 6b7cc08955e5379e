"""A control plane with an audit log, and a stage on it, for the tests of faults."""

from collections.abc import Callable, Iterator

import pytest

from localup.controlplane import ControlPlane


@pytest.fixture(scope="module")
def plane(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[ControlPlane]:
    """Yield a control plane that records who writes; nobody but the test and the controller does."""
    return fresh_control_plane(controllers=False, audit=True)
