"""Phase of one part from its observed objects, and its next attempt.

Pure. A part in a terminal phase never leaves it, whatever is observed later.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.api.hyperjobs import PartPhase, PartStatus
from controller.controllers.hyperjob.observed import ObservedChild, PartPlacement

TERMINAL: frozenset[PartPhase] = frozenset({"Completed", "Failed"})
_FAILURES = frozenset({"Failed", "Terminated"})
_WAITING = frozenset({"", "Pending", "Aborted", "Aborting"})


@dataclass(frozen=True, slots=True)
class ObservedParts:
    """Observed objects of a HyperJob's parts, by name; only objects that it owns."""

    jobs: Mapping[str, ObservedChild]
    placement: Mapping[str, PartPlacement]
    """Placements of the parts' bindings, as far as these exist."""


def has_started(part: PartStatus) -> bool:
    """Whether a part was admitted."""
    return part.phase != "Pending"


def with_observation(part: PartStatus, seen: ObservedParts) -> PartStatus:
    """Return *part* with its observed phase; a terminal phase stays."""
    job = seen.jobs.get(part.name)
    if part.phase in TERMINAL:
        return part
    if job is None or job.revision.attempt != part.attempt:
        return part.model_copy(update={"phase": "Pending"})
    placed = seen.placement.get(part.name)
    phase = _phase(job.phase, placed)
    where = placed.clusters[0] if placed and placed.clusters else part.running_on or part.cluster
    return part.model_copy(update={"phase": phase, "running_on": where if phase != "Pending" else ""})


def _phase(phase: str, placed: PartPlacement | None) -> PartPhase:
    if phase == "Completed":
        return "Completed"
    if phase in _FAILURES:
        return "Failed"
    if placed is not None and not placed.clusters:
        return "Pending"  # the status of an evicted job does not change any more
    if phase in _WAITING:
        return "Admitted" if placed is not None else "Pending"
    return "Running"


def next_attempt(part: PartStatus, **changes: object) -> PartStatus:
    """Return *part* pending for a new Job; an existing Job of its name belongs to an earlier attempt."""
    attempt = part.attempt + 1 if has_started(part) else part.attempt
    return part.model_copy(update={"phase": "Pending", "running_on": "", "attempt": attempt, **changes})
