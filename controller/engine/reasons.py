"""Why a workload waits, or was evicted: stable codes with their facts.

The codes are a contract with operators; the sentences made from them are
written in ``controller.messages``, in one place.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The stable codes, in the order in which they are preferred where several apply."""

    QUEUE_MISSING = "QueueMissing"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    QUEUE_TREE_BROKEN = "QueueTreeBroken"
    TENANT_NOT_ALLOWED = "TenantNotAllowed"
    PRIORITY_CLASS_NOT_ALLOWED = "PriorityClassNotAllowed"
    EXCEEDS_QUEUE = "ExceedsQueue"
    QUEUE_OVER_CEILING = "QueueOverCeiling"
    RESERVED_FOR_GUARANTEE = "ReservedForGuarantee"
    BEHIND_RESERVATION = "BehindReservation"
    BEHIND_HEAD = "BehindHead"
    NO_ROOM = "NoRoom"
    FITS_NOWHERE = "FitsNowhere"
    NO_CANDIDATE_CLUSTER = "NoCandidateCluster"
    QUEUE_OVER_ENTITLEMENT = "QueueOverEntitlement"
    GROUP_INCOMPLETE = "GroupIncomplete"
    GROUP_PART_DOES_NOT_FIT = "GroupPartDoesNotFit"
    EVICTION_IN_PROGRESS = "EvictionInProgress"
    BACKING_OFF = "BackingOff"
    SUSPENDED = "Suspended"
    ABORTED = "Aborted"
    UNCLAIMED = "Unclaimed"
    DEMAND_UNKNOWN = "DemandUnknown"
    INTERNAL_ERROR = "InternalError"


class EvictionReason(StrEnum):
    """Why an admitted workload has to go."""

    RECLAIMED = "Reclaimed"
    PREEMPTED = "Preempted"
    OUTGROWN = "Outgrown"
    NOT_STARTED = "NotStarted"
    CLUSTER_CHANGED = "ClusterChanged"
    ABORTED = "Aborted"


#: The reasons that more capacity may end.
CAPACITY = frozenset(
    {
        Reason.EXCEEDS_QUEUE,
        Reason.QUEUE_OVER_CEILING,
        Reason.RESERVED_FOR_GUARANTEE,
        Reason.BEHIND_RESERVATION,
        Reason.BEHIND_HEAD,
        Reason.NO_ROOM,
        Reason.FITS_NOWHERE,
        Reason.QUEUE_OVER_ENTITLEMENT,
    }
)

ABOUT_ROOM = frozenset(
    {
        Reason.QUEUE_OVER_CEILING,
        Reason.QUEUE_OVER_ENTITLEMENT,
        Reason.RESERVED_FOR_GUARANTEE,
        Reason.BEHIND_RESERVATION,
        Reason.BEHIND_HEAD,
        Reason.NO_ROOM,
        Reason.GROUP_PART_DOES_NOT_FIT,
        Reason.EVICTION_IN_PROGRESS,
    }
)

_PLACE = {reason: place for place, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason with its facts; amounts are in base units, ``None`` where a fact has no meaning."""

    reason: Reason
    resource: str | None = None
    asked: int | None = None
    available: int | None = None
    queue: str | None = None
    cluster: str | None = None
    subject: str | None = None
    """A name that is neither queue nor cluster: a PriorityClass, a namespace, a part of a group."""
    until: int | None = None
    """When it is looked at again whatever happens, in milliseconds."""

    @property
    def is_about_room(self) -> bool:
        """Say whether more room would help; all else is held for another reason (Q4, O5)."""
        return self.reason in ABOUT_ROOM


def precedence(refusal: Refusal) -> tuple[int, int]:
    """Return the key that puts the refusal to be shown first: not about room, then by the list."""
    if refusal.reason is Reason.EVICTION_IN_PROGRESS:
        return 1, 0
    return (2 if refusal.is_about_room else 0), _PLACE[refusal.reason]
