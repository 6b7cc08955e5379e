"""The result of a cycle: ordered decisions, and changed reasons of pending workloads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.state.clusters import Assignment, ClusterName
from controller.engine.state.estimates import Query
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import Admission, Nomination, Reservation, Workload, WorkloadUid


@dataclass(frozen=True, slots=True)
class Admit:
    """Let a workload run on these clusters with this charge."""

    workload: Workload
    clusters: tuple[Assignment, ...]
    admission: Admission
    plan_id: str = ""
    """The id that the parts of a gang admitted together share (G1)."""

    @property
    def charge(self) -> Resources:
        """Return the total charge."""
        return self.admission.charge


@dataclass(frozen=True, slots=True)
class StartupBackoff:
    """How long a workload that did not start does not compete, and the clusters it avoids afterwards (R1)."""

    since: int
    """When it was evicted, in milliseconds."""
    until: int
    excluded_clusters: tuple[ClusterName, ...] = ()
    """The clusters on which it did not start, earlier attempts included."""
    caused_failure: bool = True
    """It did not start itself, or does not fit where it was moved; otherwise a part of its gang did not."""
    moved_to: tuple[ClusterName, ...] = ()
    """The clusters to which others moved the failed workload, where its gang minimum does not fit."""
    failed_clusters: tuple[ClusterName, ...] = ()
    """Those of the excluded clusters on which it did not start this time."""
    has_gang_run: bool = True
    """As many parts of its HyperJob as must start together have run since their admission, or it is no part."""

    @property
    def message(self) -> str:
        """Return the failure in words."""
        if self.moved_to:
            subject = "it" if self.caused_failure else "a part that its HyperJob needs"
            return f"{subject} was moved to {', '.join(self.moved_to)}, where it does not fit"
        if not self.caused_failure:
            return "a part that its HyperJob needs did not start in time"
        return f"it did not start on {', '.join(self.excluded_clusters) or 'any cluster'} in time"

    @property
    def refusal(self) -> Refusal:
        """Return the pending reason until the backoff ends."""
        return Refusal(Reason.STARTUP_BACKOFF, subject=self.message, until=self.until)


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict an admitted workload, for a preemptor or for a fault of its own."""

    workload: Workload
    reason: EvictionReason
    preemptor: WorkloadUid | None = None
    nominated_cluster: ClusterName | None = None
    grace_ms: int = 0
    """The termination grace period of its pods (P6)."""
    back_off: StartupBackoff | None = None
    """The backoff of a workload that, or whose gang, did not start (R1)."""

    @property
    def has_run(self) -> bool:
        """Return whether the workload has run since its admission, with as many parts of its HyperJob as needed."""
        return self.workload.has_run and (self.back_off is None or self.back_off.has_gang_run)


class Wait(NamedTuple):
    """Keep a workload pending; part of a plan only when its reason has changed.

    A tuple, because the first plan may have 100,000, and a frozen dataclass takes three times as long to create.
    """

    workload: Workload
    refusal: Refusal
    position: int
    """Its position in its queue, counted from 1."""


@dataclass(frozen=True, slots=True)
class RecordUpdate:
    """Write a nomination (P5) or a head reservation (O6) into a pending workload's record, or clear both."""

    workload: Workload
    nomination: Nomination | None
    reservation: Reservation | None = None


Decision = Admit | Evict


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of one cycle: what changed since the previous plan."""

    decisions: tuple[Decision, ...] = ()
    """In the order in which they were made."""
    waits: tuple[Wait, ...] = ()
    """Pending workloads with a changed reason code, by queue and position."""
    record_updates: tuple[RecordUpdate, ...] = ()
    """Nominations and reservations that began or ended; an admission ends them without an update."""
    reschedules: tuple[Workload, ...] = ()
    """Admitted workloads that do not run and are given to Karmada's scheduler again (R1)."""
    wake_at: int | None = None
    """When the next plan is due without an event, in milliseconds; ``None``: not before an event."""
    queries: tuple[Query, ...] = ()
    """Queries for the clusters' estimators (C3); the answers arrive as events."""
    is_cut: bool = False
    """It ended early: the next plan continues it."""

    @property
    def originals(self) -> dict[WorkloadUid, Workload]:
        """Return the workloads that it changes, as they were before it."""
        return {change.workload.uid: change.workload for change in reversed((*self.decisions, *self.record_updates))}


Assume = Callable[[Workload, int], None]
"""Applies the decided state of a workload at a time, in milliseconds, as if its write had succeeded."""
