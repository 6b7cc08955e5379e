"""Fixtures: a control plane with active ValidatingAdmissionPolicies, and a tenant with Karmada's role `edit`."""

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localup.api import Api, ApiError
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
                "uid": "u-1",
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

    def changed(self, **spec: Any) -> dict[str, Any]:
        """Return the binding with changed members of its spec."""
        return copy.deepcopy(self.object) | {"spec": self.object["spec"] | spec}


@pytest.fixture(scope="module")
def plane(fresh_control_plane) -> ControlPlane:
    plane = fresh_control_plane()
    create_namespace(plane.admin, TEAM)
    apply_files(plane.admin, POLICIES, Path(__file__).parent / "rights.yaml")
    with plane.client("karmada") as karmada, plane.client("tenant") as tenant:
        wait_until(lambda: _is_denied(tenant, "volcano-global-bindings", _dry_create), "policy on bindings")
        path = f"{COLLECTIONS['ResourceBinding']}/probe"
        probe = suspended_binding("ResourceBinding")
        probe["metadata"]["name"] = "probe"
        karmada.create(COLLECTIONS["ResourceBinding"], probe)
        other = {"spec": {"resource": {"kind": "Probe"}}}
        wait_until(
            lambda: _is_denied(
                karmada, "volcano-global-binding-kinds", lambda api: api.merge(f"{path}?dryRun=All", other)
            ),
            "policy on kinds",
        )
    return plane


def _dry_create(api: Api) -> None:
    api.create(f"{COLLECTIONS['ResourceBinding']}?dryRun=All", suspended_binding("ResourceBinding"))


def _is_denied(api: Api, policy: str, attempt) -> bool:
    try:
        attempt(api)
    except ApiError as error:
        return policy in error.message
    return False


def _client(plane: ControlPlane, identity: str) -> Iterator[Api]:
    with plane.client(identity) as api:
        yield api


@pytest.fixture(scope="module")
def tenant(plane) -> Iterator[Api]:
    yield from _client(plane, "tenant")


@pytest.fixture(scope="module")
def karmada(plane) -> Iterator[Api]:
    yield from _client(plane, "karmada")


@pytest.fixture(scope="module")
def controller(plane) -> Iterator[Api]:
    yield from _client(plane, "volcano-global-controller")


@pytest.fixture(params=list(COLLECTIONS))
def kind(request) -> str:
    return request.param


@pytest.fixture
def stored(plane, karmada, kind) -> Stored:
    """Return a suspended binding that Karmada has created."""
    made = karmada.create(COLLECTIONS[kind], suspended_binding(kind))
    return Stored(plane, f"{COLLECTIONS[kind]}/{made['metadata']['name']}", made)
