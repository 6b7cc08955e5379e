"""Status conditions with the semantics of Kubernetes' `meta.SetStatusCondition`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from localup.karmada.objects import Object


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition without its transition time, which `with_condition` sets."""

    type: str
    status: str
    reason: str
    message: str = ""


def with_condition(conditions: Sequence[Object], new: Condition, *, now: float) -> list[Object]:
    """Return *conditions* with the condition of the same type replaced, or appended if new.

    The transition time changes only with the status, so setting an equal condition is a no-op.
    """
    before = condition(conditions, new.type)
    since = before["lastTransitionTime"] if before and before["status"] == new.status else timestamp(now)
    fresh = {
        "lastTransitionTime": since,
        "message": new.message,
        "reason": new.reason,
        "status": new.status,
        "type": new.type,
    }
    if before is None:
        return [*conditions, fresh]
    return [fresh if item["type"] == new.type else item for item in conditions]


def true_conditions(types: Sequence[str], reason: str, *, now: float) -> list[Object]:
    """Return true conditions of *types* with the same reason and time."""
    conditions: list[Object] = []
    for item in types:
        conditions = with_condition(conditions, Condition(item, "True", reason), now=now)
    return conditions


def condition(conditions: Sequence[Object], type_: str) -> Object | None:
    """Return the condition of a type, ``None`` if absent."""
    return next((item for item in conditions if item["type"] == type_), None)


def is_true(conditions: Sequence[Object], type_: str) -> bool:
    """Return whether the condition of a type is present and true."""
    found = condition(conditions, type_)
    return found is not None and found["status"] == "True"


def timestamp(seconds: float) -> str:
    """Format a time as Kubernetes does, in seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(time: str) -> float:
    """Parse a Kubernetes timestamp into seconds."""
    return datetime.fromisoformat(time).timestamp()
