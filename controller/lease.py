"""Decides whether a candidate may acquire the leader lease, from the lease alone.

A lease does not exclude a second writer by itself; the proportions of its timings do, and are validated here.
A candidate measures time with its own clock from the moment when it saw the lease change; timestamps inside the
lease are informational.
"""

from dataclasses import dataclass
from typing import Final

_SEPARATOR: Final = "_"


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """Durations of leader election, in seconds."""

    lease: float = 30
    """A candidate may acquire the lease after it has not changed for so long."""
    renew: float = 12
    """A leader stops this long after the start of its last successful renewal."""
    retry: float = 2
    """Interval between attempts to acquire or renew the lease."""
    connect: float = 5
    """A request reaches the server within this time or never."""
    write: float = 10
    """The server gives up a write after this time."""

    @property
    def violation(self) -> str | None:
        """Return why these timings allow two concurrent leaders, or ``None`` if they do not."""
        if self.lease <= self.renew + self.connect + self.write:
            return "lease_seconds must be above renew + connect + write seconds, or two leaders may write at once"
        if self.renew <= 2 * self.retry:
            return "renew_seconds must be more than twice retry_seconds, or one failed renewal ends leadership"
        return None


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a lease."""

    version: str
    holder: str = ""
    """Empty after a release."""
    seconds: float = 0
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that takes part in leader election; *name* survives a restart, *run* does not."""

    name: str
    run: str

    @property
    def holder(self) -> str:
        """Return the holder identity of the lease while this candidate leads."""
        return f"{self.name}{_SEPARATOR}{self.run}"

    def holds(self, lease: Lease) -> bool:
        """Return whether this process holds *lease*."""
        return lease.holder == self.holder

    def held_before(self, lease: Lease) -> bool:
        """Return whether an earlier process of the same name held *lease*."""
        return lease.holder.rpartition(_SEPARATOR)[0] == self.name and not self.holds(lease)


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A lease (``None`` if there is none) and the time since which it is unchanged, on the candidate's clock."""

    lease: Lease | None
    since: float
    is_first: bool = False
    """Whether it is the first observation after the candidate started."""


def observe_lease(lease: Lease | None, before: ObservedLease | None, now: float) -> ObservedLease:
    """Return the observation that follows *before*; an unchanged lease keeps its time.

    A lease that was deleted counts as last seen, because its holder may still write.
    """
    if before is None:
        return ObservedLease(lease, now, is_first=True)
    if lease is None or (before.lease is not None and before.lease.version == lease.version):
        return before
    return ObservedLease(lease, now)


def can_acquire(candidate: Candidate, observed: ObservedLease, timings: LeaseTimings, now: float) -> bool:
    """Return whether *candidate* may acquire the lease."""
    lease = observed.lease
    if lease is None or not lease.holder or candidate.holds(lease):
        return True
    if observed.is_first and candidate.held_before(lease):
        return True
    return now >= observed.since + max(lease.seconds, timings.lease)


def write_delay(candidate: Candidate, observed: ObservedLease, timings: LeaseTimings) -> float:
    """Return how long a new leader must wait before its first write, in seconds.

    Writes of the previous leader may still be in flight, unless it released the lease.
    """
    lease = observed.lease
    if lease is None or not lease.holder or candidate.holds(lease):
        return 0
    return timings.write
