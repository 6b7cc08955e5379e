"""Validates the objects read from files and groups them by kind; other objects are reported and ignored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
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
from controller.api.data_sources import DataSource, DataSourceClaim
from controller.api.hyperjobs import HyperJob, HyperJobError, read_hyperjob
from controller.api.jobs import EstimateError, Job, parse_running_estimate
from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    CONFIG_MAPS,
    DATA_SOURCE_CLAIMS,
    DATA_SOURCES,
    HYPERJOB_GROUPS,
    HYPERJOB_KIND,
    HYPERJOBS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_BINDINGS,
    RUN_TIMES_KEY,
    RUN_TIMES_NAME,
    Resource,
)
from controller.api.queues import PriorityClass, Queue
from controller.cache.objects import GroupKind, group_kind
from controller.cli.errors import InputError
from controller.cli.input.default_bindings import (
    CLUSTER_POLICIES,
    POLICIES,
    PropagationPolicy,
    wire_type,
)
from controller.cli.input.manifests import Manifest, ProgressCallback
from controller.cli.input.validation import check_fields
from controller.engine.state.clusters import ApiKind
from controller.forecast.codec import RunTimesError, decode_config_map
from controller.forecast.run_times import RunTimes

WIRE_TYPES: Mapping[Resource, type[msgspec.Struct]] = {
    QUEUES: Queue,
    CLUSTERS: Cluster,
    PRIORITY_CLASSES: PriorityClass,
    JOBS: Job,
    POLICIES: PropagationPolicy,
    CLUSTER_POLICIES: PropagationPolicy,
    RESOURCE_BINDINGS: ResourceBinding,
    CLUSTER_RESOURCE_BINDINGS: ResourceBinding,
    DATA_SOURCE_CLAIMS: DataSourceClaim,
    DATA_SOURCES: DataSource,
}

_PROGRESS_INTERVAL = 500
"""Number of objects between two reports of progress."""

_DEFAULT_NAMESPACE = "default"

#: Minimum similarity of a misspelled kind with the meant one.
_SIMILAR = 0.75
#: Kinds of other groups with the name of a kind that is read.
_OTHER_KINDS = frozenset({GroupKind("Job.batch"), GroupKind("Cluster.cluster.x-k8s.io")})


@dataclass(frozen=True, slots=True)
class InputNote:
    """Message about the input that is not an error; a minor one is printed with ``--verbose`` only."""

    text: str
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class InputObjects:
    """The valid objects of each kind, and the configuration."""

    configuration: VolcanoGlobalConfiguration
    objects: Mapping[GroupKind, Sequence[Manifest]] = field(default_factory=dict)
    notes: tuple[InputNote, ...] = ()
    hyperjobs: tuple[tuple[Manifest, HyperJob], ...] = ()
    """HyperJobs of both API groups, sorted by namespace and name."""
    has_configuration: bool = False
    """Whether the configuration is in the files, not the default."""
    run_times: RunTimes | None = None
    """Learned run times; ``None`` without the ConfigMap that stores them."""

    def of(self, resource: Resource) -> Sequence[Manifest]:
        """Return the objects of *resource*, sorted by name."""
        return self.objects.get(kind_of(resource), ())

    def of_api(self, api: ApiKind) -> Sequence[Manifest]:
        """Return the objects of an integration's kind in any version, sorted by name."""
        return self.objects.get(group_kind(api), ())

    def with_more(self, manifests: Sequence[Manifest]) -> Self:
        """Return a copy that also contains *manifests*."""
        objects = dict(self.objects)
        for manifest in manifests:
            kind = manifest.group_kind
            objects[kind] = (*objects.get(kind, ()), manifest)
        return replace(self, objects=objects)


def kind_of(resource: Resource) -> GroupKind:
    """Return the kind of *resource* without its version."""
    return group_kind(ApiKind(resource.api_version, resource.kind))


