"""Indexes workloads by state, queue and gang."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeGuard

from controller.engine.state.pending import OrderKey, PendingWorkloads, order_key
from controller.engine.state.workload_changes import has_same_charges
from controller.engine.state.workloads import HyperJobGang, Workload, WorkloadState, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.reasons import Refusal
    from controller.engine.state.hierarchy import QueueName


#: So many expiry times are kept, in addition to twice those of existing workloads.
_MIN_EXPIRATIONS: Final = 1_024


class HyperJobGangs:
    """The known parts of every gang, by state."""

    def __init__(self) -> None:
        self.changed: set[HyperJobGang] = set()
        """Gangs of which a part was added, removed or started, began or ceased to compete, or changed its workload
        class, since their classes were last evaluated."""
        self.unchecked: set[HyperJobGang] = set()
        """The same since the gangs were last checked for missing parts (R1)."""
        self._parts: dict[HyperJobGang, dict[WorkloadUid, WorkloadState]] = {}
        self._started: dict[HyperJobGang, int] = {}
        """How many of these parts are not pending: read for each class of a gang, which may have 1,000."""

    @property
    def are_known(self) -> bool:
        """Return whether any part of a gang is known."""
        return bool(self._parts)

    def update(self, before: Workload | None, workload: Workload | None) -> None:
        """Update a workload that was *before*; ``None`` where it does not exist."""
        if before is not None and (workload is None or before.gang != workload.gang):
            self._remove(before)
        if workload is None or workload.gang is None:
            return
        self._add(workload)
        if before is not None and before.hold != workload.hold:
            self.mark_changed(workload.gang)

    def _add(self, workload: Workload) -> None:
        if workload.gang is None:
            return
        parts = self._parts.setdefault(workload.gang, {})
        before = parts.get(workload.uid)
        if before is not workload.state:
            parts[workload.uid] = workload.state
            started = self._started.get(workload.gang, 0)
            self._started[workload.gang] = started + _has_started(workload.state) - _has_started(before)
            self.mark_changed(workload.gang)

    def _remove(self, workload: Workload) -> None:
        if workload.gang is not None and workload.gang in self._parts:
            self._started[workload.gang] -= _has_started(self._parts[workload.gang].pop(workload.uid, None))
            self.mark_changed(workload.gang)
            if not self._parts[workload.gang]:
                del self._parts[workload.gang], self._started[workload.gang]

    def mark_changed(self, gang: HyperJobGang) -> None:
        """Mark *gang*: a part of it has changed, as *changed* says."""
        self.changed.add(gang)
        self.unchecked.add(gang)

    def mark_all_changed(self) -> None:
        """Mark every gang as changed."""
        self.changed.update(self._parts)
        self.unchecked.update(self._parts)

    def forget_deleted(self) -> None:
        """Forget the gangs without known parts, before the first plan."""
        self.changed.intersection_update(self._parts)
        self.unchecked.intersection_update(self._parts)

    def parts(self, gang: HyperJobGang) -> list[WorkloadUid]:
        """Return the known parts, sorted by uid."""
        return sorted(self._parts.get(gang, ()))

    def dependents(self, part: Workload, workloads: Mapping[WorkloadUid, Workload]) -> list[Workload]:
        """Return the admitted parts to evict with *part*, because fewer than the gang minimum would be left.

        Adopted parts stay (D10).
        """
        if part.gang is None:
            return []
        others = [workloads[uid] for uid in self.parts(part.gang) if uid != part.uid]
        if sum(other.state is not WorkloadState.PENDING for other in others) >= part.gang.minimum:
            return []
        return [other for other in others if other.is_admitted_here]

    def is_all_or_nothing(self, gang: HyperJobGang | None) -> TypeGuard[HyperJobGang]:
        """Return whether the pending parts of *gang* are admitted only together with others."""
        return gang is not None and self.missing(gang) > 1

    def missing(self, gang: HyperJobGang) -> int:
        """Return how many parts must start before the others are admitted one by one; 0 for none."""
        return max(gang.minimum - self._started.get(gang, 0), 0)


def _has_started(state: WorkloadState | None) -> bool:
    """Return whether a part is known and not pending."""
    return state is not None and state is not WorkloadState.PENDING


class WorkloadIndex:
    """All workloads by uid, and those in each state that the cycle reads; only ``update`` changes the indexes."""

    def __init__(self) -> None:
        self.by_uid: dict[WorkloadUid, Workload] = {}
        self.version = 0
        """Changes with every change of an admitted workload, or of one with a head reservation."""
        self.pending = PendingWorkloads()
        self.on_hold: dict[QueueName, dict[WorkloadUid, Refusal]] = {}
        """Pending workloads that do not compete, with the reason, by queue."""
        self._held_keys: dict[QueueName, list[OrderKey]] = {}
        """The order keys of those of a queue, in order; from the first query of the queue on."""
        self.gangs = HyperJobGangs()
        self.admitted: dict[QueueName, dict[WorkloadUid, Workload]] = {}
        """Admitted workloads, by queue."""
        self.nominated: dict[WorkloadUid, Workload] = {}
        """Workloads that wait for their victims to stop (P5)."""
        self.with_reservation: dict[WorkloadUid, Workload] = {}
        """Workloads with a head reservation (O6)."""
        self.aborted: set[WorkloadUid] = set()
        """Admitted workloads that were aborted and are to be evicted (D8)."""
        self.without_data: set[WorkloadUid] = set()
        """Admitted workloads whose data moved and that are to follow them (C6)."""
        self.resized: set[WorkloadUid] = set()
        """Admitted workloads that request more than their charge, or run again after they finished (D7)."""
        self.moved: set[WorkloadUid] = set()
        """Admitted workloads whose clusters were changed by others after their record was written (R1)."""
        self.accepted: set[WorkloadUid] = set()
        """Moved or resized workloads that fit as they are; their records are updated."""
        self._expirations: list[tuple[int, WorkloadUid]] = []
        self._expiring: set[tuple[int, WorkloadUid]] = set()
        """The same, to add nothing twice."""
        self._most_expirations = _MIN_EXPIRATIONS
        """With more of them, those of deleted workloads are dropped."""

    def hold(self, workload: Workload, refusal: "Refusal") -> None:
        """Add a pending workload that does not compete."""
        self.on_hold.setdefault(workload.queue, {})[workload.uid] = refusal
        if workload.queue in self._held_keys:
            insort(self._held_keys[workload.queue], order_key(workload))

    def release(self, workload: Workload) -> None:
        """Remove a pending workload that does not compete, as it was added."""
        held, keys = self.on_hold[workload.queue], self._held_keys.get(workload.queue)
        del held[workload.uid]
        if keys is not None:
            del keys[bisect_left(keys, order_key(workload))]
        if not held:
            del self.on_hold[workload.queue]
            self._held_keys.pop(workload.queue, None)

    def count_held_before(self, queue: "QueueName", key: OrderKey) -> int:
        """Return how many of the workloads of *queue* that do not compete come before *key*."""
        held = self.on_hold.get(queue)
        if not held:
            return 0
        keys = self._held_keys.get(queue)
        if keys is None:
            keys = self._held_keys[queue] = sorted(order_key(self.by_uid[uid]) for uid in held)
        return bisect_left(keys, key)

    def add_expiry(self, at: int, uid: WorkloadUid) -> None:
        """Remember that a hold or the charge of a workload expires at *at*, or its reserved clusters change."""
        if (at, uid) in self._expiring:
            return
        if len(self._expirations) >= self._most_expirations:
            self._expiring = {expiry for expiry in self._expiring if expiry[1] in self.by_uid}
            self._expirations = sorted(self._expiring)
            self._most_expirations = 2 * len(self._expirations) + _MIN_EXPIRATIONS
        self._expiring.add((at, uid))
        heappush(self._expirations, (at, uid))

    def pop_expired(self, now: int) -> Iterator[WorkloadUid]:
        """Yield the workloads of which a hold or the charge may have expired by *now*, or the reserved clusters."""
        while self._expirations and self._expirations[0][0] <= now:
            expired = heappop(self._expirations)
            self._expiring.discard(expired)
            yield expired[1]

    def next_expiry(self) -> int | None:
        """Return when the next hold or charge expires, or ``None``; the time may be early but never late."""
        return self._expirations[0][0] if self._expirations else None

    def __getitem__(self, uid: WorkloadUid) -> Workload:
        return self.by_uid[uid]

    def parts(self, gang: HyperJobGang) -> list[Workload]:
        """Return the known parts of *gang*, by uid."""
        return [self.by_uid[uid] for uid in self.gangs.parts(gang)]

    def pending_parts(self, gang: HyperJobGang) -> list[Workload]:
        """Return the parts of *gang* that are pending and not on hold, in the order in which they are admitted."""
        parts = (part for part in self.parts(gang) if part.uid in self.pending)
        return sorted(parts, key=lambda part: (len(part.name), part.name, part.uid))

    def update(self, before: Workload | None, workload: Workload | None) -> None:
        """Update the indexes, pending workloads excepted; ``None`` where the workload does not exist."""
        self.gangs.update(before, workload)
        self.version += any(
            either.state is WorkloadState.ADMITTED or either.has_reservation
            for either in (before, workload)
            if either is not None
        )
        if before is not None:
            self._remove(before)
        if workload is None:
            if before is not None:
                self.accepted.discard(before.uid)
            return
        if before is None or workload.state is not WorkloadState.ADMITTED or not has_same_charges(before, workload):
            self.accepted.discard(workload.uid)
        if workload.state is WorkloadState.ADMITTED:
            self._add_admitted(workload)
        elif workload.is_nominated:
            self.nominated[workload.uid] = workload
        elif workload.has_reservation:
            self.with_reservation[workload.uid] = workload

    def _add_admitted(self, workload: Workload) -> None:
        self.admitted.setdefault(workload.queue, {})[workload.uid] = workload
        marks = (
            (workload.has_aborted, self.aborted),
            (workload.has_lost_data, self.without_data),
            (workload.has_moved, self.moved),
            (workload.has_resized, self.resized),
        )
        for is_marked, marked in marks:
            if is_marked:
                marked.add(workload.uid)

    def _remove(self, before: Workload) -> None:
        if before.state is not WorkloadState.ADMITTED:
            self.nominated.pop(before.uid, None)
            self.with_reservation.pop(before.uid, None)
            return
        for marked in (self.aborted, self.without_data, self.resized, self.moved):
            marked.discard(before.uid)
        admitted = self.admitted.get(before.queue, {})
        admitted.pop(before.uid, None)
        if not admitted:
            self.admitted.pop(before.queue, None)
