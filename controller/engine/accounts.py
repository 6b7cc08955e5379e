"""Keeps the clusters' ledger and the queues' books in step with what each workload holds.

A workload holds what it was admitted with until it is gone (C2). From its
eviction on that is taken for as good as free, and what others leave for is
taken for charged (P5).
"""

from collections.abc import Iterator

from controller.engine.books import Books
from controller.engine.clusters import ClusterName
from controller.engine.ledger import Ledger
from controller.engine.workloads import Admission, Workload


class Accounts:
    """What every workload is charged, in both books at once."""

    def __init__(self, ledger: Ledger, books: Books) -> None:
        self._ledger = ledger
        self._books = books

    def change(self, before: Workload | None, workload: Workload, now: int) -> bool:
        """Book what *workload* holds in place of what it held *before*; say whether foreign use may fall for it."""
        old, new = before.admission if before else None, workload.admission
        if before is None or old is None or new is None or not same_places(before, workload):
            if before is not None:
                self.close(before, now)
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

    def _depart(self, workload: Workload, admission: Admission) -> None:
        self._ledger.depart(admission)
        self._books.depart(workload.queue, workload.namespace, admission.charge)

    def _rejoin(self, workload: Workload, admission: Admission) -> None:
        self._ledger.rejoin(admission)
        self._books.rejoin(workload.queue, workload.namespace, admission.charge)


def same_places(before: Workload, workload: Workload) -> bool:
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
