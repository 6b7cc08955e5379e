"""How far a workload is in one cluster, from the status that the cluster reports."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.cache.facts import Phase
from controller.cache.gates import Ending, Path

#: What kinds without a phase count while they run.
_COUNTS = ("readyReplicas", "ready", "active")


def course(status: msgspec.Raw, ending: Ending) -> tuple[Phase, bool]:
    """Return the phase that *status* tells of, and whether it tells that it has run before.

    One that cannot be read tells nothing.
    """
    try:
        document = msgspec.json.decode(status)
    except (ValueError, RecursionError):
        return Phase.WAITING, False
    return _phase(document, ending), _has_run(document)


def phase(status: msgspec.Raw, ending: Ending) -> Phase:
    """Return the phase alone."""
    return course(status, ending)[0]


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


def _true_conditions(document: Any) -> frozenset[str]:
    conditions = at(document, ("conditions",))
    if not isinstance(conditions, list):
        return frozenset()
    return frozenset(str(at(each, ("type",))) for each in conditions if at(each, ("status",)) == "True")


def _counts_any(document: Any) -> bool:
    counts = (at(document, (name,)) for name in _COUNTS)
    return any(isinstance(count, int) and count > 0 for count in counts)
