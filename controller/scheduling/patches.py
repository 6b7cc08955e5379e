"""Builds the patches that carry decisions to bindings.

Pure. Each patch tests the state that the decision is based on, so that a binding that has changed is left alone.
A patch changes only the suspension, the clusters, eviction tasks, the admission record or the observed affinity term.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.objects import CachedBinding

_ANNOTATION = "/metadata/annotations/" + ADMISSION_ANNOTATION.replace("~", "~0").replace("/", "~1")
_ANNOTATIONS = "/metadata/annotations"
_SUSPENSION = "/spec/suspension"
_SCHEDULING_SUSPENDED = "/spec/suspension/scheduling"
_CLUSTERS = "/spec/clusters"
_TASKS = "/spec/gracefulEvictionTasks"

Target = tuple[str, int | None]
"""A cluster name and, for divided kinds, its number of replicas."""


class EvictionTask(msgspec.Struct, rename="camel", frozen=True):
    """Karmada's graceful eviction task: a cluster's Work is deleted after a grace period.

    A task without a purge mode is graceful. The name of that mode is ``Graciously`` in Karmada 1.14 and ``Gracefully``
    in 1.19, which refuse each other's.
    """

    from_cluster: str
    reason: str
    grace_period_seconds: int
    producer: str = "volcano-global"


class _Operation(msgspec.Struct, frozen=True):
    op: str
    path: str
    value: Any = msgspec.UNSET


def admit(binding: CachedBinding, targets: Sequence[Target], record: str) -> bytes:
    """Resume a suspended binding on *targets* and record the admission; without targets Karmada chooses."""
    clusters = [
        {"name": name} if replicas is None else {"name": name, "replicas": replicas} for name, replicas in targets
    ]
    return _patch(
        *_test_suspended(binding),
        _Operation("replace", _SCHEDULING_SUSPENDED, False),
        *([_Operation("add", _CLUSTERS, clusters)] if clusters else ()),
        *_set_record(binding, record),
    )


def evict(binding: CachedBinding, record: str, *, tasks: Sequence[EvictionTask] = ()) -> bytes:
    """Suspend an admitted binding and remove its clusters in one patch, since Karmada's scheduler could act in between.

    With *tasks* Karmada deletes its Works after a grace period (P6).
    """
    steps = *_set_suspended(binding), *_remove_clusters(binding), *_add_eviction_tasks(binding, tasks)
    return _patch(_test_uid(binding), *steps, *_set_record(binding, record))


def suspend_unplaced(binding: CachedBinding, record: str = "") -> bytes:
    """Suspend a binding that bypassed the webhook, or that *record* does not admit, unless Karmada has placed it."""
    steps = _test_unplaced(binding), *_set_suspended(binding), *(_set_record(binding, record) if record else ())
    return _patch(_test_uid(binding), *steps)


def suspend(binding: CachedBinding) -> bytes:
    """Suspend an admitted binding in its place, before it is resumed at once."""
    return _patch(_test_uid(binding), *_set_suspended(binding))


def resume(binding: CachedBinding, *, placed_on: str = "") -> bytes:
    """Resume a suspended binding without a new admission; test that it is still *placed_on* a cluster."""
    still_placed = (_Operation("test", f"{_CLUSTERS}/0/name", placed_on),) if placed_on else ()
    return _patch(*_test_suspended(binding), *still_placed, _Operation("replace", _SCHEDULING_SUSPENDED, False))


def clear_clusters(binding: CachedBinding) -> bytes:
    """Remove the clusters of a suspended binding that was not admitted."""
    return _patch(*_test_suspended(binding), _Operation("remove", _CLUSTERS))


def reprocess(binding: CachedBinding) -> bytes:
    """Change a binding without eviction tasks, so that Karmada processes it again: toggle the empty list of tasks."""
    if binding.has_eviction_tasks:
        return _patch(_test_uid(binding), _Operation("test", _TASKS, []), _Operation("remove", _TASKS))
    return _patch(_test_uid(binding), _test_absent(_TASKS), _Operation("add", _TASKS, []))


def set_affinity_term(binding: CachedBinding, term: str) -> bytes:
    """Set the observed affinity term of a suspended binding; a merge patch, because the status may not exist."""
    seen = {"uid": binding.uid, "resourceVersion": str(binding.resource_version)}
    return msgspec.json.encode({"metadata": seen, "status": {"schedulerObservingAffinityName": term}})


def update_pending_record(binding: CachedBinding, record: str) -> bytes:
    """Update the record of a pending binding."""
    return _patch(*_test_suspended(binding), *_set_record(binding, record))


def update_admitted_record(binding: CachedBinding, text: str) -> bytes:
    """Update the record of an admitted binding."""
    return _patch(_test_uid(binding), *_set_record(binding, text))


def revoke_admission(binding: CachedBinding, record: str) -> bytes:
    """Record that a binding is not admitted any more, unless it was resumed or placed meanwhile."""
    return _patch(*_test_suspended(binding), _test_unplaced(binding), *_set_record(binding, record))


def _patch(*operations: _Operation) -> bytes:
    return msgspec.json.encode(operations)


def _test_uid(binding: CachedBinding) -> _Operation:
    return _Operation("test", "/metadata/uid", binding.uid)


def _set_suspended(binding: CachedBinding) -> tuple[_Operation, ...]:
    """Set the suspension and leave other fields of ``spec.suspension`` unchanged."""
    if binding.has_suspension:
        return (_Operation("add", _SCHEDULING_SUSPENDED, True),)
    return _test_absent(_SUSPENSION), _Operation("add", _SUSPENSION, {"scheduling": True})


def _test_suspended(binding: CachedBinding) -> tuple[_Operation, ...]:
    return _test_uid(binding), _Operation("test", _SCHEDULING_SUSPENDED, True)


def _test_absent(path: str) -> _Operation:
    """Test that *path* does not exist; the API server treats an absent value as null if its parent exists."""
    return _Operation("test", path, None)


def _test_unplaced(binding: CachedBinding) -> _Operation:
    """Test that there are no clusters."""
    return _Operation("test", _CLUSTERS, []) if binding.has_clusters else _test_absent(_CLUSTERS)


def _remove_clusters(binding: CachedBinding) -> tuple[_Operation, ...]:
    """Remove the clusters if there are any; removing an absent field would fail the patch."""
    return (_Operation("remove", _CLUSTERS),) if binding.has_clusters else (_test_absent(_CLUSTERS),)


def _add_eviction_tasks(binding: CachedBinding, tasks: Sequence[EvictionTask]) -> tuple[_Operation, ...]:
    """Append eviction tasks to the existing ones."""
    if not tasks:
        return ()
    if binding.has_eviction_tasks:
        return tuple(_Operation("add", f"{_TASKS}/-", task) for task in tasks)
    return _test_absent(_TASKS), _Operation("add", _TASKS, tasks)


def _set_record(binding: CachedBinding, record: str) -> tuple[_Operation, ...]:
    """Set the record annotation and leave other annotations unchanged."""
    if binding.has_annotations:
        return (_Operation("add", _ANNOTATION, record),)
    return _test_absent(_ANNOTATIONS), _Operation("add", _ANNOTATIONS, {ADMISSION_ANNOTATION: record})
