"""Reads the rendered objects of the chart, applies and deletes them, and leaves objects of other owners unchanged."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import yaml

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, QUEUES, binding_name
from controller.api.yaml_errors import describe_yaml_error
from controller.kube.client import Api
from controller.kube.errors import ApiError, Conflict, NotFound

Manifest = dict[str, Any]

#: Label of all objects that the installer applies.
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "volcano-global")

_CORE = "/api/v1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WEBHOOK_CONFIGURATIONS: Final = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
FIELD_MANAGER = "volcano-global-install"
#: Kinds of which existing objects are not overwritten: definitions of other projects, and queues edited by operators.
_NEVER_OVERWRITTEN = frozenset({"CustomResourceDefinition", "Queue"})
_SERVED_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.2
# The C loader is faster, and definitions are long.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class RestMapping:
    """Path of the collection of a kind."""

    api: str
    plural: str
    namespaced: bool = False
    is_pruned: bool = True
    """Whether obsolete objects of the kind are deleted."""

    def collection(self, namespace: str) -> str:
        """Return the path of the collection."""
        return f"{self.api}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.api}/{self.plural}"


#: In the order of installation; removal is in reverse order. Webhook configurations come last, since they cause calls
#: of the webhook.
MAPPINGS: Final[Mapping[str, RestMapping]] = {
    # Definitions are not pruned, since users' objects would be deleted with them.
    "CustomResourceDefinition": RestMapping(
        "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", is_pruned=False
    ),
    "ConfigMap": RestMapping(_CORE, "configmaps", namespaced=True),
    "ServiceAccount": RestMapping(_CORE, "serviceaccounts", namespaced=True),
    "ClusterRole": RestMapping(_RBAC, "clusterroles"),
    "ClusterRoleBinding": RestMapping(_RBAC, "clusterrolebindings"),
    "Role": RestMapping(_RBAC, "roles", namespaced=True),
    "RoleBinding": RestMapping(_RBAC, "rolebindings", namespaced=True),
    # Queues are not pruned, since workloads may wait in them.
    "Queue": RestMapping("/apis/scheduling.volcano.sh/v1beta1", "queues", is_pruned=False),
    "ResourceInterpreterCustomization": RestMapping(
        "/apis/config.karmada.io/v1alpha1", "resourceinterpretercustomizations"
    ),
    "ClusterOverridePolicy": RestMapping("/apis/policy.karmada.io/v1alpha1", "clusteroverridepolicies"),
    "ClusterPropagationPolicy": RestMapping("/apis/policy.karmada.io/v1alpha1", "clusterpropagationpolicies"),
    "ValidatingAdmissionPolicy": RestMapping(_ADMISSION, "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": RestMapping(_ADMISSION, "validatingadmissionpolicybindings"),
    "MutatingWebhookConfiguration": RestMapping(_ADMISSION, "mutatingwebhookconfigurations"),
    "ValidatingWebhookConfiguration": RestMapping(_ADMISSION, "validatingwebhookconfigurations"),
}


def path_of(manifest: Manifest) -> str:
    """Return the path of an object."""
    metadata = manifest["metadata"]
    mapping = MAPPINGS[manifest["kind"]]
    return f"{mapping.collection(metadata.get('namespace', 'default'))}/{metadata['name']}"


def name_of(manifest: Manifest) -> str:
    """Return kind and name of an object, for messages."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def is_managed(manifest: Manifest) -> bool:
    """Return whether the installer applied the object."""
    key, value = MANAGED_BY
    labels = manifest.get("metadata", {}).get("labels") or {}
    return bool(labels.get(key) == value)


