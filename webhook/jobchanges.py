"""Volcano's rules for changing a job, and what becomes of one that grows (D7); reads and writes nothing."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from controller.api.configuration import Resize
from controller.api.quantity import QuantityError, parse_quantity
from webhook.jobrules import partition_flaws, topology_flaws
from webhook.jobspec import Job

#: Phases of a job that no cluster runs, or that is over: what it asks for is asked anew, if ever.
AT_REST = frozenset({"", "Aborting", "Aborted", "Completed", "Failed", "Terminating", "Terminated"})
_CHANGEABLE = ("minAvailable", "priorityClassName")
_CHANGEABLE_OF_TASKS = ("replicas", "minAvailable")
_AMOUNTS = frozenset({"requests", "limits", "overhead"})
_SPEC = msgspec.json.Decoder(dict[str, Any])


class _Whole(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_WHOLE = msgspec.json.Decoder(_Whole)


def change_flaws(old: Job, new: Job) -> Iterator[str]:
    """Yield what is wrong with the sizes that *new* has, and with tasks that came or went."""
    spec = new.spec
    for place, task in enumerate(spec.all_tasks):
        if task.replicas < 0:
            yield f"'replicas' must be >= 0 in task: {task.name}"
        if task.min_available is not None and not 0 <= task.min_available <= task.replicas:
            yield f"'minAvailable' must be >= 0 and <= 'replicas' in task: {task.name}"
        yield from partition_flaws(task)
        yield from topology_flaws(task, place)
    if spec.min_available > spec.replicas:
        yield f"job 'minAvailable' must not be greater than total replicas ({spec.min_available} > {spec.replicas})"
    if spec.min_available < 0:
        yield "job 'minAvailable' must be >= 0"
    if len(old.spec.all_tasks) != len(spec.all_tasks):
        yield "job updates may not add or remove tasks: delete the job and create it anew"


def fixed_members_changed(old: msgspec.Raw, new: msgspec.Raw) -> Iterator[str]:
    """Yield the members of the spec that differ between two jobs, although they may not."""
    before, after = _fixed(old), _fixed(new)
    yield from (
        f"spec.{name[:60]}"
        for name in sorted(before.keys() | after.keys())
        if not _is_same(before.get(name), after.get(name))
    )


def growth_warning(old: Job, new: Job, growth: Resize) -> str | None:
    """Return what a running job's user should know when it asks for more than it was admitted with."""
    more = [
        f"{after.name} {before.replicas} -> {after.replicas}"
        for before, after in zip(old.spec.all_tasks, new.spec.all_tasks, strict=False)
        if after.replicas > before.replicas
    ]
    if not more or old.phase in AT_REST:
        return None
    after = f"after {_written(growth.grace_period)}"
    end = f"is evicted {after} and queues again" if growth.action == "Evict" else "runs on and is reported"
    return (
        f"the job grows while it runs ({', '.join(more)[:60]}): the growth is judged like a new admission;"
        f" if the queue has no room, the job counts in full, is the first victim, and {end}"
    )


def _fixed(job: msgspec.Raw) -> dict[str, Any]:
    """Return the spec of *job* without what may change."""
    spec = _SPEC.decode(_WHOLE.decode(job).spec)
    for name in _CHANGEABLE:
        spec.pop(name, None)
    for task in _objects(spec.get("tasks")):
        for name in _CHANGEABLE_OF_TASKS:
            task.pop(name, None)
    for volume in _objects(spec.get("volumes")):
        if volume.get("volumeClaim") is not None:
            volume.pop("volumeClaimName", None)  # Volcano's controller writes it
    return spec


def _objects(found: Any) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _is_same(one: Any, other: Any) -> bool:
    """Compare as Kubernetes does: nothing, an empty list and an empty map are the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_are_same_members(name, one.get(name), other.get(name)) for name in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other) or (_is_nothing(one) and _is_nothing(other))


def _are_same_members(name: str, one: Any, other: Any) -> bool:
    if name in _AMOUNTS and isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return all(_is_same_amount(resource, one[resource], other[resource]) for resource in one)
    return _is_same(one, other)


def _is_same_amount(resource: str, one: Any, other: Any) -> bool:
    try:
        return parse_quantity(resource, one) == parse_quantity(resource, other)
    except (QuantityError, TypeError):
        return bool(one == other)


def _is_nothing(value: Any) -> bool:
    return value is None or value in ("", [], {}) or value is False or (value == 0 and not isinstance(value, bool))


def _written(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"
