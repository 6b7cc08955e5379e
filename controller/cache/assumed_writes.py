"""Tracks state that the API server has not confirmed yet: writes in progress, and backoffs after failed writes.

A write is assumed from its decision until it has certainly failed, or until an object at least as new as its result is
observed.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.engine.reasons import Refusal
from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import Admission, Nomination, Reservation, WorkloadUid

#: How long after an eviction Karmada may still place a binding that it had not placed before (P5).
_UNPLACED_MS: Final = 330_000
#: An eviction may be carried out so long after the decision, whose time the record contains.
_WRITE_MS: Final = 60_000

#: How long Karmada may take to remove the Works of clusters that a binding has left; it doubles after each change (P5).
_REMOVAL_MS: Final = 60_000
_MAX_REMOVAL_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class AssumedEviction:
    """The workload was evicted."""

    back_off: Refusal | None = None
    """Why and until when it is not considered, if it, or a part that it needs, did not start (R1)."""
    has_run: bool = True
    """It had run; otherwise its admission had no effect."""
    excluded_clusters: Mapping[ClusterName, str] = field(default_factory=dict)
    """Clusters where it is not tried again, as its record will say."""
    self_caused: bool = False
    """Its user caused the eviction (P4)."""
    failed_clusters: tuple[ClusterName, ...] = ()
    """Those of the excluded clusters where it did not start this time; in the others it failed earlier."""


@dataclass(frozen=True, slots=True)
class AssumedRecordUpdate:
    """The nomination or reservation in the record of a pending workload, ``None`` if there is none any more."""

    nomination: Nomination | None
    reservation: Reservation | None = None


@dataclass(frozen=True, slots=True)
class AssumedRepair:
    """A write that does not change what the engine has decided: a repair, a requeue or an affinity term."""


AssumedOutcome = Admission | AssumedEviction | AssumedRecordUpdate | AssumedRepair
"""Effect of a write in progress."""


@dataclass(slots=True)
class AssumedWrite:
    """One write; *resource_version* is that of its result, once it is known."""

    outcome: AssumedOutcome
    resource_version: int | None = None


@dataclass(slots=True)
class Removal:
    """The removal of the Works of clusters that a binding has left, by Karmada."""

    generation: int
    """The binding's generation that Karmada has to process."""
    wait: int
    """How long Karmada may take, in milliseconds."""
    until: int

    def restart(self, generation: int, now: int) -> None:
        """Wait again, for twice as long if the last wait has ended without a removal."""
        if self.until <= now:
            self.wait = min(2 * self.wait, _MAX_REMOVAL_MS)
        self.generation, self.until = generation, now + self.wait


class AssumedWrites:
    """Assumed writes and backoffs by workload. The writes of one workload are executed in order."""

    def __init__(self) -> None:
        self._writes: dict[WorkloadUid, deque[AssumedWrite]] = {}
        self._backoffs: dict[WorkloadUid, Refusal] = {}
        self._placeable_until: dict[WorkloadUid, int] = {}
        self._removals: dict[WorkloadUid, Removal] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def __iter__(self) -> Iterator[WorkloadUid]:
        return iter(tuple(self._writes))

    def assume(self, uid: WorkloadUid, outcome: AssumedOutcome) -> None:
        """Assume *outcome* for *uid*; its write is in progress, or follows those that are."""
        self._writes.setdefault(uid, deque()).append(AssumedWrite(outcome))
        if isinstance(outcome, Admission):
            self._backoffs.pop(uid, None)

    def confirm(self, uid: WorkloadUid, resource_version: int, observed: int) -> None:
        """Keep an acknowledged write until it is observed; *observed* is the newest version in the cache."""
        write = next((write for write in self._writes.get(uid, ()) if write.resource_version is None), None)
        if write is not None:
            write.resource_version = resource_version
            self.observe(uid, observed)

    def roll_back(self, uid: WorkloadUid, refusal: Refusal | None) -> None:
        """Drop the failed write: with a *refusal* the workload backs off, without one all its writes are dropped."""
        if refusal is None:
            self._writes.pop(uid, None)
            self._end_backoff(uid)
            return
        writes = self._writes.get(uid, deque())
        failed = next((write for write in writes if write.resource_version is None), None)
        if failed is not None:
            writes.remove(failed)
        if not writes:
            self._writes.pop(uid, None)
        self._backoffs[uid] = refusal

    def back_off(self, uid: WorkloadUid, refusal: Refusal) -> None:
        """Let *uid* back off for *refusal*; the backoff counts while the workload is pending."""
        self._backoffs[uid] = refusal

    def drop_unsent(self, uid: WorkloadUid) -> bool:
        """Drop all unacknowledged writes of *uid*; return whether there were any."""
        writes = self._writes.get(uid, deque())
        acknowledged = deque(write for write in writes if write.resource_version is not None)
        if len(acknowledged) == len(writes):
            return False
        if acknowledged:
            self._writes[uid] = acknowledged
        else:
            del self._writes[uid]
        return True

    def observe(self, uid: WorkloadUid, resource_version: int) -> None:
        """Drop the writes of *uid* that *resource_version* includes."""
        writes = self._writes.get(uid)
        while writes and writes[0].resource_version is not None and resource_version >= writes[0].resource_version:
            writes.popleft()
        if not writes:
            self._writes.pop(uid, None)
        self._end_backoff(uid)

    def _end_backoff(self, uid: WorkloadUid) -> None:
        """End a backoff that lasts until the next observation."""
        backoff = self._backoffs.get(uid)
        if backoff is not None and backoff.until is None:
            del self._backoffs[uid]

    def forget(self, uid: WorkloadUid) -> None:
        """Drop everything about a deleted workload."""
        self._writes.pop(uid, None)
        self._backoffs.pop(uid, None)
        self._placeable_until.pop(uid, None)
        self._removals.pop(uid, None)

    def outcomes(self, uid: WorkloadUid) -> tuple[AssumedOutcome, ...]:
        """Return the assumed outcomes, in the order of their writes."""
        return tuple(write.outcome for write in self._writes.get(uid, ()))

    def backoff(self, uid: WorkloadUid, now: int) -> Refusal | None:
        """Return why *uid* backs off at *now*, ``None`` if it does not."""
        backoff = self._backoffs.get(uid)
        if backoff is not None and backoff.until is not None and backoff.until <= now:
            del self._backoffs[uid]
            return None
        return backoff

    def placeable_until(
        self, uid: WorkloadUid, now: int, *, evicted: bool, evicted_at: int | None = None
    ) -> int | None:
        """Return until when a workload that was *evicted* before Karmada placed it may still be placed.

        The time counts from the first observation, or from its record's *evicted_at* where that was long ago.
        """
        if not evicted:
            self._placeable_until.pop(uid, None)
            return None
        since = now if evicted_at is None else min(now, evicted_at + _WRITE_MS)
        until = self._placeable_until.setdefault(uid, since + _UNPLACED_MS)
        return until if until > now else None

    def removal(self, uid: WorkloadUid, generation: int, now: int, *, leaving: bool) -> Removal | None:
        """Return the removal of a workload that is *leaving* its clusters, ``None`` if it is not.

        The time counts from the first observation, because no object stores when it began.
        """
        if not leaving:
            self._removals.pop(uid, None)
            return None
        removal = self._removals.setdefault(uid, Removal(generation, _REMOVAL_MS, now + _REMOVAL_MS))
        if removal.generation != generation:
            removal.restart(generation, now)
        return removal
