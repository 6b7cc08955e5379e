"""The objects of files that a world is made of, by kind; what else is there is named and left out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from controller.api.bindings import ResourceBinding
from controller.api.clusters import Cluster
from controller.api.configuration import (
    API_VERSION,
    KIND,
    ConfigurationError,
    VolcanoGlobalConfiguration,
    check_configuration,
)
from controller.api.jobs import Job
from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    HYPERJOBS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_BINDINGS,
    Resource,
)
from controller.api.priorityclasses import PriorityClass
from controller.api.queues import Queue
from controller.cache.objects import GroupKind, group_kind
from controller.cli.hyperjobs import is_hyperjob, read_manifest
from controller.cli.manifests import InputError, Manifest
from controller.cli.policies import CLUSTER_POLICIES, POLICIES, PropagationPolicy
from controller.cli.resource_interpreter import wire_type
from controller.cli.validation import validate
from controller.engine.clusters import ApiKind

WIRE_TYPES: Mapping[Resource, type[msgspec.Struct]] = {
    QUEUES: Queue,
    CLUSTERS: Cluster,
    PRIORITY_CLASSES: PriorityClass,
    JOBS: Job,
    POLICIES: PropagationPolicy,
    CLUSTER_POLICIES: PropagationPolicy,
    RESOURCE_BINDINGS: ResourceBinding,
    CLUSTER_RESOURCE_BINDINGS: ResourceBinding,
}
_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class InputNote:
    """Something that whoever gave the files may not expect; a *minor* one is told on request only."""

    text: str
    minor: bool = False


@dataclass(frozen=True, slots=True)
class InputObjects:
    """What is there of each kind, checked field by field, and the operator's choices."""

    configuration: VolcanoGlobalConfiguration
    objects: Mapping[GroupKind, Sequence[Manifest]] = field(default_factory=dict)
    notes: tuple[InputNote, ...] = ()
    hyperjobs: tuple[Manifest, ...] = ()
    """In either spelling, each readable, by namespace and name."""

    def of(self, resource: Resource) -> Sequence[Manifest]:
        """Return the objects of a resource, by name."""
        return self.objects.get(kind_of(resource), ())

    def of_kind(self, api: ApiKind) -> Sequence[Manifest]:
        """Return the objects of a further kind, in whatever version, by name."""
        return self.objects.get(group_kind(api), ())

    def with_more(self, manifests: Sequence[Manifest]) -> Self:
        """Return the inventory with objects of kinds that it knows beside those it has."""
        objects = dict(self.objects)
        for manifest in manifests:
            kind = group_kind(ApiKind(manifest.api_version, manifest.kind))
            objects[kind] = (*objects.get(kind, ()), manifest)
        return replace(self, objects=objects)


def kind_of(resource: Resource) -> GroupKind:
    """Return the kind of *resource* without its version."""
    return group_kind(ApiKind(resource.api_version, resource.kind))


def validate_objects(manifests: Sequence[Manifest]) -> InputObjects:
    """Return what *manifests* hold, or raise `InputError` with everything that is wrong with them."""
    faults: list[str] = []
    configuration = _configuration(manifests, faults)
    further = (
        Resource(rule.group, rule.api_version.rpartition("/")[2], plural="", kind=rule.kind)
        for rule in configuration.integrations
    )
    shelf = _ObjectCollector({kind_of(resource): resource for resource in (*further, *WIRE_TYPES)}, faults)
    for manifest in manifests:
        shelf.put(manifest)
    if faults:
        raise InputError(*faults)
    return InputObjects(configuration, shelf.sorted(), tuple(shelf.notes), shelf.hyperjobs)


def _configuration(manifests: Iterable[Manifest], faults: list[str]) -> VolcanoGlobalConfiguration:
    found = [manifest for manifest in manifests if _is_configuration(manifest)]
    faults.extend(f"{other.place} ({KIND}): the first is in {found[0].place}; keep one" for other in found[1:])
    try:
        return check_configuration(dict(found[0].body)) if found else VolcanoGlobalConfiguration()
    except ConfigurationError as error:
        faults.append(f"{found[0].place} ({KIND}): {str(error).removeprefix(_PREAMBLE)}")
        return VolcanoGlobalConfiguration()


