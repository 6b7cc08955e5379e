"""Fills a store with the objects of files, as the informers of a live control plane would."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from controller.api.hyperjobs import HyperJob
from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    DATA_SOURCE_CLAIMS,
    DATA_SOURCES,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_BINDINGS,
)
from controller.cache.objects import VOLCANO_JOB, ClusterProgress, WorkloadPhase
from controller.cache.store import Store
from controller.cli.errors import InputError, NotFoundError
from controller.cli.input.data import apply_claims, claims_of_files
from controller.cli.input.default_bindings import (
    CLUSTER_POLICIES,
    POLICIES,
    read_policy,
    recorded_uid,
    with_default_bindings,
)
from controller.cli.input.labels import Selector
from controller.cli.input.manifests import Manifest, Progress, no_progress, read
from controller.cli.input.objects import InputNote, InputObjects, validate_objects
from controller.cli.input.snapshot import (
    ActiveConfiguration,
    ConfigurationSource,
    Snapshot,
    TemplateNames,
    take_snapshot,
)
from controller.cli.input.what_if import Changes
from controller.controllers.data_sources.claims import ClaimIndex
from controller.controllers.hyperjob.children import cached_hyperjob
from controller.controllers.hyperjob.preview import Preview, preview, preview_objects
from controller.controllers.hyperjob.split import capacity_snapshot
from controller.engine.engine import Engine
from controller.engine.state.clusters import ApiKind, ClusterName
from controller.kube.collection import Collection


@dataclass(frozen=True, slots=True)
class HyperJobSplit:
    """A HyperJob of the files and its parts."""

    manifest: Manifest
    hyperjob: HyperJob
    preview: Preview

    @property
    def objects(self) -> list[Manifest]:
        """Return the objects of its parts with its location; none if it is finished or suspended."""
        parts = preview_objects(self.hyperjob, self.preview)
        return [self._manifest(body) for child in parts for body in (child.policy, child.job)]

    def _manifest(self, body: dict[str, object]) -> Manifest:
        """Return *body* with the creation time of the HyperJob, so that its age in the queue is the same."""
        own = self.manifest.body["metadata"]
        metadata = {**body["metadata"]}  # type: ignore[dict-item] # every created manifest has metadata
        if "creationTimestamp" in own:
            metadata["creationTimestamp"] = own["creationTimestamp"]
        identity = (str(body["apiVersion"]), str(body["kind"]), self.hyperjob.metadata.namespace, metadata["name"])
        return Manifest(self.manifest.location, *identity, {**body, "metadata": metadata})


def missing_objects(splits: Sequence[HyperJobSplit], present: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects of *splits* that are not in *present*."""
    known = {(manifest.api_version, manifest.kind, manifest.namespace, manifest.name) for manifest in present}
    return [
        manifest
        for split in splits
        for manifest in split.objects
        if (manifest.api_version, manifest.kind, manifest.namespace, manifest.name) not in known
    ]


@dataclass(frozen=True, slots=True)
class OfflineState:
    """The store filled from files, and notes about the files."""

    store: Store
    notes: tuple[InputNote, ...]
    objects: InputObjects
    splits: tuple[HyperJobSplit, ...] = ()
    """The HyperJobs of the files with their parts."""
    claims: ClaimIndex = field(default_factory=ClaimIndex)
    """The claims and sources of data in the files."""

    def snapshot(self, now: int) -> Snapshot:
        """Return the state at *now* with the plan of one scheduling cycle."""
        source = ConfigurationSource.FILE if self.objects.has_configuration else ConfigurationSource.DEFAULTS
        snapshot = take_snapshot(
            self.store, now, ActiveConfiguration(self.objects.configuration, source), self.objects.run_times
        )
        return replace(snapshot, selected=self._selected, claims=self.claims)

    def hyperjob(self, namespace: str, name: str) -> HyperJobSplit:
        """Return a HyperJob of the files; raise `NotFoundError`."""
        for split in self.splits:
            if (split.manifest.namespace, split.manifest.name) == (namespace, name):
                return split
        names = [f"{split.manifest.namespace}/{split.manifest.name}" for split in self.splits]
        near = get_close_matches(f"{namespace}/{name}", names, n=1)
        raise NotFoundError(
            f"HyperJob {namespace}/{name} is not in the files" + (f"; did you mean {near[0]}?" if near else "")
        )

    @property
    def summary(self) -> str:
        """Return how many objects of each kind there are."""
        counts = sorted(
            ((len(manifests), manifests[0].kind) for manifests in self.objects.objects.values() if manifests),
            key=lambda pair: (-pair[0], pair[1]),
        )
        return ", ".join(f"{count:,} {kind}" for count, kind in counts) or "no objects"

    def _selected(self, selector: Selector) -> TemplateNames:
        """Return kind, namespace and name of the objects that *selector* selects."""
        return frozenset(
            (manifest.kind, manifest.namespace, manifest.name)
            for manifests in self.objects.objects.values()
            for manifest in manifests
            if selector.matches(manifest.body["metadata"].get("labels") or {})
        )


