"""Reasons why a workload is pending or was evicted: stable codes with facts.

Operators rely on the codes. Messages for them are in ``controller.reporting.messages``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The stable codes, in the order of precedence where several apply."""

    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    QUEUE_HIERARCHY_INVALID = "QueueHierarchyInvalid"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    PRIORITY_CLASS_NOT_ALLOWED = "PriorityClassNotAllowed"
    EXCEEDS_QUEUE_LIMIT = "ExceedsQueueLimit"
    EXCEEDS_TOTAL_CAPACITY = "ExceedsTotalCapacity"
    QUEUE_LIMIT_REACHED = "QueueLimitReached"
    BLOCKED_BY_GUARANTEE = "BlockedByGuarantee"
    BLOCKED_BY_RESERVATION = "BlockedByReservation"
    BLOCKED_BY_QUEUE_HEAD = "BlockedByQueueHead"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    EXCEEDS_EVERY_CLUSTER = "ExceedsEveryCluster"
    NO_MATCHING_CLUSTER = "NoMatchingCluster"
    BLOCKED_BY_FAIR_SHARE = "BlockedByFairShare"
    HYPERJOB_INCOMPLETE = "HyperJobIncomplete"
    HYPERJOB_DOES_NOT_FIT = "HyperJobDoesNotFit"
    PREEMPTION_IN_PROGRESS = "PreemptionInProgress"
    STARTUP_BACKOFF = "StartupBackoff"
    SUSPENDED = "Suspended"
    ABORTED = "Aborted"
    NO_MATCHING_POLICY = "NoMatchingPolicy"
    REQUESTS_UNKNOWN = "RequestsUnknown"
    DATA_NOT_READY = "DataNotReady"
    INTERNAL_ERROR = "InternalError"


class EvictionReason(StrEnum):
    """Why an admitted workload is evicted."""

    RECLAIMED = "Reclaimed"
    PREEMPTED = "Preempted"
    RESIZE_REJECTED = "ResizeRejected"
    STARTUP_TIMEOUT = "StartupTimeout"
    CLUSTER_CHANGED = "ClusterChanged"
    DATA_MOVED = "DataMoved"
    BACKFILL_OVERRUN = "BackfillOverrun"
    ADVANCE_RESERVATION = "AdvanceReservation"
    ABORTED = "Aborted"

    @property
    def is_self_caused(self) -> bool:
        """Whether the user of the workload causes such evictions, perhaps to be protected from others (P4)."""
        return self in {EvictionReason.RESIZE_REJECTED, EvictionReason.DATA_MOVED, EvictionReason.ABORTED}


#: The reasons that more capacity may end.
ENDED_BY_CAPACITY = frozenset(
    {
        Reason.EXCEEDS_QUEUE_LIMIT,
        Reason.EXCEEDS_TOTAL_CAPACITY,
        Reason.QUEUE_LIMIT_REACHED,
        Reason.BLOCKED_BY_GUARANTEE,
        Reason.BLOCKED_BY_RESERVATION,
        Reason.BLOCKED_BY_QUEUE_HEAD,
        Reason.INSUFFICIENT_CAPACITY,
        Reason.EXCEEDS_EVERY_CLUSTER,
        Reason.BLOCKED_BY_FAIR_SHARE,
    }
)

#: The reasons about capacity; with any other one a workload does not compete (Q4, O5).
ABOUT_CAPACITY = frozenset(
    {
        Reason.QUEUE_LIMIT_REACHED,
        Reason.BLOCKED_BY_FAIR_SHARE,
        Reason.BLOCKED_BY_GUARANTEE,
        Reason.BLOCKED_BY_RESERVATION,
        Reason.BLOCKED_BY_QUEUE_HEAD,
        Reason.INSUFFICIENT_CAPACITY,
        Reason.HYPERJOB_DOES_NOT_FIT,
        Reason.PREEMPTION_IN_PROGRESS,
    }
)

#: The reasons that are evaluated against an empty queue or cluster; the limit is one of their facts.
EXCEEDS_WHEN_EMPTY = frozenset(
    {Reason.EXCEEDS_QUEUE_LIMIT, Reason.EXCEEDS_TOTAL_CAPACITY, Reason.EXCEEDS_EVERY_CLUSTER}
)

#: The reasons that end without an action of the user, and the suspension that the user has chosen; events with other
#: reasons are warnings.
TRANSIENT = frozenset(
    {
        Reason.QUEUE_LIMIT_REACHED,
        Reason.BLOCKED_BY_GUARANTEE,
        Reason.BLOCKED_BY_RESERVATION,
        Reason.BLOCKED_BY_QUEUE_HEAD,
        Reason.INSUFFICIENT_CAPACITY,
        Reason.BLOCKED_BY_FAIR_SHARE,
        Reason.HYPERJOB_INCOMPLETE,
        Reason.HYPERJOB_DOES_NOT_FIT,
        Reason.PREEMPTION_IN_PROGRESS,
        Reason.STARTUP_BACKOFF,
        Reason.SUSPENDED,
        Reason.DATA_NOT_READY,
    }
)

