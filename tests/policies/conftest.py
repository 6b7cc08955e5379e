"""Fixtures: a control plane with active ValidatingAdmissionPolicies, and a tenant with Karmada's role `edit`."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localup.api import MERGE_PATCH, Api, ApiError
from localup.apply import apply_files, create_namespace, wait_until
from localup.controlplane import ControlPlane

POLICIES = Path(__file__).parents[2] / "charts" / "volcano-global" / "files" / "policies.yaml"
TEAM = "team"
GROUP = "/apis/work.karmada.io/v1alpha2"
RECORD = "volcano-global.io/admission"

#: API path and name of the bindings of each kind.
COLLECTIONS = {
    "ResourceBinding": f"{GROUP}/namespaces/{TEAM}/resourcebindings",
    "ClusterResourceBinding": f"{GROUP}/clusterresourcebindings",
}

_numbers = itertools.count()


def suspended_binding(kind: str) -> dict[str, Any]:
    """Return a binding as Karmada creates it, suspended by the webhook and matched by a policy."""
    number = next(_numbers)
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": kind,
        "metadata": {
            "name": f"train-{number}-job",
            "labels": {
                "propagationpolicy.karmada.io/permanent-id": "p",
                "clusterpropagationpolicy.karmada.io/permanent-id": "c",
                "resourcebinding.karmada.io/permanent-id": "r",
            },
            "annotations": {RECORD: "{}", "propagationpolicy.karmada.io/name": "vcjobs"},
            "finalizers": ["karmada.io/binding-controller"],
        },
        "spec": {
            "resource": {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "name": f"train-{number}",
                "uid": "u",
            },
            "suspension": {"scheduling": True},
            "schedulerName": "default-scheduler",
        },
    }


@dataclass(frozen=True)
class Stored:
    """A stored binding and its path."""

    plane: ControlPlane
    path: str
    object: dict[str, Any]

    @property
    def name(self) -> str:
        return self.object["metadata"]["name"]

    def now(self) -> dict[str, Any]:
        """Return the stored binding now."""
        return self.plane.admin.get(self.path)


def active(api: Api, path: str, body: dict[str, Any], policy: str, *, method: str = "POST") -> None:
    """Wait until the API server applies *policy* to a request that it refuses."""
    wait_until(lambda: _refuses(api, path, body, policy, method=method), f"the policy {policy}")


def _refuses(api: Api, path: str, body: dict[str, Any], policy: str, *, method: str = "POST") -> bool:
    """Return whether *policy* refuses a request."""
    try:
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        api.request(method, f"{path}?dryRun=All", body, content_type=content_type)
    except ApiError as error:
        return policy in error.message
    return False


@pytest.fixture(scope="module")
def plane(fresh_control_plane) -> ControlPlane:
    plane = fresh_control_plane()
    create_namespace(plane.admin, TEAM)
    apply_files(plane.admin, POLICIES, Path(__file__).parent / "rights.yaml")
    path, probe = COLLECTIONS["ResourceBinding"], suspended_binding("ResourceBinding")
    with plane.client("karmada") as karmada, plane.client("tenant") as tenant:
        active(tenant, path, probe, "volcano-global-bindings")
        karmada.create(path, probe)
        other = {"spec": {"resource": {"kind": "Probe"}}}
        path = f"{path}/{probe['metadata']['name']}"
        active(karmada, path, other, "volcano-global-binding-kinds", method="PATCH")
    return plane


@pytest.fixture(scope="module")
def tenant(plane) -> Iterator[Api]:
    with plane.client("tenant") as api:
        yield api


@pytest.fixture(scope="module")
def karmada(plane) -> Iterator[Api]:
    with plane.client("karmada") as api:
        yield api


@pytest.fixture(params=list(COLLECTIONS))
def kind(request) -> str:
    return request.param


@pytest.fixture
def stored(plane, karmada, kind) -> Stored:
    """Return a suspended binding that Karmada has created."""
    made = karmada.create(COLLECTIONS[kind], suspended_binding(kind))
    return Stored(plane, f"{COLLECTIONS[kind]}/{made['metadata']['name']}", made)
