"""The JSON Patches that carry a decision to its binding.

Pure. Each tests what it was decided upon, so that a binding that has changed
since is left alone, and touches nothing besides the pause, the clusters and
our record; ``dispatching`` and all other fields stay as they were.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from controller.api.keys import ADMISSION_ANNOTATION

_ANNOTATION = "/metadata/annotations/" + ADMISSION_ANNOTATION.replace("~", "~0").replace("/", "~1")
_ANNOTATIONS = "/metadata/annotations"
_SUSPENSION = "/spec/suspension"
_SCHEDULING_SUSPENDED = "/spec/suspension/scheduling"
_CLUSTERS = "/spec/clusters"
_TASKS = "/spec/gracefulEvictionTasks"

Target = tuple[str, int | None]
"""A cluster's name, and how many replicas it gets where the kind is divided."""


class PatchedBinding(Protocol):
    """What a patch must know of the binding as it was last seen."""

    @property
    def uid(self) -> str:
        """Its uid; another binding of the same name is another binding."""

    @property
    def resource_version(self) -> int:
        """When it was so."""

    @property
    def has_annotations(self) -> bool:
        """Whether there is any annotation to add one to."""

    @property
    def has_suspension(self) -> bool:
        """Whether ``spec.suspension`` is there."""

    @property
    def has_clusters(self) -> bool:
        """Whether ``spec.clusters`` is there."""

    @property
    def evicting_from(self) -> Sequence[str]:
        """The clusters of the eviction tasks that there are."""


class EvictionTask(msgspec.Struct, rename="camel", frozen=True):
    """That Karmada is to let a cluster's work go on for a while, and then to end it."""

    from_cluster: str
    reason: str
    grace_period_seconds: int
    purge_mode: str = "Gracefully"
    producer: str = "volcano-global"


class _Operation(msgspec.Struct, frozen=True):
    op: str
    path: str
    value: Any = msgspec.UNSET


def admit(binding: PatchedBinding, targets: Sequence[Target], record: str) -> bytes:
    """Resume a paused binding on *targets* and record it; without targets Karmada chooses."""
    clusters = [
        {"name": name} if replicas is None else {"name": name, "replicas": replicas} for name, replicas in targets
    ]
    return _patch(
        *_test_suspended(binding),
        _Operation("replace", _SCHEDULING_SUSPENDED, False),
        *([_Operation("add", _CLUSTERS, clusters)] if clusters else ()),
        *_set_record(binding, record),
    )


def evict(binding: PatchedBinding, record: str, *, tasks: Sequence[EvictionTask] = ()) -> bytes:
    """Pause an admitted binding and take its clusters away at once, since Karmada's scheduler acts in between.

    With *tasks* Karmada lets what runs there go on for a while (P6).
    """
    gone = *_set_suspended(binding), *_remove_clusters(binding), *_add_eviction_tasks(binding, tasks)
    return _patch(_test_uid(binding), *gone, *_set_record(binding, record))


def suspend_unplaced(binding: PatchedBinding) -> bytes:
    """Pause a binding that slipped past the webhook, unless Karmada has placed it meanwhile."""
    return _patch(_test_uid(binding), _test_unplaced(binding), *_set_suspended(binding))


def suspend(binding: PatchedBinding) -> bytes:
    """Pause an admitted binding where it is, to be resumed at once."""
    return _patch(_test_uid(binding), *_set_suspended(binding))


def resume(binding: PatchedBinding, *, placed_on: str = "") -> bytes:
    """Let a paused binding go on as it is: it needs no admission, or has one and is still *placed_on* a cluster."""
    still_placed = (_Operation("test", f"{_CLUSTERS}/0/name", placed_on),) if placed_on else ()
    return _patch(*_test_suspended(binding), *still_placed, _Operation("replace", _SCHEDULING_SUSPENDED, False))


def clear_clusters(binding: PatchedBinding) -> bytes:
    """Take the clusters from a paused binding that nobody has admitted."""
    return _patch(*_test_suspended(binding), _Operation("remove", _CLUSTERS))


def set_affinity_term(binding: PatchedBinding, term: str) -> bytes:
    """Set the affinity term in the status of a paused binding; a merge patch, for there may be no status yet."""
    seen = {"uid": binding.uid, "resourceVersion": str(binding.resource_version)}
    return msgspec.json.encode({"metadata": seen, "status": {"schedulerObservingAffinityName": term}})


def update_pending_record(binding: PatchedBinding, record: str) -> bytes:
    """Write the record of a waiting binding, and nothing else."""
    return _patch(*_test_suspended(binding), *_set_record(binding, record))


def update_admitted_record(binding: PatchedBinding, text: str) -> bytes:
    """Write the record of an admitted binding, and nothing else."""
    return _patch(_test_uid(binding), *_set_record(binding, text))


def revoke_admission(binding: PatchedBinding, record: str) -> bytes:
    """Write that a binding is not admitted any more, unless it was resumed or placed meanwhile."""
    return _patch(*_test_suspended(binding), _test_unplaced(binding), *_set_record(binding, record))


def _patch(*operations: _Operation) -> bytes:
    return msgspec.json.encode(operations)


def _test_uid(binding: PatchedBinding) -> _Operation:
    return _Operation("test", "/metadata/uid", binding.uid)


def _set_suspended(binding: PatchedBinding) -> tuple[_Operation, ...]:
    """Set the pause, beside what else is suspended."""
    if binding.has_suspension:
        return (_Operation("add", _SCHEDULING_SUSPENDED, True),)
    return _test_absent(_SUSPENSION), _Operation("add", _SUSPENSION, {"scheduling": True})


def _test_suspended(binding: PatchedBinding) -> tuple[_Operation, ...]:
    return _test_uid(binding), _Operation("test", _SCHEDULING_SUSPENDED, True)


def _test_absent(path: str) -> _Operation:
    """Test that *path* is not there; the API server takes null for absence, as long as the parent is there."""
    return _Operation("test", path, None)


def _test_unplaced(binding: PatchedBinding) -> _Operation:
    """Test that there are no clusters, as there were none."""
    return _Operation("test", _CLUSTERS, []) if binding.has_clusters else _test_absent(_CLUSTERS)


def _remove_clusters(binding: PatchedBinding) -> tuple[_Operation, ...]:
    """Remove the clusters; removing what is not there would fail the whole patch."""
    return (_Operation("remove", _CLUSTERS),) if binding.has_clusters else (_test_absent(_CLUSTERS),)


def _add_eviction_tasks(binding: PatchedBinding, tasks: Sequence[EvictionTask]) -> tuple[_Operation, ...]:
    """Add eviction tasks to those that there are."""
    if not tasks:
        return ()
    if binding.evicting_from:
        return tuple(_Operation("add", f"{_TASKS}/-", task) for task in tasks)
    return _test_absent(_TASKS), _Operation("add", _TASKS, tasks)


def _set_record(binding: PatchedBinding, record: str) -> tuple[_Operation, ...]:
    """Add our annotation beside the others; where there are none, the map must come with it."""
    if binding.has_annotations:
        return (_Operation("add", _ANNOTATION, record),)
    return _test_absent(_ANNOTATIONS), _Operation("add", _ANNOTATIONS, {ADMISSION_ANNOTATION: record})
