"""Who may lead, as one candidate can tell from the lease alone.

Pure. A lease is a hint and not a lock: what makes it safe are the proportions
of its times, which are checked here. Times of day in the lease are for people;
a candidate goes by its own clock and by when it saw the lease change.
"""

from dataclasses import dataclass
from typing import Final

_SEPARATOR: Final = "_"


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """How long a lease holds and a leader leads without renewing it, in seconds."""

    lease: float = 30
    """Nobody takes a lease that has not changed for so long, by the taker's clock."""
    renew: float = 12
    """A leader stops when its last successful renewal was begun so long ago."""
    retry: float = 2
    """How often the lease is looked at and renewed."""
    connect: float = 5
    """A write that was begun reaches the server within this time, or never."""
    write: float = 10
    """The server gives up a write after this time."""

    @property
    def violation(self) -> str | None:
        """Return why these times do not keep two leaders apart, or ``None``."""
        if self.lease <= self.renew + self.connect + self.write:
            return "lease_seconds must be above renew + connect + write seconds, or two may write at once"
        if self.renew <= 2 * self.retry:
            return "renew_seconds must be more than twice retry_seconds, or one failed renewal ends leadership"
        return None


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lease says."""

    version: str
    holder: str = ""
    """Nobody: it was released."""
    seconds: float = 0
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process that would lead; the *name* outlives it, the *run* does not."""

    name: str
    run: str

    @property
    def holder(self) -> str:
        """Return what the lease says while this one leads."""
        return f"{self.name}{_SEPARATOR}{self.run}"

    def holds(self, lease: Lease) -> bool:
        """Say whether this very process holds *lease*."""
        return lease.holder == self.holder

    def held_before(self, lease: Lease) -> bool:
        """Say whether an earlier process of the same name held *lease*."""
        return lease.holder.rpartition(_SEPARATOR)[0] == self.name and not self.holds(lease)


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A lease and since when it has been seen so, on the candidate's clock; *lease* is ``None`` where there is none."""

    lease: Lease | None
    since: float
    is_first: bool = False
    """Whether it is what the candidate found when it started."""


def observe_lease(lease: Lease | None, before: ObservedLease | None, now: float) -> ObservedLease:
    """Return what is known after looking: what has not changed is as old as it was.

    A lease that has vanished tells nothing of its holder, who may write on: it counts as it was last seen.
    """
    if before is None:
        return ObservedLease(lease, now, is_first=True)
    if lease is None or (before.lease is not None and before.lease.version == lease.version):
        return before
    return ObservedLease(lease, now)


def can_acquire(candidate: Candidate, observed: ObservedLease, timings: LeaseTimings, now: float) -> bool:
    """Say whether *candidate* may make the lease its own."""
    lease = observed.lease
    if lease is None or not lease.holder or candidate.holds(lease):
        return True
    if observed.is_first and candidate.held_before(lease):
        return True
    return now >= observed.since + max(lease.seconds, timings.lease)


def write_delay(candidate: Candidate, observed: ObservedLease, timings: LeaseTimings) -> float:
    """Return for how long a leader that has just taken the lease writes nothing yet.

    Writes of the one before may still be on their way, unless it said good-bye or there was none.
    """
    lease = observed.lease
    if lease is None or not lease.holder or candidate.holds(lease):
        return 0
    return timings.write