def read_offline_state(
    paths: Sequence[str],
    now: int,
    *,
    strict: bool = False,
    changes: Changes | None = None,
    progress: Progress = no_progress,
) -> OfflineState:
    """Return the state read from the files and folders *paths* at *now*, after *changes*, or raise `InputError`."""
    with progress("reading files") as on_progress:
        manifests = read(paths, on_progress)
    return offline_state(manifests, now, strict=strict, changes=changes, progress=progress)


def offline_state(
    manifests: Iterable[Manifest],
    now: int,
    *,
    strict: bool = False,
    changes: Changes | None = None,
    progress: Progress = no_progress,
) -> OfflineState:
    """Return the state of *manifests* at *now*, after *changes*, or raise `InputError`.

    HyperJobs are split after one cycle without them, as the controller splits new ones.
    """
    changes = changes or Changes()
    with progress("checking objects") as on_progress:
        objects = validate_objects(list(_changed(manifests, changes)), strict=strict, on_progress=on_progress)
    store = _new_store(objects, changes)
    claims = claims_of_files(
        [manifest.raw for manifest in objects.of(DATA_SOURCE_CLAIMS)],
        [manifest.raw for manifest in objects.of(DATA_SOURCES)],
    )
    apply_claims(store, claims, objects.configuration)
    splits: Sequence[HyperJobSplit] = ()
    if objects.hyperjobs:
        engine = Engine()
        store.sync_to(engine, now)  # a store feeds one engine only, so another one is filled below
        engine.plan(now)
        capacity = capacity_snapshot(engine, objects.configuration, store.hyperjob_data)
        if capacity is None:
            raise AssertionError("planning computes the shares")
        splits = [
            HyperJobSplit(manifest, hyperjob, preview(hyperjob, capacity)) for manifest, hyperjob in objects.hyperjobs
        ]
        present = [manifest for resource in (JOBS, POLICIES) for manifest in objects.of(resource)]
        objects = objects.with_more(missing_objects(splits, present))
        store = _new_store(objects, changes)
        store.expect_hyperjobs()
        for split in splits:
            cached = cached_hyperjob(split.hyperjob, split.preview.parts)
            store.hyperjob_changed(split.hyperjob.metadata.uid, cached)
        apply_claims(store, claims, objects.configuration)
    changes.check_all_used()
    about_state = (*_unsplit_notes(splits), *_unknown_charge_notes(store), *_unknown_class_notes(store))
    notes = (*objects.notes, *about_state, *map(InputNote, changes.notes))
    return OfflineState(store, notes, objects, tuple(splits), claims)


def _changed(manifests: Iterable[Manifest], changes: Changes) -> Iterator[Manifest]:
    for manifest in manifests:
        body = changes.apply(manifest.kind, manifest.body)
        yield manifest if body is manifest.body else replace(manifest, body=body, is_changed=True)