_PREAMBLE = "the VolcanoGlobalConfiguration cannot be used: "


def _is_configuration(manifest: Manifest) -> bool:
    return manifest.kind == KIND and manifest.group == API_VERSION.partition("/")[0]


class _ObjectCollector:
    """Takes one manifest after the other."""

    def __init__(self, resources: Mapping[GroupKind, Resource], faults: list[str]) -> None:
        self.notes: list[InputNote] = []
        self._resources = resources
        self._faults = faults
        self._kinds: dict[GroupKind, dict[tuple[str, str], Manifest]] = {}
        self._uids: dict[str, Manifest] = {}
        self._hyperjobs: dict[tuple[str, str, str], Manifest] = {}

    def put(self, manifest: Manifest) -> None:
        """Take *manifest* if its kind is wanted and nothing is wrong with it."""
        if is_hyperjob(manifest):
            self._put_hyperjob(_in_namespace(manifest, HYPERJOBS))
            return
        kind = group_kind(ApiKind(manifest.api_version, manifest.kind))
        resource = self._resources.get(kind)
        if resource is None:
            if not _is_configuration(manifest):
                self.notes.append(
                    InputNote(f"{manifest.place} ({manifest.path}): not of a kind that is read", minor=True)
                )
            return
        manifest = _in_namespace(manifest, resource)
        wrong = _violations(manifest, resource, kind) or self._clashes(manifest, kind)
        self._faults.extend(manifest.problem(each) for each in wrong)
        if not wrong:
            self._kinds.setdefault(kind, {})[manifest.namespace, manifest.name] = manifest

    @property
    def hyperjobs(self) -> tuple[Manifest, ...]:
        """Return the HyperJobs that were taken, by namespace and name."""
        return tuple(self._hyperjobs[key] for key in sorted(self._hyperjobs))

    def _put_hyperjob(self, manifest: Manifest) -> None:
        key = manifest.namespace, manifest.name, manifest.api_version
        found = read_manifest(manifest) if manifest.name else "metadata.name: it is missing"
        if isinstance(found, str):
            self._faults.append(manifest.problem(found))
        elif key in self._hyperjobs and self._hyperjobs[key].body != manifest.body:
            self._faults.append(manifest.problem(f"it is another one in {self._hyperjobs[key].place}; keep one"))
        else:
            self._hyperjobs[key] = manifest

    def _clashes(self, manifest: Manifest, kind: GroupKind) -> list[str]:
        """Return why *manifest* cannot stand beside what was taken before; the very same may come again."""
        known = self._kinds.get(kind, {}).get((manifest.namespace, manifest.name))
        if known is not None:
            return [] if known.body == manifest.body else [f"it is another one in {known.place}; keep one"]
        uid = manifest.body["metadata"].get("uid")
        other = self._uids.setdefault(uid, manifest) if uid else manifest
        return [] if other is manifest else [f"metadata.uid: {other.path} in {other.place} has the same"]

    def sorted(self) -> dict[GroupKind, Sequence[Manifest]]:
        """Return all that was taken, by kind and name."""
        return {kind: tuple(found[key] for key in sorted(found)) for kind, found in self._kinds.items()}


def _in_namespace(manifest: Manifest, resource: Resource) -> Manifest:
    """Return *manifest* in the namespace where the API server would put it."""
    namespace = (manifest.namespace or _DEFAULT_NAMESPACE) if resource.namespaced else ""
    if manifest.namespace == namespace and "metadata" in manifest.body:
        return manifest
    metadata = {**(manifest.body.get("metadata") or {}), "namespace": namespace}
    return replace(manifest, namespace=namespace, body={**manifest.body, "metadata": metadata})


def _violations(manifest: Manifest, resource: Resource, kind: GroupKind) -> list[str]:
    if not manifest.name:
        return ["metadata.name: it is missing"]
    form = WIRE_TYPES.get(resource)
    if form is not None and manifest.version != resource.version:
        return [f'apiVersion: "{manifest.api_version}" is not read; write {resource.api_version}']
    return validate(form or wire_type(kind), manifest.body)
