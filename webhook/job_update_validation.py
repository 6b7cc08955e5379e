"""Validates updates of jobs by Volcano's rules, and warns about resizes of running jobs (D7)."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from controller.api.configuration import Resize
from controller.api.quantity import QuantityError, parse_quantity
from webhook.job_types import Job
from webhook.job_validation import partition_violations, topology_violations

#: Phases in which no cluster runs the job; its requests are charged again if it is admitted later.
INACTIVE_PHASES = frozenset({"", "Aborting", "Aborted", "Completed", "Failed", "Terminating", "Terminated"})
_MUTABLE_FIELDS = ("minAvailable", "priorityClassName")
_MUTABLE_TASK_FIELDS = ("replicas", "minAvailable")
_QUANTITY_FIELDS = frozenset({"requests", "limits", "overhead"})
_SPEC = msgspec.json.Decoder(dict[str, Any])


class _Object(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_OBJECT = msgspec.json.Decoder(_Object)


def update_violations(old: Job, new: Job) -> Iterator[str]:
    """Yield why the new sizes are invalid, and whether tasks were added or removed."""
    spec = new.spec
    for index, task in enumerate(spec.all_tasks):
        if task.replicas < 0:
            yield f"'replicas' must be >= 0 in task: {task.name}"
        if task.min_available is not None and not 0 <= task.min_available <= task.replicas:
            yield f"'minAvailable' must be >= 0 and <= 'replicas' in task: {task.name}"
        yield from partition_violations(task)
        yield from topology_violations(task, index)
    if spec.min_available > spec.replicas:
        yield f"job 'minAvailable' must not be greater than total replicas ({spec.min_available} > {spec.replicas})"
    if spec.min_available < 0:
        yield "job 'minAvailable' must be >= 0"
    if len(old.spec.all_tasks) != len(spec.all_tasks):
        yield "job updates may not add or remove tasks: delete the job and create it again"


def changed_immutable_fields(old: msgspec.Raw, new: msgspec.Raw) -> Iterator[str]:
    """Yield the immutable fields of the spec that differ between *old* and *new*."""
    before, after = _immutable_fields(old), _immutable_fields(new)
    yield from (
        f"spec.{name[:60]}"
        for name in sorted(before.keys() | after.keys())
        if not _is_equal(before.get(name), after.get(name))
    )


def resize_warning(old: Job, new: Job, resize: Resize) -> str | None:
    """Return a warning if a running job requests more than it was admitted with, or ``None``."""
    increases = [
        f"{after.name} {before.replicas} -> {after.replicas}"
        for before, after in zip(old.spec.all_tasks, new.spec.all_tasks, strict=False)
        if after.replicas > before.replicas
    ]
    if not increases or old.phase in INACTIVE_PHASES:
        return None
    after = f"after {_format_duration(resize.grace_period)}"
    end = f"is evicted {after} and queues again" if resize.action == "Evict" else "continues to run and is reported"
    return (
        f"the running job is resized ({', '.join(increases)[:60]}): the resize is decided like a new admission;"
        f" if the queue has no free quota, the job is charged in full, is the first victim, and {end}"
    )


def _immutable_fields(job: msgspec.Raw) -> dict[str, Any]:
    """Return the spec of *job* without its mutable fields."""
    spec = _SPEC.decode(_OBJECT.decode(job).spec)
    for name in _MUTABLE_FIELDS:
        spec.pop(name, None)
    for task in _objects(spec.get("tasks")):
        for name in _MUTABLE_TASK_FIELDS:
            task.pop(name, None)
    for volume in _objects(spec.get("volumes")):
        if volume.get("volumeClaim") is not None:
            volume.pop("volumeClaimName", None)  # written by Volcano's controller
    return spec


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _is_equal(one: Any, other: Any) -> bool:
    """Compare as Kubernetes does: a missing value, an empty list and an empty map are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_is_equal_field(name, one.get(name), other.get(name)) for name in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other) or (_is_empty(one) and _is_empty(other))


def _is_equal_field(name: str, one: Any, other: Any) -> bool:
    if name in _QUANTITY_FIELDS and isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return all(_is_equal_quantity(resource, one[resource], other[resource]) for resource in one)
    return _is_equal(one, other)


def _is_equal_quantity(resource: str, one: Any, other: Any) -> bool:
    try:
        return parse_quantity(resource, one) == parse_quantity(resource, other)
    except (QuantityError, TypeError):
        return bool(one == other)


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {}) or value is False or (value == 0 and not isinstance(value, bool))


def _format_duration(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"
