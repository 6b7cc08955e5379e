"""Compares the objects of a HyperJob with their desired state, and returns the writes in order.

Pure. Deletions come first, then for each part its policy and then its Job: without the policy, another policy might
match the Job. After a crash between two writes, the same comparison returns the remaining ones.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.api.hyperjobs import FINISHED, HyperJob, PartStatus
from controller.controllers.hyperjob.children import Manifest, PartObjects, build_parts
from controller.controllers.hyperjob.observed import ObservedChild, has_all_fields
from controller.controllers.hyperjob.part import TERMINAL
from controller.controllers.hyperjob.state import HyperJobState

ObjectsByName = Mapping[str, ObservedChild]
"""Objects of one kind that belong to a HyperJob, by name."""


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """Writes in order: all of *remove*, then all of *apply*."""

    remove: tuple[ObservedChild, ...] = ()
    apply: tuple[Manifest, ...] = ()
    up_to_date: frozenset[str] = frozenset()
    """The parts with all objects in their desired state."""


def diff_objects(
    hyperjob: HyperJob,
    state: HyperJobState,
    jobs: ObjectsByName,
    policies: ObjectsByName,
    *,
    up_to_date: Collection[str] = frozenset(),
) -> ObjectChanges:
    """Return the writes for *hyperjob*, empty once all objects have their desired state.

    Parts that were *up_to_date* and have not changed since are not compared again.
    """
    if not state.is_valid:
        return ObjectChanges()
    if state.phase in FINISHED or state.phase == "Suspended":
        up_to_date, desired = frozenset(), {}
    else:
        desired = _desired(hyperjob, state, up_to_date)
    retained = _retained(hyperjob, state)
    old = [
        job
        for name, job in sorted(jobs.items())
        if name not in up_to_date and not _is_current(job, desired.get(name), retained)
    ]
    stays = {*desired, *retained, *up_to_date}
    stale = [policy for name, policy in sorted(policies.items()) if name not in stays]
    in_the_way = {job.key.name for job in old}
    missing = (child for child in desired.values() if child.name not in in_the_way)
    remove = tuple(child for child in (*old, *stale) if not child.deleting)
    apply = tuple(_manifests_to_apply(missing, jobs, policies))
    written = {manifest["metadata"]["name"] for manifest in apply}
    found = {name for name in desired if name in jobs and name in policies and name not in in_the_way | written}
    return ObjectChanges(remove, apply, frozenset(found.union(up_to_date)))


def _desired(hyperjob: HyperJob, state: HyperJobState, up_to_date: Collection[str]) -> dict[str, PartObjects]:
    """Return the objects of unfinished parts, except those *up_to_date*; finished parts need no objects."""
    over = {part.name for part in state.parts if part.phase in TERMINAL}
    return {child.name: child for child in build_parts(hyperjob, state.parts, over.union(up_to_date))}


def _retained(hyperjob: HyperJob, state: HyperJobState) -> Mapping[str, PartStatus]:
    """Return the finished parts; their objects stay, so that users can inspect them."""
    if state.phase in FINISHED and hyperjob.spec.cleanup_policy == "All":
        return {}
    return {part.name: part for part in state.parts if part.phase in TERMINAL}


def _is_current(job: ObservedChild, child: PartObjects | None, retained: Mapping[str, PartStatus]) -> bool:
    if job.deleting:
        return False
    if child is None:
        return job.key.name in retained
    if job.revision.attempt != child.part.attempt:
        return False
    # Volcano rejects all changes except of the size, both in the control plane and in the member clusters.
    return job.revision.template in {"", child.template}


def _manifests_to_apply(
    desired: Iterable[PartObjects], jobs: ObjectsByName, policies: ObjectsByName
) -> Iterator[Manifest]:
    for child in desired:
        policy, job = policies.get(child.name), jobs.get(child.name)
        if policy is not None and policy.deleting:
            continue
        for manifest, seen in ((child.policy, policy), (child.job, job)):
            if seen is None or not has_all_fields(seen, manifest):
                yield manifest