def validate_objects(
    manifests: Sequence[Manifest], *, strict: bool = False, on_progress: ProgressCallback | None = None
) -> InputObjects:
    """Return the objects of *manifests*, or raise `InputError` with all violations."""
    violations: list[str] = []
    configuration = _configuration(manifests, violations)
    integrations = (
        Resource(rule.group, rule.api_version.rpartition("/")[2], plural="", kind=rule.kind)
        for rule in configuration.integrations
    )
    collector = _ObjectCollector({kind_of(resource): resource for resource in (*integrations, *WIRE_TYPES)}, violations)
    for number, manifest in enumerate(manifests):
        if on_progress is not None and number % _PROGRESS_INTERVAL == 0:
            on_progress(number, len(manifests))
        collector.add(manifest)
    collector.notes.extend(_unread_files(manifests, collector))
    if strict:
        violations.extend(note.text for note in collector.notes if not note.is_minor)
    if violations:
        raise InputError(*violations)
    has_configuration = any(map(_is_configuration, manifests))
    return InputObjects(
        configuration,
        collector.sorted(),
        tuple(collector.notes),
        collector.hyperjobs,
        has_configuration,
        collector.run_times,
    )


def _unread_files(manifests: Iterable[Manifest], collector: "_ObjectCollector") -> list[InputNote]:
    """Return a note for each file without any object that is read."""
    files = {manifest.location.file for manifest in manifests}
    read = {manifest.location.file for manifest in manifests if collector.reads(manifest)}
    return [InputNote(f"{file}: no object in it is read") for file in sorted(files - read)]


def _configuration(manifests: Iterable[Manifest], violations: list[str]) -> VolcanoGlobalConfiguration:
    configurations = [manifest for manifest in manifests if _is_configuration(manifest)]
    if not configurations:
        return VolcanoGlobalConfiguration()
    first, *others = configurations
    different = (other for other in others if other.body != first.body)
    violations.extend(f"{other.location} ({KIND}): the first is in {first.location}; keep one" for other in different)
    try:
        return check_configuration(dict(first.body))
    except ConfigurationError as error:
        violations.append(f"{first.location} ({KIND}): {str(error).removeprefix(_PREAMBLE)}")
        return VolcanoGlobalConfiguration()


_PREAMBLE = "the VolcanoGlobalConfiguration cannot be used: "


def _is_configuration(manifest: Manifest) -> bool:
    return manifest.kind == KIND and manifest.group == API_VERSION.partition("/")[0]


def _is_run_times(manifest: Manifest) -> bool:
    return manifest.group_kind == kind_of(CONFIG_MAPS) and manifest.name == RUN_TIMES_NAME


