"""Builds patches for status fields that are stale after an eviction.

Pure. Karmada aggregates the status of the clusters. When no cluster reports any more, the template's status and the
binding's `Scheduled` condition stay unchanged.
"""

from collections.abc import Mapping
from typing import Any

from controller.cache.objects import StatusReason
from controller.cache.translate.units import format_time

Json = Mapping[str, Any]

_REASON = StatusReason.EVICTED
_MESSAGE = "evicted by volcano-global; pending admission"
_COUNTS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")
_PENDING_PHASES = {"", "Pending"}


def has_left_clusters(binding: Json) -> bool:
    """Return whether *binding* is suspended and no cluster has or reports its workload."""
    spec, status = _as_mapping(binding.get("spec")), _as_mapping(binding.get("status"))
    is_suspended = _as_mapping(spec.get("suspension")).get("scheduling") is True
    return is_suspended and not (
        spec.get("clusters") or spec.get("gracefulEvictionTasks") or status.get("aggregatedStatus")
    )


def job_status_patch(job: Json, now: int) -> Json | None:
    """Return the merge patch for the status of an evicted Volcano Job, ``None`` if it is not stale."""
    status = _as_mapping(job.get("status"))
    phase = _as_mapping(status.get("state")).get("phase", "")
    counted = {name: 0 for name in _COUNTS if status.get(name)}
    if str(phase) in _PENDING_PHASES and not counted:
        return None
    state = {"phase": "Pending", "reason": _REASON, "message": _MESSAGE, "lastTransitionTime": format_time(now)}
    return {**_precondition(job), "status": {"state": state, **counted}}


def binding_status_patch(binding: Json, now: int) -> Json | None:
    """Return the merge patch for the status of an evicted binding, ``None`` if it is not stale."""
    conditions = _as_mapping(binding.get("status")).get("conditions")
    present = [item for item in conditions if isinstance(item, Mapping)] if isinstance(conditions, list) else []
    fresh = [_corrected_condition(condition, now) for condition in present]
    return None if fresh == present else {**_precondition(binding), "status": {"conditions": fresh}}


def _corrected_condition(condition: Json, now: int) -> Json:
    if condition.get("type") != "Scheduled" or condition.get("status") != "True":
        return condition
    return {
        **condition,
        "status": "False",
        "reason": _REASON,
        "message": _MESSAGE,
        "lastTransitionTime": format_time(now),
    }


def _as_mapping(value: Any) -> Json:
    """Return *value* if it is a mapping, else an empty one; a status may have any form."""
    return value if isinstance(value, Mapping) else {}


def _precondition(obj: Json) -> Json:
    """Return the metadata that makes the API server reject the patch if the object has changed."""
    meta = obj["metadata"]
    return {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}
