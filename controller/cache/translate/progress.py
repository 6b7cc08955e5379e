"""How far a workload is in one cluster, from the status that the cluster reports."""

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from controller.cache.facts import Phase
from controller.cache.gates import Ending, Path
from controller.cache.translate.amounts import milliseconds

#: What kinds without a phase count while they run.
_COUNTS = ("readyReplicas", "ready", "active")
#: Pods of these phases hold nothing.
_ENDED = frozenset({"Succeeded", "Failed"})
#: No member cluster runs more of either; what claims to is cut.
_MOST_TASKS = 1000
_MOST_PODS = 10**6


class Course(NamedTuple):
    """How far it is, and has been."""

    phase: Phase = Phase.WAITING
    has_run: bool = False
    ended_at: int | None = None
    """When it ended, by that cluster's clock, in milliseconds; ``None`` if it has not, or nothing tells."""
    pods: tuple[tuple[str, int], ...] = ()
    """How many pods of each task hold resources, by the task's name."""
    replicas: int = 0


def course(status: msgspec.Raw, ending: Ending) -> Course:
    """Return what *status* tells; one that cannot be read tells nothing."""
    try:
        document = msgspec.json.decode(status)
    except (ValueError, RecursionError):
        return Course()
    found = _phase(document, ending)
    return Course(
        found,
        _has_run(document),
        _ended_at(document, ending) if found is Phase.FINISHED else None,
        _pods(document),
        _count(at(document, ("replicas",))),
    )


def phase(status: msgspec.Raw, ending: Ending) -> Phase:
    """Return the phase alone."""
    return course(status, ending).phase


def _phase(document: Any, ending: Ending) -> Phase:
    found = at(document, ending.path) if ending.path else None
    if (isinstance(found, str) and found in ending.values) or _true_conditions(document) & ending.conditions:
        return Phase.FINISHED
    if found == Phase.ABORTED:
        return Phase.ABORTED
    return Phase.RUNNING if found == Phase.RUNNING or _counts_any(document) else Phase.WAITING


def at(document: Any, path: Path) -> Any:
    """Return what is at *path* of a JSON document, ``None`` where there is nothing."""
    for member in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(member)
    return document


def _has_run(document: Any) -> bool:
    """Say whether a Volcano Job's conditions, which are its past phases, name the running one."""
    conditions = at(document, ("conditions",))
    return isinstance(conditions, list) and any(at(each, ("status",)) == Phase.RUNNING for each in conditions)


def _pods(document: Any) -> tuple[tuple[str, int], ...]:
    """Return the pods of each task that have not ended, as a Volcano Job's ``taskStatusCount`` has them."""
    tasks = at(document, ("taskStatusCount",))
    if not isinstance(tasks, Mapping):
        return ()
    counted = ((str(name), _held(at(tasks, (name, "phase")))) for name in islice(tasks, _MOST_TASKS))
    return tuple(sorted((sys.intern(name), count) for name, count in counted if count))


def _held(phases: Any) -> int:
    if not isinstance(phases, Mapping):
        return 0
    return sum(_count(count) for name, count in phases.items() if name not in _ENDED)


def _count(count: Any) -> int:
    """Return a number of pods, zero for what is none."""
    return min(count, _MOST_PODS) if isinstance(count, int) and count > 0 else 0


def _true_conditions(document: Any) -> frozenset[str]:
    return frozenset(str(at(each, ("type",))) for each in _truths(document))


def _truths(document: Any) -> Iterator[Any]:
    conditions = at(document, ("conditions",))
    if isinstance(conditions, list):
        yield from (each for each in conditions if at(each, ("status",)) == "True")


def _ended_at(document: Any, ending: Ending) -> int | None:
    """Return the time beside what tells the end: beside the phase, or in the condition."""
    beside = [at(document, ending.path[:-1])] if ending.path else []
    told = (each for each in _truths(document) if at(each, ("type",)) in ending.conditions)
    times = (_time(at(each, ("lastTransitionTime",))) for each in (*beside, *told))
    return max((time for time in times if time is not None), default=None)


def _time(text: Any) -> int | None:
    try:
        return milliseconds(msgspec.convert(text, datetime))
    except (msgspec.ValidationError, OverflowError):
        return None


def _counts_any(document: Any) -> bool:
    counts = (at(document, (name,)) for name in _COUNTS)
    return any(isinstance(count, int) and count > 0 for count in counts)
