"""Keeps usage of clusters and queues consistent with the charges of every workload.

A workload holds its charges until it has stopped (C2). From its eviction on,
settled usage assumes that they are free and charges the preemptor's nomination instead (P5).
"""

from dataclasses import replace

from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.orphans import Orphans
from controller.engine.state.queue_usage import QueueUsage
from controller.engine.state.resources import subtract, total
from controller.engine.state.workloads import Admission, Workload, WorkloadState, has_same_charges


class UsageTracker:
    """Adds and removes the charges of workloads, in cluster usage and queue usage at once."""

    def __init__(self, cluster_usage: ClusterUsage, queue_usage: QueueUsage) -> None:
        self.queue_usage = queue_usage
        self._clusters = cluster_usage

    def update(self, before: Workload | None, workload: Workload, now: int) -> bool:
        """Replace the charges of *before* by those of *workload*; return whether external usage may fall then."""
        old, new = before.admission if before else None, workload.admission
        if before is None or old is None or new is None or not has_same_charges(before, workload):
            if before is not None:
                self.remove_or_orphan(before, workload, now)
            elif workload.last_admission is not None:
                self._clusters.add_recently_freed(workload.last_admission, now)
            self.add(workload, now)
            return False
        if before.is_leaving and not workload.is_leaving:
            self._unmark_leaving(before, old)
        if workload.is_leaving and not before.is_leaving:
            self._mark_leaving(workload, new)
        return self._clusters.mark_reported(old, new, now)

    def add(self, workload: Workload, now: int) -> None:
        """Add the charges of *workload* and what its nomination sets aside."""
        queue, namespace = workload.queue, workload.namespace
        if workload.admission is not None:
            self._clusters.add_usage(workload.admission, now)
            self.queue_usage.add_usage(queue, namespace, workload.admission.charge)
            if workload.is_leaving:
                self._mark_leaving(workload, workload.admission)
        elif workload.nomination is not None and workload.is_nominated:
            self._clusters.nominate(workload.nomination.cluster, workload.nomination.requests)
            self.queue_usage.nominate(queue, namespace, workload.nomination.requests)

    def remove(self, workload: Workload, now: int) -> None:
        """Remove the charges of *workload* and what its nomination sets aside."""
        queue, namespace = workload.queue, workload.namespace
        if workload.admission is not None:
            if workload.is_leaving:
                self._unmark_leaving(workload, workload.admission)
            self._clusters.remove_usage(workload.admission, now)
            self.queue_usage.remove_usage(queue, namespace, workload.admission.charge)
        elif workload.nomination is not None and workload.is_nominated:
            self._clusters.unnominate(workload.nomination.cluster, workload.nomination.requests)
            self.queue_usage.unnominate(queue, namespace, workload.nomination.requests)

    def remove_or_orphan(self, before: Workload, after: Workload | None, now: int) -> None:
        """Remove the charges of *before*; where its pods stay running after it is as *after*, orphan them instead."""
        admission = before.admission
        left = _left_running(before, after)
        if admission is None or not left:
            self.remove(before, now)
            return
        if before.is_leaving:
            self._unmark_leaving(before, admission)
        orphaned = _restrict_to(admission, left)
        gone = _restrict_to(admission, {charge.cluster for charge in admission.cluster_charges} - left)
        self._clusters.remove_usage(gone, now)
        self._clusters.add_orphans(orphaned, before, now)
        self.queue_usage.remove_usage(before.queue, before.namespace, subtract(admission.charge, orphaned.charge))

    def end_orphans(self) -> None:
        """Free the queues of orphaned charges that have ended."""
        for orphan in self._clusters.take_released():
            self.queue_usage.remove_usage(orphan.queue, orphan.namespace, orphan.charge)

    def restore_orphans(self, orphans: Orphans) -> None:
        """Charge queues with *orphans*, which the cluster includes already."""
        for orphan in orphans.charges:
            self.queue_usage.add_usage(orphan.queue, orphan.namespace, orphan.charge)

    def _mark_leaving(self, workload: Workload, admission: Admission) -> None:
        self._clusters.mark_leaving(admission)
        self.queue_usage.begin_eviction(workload.queue, workload.namespace, admission.charge)

    def _unmark_leaving(self, workload: Workload, admission: Admission) -> None:
        self._clusters.unmark_leaving(admission)
        self.queue_usage.end_eviction(workload.queue, workload.namespace, admission.charge)


def _left_running(before: Workload, after: Workload | None) -> set[ClusterName]:
    """Return the clusters that a workload has left and where Karmada preserves its pods.

    A workload that is pending again without having been observed there was never admitted: the write failed.
    """
    if not before.preserved or before.admission is None:
        return set()
    if after is not None and after.state is not WorkloadState.ADMITTED:
        has_failed = after.state is WorkloadState.PENDING and not (before.is_leaving or before.has_run)
        if has_failed or after.state is WorkloadState.FINISHED:
            return set()
    remaining = after.admission.cluster_charges if after is not None and after.admission is not None else ()
    return {charge.cluster for charge in before.admission.cluster_charges} - {charge.cluster for charge in remaining}


def _restrict_to(admission: Admission, clusters: set[ClusterName]) -> Admission:
    """Return the part of *admission* on *clusters*."""
    bookings = tuple(charge for charge in admission.cluster_charges if charge.cluster in clusters)
    return replace(admission, cluster_charges=bookings, charge=total(charge.charge for charge in bookings))
