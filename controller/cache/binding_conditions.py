"""Conditions of bindings that the controller repairs or reports."""

from enum import StrEnum

from controller.engine.placement.filter import is_effective
from controller.engine.state.clusters import Placement


class BindingCondition(StrEnum):
    """A deviation of a binding that is repaired by a write, or only reported."""

    RESIZED = "Resized"
    """It requests more than its record charges (D7)."""
    ADOPTED = "Adopted"
    """It runs without an admission record (D10)."""
    MOVED = "Moved"
    """Others have changed its clusters since its admission (R1); once accepted, the record is updated."""
    REPLICAS_REDIVIDED = "ReplicasRedivided"
    """Karmada has divided its replicas differently, as it may; not reported."""
    NOT_SUSPENDED = "NotSuspended"
    """It is neither suspended nor placed nor recorded: it bypassed the webhook (D10)."""
    PLACED_WITHOUT_ADMISSION = "PlacedWithoutAdmission"
    """It is placed without a record that admits it; its clusters are cleared."""
    RESUSPENDED_AFTER_ADMISSION = "ResuspendedAfterAdmission"
    """It is admitted and was suspended by others; it is resumed."""
    EVICTED_BY_OTHERS = "EvictedByOthers"
    """Its record admits it, and others have suspended it and removed its clusters: it is pending again, and the record
    is updated.
    """
    SUSPENDED_BUT_NOT_MANAGED = "SuspendedButNotManaged"
    """It is suspended and needs no admission, or no longer: it is resumed."""
    QUEUE_NOT_RECORDED = "QueueNotRecorded"
    """It is pending, its kind has no queue field, and its queue is stored in the record (Q6)."""
    RETRY_REQUESTED = "RetryRequested"
    """It was aborted, and a retry is requested; the record is updated (D8)."""
    INVALID_RECORD = "InvalidRecord"
    """Its admission annotation is not a valid record."""
    UNREADABLE = "Unreadable"
    """It, or its template, has a field that cannot be read."""
    PLACED_ON_ALL_CLUSTERS = "PlacedOnAllClusters"
    """Its policy lets Karmada duplicate it to every candidate cluster; each copy is charged (D5)."""
    APPLICATION_FAILOVER = "ApplicationFailover"
    """Karmada recreates the failed job in another cluster, repeatedly; each run is charged (D7)."""
    RESOURCES_PRESERVED = "ResourcesPreserved"
    """Clearing its clusters would not stop it, so it is never evicted for another workload (P4)."""


REPAIRABLE = frozenset(
    {
        BindingCondition.PLACED_WITHOUT_ADMISSION,
        BindingCondition.RESIZED,
        BindingCondition.MOVED,
        BindingCondition.REPLICAS_REDIVIDED,
        BindingCondition.RESUSPENDED_AFTER_ADMISSION,
        BindingCondition.EVICTED_BY_OTHERS,
        BindingCondition.SUSPENDED_BUT_NOT_MANAGED,
        BindingCondition.QUEUE_NOT_RECORDED,
        BindingCondition.RETRY_REQUESTED,
        BindingCondition.NOT_SUSPENDED,
    }
)
"""Conditions that a write repairs."""


def is_duplicated(placement: Placement) -> bool:
    """Whether a workload that is not divided may be placed on more than one cluster."""
    names = placement.affinity.names if placement.affinity is not None else ()
    limits = [constraint for constraint in placement.spread if constraint.by == "cluster" and constraint.maximum == 1]
    return len(names) != 1 and not (limits and is_effective(placement))
