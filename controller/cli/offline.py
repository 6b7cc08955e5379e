"""A world read from files: their objects in a store, as the informers of a live control plane would fill it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_BINDINGS,
)
from controller.cache.collection import Collection
from controller.cache.objects import VOLCANO_JOB, ClusterProgress, WorkloadPhase
from controller.cache.store import Store
from controller.cli.default_bindings import recorded_uid, with_default_bindings
from controller.cli.hyperjobs import HyperJobSplit, missing_objects, split_hyperjobs
from controller.cli.manifests import InputError, Manifest, read
from controller.cli.objects import InputNote, InputObjects, validate_objects
from controller.cli.policies import CLUSTER_POLICIES, POLICIES, read_policy
from controller.engine.clusters import ApiKind, ClusterName
from controller.engine.fit import capacities_when_empty, free_capacities
from controller.engine.state import State
from controller.hyperjob.children import group_facts
from controller.hyperjob.split import Prospects


@dataclass(frozen=True, slots=True)
class OfflineState:
    """What the files amount to, and what to tell whoever gave them."""

    store: Store
    notes: tuple[InputNote, ...]
    inventory: InputObjects
    splits: tuple[HyperJobSplit, ...] = ()
    """The HyperJobs of the files, and what they became."""


def read_offline_state(paths: Sequence[str]) -> OfflineState:
    """Return the world in the files and folders *paths*, or raise `InputError`."""
    inventory = validate_objects(read(paths))
    store = _new_store(inventory)
    made: Sequence[HyperJobSplit] = ()
    if inventory.hyperjobs:
        made = split_hyperjobs(inventory.hyperjobs, _capacity(store))
        present = [each for resource in (JOBS, POLICIES) for each in inventory.of(resource)]
        inventory = inventory.with_more(missing_objects(made, present))
        store = _new_store(inventory)
        store.expect_hyperjobs()
        for each in made:
            store.hyperjob_changed(each.hyperjob.metadata.uid, group_facts(each.hyperjob, each.preview.parts))
    notes = (*inventory.notes, *_unsplit_notes(made), *_unknown_charge_notes(store))
    return OfflineState(store, notes, inventory, tuple(made))


def _new_store(inventory: InputObjects) -> Store:
    """Return a store with everything that *inventory* has; raise `InputError` for what cannot be read."""
    store = Store(inventory.configuration)
    faults: list[str] = []
    _fill_store(store, inventory, faults)
    if faults:
        raise InputError(*faults)
    return store


def _capacity(store: Store) -> Prospects:
    """Return what the clusters can hold beside what runs there; *store* can be fed to nobody else afterwards."""
    state = State()
    store.sync_to(state, 0)
    return Prospects(free_capacities(state.cluster_usage), capacities_when_empty(state.cluster_usage))


def _unsplit_notes(made: Iterable[HyperJobSplit]) -> Iterator[InputNote]:
    """Yield a note for each HyperJob that would become nothing now."""
    for split in made:
        if split.preview.trouble is not None and not split.preview.parts:
            yield InputNote(split.manifest.problem(f"no Jobs are made of it: {split.preview.trouble.message}"))


def _fill_store(store: Store, inventory: InputObjects, faults: list[str]) -> None:
    """Put every object into its collection; what a translator cannot read is told to *faults*."""
    templates = list(inventory.of(JOBS))
    sinks: list[tuple[Collection[Any], Iterable[Manifest]]] = [
        (store.queues, inventory.of(QUEUES)),
        (store.clusters, inventory.of(CLUSTERS)),
        (store.priority_classes, inventory.of(PRIORITY_CLASSES)),
        (store.jobs, inventory.of(JOBS)),
    ]
    for rule in inventory.configuration.integrations:
        kind = ApiKind(rule.api_version, rule.kind)
        found = inventory.of_kind(kind)
        templates.extend(found)
        sinks.append((store.templates(kind), found))
    policies = [read_policy(each) for resource in (POLICIES, CLUSTER_POLICIES) for each in inventory.of(resource)]
    sinks.append((store.bindings, with_default_bindings(templates, inventory.of(RESOURCE_BINDINGS), policies)))
    sinks.append((store.cluster_bindings, with_default_bindings((), inventory.of(CLUSTER_RESOURCE_BINDINGS), policies)))
    for collection, manifests in sinks:
        collection.replace(list(_decode(collection, manifests, faults)))


def _decode(collection: Collection[Any], manifests: Iterable[Manifest], faults: list[str]) -> Iterator[Any]:
    for manifest in manifests:
        facts = collection.decode(manifest.raw)
        flaw = getattr(facts, "decode_error", "") or _record_violation(facts, manifest)
        if flaw:
            faults.append(manifest.problem(flaw))
        yield facts


def _record_violation(facts: object, manifest: Manifest) -> str:
    """Return what is wrong with a binding's record; one that was written for another binding is none, as it is live."""
    flaw: str = getattr(facts, "record_error", "")
    if not flaw:
        return ""
    metadata = manifest.body["metadata"]
    return flaw if recorded_uid(metadata["annotations"]) in {"", metadata["uid"]} else ""


def _unknown_charge_notes(store: Store) -> Iterator[InputNote]:
    """Yield a note for each job that holds clusters and whose charge neither a record nor a template tells."""
    for binding in store.bindings:
        if binding.template.kind != VOLCANO_JOB or binding.record is not None or store.template(binding) is not None:
            continue
        if binding.targets and any(
            each.phase is not WorkloadPhase.FINISHED for each in binding.progress or (_UNKNOWN_PROGRESS,)
        ):
            path = f"{binding.api.kind} {binding.template.namespace}/{binding.template.name}"
            yield InputNote(f"{path}: it holds clusters, but the job itself is not in the files: it counts as nothing")


_UNKNOWN_PROGRESS = ClusterProgress(ClusterName(""), WorkloadPhase.WAITING)
