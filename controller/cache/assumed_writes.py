"""What we know of workloads before the API server tells it: writes under way, and writes that failed.

A write is believed from the decision on, until it has failed for certain or
an observation at least as new as its result has come (rule: charge on
decision, settle on the observed write).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.engine.clusters import ClusterName
from controller.engine.reasons import Refusal
from controller.engine.workloads import Admission, Nomination, Reservation, WorkloadUid

#: So long after an eviction Karmada may still place what it had not placed yet (P5).
_UNPLACED_MS: Final = 330_000


@dataclass(frozen=True, slots=True)
class AssumedEviction:
    """That a workload was evicted."""

    back_off: Refusal | None = None
    """Why and until when it does not compete, where it, or a part that it needs, had not started (R1)."""
    has_run: bool = True
    """It was a run that ended; else it had been admitted in vain."""
    excluded_clusters: Mapping[ClusterName, str] = field(default_factory=dict)
    """Where it is not tried again, as its record will say."""


@dataclass(frozen=True, slots=True)
class AssumedRecordUpdate:
    """What is held or kept for a workload that waits, or that nothing is any more."""

    held: Nomination | None
    reserved: Reservation | None = None


@dataclass(frozen=True, slots=True)
class AssumedRepair:
    """That something was put right which no decision speaks of."""


AssumedOutcome = Admission | AssumedEviction | AssumedRecordUpdate | AssumedRepair
"""What a write under way brings about."""


@dataclass(slots=True)
class AssumedWrite:
    """One write; *resource_version* is that of its result, once it is known."""

    outcome: AssumedOutcome
    resource_version: int | None = None


class AssumedWrites:
    """The writes and the holds that overlay observed truth, by workload.

    The writes for one workload are carried out one after the other.
    """

    def __init__(self) -> None:
        self._writes: dict[WorkloadUid, deque[AssumedWrite]] = {}
        self._holds: dict[WorkloadUid, Refusal] = {}
        self._unplaced: dict[WorkloadUid, int] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def __iter__(self) -> Iterator[WorkloadUid]:
        return iter(tuple(self._writes))

    def assume(self, uid: WorkloadUid, outcome: AssumedOutcome) -> None:
        """Believe that *outcome* is true of *uid*: its write is under way, or follows those that are."""
        self._writes.setdefault(uid, deque()).append(AssumedWrite(outcome))
        if isinstance(outcome, Admission):
            self._holds.pop(uid, None)

    def settle(self, uid: WorkloadUid, resource_version: int, observed: int) -> None:
        """Believe a write that was acknowledged until it is observed; *observed* is the newest version known."""
        write = next((write for write in self._writes.get(uid, ()) if write.resource_version is None), None)
        if write is not None:
            write.resource_version = resource_version
            self.observe(uid, observed)

    def withdraw(self, uid: WorkloadUid, refusal: Refusal | None) -> None:
        """Believe no longer in the write under way; with a *refusal* it is held back for that, else none follows."""
        if refusal is None:
            self._writes.pop(uid, None)
            self._look_again(uid)
            return
        writes = self._writes.get(uid, deque())
        failed = next((write for write in writes if write.resource_version is None), None)
        if failed is not None:
            writes.remove(failed)
        if not writes:
            self._writes.pop(uid, None)
        self._holds[uid] = refusal

    def hold_back(self, uid: WorkloadUid, refusal: Refusal) -> None:
        """Hold *uid* back whatever is written; the hold counts while it waits."""
        self._holds[uid] = refusal

    def drop_unsent(self, uid: WorkloadUid) -> bool:
        """Believe no longer in what was not acknowledged of *uid*; say whether there was anything."""
        writes = self._writes.get(uid, deque())
        kept = deque(write for write in writes if write.resource_version is not None)
        if len(kept) == len(writes):
            return False
        if kept:
            self._writes[uid] = kept
        else:
            del self._writes[uid]
        return True

    def observe(self, uid: WorkloadUid, resource_version: int) -> None:
        """Take note that the API server has told *uid* as of *resource_version*."""
        writes = self._writes.get(uid)
        while writes and writes[0].resource_version is not None and resource_version >= writes[0].resource_version:
            writes.popleft()
        if not writes:
            self._writes.pop(uid, None)
        self._look_again(uid)

    def _look_again(self, uid: WorkloadUid) -> None:
        """End a hold that is for what comes next, whatever that is."""
        hold = self._holds.get(uid)
        if hold is not None and hold.until is None:
            del self._holds[uid]

    def forget(self, uid: WorkloadUid) -> None:
        """Drop all about a workload that is gone."""
        self._writes.pop(uid, None)
        self._holds.pop(uid, None)
        self._unplaced.pop(uid, None)

    def outcomes(self, uid: WorkloadUid) -> tuple[AssumedOutcome, ...]:
        """Return what is believed in, in the order of the writes."""
        return tuple(write.outcome for write in self._writes.get(uid, ()))

    def hold(self, uid: WorkloadUid, now: int) -> Refusal | None:
        """Return why *uid* is held back at *now*."""
        hold = self._holds.get(uid)
        if hold is not None and hold.until is not None and hold.until <= now:
            del self._holds[uid]
            return None
        return hold

    def unplaced_until(self, uid: WorkloadUid, now: int, *, evicted: bool) -> int | None:
        """Return until when one that was *evicted* before Karmada had placed it may still be placed.

        It is counted from when that was first seen, since nothing says when it was evicted.
        """
        if not evicted:
            self._unplaced.pop(uid, None)
            return None
        until = self._unplaced.setdefault(uid, now + _UNPLACED_MS)
        return until if until > now else None
