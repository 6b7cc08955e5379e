"""What happened in a simulation, line by line; the texts for people are made elsewhere."""

from dataclasses import dataclass
from enum import StrEnum

from controller.engine.clusters import Assignment
from controller.engine.reasons import EvictionReason, Refusal
from controller.engine.workloads import Workload


class JobAction(StrEnum):
    """What can happen to a job."""

    SUBMIT = "Submit"
    ADMIT = "Admit"
    """Its admission takes effect: the write is done."""
    EVICT = "Evict"
    """Its eviction takes effect: the write is done, its pods go on for their grace period."""
    WAIT = "Wait"
    """It waits, from now on for this reason."""
    FINISH = "Finish"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One thing that happened, *at* milliseconds after the start."""

    at: int
    action: JobAction
    workload: Workload
    clusters: tuple[Assignment, ...] = ()
    cause: Refusal | EvictionReason | None = None
    """Why it waits or has to go."""