#: The rule of docs/reference/semantics.md that each reason applies.
RULES: Mapping[Reason | EvictionReason, str] = {
    Reason.QUEUE_NOT_FOUND: "Q5",
    Reason.QUEUE_CLOSED: "Q5",
    Reason.QUEUE_NOT_LEAF: "Q5",
    Reason.QUEUE_HIERARCHY_INVALID: "Q1",
    Reason.QUEUE_NOT_ALLOWED: "Q7",
    Reason.PRIORITY_CLASS_NOT_ALLOWED: "Q7",
    Reason.EXCEEDS_QUEUE_LIMIT: "C5",
    Reason.EXCEEDS_TOTAL_CAPACITY: "C5",
    Reason.QUEUE_LIMIT_REACHED: "Q2",
    Reason.BLOCKED_BY_GUARANTEE: "Q3",
    Reason.BLOCKED_BY_RESERVATION: "O6",
    Reason.BLOCKED_BY_QUEUE_HEAD: "O5",
    Reason.INSUFFICIENT_CAPACITY: "C2",
    Reason.EXCEEDS_EVERY_CLUSTER: "C5",
    Reason.NO_MATCHING_CLUSTER: "C1",
    Reason.BLOCKED_BY_FAIR_SHARE: "O3",
    Reason.HYPERJOB_INCOMPLETE: "G1",
    Reason.HYPERJOB_DOES_NOT_FIT: "G1",
    Reason.PREEMPTION_IN_PROGRESS: "P5",
    Reason.STARTUP_BACKOFF: "R1",
    Reason.SUSPENDED: "W1",
    Reason.ABORTED: "D8",
    Reason.NO_MATCHING_POLICY: "D9",
    Reason.REQUESTS_UNKNOWN: "D3",
    Reason.DATA_NOT_READY: "C6",
    Reason.INTERNAL_ERROR: "W3",
    EvictionReason.RECLAIMED: "P1",
    EvictionReason.PREEMPTED: "P2",
    EvictionReason.RESIZE_REJECTED: "D7",
    EvictionReason.STARTUP_TIMEOUT: "R1",
    EvictionReason.CLUSTER_CHANGED: "R1",
    EvictionReason.DATA_MOVED: "C6",
    EvictionReason.BACKFILL_OVERRUN: "O9",
    EvictionReason.ADVANCE_RESERVATION: "O11",
    EvictionReason.ABORTED: "D8",
}

#: Begins the subject of a refusal by an advance reservation; its name follows.
ADVANCE_RESERVATION = "AdvanceReservation "

#: Ends the subject of a refusal, if it has one, because too few clusters accept any.
NEW_WORKLOADS = "new workloads"

_PLACE = {reason: place for place, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason with its facts; amounts are in base units, ``None`` where a fact does not apply."""

    reason: Reason
    resource: str | None = None
    asked: int | None = None
    available: int | None = None
    queue: str | None = None
    cluster: str | None = None
    subject: str | None = None
    """A fact that is neither queue nor cluster: a name, such as that of a PriorityClass or of the workload ahead, or a
    phrase in English that says more than the reason."""
    until: int | None = None
    """When the workload competes again without an event, in milliseconds."""

    @property
    def is_about_capacity(self) -> bool:
        """Return whether it is about capacity; with any other, a workload is no demand and blocks no queue (Q4, O5)."""
        return self.reason in ABOUT_CAPACITY

    @property
    def is_total_capacity(self) -> bool:
        """Return whether all clusters together are full (the queue is the root), which counts as a queue's limit."""
        return self.reason is Reason.INSUFFICIENT_CAPACITY and self.queue is not None


def lacks_clusters(refusal: Refusal) -> bool:
    """Return whether too few clusters accept new workloads; no workload that finishes changes that."""
    names_none = refusal.resource is None and refusal.cluster is None
    is_about_clusters = (refusal.subject or NEW_WORKLOADS).endswith(NEW_WORKLOADS)
    return refusal.reason is Reason.INSUFFICIENT_CAPACITY and names_none and is_about_clusters


def is_advance_reservation(refusal: Refusal) -> bool:
    """Return whether an advance reservation is the reason (O11); otherwise it may be a head reservation (O6)."""
    return refusal.reason is Reason.BLOCKED_BY_RESERVATION and (refusal.subject or "").startswith(ADVANCE_RESERVATION)


def precedence(refusal: Refusal) -> tuple[int, int]:
    """Return the sort key of refusals: reasons that are not about capacity come first (W3).

    Where all clusters together are full, ``InsufficientCapacity`` ranks as a queue limit. A reason that ends at a
    known time comes after those that do not, because its end makes the workload compete again.
    """
    if refusal.reason is Reason.PREEMPTION_IN_PROGRESS:
        return 1, 0
    reason = Reason.QUEUE_LIMIT_REACHED if refusal.is_total_capacity else refusal.reason
    place = _PLACE[reason] if refusal.until is None else len(_PLACE) + _PLACE[reason]
    return (2 if refusal.is_about_capacity else 0), place
