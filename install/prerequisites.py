"""What must be in a Karmada control plane before we can be: asked by discovery, told in sentences; changes nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from controller.api.configuration import ConfigurationError, load_configuration
from controller.kube import Api, NotFound

#: Older API servers know no ValidatingAdmissionPolicy, without which tenants start their own jobs.
OLDEST = (1, 30)


@dataclass(frozen=True, slots=True)
class Need:
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
NEEDS = (
    Need("batch.volcano.sh/v1alpha1", "jobs", _VOLCANO),
    Need("scheduling.volcano.sh/v1beta1", "queues", _VOLCANO),
    Need("work.karmada.io/v1alpha2", "resourcebindings", _KARMADA),
    Need("policy.karmada.io/v1alpha1", "propagationpolicies", _KARMADA),
    Need("cluster.karmada.io/v1alpha1", "clusters", _KARMADA),
)
INTERPRETER = Need(
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


async def flaws(api: Api, *, interpreter: bool = False, configuration: str | None = None) -> list[str]:
    """Return what is missing, each with what to do; an empty list: we can be installed."""
    version = msgspec.json.decode(await api.get("/version"), type=_Version)
    found = list(version_flaws(version.major, version.minor))
    needs = (*NEEDS, INTERPRETER) if interpreter else NEEDS
    found += [
        f"{each.plural}.{each.group_version} are not served: {each.remedy}"
        for each in needs
        if not await _has(api, each)
    ]
    if configuration is not None:
        found += configuration_flaws(configuration)
    return found


def version_flaws(major: str, minor: str) -> Iterator[str]:
    """Say what is wrong with an API server's version; vendors write minors such as ``30+``."""
    numbers = tuple(int(re.sub(r"\D", "", part) or 0) for part in (major, minor))
    if numbers < OLDEST:
        yield (
            f"the API server is Kubernetes {numbers[0]}.{numbers[1]}, whose tenants no ValidatingAdmissionPolicy "
            f"keeps from starting their own jobs: use {OLDEST[0]}.{OLDEST[1]} or newer"
        )


def configuration_flaws(text: str) -> Iterator[str]:
    """Say what is wrong with a VolcanoGlobalConfiguration."""
    try:
        load_configuration(text)
    except ConfigurationError as error:
        yield str(error)


async def _has(api: Api, need: Need) -> bool:
    try:
        served = msgspec.json.decode(await api.get(need.path), type=_Resources)
    except NotFound:
        return False
    return any(each.name == need.plural for each in served.resources)
