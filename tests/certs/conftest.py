"""Fixtures: replicas that serve a certificate, and Secrets on a control plane."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from certs.store import SecretStore
from localup.apply import apply
from localup.controlplane import ControlPlane
from tests.certs.installed import NAMESPACE, RIGHTS, SECRETS
from tests.webhook.installation import registration


class Replica:
    """Serves the certificate of a folder as of the last `load`."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.load()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def load(self) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")

    def close(self) -> None:
        # The accepting thread holds the socket until it is woken.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with contextlib.suppress(OSError), self._context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(1)


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
