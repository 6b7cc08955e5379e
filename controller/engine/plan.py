"""What a cycle decides: ordered decisions, and what changed for those who wait."""

from dataclasses import dataclass

from controller.engine.clusters import Assignment, ClusterName
from controller.engine.estimates import Query
from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.resources import Resources
from controller.engine.workloads import Admission, Nomination, Reservation, Workload, WorkloadUid


@dataclass(frozen=True, slots=True)
class Admit:
    """Let a workload run on these clusters, charged with this admission."""

    workload: Workload
    clusters: tuple[Assignment, ...]
    admission: Admission
    plan_id: str = ""
    """What names the plan, the same on each part that is admitted together with others (G1)."""

    @property
    def charge(self) -> Resources:
        """Return the total charge."""
        return self.admission.charge


@dataclass(frozen=True, slots=True)
class StartupBackoff:
    """For how long one that was taken back does not compete, and where it is not tried again (R1)."""

    since: int
    """When it was taken back, in milliseconds."""
    until: int
    excluded_clusters: tuple[ClusterName, ...] = ()
    """Where it did not start, now and before."""
    caused_failure: bool = True
    """It has itself not started in time, or does not fit where it was moved."""
    moved_to: tuple[ClusterName, ...] = ()
    """Where others have moved the one at fault, and its gang does not fit; empty where that is not why."""

    @property
    def message(self) -> str:
        """Return in words what has failed."""
        if self.moved_to:
            who = "it" if self.caused_failure else "a part that its HyperJob needs"
            return f"{who} was moved to {', '.join(self.moved_to)}, where it does not fit"
        if not self.caused_failure:
            return "a part that its HyperJob needs did not start in time"
        return f"it did not start on {', '.join(self.excluded_clusters) or 'any cluster'} in time"

    @property
    def refusal(self) -> Refusal:
        """Return why it waits until then."""
        return Refusal(Reason.STARTUP_BACKOFF, subject=self.message, until=self.until)


@dataclass(frozen=True, slots=True)
class Evict:
    """Take an admitted workload back, for somebody else or for its own fault."""

    workload: Workload
    reason: EvictionReason
    preemptor: WorkloadUid | None = None
    nominated_cluster: ClusterName | None = None
    grace_ms: int = 0
    """How long its pods may go on (P6)."""
    back_off: StartupBackoff | None = None
    """What follows for one that is taken back because it, or a part that it needs, has not started (R1)."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep a workload waiting; told only when its reason has changed."""

    workload: Workload
    refusal: Refusal
    position: int
    """Its place in its queue, counted from 1."""


@dataclass(frozen=True, slots=True)
class RecordUpdate:
    """Write into a waiting workload's record what is held (P5) or kept (O6) for it, or that nothing is any more."""

    workload: Workload
    nomination: Nomination | None
    reservation: Reservation | None = None


Decision = Admit | Evict


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one cycle: a delta to what was decided before."""

    decisions: tuple[Decision, ...] = ()
    """In the order in which they were taken."""
    waits: tuple[Wait, ...] = ()
    """Those whose reason code changed since the last cycle, by queue and position."""
    record_updates: tuple[RecordUpdate, ...] = ()
    """Holds and reservations that began or lapsed; an admission ends them without a note."""
    reschedules: tuple[Workload, ...] = ()
    """Admitted ones that do not run, and that Karmada's scheduler is to be given once more (R1)."""
    wake_at: int | None = None
    """When to look again although nothing was heard, in milliseconds; ``None``: no such time."""
    queries: tuple[Query, ...] = ()
    """What the clusters' estimators are to be asked (C3); the answers are events."""
    is_cut: bool = False
    """It ended early: the next plan goes on where it stopped."""
