"""Checks by discovery whether a Karmada control plane has what volcano-global needs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from controller.api.configuration import ConfigurationError, load_configuration
from controller.kube.client import Api
from controller.kube.errors import NotFound

#: Older API servers have no ValidatingAdmissionPolicy, without which tenants can admit their own jobs.
MIN_VERSION = (1, 30)


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """A resource that another project provides."""

    group_version: str
    plural: str
    remedy: str

    @property
    def path(self) -> str:
        """Return the discovery path of the resource."""
        return f"/apis/{self.group_version}"


_VOLCANO = "apply Volcano's CustomResourceDefinitions to the Karmada API server (Volcano 1.10 or newer)"
_KARMADA = "use the kubeconfig of a Karmada API server (1.14 or newer), not that of its host cluster"
PREREQUISITES = (
    Prerequisite("batch.volcano.sh/v1alpha1", "jobs", _VOLCANO),
    Prerequisite("scheduling.volcano.sh/v1beta1", "queues", _VOLCANO),
    Prerequisite("work.karmada.io/v1alpha2", "resourcebindings", _KARMADA),
    Prerequisite("policy.karmada.io/v1alpha1", "propagationpolicies", _KARMADA),
    Prerequisite("cluster.karmada.io/v1alpha1", "clusters", _KARMADA),
)
INTERPRETER = Prerequisite(
    "config.karmada.io/v1alpha1",
    "resourceinterpretercustomizations",
    "set interpreter.enabled to false: this Karmada does not support it",
)


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource]


class _Version(msgspec.Struct):
    major: str
    minor: str


async def missing_prerequisites(api: Api, *, interpreter: bool = False, configuration: str | None = None) -> list[str]:
    """Return the missing prerequisites, each with a remedy."""
    version = msgspec.json.decode(await api.get("/version"), type=_Version)
    violations = list(version_violations(version.major, version.minor))
    prerequisites = (*PREREQUISITES, INTERPRETER) if interpreter else PREREQUISITES
    violations += [
        f"{prerequisite.plural}.{prerequisite.group_version} are not served: {prerequisite.remedy}"
        for prerequisite in prerequisites
        if not await _is_served(api, prerequisite)
    ]
    if configuration is not None:
        violations += configuration_violations(configuration)
    return violations


def version_violations(major: str, minor: str) -> Iterator[str]:
    """Yield why an API server of this version is not supported; vendors use minors such as ``30+``."""
    numbers = tuple(int(re.sub(r"\D", "", part) or 0) for part in (major, minor))
    if numbers < MIN_VERSION:
        yield (
            f"the API server is Kubernetes {numbers[0]}.{numbers[1]}, without ValidatingAdmissionPolicy "
            f"tenants can admit their own jobs: use {MIN_VERSION[0]}.{MIN_VERSION[1]} or newer"
        )


def configuration_violations(text: str) -> Iterator[str]:
    """Yield why a VolcanoGlobalConfiguration is invalid."""
    try:
        load_configuration(text)
    except ConfigurationError as error:
        yield str(error)


async def _is_served(api: Api, prerequisite: Prerequisite) -> bool:
    try:
        served = msgspec.json.decode(await api.get(prerequisite.path), type=_Resources)
    except NotFound:
        return False
    return any(resource.name == prerequisite.plural for resource in served.resources)
