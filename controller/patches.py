"""The JSON Patches that carry a decision to its binding.

Pure. Each tests what it was decided upon, so that a binding that has changed
since is left alone, and touches nothing besides the pause, the clusters and
our record; ``dispatching`` and all other fields stay as they were.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from controller.api.keys import ADMISSION

_ANNOTATION = "/metadata/annotations/" + ADMISSION.replace("~", "~0").replace("/", "~1")
_ANNOTATIONS = "/metadata/annotations"
_SUSPENSION = "/spec/suspension"
_PAUSED = "/spec/suspension/scheduling"
_CLUSTERS = "/spec/clusters"
_TASKS = "/spec/gracefulEvictionTasks"

Target = tuple[str, int | None]
"""A cluster's name, and how many replicas it gets where the kind is divided."""


class Binding(Protocol):
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


def admit(binding: Binding, targets: Sequence[Target], record: str) -> bytes:
    """Resume a paused binding on *targets* and record it; without targets Karmada chooses."""
    clusters = [
        {"name": name} if replicas is None else {"name": name, "replicas": replicas} for name, replicas in targets
    ]
    return _patch(
        *_still_paused(binding),
        _Operation("replace", _PAUSED, False),
        *([_Operation("add", _CLUSTERS, clusters)] if clusters else ()),
        *_annotated(binding, record),
    )


def evict(binding: Binding, record: str, *, tasks: Sequence[EvictionTask] = ()) -> bytes:
    """Pause an admitted binding and take its clusters away at once, since Karmada's scheduler acts in between.

    With *tasks* Karmada lets what runs there go on for a while (P6).
    """
    gone = *_paused(binding), *_without_clusters(binding), *_going(binding, tasks)
    return _patch(_same(binding), *gone, *_annotated(binding, record))


def pause(binding: Binding) -> bytes:
    """Pause a binding that slipped past the webhook, unless Karmada has placed it meanwhile."""
    return _patch(_same(binding), _unplaced(binding), *_paused(binding))


def halt(binding: Binding) -> bytes:
    """Pause an admitted binding where it is, to be resumed at once."""
    return _patch(_same(binding), *_paused(binding))


def resume(binding: Binding, *, placed_on: str = "") -> bytes:
    """Let a paused binding go on as it is: it needs no admission, or has one and is still *placed_on* a cluster."""
    still_placed = (_Operation("test", f"{_CLUSTERS}/0/name", placed_on),) if placed_on else ()
    return _patch(*_still_paused(binding), *still_placed, _Operation("replace", _PAUSED, False))


def clear(binding: Binding) -> bytes:
    """Take the clusters from a paused binding that nobody has admitted."""
    return _patch(*_still_paused(binding), _Operation("remove", _CLUSTERS))


def observe(binding: Binding, term: str) -> bytes:
    """Set the affinity term in the status of a paused binding; a merge patch, for there may be no status yet."""
    seen = {"uid": binding.uid, "resourceVersion": str(binding.resource_version)}
    return msgspec.json.encode({"metadata": seen, "status": {"schedulerObservingAffinityName": term}})


def note(binding: Binding, record: str) -> bytes:
    """Write the record of a waiting binding, and nothing else."""
    return _patch(*_still_paused(binding), *_annotated(binding, record))


def record(binding: Binding, text: str) -> bytes:
    """Write the record of an admitted binding, and nothing else."""
    return _patch(_same(binding), *_annotated(binding, text))


def revoke(binding: Binding, record: str) -> bytes:
    """Write that a binding is not admitted any more, unless it was resumed or placed meanwhile."""
    return _patch(*_still_paused(binding), _unplaced(binding), *_annotated(binding, record))


def _patch(*operations: _Operation) -> bytes:
    return msgspec.json.encode(operations)


def _same(binding: Binding) -> _Operation:
    return _Operation("test", "/metadata/uid", binding.uid)


def _paused(binding: Binding) -> tuple[_Operation, ...]:
    """Set the pause, beside what else is suspended."""
    if binding.has_suspension:
        return (_Operation("add", _PAUSED, True),)
    return _absent(_SUSPENSION), _Operation("add", _SUSPENSION, {"scheduling": True})


def _still_paused(binding: Binding) -> tuple[_Operation, ...]:
    return _same(binding), _Operation("test", _PAUSED, True)


def _absent(path: str) -> _Operation:
    """Test that *path* is not there; the API server takes null for absence, as long as the parent is there."""
    return _Operation("test", path, None)


def _unplaced(binding: Binding) -> _Operation:
    """Test that there are no clusters, as there were none."""
    return _Operation("test", _CLUSTERS, []) if binding.has_clusters else _absent(_CLUSTERS)


def _without_clusters(binding: Binding) -> tuple[_Operation, ...]:
    """Remove the clusters; removing what is not there would fail the whole patch."""
    return (_Operation("remove", _CLUSTERS),) if binding.has_clusters else (_absent(_CLUSTERS),)


def _going(binding: Binding, tasks: Sequence[EvictionTask]) -> tuple[_Operation, ...]:
    """Add eviction tasks to those that there are."""
    if not tasks:
        return ()
    if binding.evicting_from:
        return tuple(_Operation("add", f"{_TASKS}/-", task) for task in tasks)
    return _absent(_TASKS), _Operation("add", _TASKS, tasks)


def _annotated(binding: Binding, record: str) -> tuple[_Operation, ...]:
    """Add our annotation beside the others; where there are none, the map must come with it."""
    if binding.has_annotations:
        return (_Operation("add", _ANNOTATION, record),)
    return _absent(_ANNOTATIONS), _Operation("add", _ANNOTATIONS, {ADMISSION: record})
