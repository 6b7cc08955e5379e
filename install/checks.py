"""Checks whether a control plane has what volcano-global needs, and whether an installation is complete and ready."""

import http.client
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from controller.api.configuration import ConfigurationError, load_configuration
from controller.api.keys import JOBS, QUEUES
from controller.api.meta import WatchedObject
from controller.kube.client import Api
from controller.kube.errors import NotFound
from install.objects import Manifest, find, name_of, path_of
from install.registration import Address

#: Older API servers have no ValidatingAdmissionPolicy, without which tenants can admit their own jobs.
MIN_VERSION = (1, 30)
_TIMEOUT_SECONDS = 5.0

_VOLCANO = "apply Volcano's CustomResourceDefinitions to the Karmada API server (Volcano 1.10 or newer)"
_KARMADA = "use the kubeconfig of a Karmada API server (1.14 or newer), not that of its host cluster"
_OLD_KARMADA = (
    "upgrade Karmada to 1.14 or newer, with its CustomResourceDefinitions; older ones schedule suspended bindings when "
    "a cluster changes"
)


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


PREREQUISITES = (
    Prerequisite("batch.volcano.sh/v1alpha1", "jobs", _VOLCANO),
    Prerequisite("scheduling.volcano.sh/v1beta1", "queues", _VOLCANO),
    Prerequisite("work.karmada.io/v1alpha2", "resourcebindings", _KARMADA),
    Prerequisite("policy.karmada.io/v1alpha1", "propagationpolicies", _KARMADA),
    Prerequisite("cluster.karmada.io/v1alpha1", "clusters", _KARMADA),
    # Not used; it came with 1.14.
    Prerequisite("policy.karmada.io/v1alpha1", "clustertaintpolicies", _OLD_KARMADA),
)

_INTERPRETER = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/resourceinterpretercustomizations.config.karmada.io"
)
_FIELDS = ("schema", "openAPIV3Schema", "properties", "spec", "properties", "customizations", "properties")

#: Operations by which a customization for Volcano Jobs changes what decisions are based on.
_JOB_OPERATIONS = ("replicaResource", "statusReflection")
_CUSTOMIZATIONS = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations"


class _Target(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _CustomizationSpec(msgspec.Struct):
    target: _Target = msgspec.field(default_factory=_Target)
    customizations: dict[str, msgspec.Raw] = {}


class Customization(WatchedObject, frozen=True):
    """A resource interpreter customization of Karmada."""

    spec: _CustomizationSpec = msgspec.field(default_factory=_CustomizationSpec)


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource]


class _Version(msgspec.Struct):
    major: str
    minor: str


async def missing_prerequisites(
    api: Api, *, namespace: str = "", interpreter: bool = False, configuration: str | None = None
) -> list[str]:
    """Return the missing prerequisites, each with a remedy; *namespace* is that of our objects, empty for any."""
    version = msgspec.json.decode(await api.get("/version"), type=_Version)
    violations = list(version_violations(version.major, version.minor))
    violations += [
        f"{prerequisite.plural}.{prerequisite.group_version} are not served: {prerequisite.remedy}"
        for prerequisite in PREREQUISITES
        if not await _is_served(api, prerequisite)
    ]
    if namespace and await find(api, f"/api/v1/namespaces/{namespace}") is None:
        violations.append(f"namespace {namespace} does not exist: create it, or set karmada.namespace")
    if interpreter and not await _interprets_components(api):
        violations.append(
            "this Karmada cannot interpret the components of a job: use Karmada 1.16 or newer,"
            " or set interpreter.enabled to false"
        )
    if configuration is not None:
        violations += configuration_violations(configuration)
    return violations


async def customization_warnings(api: Api) -> list[str]:
    """Return which customizations of Karmada's interpreter break rules of admission."""
    try:
        raws = [raw async for raw in api.list_items(_CUSTOMIZATIONS)]
    except NotFound:
        return []
    found = (msgspec.json.decode(raw, type=Customization) for raw in raws)
    return [warning for item in found for warning in _customization_warnings(item)]


def _customization_warnings(customization: Customization) -> Iterator[str]:
    name, target = customization.metadata.name, customization.spec.target
    group, kind = target.api_version.partition("/")[0], target.kind
    if (group, kind) == (QUEUES.group, QUEUES.kind):
        yield f"{name} interprets Queues, and Karmada may overwrite their status: delete it"
    if (group, kind) != (JOBS.group, JOBS.kind):
        return
    changed = [operation for operation in _JOB_OPERATIONS if operation in customization.spec.customizations]
    if changed:
        yield f"{name} changes {' and '.join(changed)} of Volcano Jobs, on which charges depend: delete it"


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


async def _interprets_components(api: Api) -> bool:
    """Return whether a ResourceInterpreterCustomization has the field by which ours counts the pods of a job."""
    definition = await find(api, _INTERPRETER)
    for version in definition["spec"]["versions"] if definition is not None else ():
        fields: Any = version
        for key in _FIELDS:
            fields = fields.get(key) or {}
        if version["served"] and "componentResource" in fields:
            return True
    return False


async def missing(api: Api, manifests: Iterable[Manifest]) -> list[str]:
    """Return which of *manifests* do not exist in the control plane."""
    return [
        f"{name_of(item)} does not exist: run helm upgrade"
        for item in manifests
        if await find(api, path_of(item)) is None
    ]


def unready(address: Address) -> Iterator[str]:
    """Yield which processes behind *address* are not ready, and why; a DNS name may stand for several."""
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield f"{address.host}: {error}: check that its pods exist"
        return
    for host in sorted({str(info[4][0]) for info in infos}):
        if reason := _readiness_error(host, address.port):
            yield f"{address.host} at {host}: {reason}"


def _readiness_error(host: str, port: int) -> str | None:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    return None if answer.status == HTTPStatus.OK else text
