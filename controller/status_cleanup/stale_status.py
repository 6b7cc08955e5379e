"""What of a status is not true any more once a workload was evicted and has left its clusters.

Pure. Karmada sums up what the clusters tell; when none tells anything any more,
the template's status and the binding's `Scheduled` condition stay as they were.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Json = Mapping[str, Any]

REASON = "Evicted"
MESSAGE = "evicted by volcano-global; it waits for admission"
_COUNTS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")
_PENDING_PHASES = {"", "Pending"}


def job_status_patch(job: Json, now: int) -> Json | None:
    """Return the merge patch for the status of an evicted Volcano Job, ``None`` where it says nothing wrong."""
    status = _as_mapping(job.get("status"))
    phase = _as_mapping(status.get("state")).get("phase", "")
    counted = {name: 0 for name in _COUNTS if status.get(name)}
    if str(phase) in _PENDING_PHASES and not counted:
        return None
    state = {"phase": "Pending", "reason": REASON, "message": MESSAGE, "lastTransitionTime": _format_time(now)}
    return {**_precondition(job), "status": {"state": state, **counted}}


def binding_status_patch(binding: Json, now: int) -> Json | None:
    """Return the merge patch for the status of an evicted binding, ``None`` where it says nothing wrong."""
    conditions = _as_mapping(binding.get("status")).get("conditions")
    found = [each for each in conditions if isinstance(each, Mapping)] if isinstance(conditions, list) else []
    fresh = [_corrected_condition(each, now) for each in found]
    return None if fresh == found else {**_precondition(binding), "status": {"conditions": fresh}}


def _corrected_condition(condition: Json, now: int) -> Json:
    if condition.get("type") != "Scheduled" or condition.get("status") != "True":
        return condition
    return {
        **condition,
        "status": "False",
        "reason": REASON,
        "message": MESSAGE,
        "lastTransitionTime": _format_time(now),
    }


def _as_mapping(value: Any) -> Json:
    """Return what is one; a status is written by many, and not all of them keep to its form."""
    return value if isinstance(value, Mapping) else {}


def _precondition(obj: Json) -> Json:
    """Return what makes the API server refuse the patch if somebody was faster."""
    meta = obj["metadata"]
    return {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}


def _format_time(now: int) -> str:
    return datetime.fromtimestamp(now // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
