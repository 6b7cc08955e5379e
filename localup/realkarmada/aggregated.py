"""Karmada's aggregated API server, which serves Clusters instead of their CRD.

Unlike a CRD it sets default resource models in new Clusters, as in a standard installation.
"""

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from localup.api import ApiError
from localup.apply import apply, wait_until
from localup.controlplane import ControlPlane
from localup.credentials import AGGREGATED, Credentials
from localup.server import Server

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DEFINITION: Final = f"{_CRDS}/clusters.cluster.karmada.io"
_CLUSTERS: Final = "/apis/cluster.karmada.io/v1alpha1/clusters"
_NAME, _NAMESPACE = AGGREGATED.split(".")[:2]


class AggregatedServer:
    """API server of Clusters, registered in a control plane.

    Args:
        program: The path of `karmada-aggregated-apiserver`.
        plane: The control plane, which must be started before this.
    """

    def __init__(self, program: Path, plane: ControlPlane) -> None:
        self._program = program
        self._plane = plane
        self._server: Server | None = None

    def start(self, credentials: Credentials) -> None:
        """Replace the CRD of Clusters by this server, and return when it serves them.

        Args:
            credentials: Contain the server's certificate.
        """
        self.stop()
        self._server = Server("karmada-aggregated-apiserver", self._plane.folder / "karmada-aggregated-apiserver.log")
        wait_until(self._has_no_definition, "CRD of Clusters deleted")
        self._server.start(lambda ports: self._command(ports, credentials), lambda: True)
        apply(self._plane.admin, self._registration(credentials))
        wait_until(self._serves, "karmada-aggregated-apiserver serves Clusters")

    def restart(self, credentials: Credentials) -> None:
        """Restart the server with the same data and port."""
        if self._server is None:
            raise RuntimeError("the aggregated API server is not started; call start() first")
        self._server.halt()
        self._server.start(lambda ports: self._command(ports, credentials), lambda: True)
        wait_until(self._serves, "karmada-aggregated-apiserver serves Clusters again")

    def stop(self) -> None:
        """Stop it; does nothing if it is not running."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _command(self, ports: Sequence[int], credentials: Credentials) -> list[str | Path]:
        kubeconfig = self._plane.kubeconfig("karmada")
        return [
            self._program,
            *(f"--{purpose}kubeconfig={kubeconfig}" for purpose in ("", "authentication-", "authorization-")),
            f"--etcd-servers={self._plane.etcd.url}",
            f"--etcd-prefix={self._plane.prefix}",
            f"--tls-cert-file={credentials.folder / 'apiserver.crt'}",
            f"--tls-private-key-file={credentials.folder / 'apiserver.key'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports[0]}",
            "--enable-priority-and-fairness=false",
        ]

    def _registration(self, credentials: Credentials) -> Iterator[dict[str, Any]]:
        """Yield the APIService and its Service for the API server."""
        port = self._server.ports[0] if self._server else 0
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _NAME, "namespace": _NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        yield {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1alpha1.cluster.karmada.io"},
            "spec": {
                "group": "cluster.karmada.io",
                "version": "v1alpha1",
                "groupPriorityMinimum": 2000,
                "versionPriority": 10,
                "caBundle": base64.b64encode(credentials.ca.encode()).decode(),
                "service": {"name": _NAME, "namespace": _NAMESPACE, "port": port},
            },
        }

    def _has_no_definition(self) -> bool:
        """Delete the CRD of Clusters, and return whether it is deleted."""
        try:
            self._plane.admin.delete(_DEFINITION)
        except ApiError as error:
            return error.status == 404  # noqa: PLR2004 -- Not Found
        return False

    def _serves(self) -> bool:
        try:
            self._plane.admin.get(_CLUSTERS)
        except ApiError:
            return False
        return True