async def poll_until(condition: Callable[[], Awaitable[bool]], *, seconds: float, every: float) -> bool:
    """Poll until *condition* is true; return whether that happened within *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await condition():
                    return True
                await asyncio.sleep(every)
    except TimeoutError:
        return False


class _Secret(msgspec.Struct):
    data: dict[str, bytes] | None = None


class InstallError(Exception):
    """An installation step failed; the message says why and what to do."""


async def apply_all(api: Api, manifests: Iterable[Manifest]) -> None:
    """Apply *manifests* in order; log and skip objects that must not be overwritten."""
    for manifest in manifests:
        if await _must_not_overwrite(api, manifest):
            log.warning("object not overwritten", object=name_of(manifest), reason="it already exists")
            continue
        body = msgspec.json.encode(manifest)
        await api.apply(path_of(manifest), body, field_manager=FIELD_MANAGER)
        log.info("object applied", object=name_of(manifest))
        if manifest["kind"] == "CustomResourceDefinition":
            await _wait_until_served(api, manifest)


async def delete_all(api: Api, manifests: Sequence[Manifest]) -> None:
    """Delete the managed objects among *manifests* in reverse order; log and skip objects in use."""
    for manifest in reversed(manifests):
        current = await find(api, path_of(manifest))
        if current is None or not is_managed(current):
            continue
        if in_use := await _in_use(api, manifest):
            log.warning("object not deleted", object=name_of(manifest), reason=in_use)
            continue
        await delete(api, path_of(manifest), name_of(manifest))


async def prune(api: Api, wanted: Iterable[Manifest], *, kinds: Iterable[str]) -> None:
    """Delete managed objects of *kinds* that are not in *wanted*, from an earlier version or other values.

    Those in use stay. Namespaced ones are looked for in every namespace: `karmada.namespace` may have been another one.
    """
    wanted_paths = {path_of(manifest) for manifest in wanted}
    for kind in kinds:
        mapping = MAPPINGS[kind]
        if not mapping.is_pruned:
            continue
        for item in await _list_managed(api, f"{mapping.api}/{mapping.plural}"):
            current = {**item, "kind": kind}  # items of a list have none
            if path_of(current) in wanted_paths:
                continue
            if in_use := await _in_use(api, current):
                log.warning("object not deleted", object=name_of(current), reason=in_use)
                continue
            await delete(api, path_of(current), name_of(current))


async def delete(api: Api, path: str, name: str) -> None:
    """Delete the object at *path* if it exists; *name* identifies it in the log."""
    try:
        await api.delete(path)
    except NotFound:
        return
    log.info("object deleted", object=name)


async def read_secret(api: Api, namespace: str | None, name: str | None) -> Mapping[str, bytes] | None:
    """Return the contents of a Secret, or ``None`` if it does not exist."""
    try:
        answer = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    except NotFound:
        return None
    return msgspec.json.decode(answer, type=_Secret).data or {}


async def _list_managed(api: Api, collection: str) -> list[Manifest]:
    try:
        answer = await api.get(collection, {"labelSelector": "=".join(MANAGED_BY)})
    except NotFound:  # the kind does not exist in this Karmada
        return []
    items: list[Manifest] = msgspec.json.decode(answer)["items"]
    return items


async def _must_not_overwrite(api: Api, manifest: Manifest) -> bool:
    if manifest["kind"] not in _NEVER_OVERWRITTEN:
        return False
    current = await find(api, path_of(manifest))
    return current is not None and (not is_managed(current) or manifest["kind"] == "Queue")


async def find(api: Api, path: str) -> Manifest | None:
    """Return the object at *path*, or ``None`` if it does not exist."""
    try:
        current: Manifest = msgspec.json.decode(await api.get(path))
    except NotFound:
        return None
    return current


async def _in_use(api: Api, manifest: Manifest) -> str | None:
    """Return what still needs the object, or ``None``."""
    if manifest["kind"] == "CustomResourceDefinition":
        return await _has_any(api, _collection_of(manifest), f"{manifest['spec']['names']['plural']} still exist")
    if manifest["kind"] == "Queue":
        binding = binding_name(manifest["metadata"]["name"], QUEUES.kind)
        if await find(api, CLUSTER_RESOURCE_BINDINGS.item_path("", binding)) is not None:
            return "it is propagated to member clusters, where Volcano does not let it be deleted"
        return await _has_any(api, "/apis/batch.volcano.sh/v1alpha1/jobs", "Volcano Jobs still exist")
    if manifest["kind"] == "ClusterOverridePolicy" and await _has_propagated_queues(api):
        return "queues are still propagated to member clusters, which would get the amounts of the whole fleet"
    return None


class _Template(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""


class _Spec(msgspec.Struct):
    resource: _Template


class _Binding(msgspec.Struct):
    spec: _Spec


_BINDING = msgspec.json.Decoder(_Binding)


async def _has_propagated_queues(api: Api) -> bool:
    with suppress(NotFound):
        async for item in api.list_items(CLUSTER_RESOURCE_BINDINGS.path):
            try:
                resource = _BINDING.decode(item).spec.resource
            except (msgspec.MsgspecError, RecursionError):
                # It may be that of a queue.
                return True
            if resource.kind == QUEUES.kind and resource.api_version.startswith(f"{QUEUES.group}/"):
                return True
    return False


async def _has_any(api: Api, path: str, reason: str) -> str | None:
    try:
        page = await api.list_page(path, limit=1)
    except NotFound:
        return None
    return reason if page.items else None


def _collection_of(definition: Manifest) -> str:
    spec: dict[str, Any] = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["served"])
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


async def _wait_until_served(api: Api, definition: Manifest) -> None:
    """Wait until the API server serves the kind, which later objects may have."""
    path = _collection_of(definition)
    if not await poll_until(lambda: _is_served(api, path), seconds=_SERVED_TIMEOUT_SECONDS, every=_POLL_SECONDS):
        message = (
            f"{name_of(definition)} is stored, but not served within {_SERVED_TIMEOUT_SECONDS:g} s: check its status"
        )
        raise InstallError(message)


async def _is_served(api: Api, path: str) -> bool:
    try:
        await api.list_page(path, limit=1)
    except (NotFound, Conflict):
        return False
    except ApiError as error:
        # Until a definition is served, lists fail with a retryable error.
        log.info("definition not served yet", reason=str(error))
        return False
    return True


_ORDER = {kind: index for index, kind in enumerate(MAPPINGS)}


class ManifestError(Exception):
    """A file holds an object that cannot be installed; the message names it."""


def read_folder(folder: Path) -> list[Manifest]:
    """Return the labelled objects of all YAML files in *folder*, in the order in which they are applied."""
    manifests = [_with_label(manifest, file) for file in sorted(folder.glob("*.yaml")) for manifest in _documents(file)]
    if not manifests:
        raise ManifestError(f"{folder} contains no manifests: mount the objects of the chart there")
    return sorted(manifests, key=lambda manifest: _ORDER[manifest["kind"]])


def webhook_configurations(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the webhook configurations among *manifests*."""
    return [manifest for manifest in manifests if manifest["kind"] in WEBHOOK_CONFIGURATIONS]


def non_webhook_objects(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return all *manifests* except the webhook configurations."""
    return [manifest for manifest in manifests if manifest["kind"] not in WEBHOOK_CONFIGURATIONS]


def _documents(file: Path) -> Iterator[object]:
    try:
        for document in yaml.load_all(file.read_text(), Loader=_LOADER):
            if document is not None:
                yield document
    except yaml.YAMLError as error:
        raise ManifestError(f"{file.name}: {describe_yaml_error(error)}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{file.name}: it is not UTF-8 text") from error


def _with_label(document: object, file: Path) -> Manifest:
    manifest: Manifest = document if isinstance(document, dict) else {}
    kind = manifest.get("kind")
    if not isinstance(kind, str) or kind not in MAPPINGS:
        raise ManifestError(f"{file.name}: {kind!r} is not a kind that can be installed")
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ManifestError(f"{file.name}: {kind} has no metadata.name")
    labels = {**(metadata.get("labels") or {}), MANAGED_BY[0]: MANAGED_BY[1]}
    return {**manifest, "metadata": {**metadata, "labels": labels}}
