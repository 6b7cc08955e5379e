"""Log of the events of a simulation."""

from dataclasses import dataclass
from enum import StrEnum

from controller.engine.reasons import EvictionReason, Refusal
from controller.engine.state.clusters import Assignment
from controller.engine.state.workloads import Workload


class JobAction(StrEnum):
    """Events in the life of a job."""

    SUBMIT = "Submit"
    ADMIT = "Admit"
    """The write of its admission is complete."""
    EVICT = "Evict"
    """The write of its eviction is complete; its pods run on for the grace period."""
    WAIT = "Wait"
    """It is pending with a new reason."""
    FINISH = "Finish"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event, *at* milliseconds after the start."""

    at: int
    action: JobAction
    workload: Workload
    clusters: tuple[Assignment, ...] = ()
    cause: Refusal | EvictionReason | None = None
    """Why it is pending or evicted."""
