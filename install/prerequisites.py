"""What must be in a Karmada control plane before we can be: asked by discovery, told in sentences; changes nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from controller.api.configuration import ConfigurationError, load_configuration
from controller.kube import Api, NotFound

#: Older API servers know no ValidatingAdmissionPolicy, without which tenants start their own jobs.
MIN_VERSION = (1, 30)


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """A resource that somebody else brings."""

    group_version: str
    plural: str
    remedy: str

    @property
    def path(self) -> str:
        """Return the path of its discovery."""
        return f"/apis/{self.group_version}"


_VOLCANO = "apply Volcano's CustomResourceDefinitions to the Karmada API server (they come with Volcano 1.10 or newer)"
_KARMADA = "name the kubeconfig of a Karmada API server (1.14 or newer), not that of its host cluster"
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
    "set interpreter.enabled to false: this Karmada has none",
)


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource]


class _Version(msgspec.Struct):
    major: str
    minor: str


async def missing_prerequisites(api: Api, *, interpreter: bool = False, configuration: str | None = None) -> list[str]:
    """Return what is missing, each with what to do; an empty list: we can be installed."""
    version = msgspec.json.decode(await api.get("/version"), type=_Version)
    found = list(version_violations(version.major, version.minor))
    needs = (*PREREQUISITES, INTERPRETER) if interpreter else PREREQUISITES
    found += [
        f"{each.plural}.{each.group_version} are not served: {each.remedy}"
        for each in needs
        if not await _is_served(api, each)
    ]
    if configuration is not None:
        found += configuration_violations(configuration)
    return found


def version_violations(major: str, minor: str) -> Iterator[str]:
    """Say what is wrong with an API server's version; vendors write minors such as ``30+``."""
    numbers = tuple(int(re.sub(r"\D", "", part) or 0) for part in (major, minor))
    if numbers < MIN_VERSION:
        yield (
            f"the API server is Kubernetes {numbers[0]}.{numbers[1]}, whose tenants no ValidatingAdmissionPolicy "
            f"keeps from starting their own jobs: use {MIN_VERSION[0]}.{MIN_VERSION[1]} or newer"
        )


def configuration_violations(text: str) -> Iterator[str]:
    """Say what is wrong with a VolcanoGlobalConfiguration."""
    try:
        load_configuration(text)
    except ConfigurationError as error:
        yield str(error)


async def _is_served(api: Api, need: Prerequisite) -> bool:
    try:
        served = msgspec.json.decode(await api.get(need.path), type=_Resources)
    except NotFound:
        return False
    return any(each.name == need.plural for each in served.resources)
