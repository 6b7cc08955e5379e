"""Fixtures: replicas that serve a certificate, and Secrets on a control plane."""

import contextlib
from collections.abc import Iterator

import pytest

from certs.store import SecretStore
from localup.apply import apply
from localup.controlplane import ControlPlane
from tests.certs.installed import NAMESPACE, RIGHTS, SECRETS
from tests.certs.replicas import Replica
from tests.webhook.installation import registration


@pytest.fixture
def replica() -> Iterator:
    """Yield a function that starts a replica with the certificate of a folder."""
    with contextlib.ExitStack() as stack:

        def start(folder) -> Replica:
            started = Replica(folder)
            stack.callback(started.close)
            return started

        yield start


@pytest.fixture(scope="session")
def plane(etcd) -> Iterator[ControlPlane]:
    """Yield a control plane with the webhook configurations and the permissions of `certs`."""
    with ControlPlane(etcd, prefix="/registry-certs", controllers=False) as plane:
        plane.admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        apply(plane.admin, [*RIGHTS, *registration("https://127.0.0.1:9")])
        yield plane


@pytest.fixture
def store(plane):
    """Return a store without Secrets."""
    plane.admin.delete(SECRETS)
    return SecretStore(plane.kubeconfig("volcano-global-certs"), NAMESPACE, "volcano-global-webhook")