def _new_store(objects: InputObjects, changes: Changes) -> Store:
    """Return a store with all *objects*; raise `InputError` for those that cannot be read."""
    store = Store(objects.configuration)
    violations: list[str] = []
    _fill_store(store, objects, changes, violations)
    if violations:
        raise InputError(*violations)
    return store


def _unsplit_notes(splits: Iterable[HyperJobSplit]) -> Iterator[InputNote]:
    """Yield a note for each HyperJob that cannot be split now."""
    for split in splits:
        if split.preview.pending_reason is not None and not split.preview.parts:
            yield InputNote(split.manifest.note(f"no Jobs are created from it: {split.preview.pending_reason.message}"))


def _fill_store(store: Store, objects: InputObjects, changes: Changes, violations: list[str]) -> None:
    """Put every object into its collection; append objects that cannot be read to *violations*.

    *changes* concern bindings that are not in the files, too.
    """
    templates = list(objects.of(JOBS))
    sinks: list[tuple[Collection[Any], Iterable[Manifest]]] = [
        (store.queues, objects.of(QUEUES)),
        (store.clusters, objects.of(CLUSTERS)),
        (store.priority_classes, objects.of(PRIORITY_CLASSES)),
        (store.jobs, objects.of(JOBS)),
    ]
    for rule in objects.configuration.integrations:
        kind = ApiKind(rule.api_version, rule.kind)
        integrated = objects.of_api(kind)
        templates.extend(integrated)
        sinks.append((store.templates(kind), integrated))
    policies = [read_policy(manifest) for resource in (POLICIES, CLUSTER_POLICIES) for manifest in objects.of(resource)]
    bindings = with_default_bindings(templates, objects.of(RESOURCE_BINDINGS), policies)
    sinks.append((store.bindings, _changed(bindings, changes)))
    sinks.append((store.cluster_bindings, with_default_bindings((), objects.of(CLUSTER_RESOURCE_BINDINGS), policies)))
    for collection, manifests in sinks:
        collection.replace(list(_decode(collection, manifests, violations)))


def _decode(collection: Collection[Any], manifests: Iterable[Manifest], violations: list[str]) -> Iterator[Any]:
    for manifest in manifests:
        cached = collection.decode(manifest.raw)
        error = getattr(cached, "decode_error", "") or _record_violation(cached, manifest)
        if error:
            violations.append(manifest.violation(error))
        yield cached


def _record_violation(cached: object, manifest: Manifest) -> str:
    """Return why a binding's record is invalid; a record of another binding is ignored, as in a live control plane."""
    error: str = getattr(cached, "record_error", "")
    if not error:
        return ""
    metadata = manifest.body["metadata"]
    return error if recorded_uid(metadata["annotations"]) in {"", metadata["uid"]} else ""


def _unknown_charge_notes(store: Store) -> Iterator[InputNote]:
    """Yield a note for each running job with neither a record nor a template, because its charge is unknown."""
    for binding in store.bindings:
        if binding.template.kind != VOLCANO_JOB or binding.record is not None or store.template(binding) is not None:
            continue
        if binding.targets and any(
            progress.phase is not WorkloadPhase.FINISHED for progress in binding.progress or (_UNKNOWN_PROGRESS,)
        ):
            path = f"{binding.api.kind} {binding.template.namespace}/{binding.template.name}"
            yield InputNote(f"{path}: it is placed, but the job is not in the files, so its usage is counted as zero")


def _unknown_class_notes(store: Store) -> Iterator[InputNote]:
    """Yield a note for each PriorityClass that jobs name and that does not exist: the default one counts (O2)."""
    templates = (store.template(binding) for binding in store.bindings)
    counts = Counter(template.priority_class for template in templates if template is not None)
    for name in sorted(counts.keys() - {"", *(known.key for known in store.priority_classes)}):
        jobs = "1 job has" if counts[name] == 1 else f"{counts[name]} jobs have"
        yield InputNote(f"PriorityClass '{name}' does not exist: {jobs} the default priority instead")


_UNKNOWN_PROGRESS = ClusterProgress(ClusterName(""), WorkloadPhase.WAITING)
