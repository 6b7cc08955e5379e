"""Applies manifests and waits until they take effect; creates namespaces with permissions for tenants.

CRDs, policies and webhook configurations take effect shortly after they are stored. Use `wait_until` before relying
on them.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from localup.api import Api, ApiError

Manifest = dict[str, Any]

Answer = TypeVar("Answer")

CRD_KIND: Final = "CustomResourceDefinition"
_APPLIED_FIRST: Final = ("Namespace", CRD_KIND)

# The C loader: the real CRDs are one megabyte of YAML.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_POLL_SECONDS: Final = 0.05

#: Maximum total wait, as a multiple of the limit, while progress is made.
_MAX_EXTENSIONS: Final = 10
_NOT_FOUND: Final = 404


class WaitTimeoutError(Exception):
    """A condition did not become true in time."""


def wait_until(
    question: Callable[[], Answer], what: str, *, seconds: float = 180, progress: Callable[[], object] | None = None
) -> Answer:
    """Poll *question* until it returns a truthy value and return it; *what* names the condition in errors.

    With *progress*, such as the size of a log, the limit restarts whenever its value changes, up to ten times the
    limit in total. This tolerates slow machines.
    """
    began, before = time.monotonic(), progress() if progress else None
    ends, latest = began + seconds, began + seconds * (_MAX_EXTENSIONS if progress else 1)
    while True:
        if answer := question():
            return answer
        now = time.monotonic()
        if progress and (after := progress()) != before:
            ends, before = now + seconds, after
        if now > min(ends, latest):
            waited = (
                f"no progress for {seconds:g} s" if progress and now <= latest else f"not within {latest - began:g} s"
            )
            raise WaitTimeoutError(f"{what}: {waited}")
        time.sleep(_POLL_SECONDS)


def read_manifests(*places: Path) -> Iterator[Manifest]:
    """Yield the objects in files and in the YAML files of folders, sorted by name."""
    for place in places:
        for file in sorted(place.glob("*.yaml")) if place.is_dir() else [place]:
            with file.open() as text:
                for document in yaml.load_all(text, Loader=_LOADER):
                    yield from _items(document)


def _items(document: Manifest | None) -> list[Manifest]:
    """Return the objects of a document: none, one, or the items of a list."""
    if not document:
        return []
    items: list[Manifest] = document["items"] if document["kind"].endswith("List") else [document]
    return items


def apply(api: Api, manifests: Iterable[Manifest]) -> None:
    """Apply *manifests*, namespaces and CRDs first, and return once the CRDs are served."""
    paths = _ResourcePaths(api)
    for _, group in groupby(sorted(manifests, key=_apply_order), key=_apply_order):
        batch = list(group)
        for manifest in batch:
            api.apply(paths.of(manifest), manifest)
        for manifest in batch:
            if manifest["kind"] == CRD_KIND:
                wait_until(partial(_is_served, api, manifest), f"CRD {manifest['metadata']['name']} served")


def apply_files(api: Api, *places: Path) -> None:
    """Apply the manifests in files and folders."""
    apply(api, read_manifests(*places))


def _apply_order(manifest: Manifest) -> int:
    kind = manifest["kind"]
    return _APPLIED_FIRST.index(kind) if kind in _APPLIED_FIRST else len(_APPLIED_FIRST)


class _ResourcePaths:
    """Resource paths from the server's discovery API."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def of(self, manifest: Manifest) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self._resources:
            self._learn(version, root)
        try:
            plural, namespaced = self._resources[version, kind]
        except KeyError:
            raise LookupError(f"the server does not serve kind {kind} in {version}; apply its CRD first") from None
        metadata = manifest["metadata"]
        folder = f"{root}/namespaces/{metadata.get('namespace', 'default')}" if namespaced else root
        return f"{folder}/{plural}/{metadata['name']}"

    def _learn(self, version: str, root: str) -> None:
        for resource in self._api.get(root)["resources"]:
            if "/" not in resource["name"]:
                self._resources[version, resource["kind"]] = (resource["name"], resource["namespaced"])


def _is_served(api: Api, definition: Manifest) -> bool:
    spec = definition["spec"]
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    try:
        for version in versions:
            api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")
            served = {resource["name"] for resource in api.get(f"/apis/{spec['group']}/{version}")["resources"]}
            if spec["names"]["plural"] not in served:
                return False
    except ApiError as error:
        if error.status == _NOT_FOUND:
            return False
        raise
    return True


def create_namespace(api: Api, name: str) -> None:
    """Create a namespace in which the identity ``tenant`` has Kubernetes' ClusterRole `edit`."""
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    tenant = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"
    api.create(path, {"metadata": {"name": "tenants"}, "roleRef": role, "subjects": [tenant]})


def delete_namespace(api: Api, name: str) -> None:
    """Delete a namespace with its objects; deletion continues in the background."""
    with contextlib.suppress(ApiError):
        api.delete(f"/api/v1/namespaces/{name}")
