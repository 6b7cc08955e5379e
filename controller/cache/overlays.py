"""What we know of workloads before the API server tells it: writes under way, and writes that failed.

A write is believed from the decision on, until it has failed for certain or
an observation at least as new as its result has come (rule: charge on
decision, settle on the observed write).
"""

from dataclasses import dataclass

from controller.engine.reasons import Refusal
from controller.engine.workloads import Admission, WorkloadUid


@dataclass(slots=True)
class Write:
    """An admission being written; *resource_version* is that of its result, once it is known."""

    admission: Admission
    resource_version: int | None = None


class Overlays:
    """The writes and the holds that overlay observed truth, by workload."""

    def __init__(self) -> None:
        self._writes: dict[WorkloadUid, Write] = {}
        self._holds: dict[WorkloadUid, Refusal] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def assume(self, uid: WorkloadUid, admission: Admission) -> None:
        """Believe that *uid* is admitted: its write is under way."""
        self._writes[uid] = Write(admission)
        self._holds.pop(uid, None)

    def settle(self, uid: WorkloadUid, resource_version: int, observed: int) -> None:
        """Believe a write that was acknowledged until it is observed; *observed* is the newest version known."""
        write = self._writes.get(uid)
        if write is not None:
            write.resource_version = resource_version
            self.observe(uid, observed)

    def withdraw(self, uid: WorkloadUid, refusal: Refusal | None) -> None:
        """Believe no longer that *uid* is admitted; with a *refusal* it is held back for that."""
        self._writes.pop(uid, None)
        if refusal is not None:
            self._holds[uid] = refusal

    def observe(self, uid: WorkloadUid, resource_version: int) -> None:
        """Take note that the API server has told *uid* as of *resource_version*."""
        write = self._writes.get(uid)
        if write is not None and write.resource_version is not None and resource_version >= write.resource_version:
            del self._writes[uid]
        hold = self._holds.get(uid)
        if hold is not None and hold.until is None:
            del self._holds[uid]

    def forget(self, uid: WorkloadUid) -> None:
        """Drop all about a workload that is gone."""
        self._writes.pop(uid, None)
        self._holds.pop(uid, None)

    def admission(self, uid: WorkloadUid) -> Admission | None:
        """Return the admission that is believed in."""
        write = self._writes.get(uid)
        return write.admission if write else None

    def hold(self, uid: WorkloadUid, now: int) -> Refusal | None:
        """Return why *uid* is held back at *now*."""
        hold = self._holds.get(uid)
        if hold is not None and hold.until is not None and hold.until <= now:
            del self._holds[uid]
            return None
        return hold
