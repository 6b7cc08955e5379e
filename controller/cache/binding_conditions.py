"""What is remarkable about a binding: somebody may have to see to it, or at least hear of it."""

from enum import StrEnum

from controller.engine.clusters import Placement
from controller.engine.spread import is_effective


class BindingCondition(StrEnum):
    """What somebody may have to see to, or at least hear of."""

    RESIZED = "Grown"
    """It asks for more than its record charges (D7)."""
    ADOPTED = "Adopted"
    """It runs without a record of ours (D10)."""
    MOVED = "Moved"
    """Others have changed its clusters since its admission (R1); once that is accepted, its record is to say so."""
    REPLICAS_REDIVIDED = "Redivided"
    """The same of a workload that Karmada divides, as it may; nobody is told."""
    NOT_SUSPENDED = "Unpaused"
    """It is neither paused, nor placed, nor recorded: it slipped past the webhook (D10)."""
    PLACED_WITHOUT_ADMISSION = "Leaked"
    """It is placed, and our record does not say that it may be: its clusters are to be cleared."""
    RESUSPENDED_AFTER_ADMISSION = "Repaused"
    """It is admitted and somebody paused it: it is to be resumed."""
    EVICTED_BY_OTHERS = "Cleared"
    """Its record admits it, and others have paused it and taken its clusters away: it waits again, and its record
    is to say so."""
    SUSPENDED_BUT_NOT_MANAGED = "Ungated"
    """It is paused, and is not gated, or not any more: it is to be let through."""
    QUEUE_NOT_RECORDED = "Unfixed"
    """It waits, is of a kind without a queue of its own, and its queue is to be fixed in the record (Q6)."""
    RETRY_REQUESTED = "Resumed"
    """It was aborted, and somebody wants it to be tried again: the record is to say so (D8)."""
    INVALID_RECORD = "Unrecorded"
    """It carries an annotation that looks like our record and is none."""
    UNREADABLE = "Unreadable"
    """It, or its template, has a field that cannot be read."""
    PLACED_ON_ALL_CLUSTERS = "Copied"
    """Its policy lets Karmada copy it whole to every candidate cluster; each copy is charged (D5)."""
    APPLICATION_FAILOVER = "FailsOver"
    """Karmada makes a job again elsewhere once it has failed, again and again; each run is charged (D7)."""
    RESOURCES_PRESERVED = "Preserved"
    """Taking its clusters away would not stop it, so that it is never evicted for another (P4)."""


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
"""What can be put right by a write."""


def is_duplicated(placement: Placement) -> bool:
    """Say whether nothing keeps a workload that is not divided to one cluster."""
    names = placement.affinity.names if placement.affinity is not None else ()
    limits = [each for each in placement.spread if each.by == "cluster" and each.maximum == 1]
    return len(names) != 1 and not (limits and is_effective(placement))
