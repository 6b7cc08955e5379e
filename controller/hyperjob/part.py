"""One part of a HyperJob: how far it is by what is seen of it, and what another attempt of it is.

Pure. A part that is over stays over, whatever is seen of it later.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.api.hyperjobstatus import PartPhase, PartStatus
from controller.hyperjob.observed import ObservedChild, PartPlacement

TERMINAL: frozenset[PartPhase] = frozenset({"Completed", "Failed"})
_FAILURES = frozenset({"Failed", "Terminated"})
_WAITING = frozenset({"", "Pending", "Aborted", "Aborting"})


@dataclass(frozen=True, slots=True)
class ObservedParts:
    """What is seen of a HyperJob's parts, by name; only what is its own."""

    jobs: Mapping[str, ObservedChild]
    placement: Mapping[str, PartPlacement]
    """Where the bindings of the parts are, as far as there are any."""


def has_started(part: PartStatus) -> bool:
    """Say whether a part was let into a cluster."""
    return part.phase != "Pending"


def with_observation(part: PartStatus, seen: ObservedParts) -> PartStatus:
    """Return *part* as far as it is by what is seen; one that is over stays so."""
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
        return "Pending"  # an evicted job goes on saying what it last said
    if phase in _WAITING:
        return "Admitted" if placed is not None else "Pending"
    return "Running"


def next_attempt(part: PartStatus, **changes: object) -> PartStatus:
    """Return *part* waiting for a Job of its own; the one that may have been under its name is an earlier one."""
    attempt = part.attempt + 1 if has_started(part) else part.attempt
    return part.model_copy(update={"phase": "Pending", "running_on": "", "attempt": attempt, **changes})