class _ObjectCollector:
    """Collects the objects, notes and violations of manifests."""

    def __init__(self, resources: Mapping[GroupKind, Resource], violations: list[str]) -> None:
        self.notes: list[InputNote] = []
        self.run_times: RunTimes | None = None
        self._resources = resources
        self._violations = violations
        self._kinds: dict[GroupKind, dict[tuple[str, str], Manifest]] = {}
        self._uids: dict[str, Manifest] = {}
        self._hyperjobs: dict[tuple[str, str, str], tuple[Manifest, HyperJob]] = {}

    def add(self, manifest: Manifest) -> None:
        """Add *manifest* if its kind is read and it is valid."""
        if _is_hyperjob(manifest):
            self._add_hyperjob(_in_namespace(manifest, HYPERJOBS))
            return
        if _is_run_times(manifest):
            self._add_run_times(manifest)
            return
        kind = manifest.group_kind
        resource = self._resources.get(kind)
        if resource is None:
            if not _is_configuration(manifest):
                self._note_unread_kind(manifest)
            return
        manifest = _in_namespace(manifest, resource)
        messages = check_fields(WIRE_TYPES.get(resource) or wire_type(kind), manifest.body)
        texts = (
            _identity_violations(manifest, resource)
            or messages.violations
            or (_estimate_violations(manifest) if resource == JOBS else [])
            or self._conflicts(manifest, kind)
        )
        self._violations.extend(map(manifest.violation, texts))
        self.notes.extend(InputNote(manifest.note(text)) for text in messages.misspelled)
        if not texts:
            self._kinds.setdefault(kind, {})[manifest.namespace, manifest.name] = manifest

    def reads(self, manifest: Manifest) -> bool:
        """Return whether objects such as *manifest* are read."""
        is_other = _is_hyperjob(manifest) or _is_configuration(manifest) or _is_run_times(manifest)
        return is_other or manifest.group_kind in self._resources

    def _note_unread_kind(self, manifest: Manifest) -> None:
        """Note that the kind is not read; a note about a kind that resembles one that is read is not minor."""
        known = sorted({resource.kind for resource in self._resources.values()} | {HYPERJOB_KIND, KIND})
        near = get_close_matches(manifest.kind, known, n=1, cutoff=_SIMILAR)
        text = f"{manifest.location} ({manifest.path}): not of a kind that is read"
        if near and near[0] != manifest.kind:
            self.notes.append(InputNote(f"{text}; did you mean kind {near[0]}?"))
        elif near and manifest.group_kind not in _OTHER_KINDS:
            groups = [resource.api_version for resource in self._resources.values() if resource.kind == manifest.kind]
            meant = f"apiVersion {groups[0]}" if groups else f"another apiVersion than {manifest.api_version}"
            self.notes.append(InputNote(f"{text}; did you mean {meant}?"))
        else:
            self.notes.append(InputNote(text, is_minor=True))

    @property
    def hyperjobs(self) -> tuple[tuple[Manifest, HyperJob], ...]:
        """Return the added HyperJobs, sorted by namespace and name."""
        return tuple(self._hyperjobs[key] for key in sorted(self._hyperjobs))

    def _add_hyperjob(self, manifest: Manifest) -> None:
        key = manifest.namespace, manifest.name, manifest.api_version
        hyperjob = _read_hyperjob(manifest) if manifest.name else "metadata.name: it is missing"
        if isinstance(hyperjob, str):
            self._violations.append(manifest.violation(hyperjob))
        elif key in self._hyperjobs and self._hyperjobs[key][0].body != manifest.body:
            self._violations.append(manifest.violation(_duplicate(self._hyperjobs[key][0])))
        else:
            self._hyperjobs[key] = manifest, hyperjob

    def _add_run_times(self, manifest: Manifest) -> None:
        try:
            self.run_times, _ = decode_config_map(manifest.raw)
        except RunTimesError as error:
            self._violations.append(manifest.violation(f"data[{RUN_TIMES_KEY}]: {error}"))

    def _conflicts(self, manifest: Manifest, kind: GroupKind) -> list[str]:
        """Return why *manifest* conflicts with an added object; an identical copy is no conflict."""
        known = self._kinds.get(kind, {}).get((manifest.namespace, manifest.name))
        if known is not None:
            return [] if known.body == manifest.body else [_duplicate(known)]
        uid = manifest.body["metadata"].get("uid")
        other = self._uids.setdefault(uid, manifest) if uid else manifest
        return [] if other is manifest else [f"metadata.uid: {other.path} in {other.location} has the same uid"]

    def sorted(self) -> dict[GroupKind, Sequence[Manifest]]:
        """Return the added objects by kind, sorted by namespace and name."""
        return {kind: tuple(manifests[key] for key in sorted(manifests)) for kind, manifests in self._kinds.items()}


def _duplicate(known: Manifest) -> str:
    return f"a different object of this name is in {known.location}; keep one"


def _in_namespace(manifest: Manifest, resource: Resource) -> Manifest:
    """Return *manifest* in the namespace that the API server would give it."""
    namespace = (manifest.namespace or _DEFAULT_NAMESPACE) if resource.namespaced else ""
    if manifest.namespace == namespace and "metadata" in manifest.body:
        return manifest
    metadata = {**(manifest.body.get("metadata") or {}), "namespace": namespace}
    return replace(manifest, namespace=namespace, body={**manifest.body, "metadata": metadata})


def _identity_violations(manifest: Manifest, resource: Resource) -> list[str]:
    if not manifest.name:
        return ["metadata.name: it is missing"]
    if resource in WIRE_TYPES and manifest.version != resource.version:
        return [f'apiVersion: "{manifest.api_version}" is not read; write {resource.api_version}']
    return []


def _estimate_violations(manifest: Manifest) -> list[str]:
    try:
        parse_running_estimate((manifest.body.get("spec") or {}).get("runningEstimate") or "")
    except EstimateError as error:
        return [f"spec.runningEstimate: {error}"]
    return []


def _is_hyperjob(manifest: Manifest) -> bool:
    """Return whether *manifest* is a HyperJob of either API group."""
    return manifest.kind == HYPERJOB_KIND and manifest.group in HYPERJOB_GROUPS


def _read_hyperjob(manifest: Manifest) -> HyperJob | str:
    """Return the HyperJob, or why it is invalid."""
    metadata = manifest.body["metadata"]
    uid = metadata.get("uid") or f"{manifest.group_kind}/{manifest.namespace}/{manifest.name}"
    try:
        return read_hyperjob({**manifest.body, "metadata": {**metadata, "uid": uid}})
    except HyperJobError as error:
        return str(error)
