"""Keeps the clusters' ledger and the queues' books in step with what each workload holds.

A workload holds what it was admitted with until it is gone (C2). From its
eviction on that is taken for as good as free, and what others leave for is
taken for charged (P5).
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.engine.cluster_usage import ClusterUsage
from controller.engine.clusters import ClusterName
from controller.engine.orphans import Orphans
from controller.engine.queue_usage import QueueUsage
from controller.engine.resources import subtract, total
from controller.engine.workloads import Admission, Workload, WorkloadState


class UsageTracker:
    """What every workload is charged, in both books at once."""

    def __init__(self, ledger: ClusterUsage, books: QueueUsage) -> None:
        self._ledger = ledger
        self._books = books

    def change(self, before: Workload | None, workload: Workload, now: int) -> bool:
        """Book what *workload* holds in place of what it held *before*; say whether foreign use may fall for it."""
        old, new = before.admission if before else None, workload.admission
        if before is None or old is None or new is None or not has_same_charges(before, workload):
            if before is not None:
                self.end(before, workload, now)
            elif workload.ended is not None:
                self._ledger.recall(workload.ended, now)
            self.open(workload, now)
            return False
        if before.is_leaving and not workload.is_leaving:
            self._rejoin(before, old)
        if workload.is_leaving and not before.is_leaving:
            self._depart(workload, new)
        return self._ledger.show(old, new, now)

    def open(self, workload: Workload, now: int) -> None:
        """Charge what *workload* holds, and what is held for it."""
        queue, namespace = workload.queue, workload.namespace
        if workload.admission is not None:
            self._ledger.book(workload.admission, now)
            self._books.book(queue, namespace, workload.admission.charge)
            if workload.is_leaving:
                self._depart(workload, workload.admission)
        elif workload.held is not None and workload.is_held_for:
            self._ledger.hold(workload.held.cluster, workload.held.demand)
            self._books.hold(queue, namespace, workload.held.demand)

    def close(self, workload: Workload, now: int) -> None:
        """Free what *workload* holds, and what is held for it."""
        queue, namespace = workload.queue, workload.namespace
        if workload.admission is not None:
            if workload.is_leaving:
                self._rejoin(workload, workload.admission)
            self._ledger.free(workload.admission, now)
            self._books.free(queue, namespace, workload.admission.charge)
        elif workload.held is not None and workload.is_held_for:
            self._ledger.release(workload.held.cluster, workload.held.demand)
            self._books.release(queue, namespace, workload.held.demand)

    def end(self, before: Workload, after: Workload | None, now: int) -> None:
        """Free what a workload held *before*, except where its pods stay as orphans once it is as *after* says."""
        admission = before.admission
        left = _left_running(before, after)
        if admission is None or not left:
            self.close(before, now)
            return
        if before.is_leaving:
            self._rejoin(before, admission)
        orphaned = _only(admission, left)
        gone = _only(admission, {each.cluster for each in admission.bookings} - left)
        self._ledger.free(gone, now)
        self._ledger.orphan(orphaned, before, now)
        self._books.free(before.queue, before.namespace, subtract(admission.charge, orphaned.charge))

    def release_orphans(self) -> None:
        """Free the queues of orphaned charges that have ended."""
        for orphan in self._ledger.take_released():
            self._books.free(orphan.queue, orphan.namespace, orphan.charge)

    def recall_orphans(self, orphans: Orphans) -> None:
        """Charge the queues of *orphans*, which a cluster has already."""
        for orphan in orphans.charges:
            self._books.book(orphan.queue, orphan.namespace, orphan.charge)

    def _depart(self, workload: Workload, admission: Admission) -> None:
        self._ledger.depart(admission)
        self._books.depart(workload.queue, workload.namespace, admission.charge)

    def _rejoin(self, workload: Workload, admission: Admission) -> None:
        self._ledger.rejoin(admission)
        self._books.rejoin(workload.queue, workload.namespace, admission.charge)


def _left_running(before: Workload, after: Workload | None) -> set[ClusterName]:
    """Return the clusters that a workload has left, and in which Karmada preserves its pods.

    One that is pending again though nothing was seen of it there was not admitted after all: the write has failed.
    """
    if not before.preserved or before.admission is None:
        return set()
    if after is not None and after.state is not WorkloadState.ADMITTED:
        has_failed = after.state is WorkloadState.PENDING and not (before.is_leaving or before.has_run)
        if has_failed or after.state is WorkloadState.FINISHED:
            return set()
    kept = after.admission.bookings if after is not None and after.admission is not None else ()
    return {each.cluster for each in before.admission.bookings} - {each.cluster for each in kept}


def _only(admission: Admission, clusters: set[ClusterName]) -> Admission:
    """Return the part of *admission* on *clusters*."""
    bookings = tuple(each for each in admission.bookings if each.cluster in clusters)
    return replace(admission, bookings=bookings, charge=total(each.charge for each in bookings))


def has_same_charges(before: Workload, workload: Workload) -> bool:
    """Say whether both hold the same charges in the same places."""
    return (
        before.admission is not None
        and workload.admission is not None
        and (before.queue, before.namespace) == (workload.queue, workload.namespace)
        and before.admission.charge == workload.admission.charge
        and set(_places(before.admission)) == set(_places(workload.admission))
    )


def _places(admission: Admission) -> Iterator[tuple[ClusterName, tuple[tuple[str, int], ...]]]:
    """Yield what each cluster is booked with; their order means nothing."""
    for booking in admission.bookings:
        yield booking.cluster, tuple(sorted(booking.charge.items()))
