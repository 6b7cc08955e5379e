"""Conditions of a status, set as Kubernetes' own helper sets them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from localup.karmada.objects import Object


@dataclass(frozen=True, slots=True)
class Condition:
    """What is to be said; when it began to hold is found out by `with_condition`."""

    type: str
    status: str
    reason: str
    message: str = ""


def with_condition(conditions: Sequence[Object], new: Condition, *, now: float) -> list[Object]:
    """Return *conditions* with the one of that type replaced, in its place; a new one comes last.

    Its time changes with its status only, so that saying the same again changes nothing.
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
    """Return conditions that all hold since now, for the same reason."""
    conditions: list[Object] = []
    for item in types:
        conditions = with_condition(conditions, Condition(item, "True", reason), now=now)
    return conditions


def condition(conditions: Sequence[Object], type_: str) -> Object | None:
    """Return the condition of a type."""
    return next((item for item in conditions if item["type"] == type_), None)


def is_true(conditions: Sequence[Object], type_: str) -> bool:
    """Say whether the condition of a type is there and holds."""
    found = condition(conditions, type_)
    return found is not None and found["status"] == "True"


def timestamp(seconds: float) -> str:
    """Return a time as Kubernetes writes it, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(time: str) -> float:
    """Return the seconds of a time as Kubernetes writes it."""
    return datetime.fromisoformat(time).timestamp()
