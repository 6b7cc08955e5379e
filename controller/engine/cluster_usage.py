"""What the member clusters have, what of it is ours, and what is left.

Headroom is allocatable less foreign use less our charges (C2). Foreign use is
learned from a summary that comes late and has no timestamp, so it rises at
once and falls only after a quiet settle period.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from controller.engine.candidates import CandidateCache
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.estimates import ClusterEstimates
from controller.engine.orphans import NO_ORPHANS, Orphan, Orphans
from controller.engine.resources import EMPTY, Resources, add, clamp_non_negative, nonzero, positive, subtract, total
from controller.engine.workloads import Admission, ClusterCharge, Workload

#: So many of the last frees are remembered one by one.
_REMEMBERED: Final = 1024


class RecentlyFreed:
    """The charges that were freed lately: the summary may show them for a while."""

    __slots__ = ("_charges", "total")

    def __init__(self) -> None:
        self._charges: list[tuple[int, Resources]] = []
        """When each was freed, the earliest first."""
        self.total: Resources = EMPTY

    def __bool__(self) -> bool:
        return bool(self._charges)

    @property
    def since(self) -> int:
        """Return when the earliest was freed."""
        return self._charges[0][0]

    def add(self, charge: Resources, now: int) -> None:
        """Remember a charge that was freed at *now*."""
        insort(self._charges, (now, charge), key=_at)
        self.total = add(self.total, charge)

    def forget(self, until: int) -> None:
        """Forget what was freed at *until* or before."""
        past = bisect_right(self._charges, until, key=_at)
        if past:
            self.total = nonzero(subtract(self.total, total(charge for _, charge in self._charges[:past])))
            del self._charges[:past]


def _at(end: tuple[int, Resources]) -> int:
    return end[0]


@dataclass(slots=True)
class ClusterState:
    """One cluster with its books; *cluster* is ``None`` while only charges are known of it."""

    name: ClusterName
    cluster: Cluster | None = None
    booked: Resources = EMPTY
    shown: Resources = EMPTY
    """The part of *booked* whose pods are known to be in the summary."""
    foreign: Resources = EMPTY
    leaving: Resources = EMPTY
    """The part of *booked* whose workloads were evicted and are not gone yet (P5)."""
    held: Resources = EMPTY
    """What is held here for those who wait for others to leave (P5)."""
    ended: RecentlyFreed = field(default_factory=RecentlyFreed)
    orphans: Orphans = NO_ORPHANS
    """The part of *foreign* that queues are still charged with: pods that deleted workloads have left running."""
    changed_at: int | None = None
    """When something of ours last changed there."""
    estimates: ClusterEstimates | None = None
    """What its estimator has counted; ``None`` where none is asked."""
    _known: tuple[Cluster | None, Resources, Resources] = (None, EMPTY, EMPTY)
    """Cluster, foreign use and charges that *_headroom* was counted from."""
    _headroom: Resources = EMPTY

    @property
    def is_usable(self) -> bool:
        """Say whether it takes new admissions (C1)."""
        return self.cluster is not None and self.cluster.is_usable

    @property
    def is_unknown(self) -> bool:
        """Say whether nobody knows what its nodes can hold."""
        return self.cluster is None or self.cluster.allocatable is None

    @property
    def allocatable(self) -> Resources:
        """Return what its nodes can hold in all, nothing while that is unknown."""
        return (self.cluster.allocatable if self.cluster else None) or EMPTY

    @property
    def capacity(self) -> Resources:
        """Return what others leave us there: allocatable less foreign use."""
        return clamp_non_negative(subtract(self.allocatable, self.foreign))

    @property
    def headroom(self) -> Resources:
        """Return what is left; negative where more is charged than there is room.

        It is asked for far more often than it changes; what it is made of is replaced and never altered.
        """
        cluster, foreign, booked = self._known
        if cluster is not self.cluster or foreign is not self.foreign or booked is not self.booked:
            self._known = self.cluster, self.foreign, self.booked
            self._headroom = subtract(subtract(self.allocatable, self.foreign), self.booked)
        return self._headroom

    @property
    def settled(self) -> Resources:
        """Return what is left once all who leave are gone, beside what is held."""
        if not self.leaving and not self.held:
            return self.headroom
        return subtract(add(self.headroom, self.leaving), self.held)

    @property
    def room(self) -> Resources:
        """Return what one more may take: what is left now as well as once the evictions under way are done (P5)."""
        if not self.leaving and not self.held:
            return self.headroom
        now, then = self.headroom, self.settled
        return {name: min(now.get(name, 0), then.get(name, 0)) for name in {**now, **then}}

    @property
    def freed(self) -> Resources:
        """Return what its nodes may have gained since the summary: the charges that ended lately (C3)."""
        return self.ended.total

    def learn(self, now: int, settle_ms: int) -> None:
        """Bring foreign use up to date with the summary."""
        if self.is_unknown or self.cluster is None:
            return
        self.ended.forget(now - settle_ms)
        explained = add(self.booked, self.ended.total)
        unexplained = clamp_non_negative(subtract(self.cluster.used, explained))
        self.foreign = {
            name: max(unexplained.get(name, 0), self.foreign.get(name, 0)) for name in {*unexplained, *self.foreign}
        }
        if self.changed_at is None or self.changed_at + settle_ms <= now:
            most = self._most_foreign()
            self.foreign = {name: min(amount, most.get(name, 0)) for name, amount in self.foreign.items()}
        self.foreign = positive(self.foreign)

    def _most_foreign(self) -> Resources:
        """Return what the summary leaves unexplained by the pods known to be in it."""
        used = self.cluster.used if self.cluster else EMPTY
        return clamp_non_negative(subtract(used, self.shown))

    def settles_at(self, settle_ms: int) -> int | None:
        """Return when foreign use may change although nothing is heard, or ``None``."""
        falls_at = self.changed_at + settle_ms if self.changed_at is not None and self.may_fall else None
        rises_at = self.ended.since + settle_ms if self.ended and self._may_rise else None
        return earliest((falls_at, rises_at))

    @property
    def _may_rise(self) -> bool:
        """Say whether only what has ended lately explains what the summary shows."""
        used = self.cluster.used if self.cluster else EMPTY
        return any(
            amount - self.booked.get(name, 0) > self.foreign.get(name, 0) for name, amount in used.items() if amount
        )

    @property
    def may_fall(self) -> bool:
        """Say whether foreign use is held higher than the summary asks for, until all is quiet."""
        most = self._most_foreign()
        return any(amount > most.get(name, 0) for name, amount in self.foreign.items())


class ClusterUsage:
    """All sites, by name."""

    def __init__(self) -> None:
        self.frees = 0
        """How often some cluster got more room."""
        self._freed: deque[ClusterName] = deque(maxlen=_REMEMBERED)
        self._freed_since: dict[int, frozenset[ClusterName]] = {}
        """Results of ``freed_since``, until the next of *frees*."""
        self.version = 0
        """Changes whenever any headroom does."""
        self.candidates = CandidateCache()
        self._sites: dict[ClusterName, ClusterState] = {}
        self._restless: set[ClusterName] = set()
        """Sites whose foreign use may change with time."""
        self._released: list[Orphan] = []
        """Orphaned charges that have ended, and that queues are charged with still."""
        self._pool: Resources | None = None
        self.turned_at: int | None = None
        """When a cluster last became usable or unusable; what is told before the first plan was so all along."""
        self._has_begun = self._has_turned = False
        self._is_estimating = False

    def __contains__(self, name: ClusterName) -> bool:
        return name in self._sites

    def switch_estimates(self, *, on: bool) -> None:
        """Keep estimates for every cluster from now on, none asked yet; or none at all."""
        self._is_estimating = on
        for site in self._sites.values():
            site.estimates = ClusterEstimates() if on else None
            self._has_changed(site, gave_room=True)

    def reestimated(self, name: ClusterName) -> None:
        """Look at a cluster again: its estimator may take other workloads than before."""
        self._has_changed(self.site(name), gave_room=True)

    def site(self, name: ClusterName) -> ClusterState:
        """Return the books of one cluster, opened if need be."""
        if name not in self._sites:
            self._sites[name] = ClusterState(name, estimates=ClusterEstimates() if self._is_estimating else None)
        return self._sites[name]

    def __iter__(self) -> Iterator[ClusterState]:
        return (self._sites[name] for name in sorted(self._sites))

    @property
    def clusters(self) -> list[Cluster]:
        """Return the known clusters, by name."""
        return [site.cluster for site in self if site.cluster is not None]

    def see(self, cluster: Cluster, now: int, settle_ms: int) -> None:
        """Take a cluster as it is at *now*."""
        site = self.site(cluster.name)
        is_new, before, foreign = site.is_unknown, site.cluster, site.foreign
        self._has_turned |= self._has_begun and site.is_usable != cluster.is_usable
        site.cluster = cluster
        if is_new:
            # Of what ran before we looked, only what runs for certain or has just ended explains the summary.
            site.ended.forget(now - settle_ms)
            site.foreign = clamp_non_negative(subtract(site._most_foreign(), site.ended.total))  # noqa: SLF001 - the ledger and its sites are one
        site.learn(now, settle_ms)
        self._follow(site, now, settle_ms)
        self._restless.add(cluster.name)
        # Most summaries only show what is booked already, so that headroom stays as it was.
        is_as_before = before is not None and not cluster.grades and replace(before, used=cluster.used) == cluster
        if self._is_estimating or not is_as_before or site.foreign != foreign:
            self._has_changed(site, gave_room=True)

    def describe(self, described: Callable[[Cluster], Cluster]) -> bool:
        """Replace each cluster by what *described* returns for it; say whether one of them is another one then."""
        changed = False
        for site in self:
            cluster = described(site.cluster) if site.cluster is not None else None
            if cluster != site.cluster:
                site.cluster, changed = cluster, True
                self._has_changed(site, gave_room=True)
        return changed

    def _has_changed(self, site: ClusterState, *, gave_room: bool) -> None:
        self.version += 1
        if gave_room:
            self._has_freed(site)
        if gave_room or not site.is_usable:
            self._pool = None

    def _has_freed(self, site: ClusterState) -> None:
        self.frees += 1
        self._freed.append(site.name)
        self._freed_since.clear()

    def freed_since(self, frees: int) -> frozenset[ClusterName] | None:
        """Return which clusters got more room since there were so many *frees*; ``None``: any of them."""
        known = self._freed_since.get(frees)
        if known is not None:
            return known
        news = self.frees - frees
        if news > len(self._freed):
            return None
        freed = self._freed_since[frees] = frozenset(islice(reversed(self._freed), news))
        return freed

    def lose(self, name: ClusterName) -> None:
        """Forget a cluster; its charges stay until their workloads say otherwise."""
        site = self.site(name)
        self._has_turned |= self._has_begun and site.is_usable
        site.cluster = None
        self._released += site.orphans.charges
        site.orphans = NO_ORPHANS
        self.version += 1
        self._pool = None
        if not any(site.booked.values()) and not site.held:
            del self._sites[name]

    def book(self, admission: Admission, now: int) -> None:
        """Charge the clusters of *admission*."""
        for booking in admission.bookings:
            site = self.site(booking.cluster)
            site.booked = add(site.booked, booking.charge)
            site.changed_at = now
            self._restless.add(site.name)
            self._has_changed(site, gave_room=False)
            if admission.shown:
                site.shown = add(site.shown, booking.charge)

    def lend(self, bookings: Iterable[ClusterCharge]) -> None:
        """Book for a trial; ``take_back`` leaves no trace of it."""
        for booking in bookings:
            site = self.site(booking.cluster)
            site.booked = add(site.booked, booking.charge)
            self.version += 1

    def take_back(self, bookings: Iterable[ClusterCharge]) -> None:
        """End a trial."""
        for booking in bookings:
            site = self.site(booking.cluster)
            site.booked = subtract(site.booked, booking.charge)
            self.version += 1

    def free(self, admission: Admission, now: int) -> None:
        """Free the clusters of *admission*; the summary is given time to follow."""
        for booking in admission.bookings:
            site = self.site(booking.cluster)
            site.booked = subtract(site.booked, booking.charge)
            site.ended.add(booking.charge, now)
            site.changed_at = now
            self._restless.add(site.name)
            self._has_freed(site)
            self._has_changed(site, gave_room=False)
            if admission.shown:
                site.shown = subtract(site.shown, booking.charge)

    def orphan(self, admission: Admission, workload: Workload, now: int) -> None:
        """Take what *admission* books for external usage with which the queue of *workload* stays charged."""
        for booking in admission.bookings:
            site = self.site(booking.cluster)
            orphan = Orphan(workload.queue, workload.namespace, booking.charge)
            site.orphans = site.orphans.added(orphan, site.foreign, now)
            site.foreign = positive(add(site.foreign, booking.charge))
            site.booked = subtract(site.booked, booking.charge)
            site.changed_at = now
            self._restless.add(site.name)
            self._has_changed(site, gave_room=True)
            if admission.shown:
                site.shown = subtract(site.shown, booking.charge)

    def _follow(self, site: ClusterState, now: int, settle_ms: int) -> None:
        """End orphaned charges as far as external usage has fallen."""
        site.orphans, ended = site.orphans.after(site.foreign, now, settle_ms)
        if ended:
            self._released += ended
            self._has_changed(site, gave_room=True)

    def take_released(self) -> list[Orphan]:
        """Return the orphaned charges that have ended since it was last asked."""
        released, self._released = self._released, []
        return released

    def recall(self, admission: Admission, now: int) -> None:
        """Remember what was freed when *admission* ended, before we looked: the summary may not have followed yet."""
        ended_at = min(admission.ends_at or now, now)
        for booking in admission.bookings:
            site = self.site(booking.cluster)
            site.ended.add(booking.charge, ended_at)
            site.changed_at = max(site.changed_at or ended_at, ended_at)
            self._restless.add(site.name)

    def depart(self, admission: Admission) -> None:
        """Take what *admission* charges for as good as free: its workload has been evicted."""
        for booking in admission.bookings:
            site = self.site(booking.cluster)
            site.leaving = nonzero(add(site.leaving, booking.charge))
            self._has_changed(site, gave_room=True)

    def rejoin(self, admission: Admission) -> None:
        """Take back ``depart``: its workload is gone, or it stays after all."""
        for booking in admission.bookings:
            site = self.site(booking.cluster)
            site.leaving = nonzero(subtract(site.leaving, booking.charge))
            self._has_changed(site, gave_room=False)

    def hold(self, name: ClusterName, demand: Resources) -> None:
        """Keep room for *demand* on a cluster."""
        site = self.site(name)
        site.held = nonzero(add(site.held, demand))
        self._has_changed(site, gave_room=False)

    def release(self, name: ClusterName, demand: Resources) -> None:
        """Keep it no longer."""
        site = self.site(name)
        site.held = nonzero(subtract(site.held, demand))
        self._has_changed(site, gave_room=True)

    def show(self, before: Admission, after: Admission, now: int) -> bool:
        """Note that the pods of an admission, booked all along, run now, or no longer; the summary will follow.

        Return whether foreign use may fall once it has.
        """
        if before.shown == after.shown:
            return False
        sites = [self.site(booking.cluster) for booking in after.bookings]
        for site, booking in zip(sites, after.bookings, strict=True):
            site.shown = (add if after.shown else subtract)(site.shown, booking.charge)
            site.changed_at = now
            self._restless.add(site.name)
        return any(site.may_fall for site in sites)

    def learn(self, now: int, settle_ms: int) -> None:
        """Bring foreign use up to date wherever it may have changed."""
        if self._has_turned:
            self.turned_at, self._has_turned = now, False
        self._has_begun = True
        for name in sorted(self._restless):
            site = self._sites.get(name)
            if site is None:
                self._restless.discard(name)
                continue
            before = site.foreign
            site.learn(now, settle_ms)
            self._follow(site, now, settle_ms)
            if site.foreign != before:
                self._has_changed(site, gave_room=True)
            if not site.ended and site.settles_at(settle_ms) is None:
                self._restless.discard(name)

    def pool(self) -> Resources:
        """Return the root's ceiling: what usable clusters leave us, and the charges on the others (Q1).

        What leaves is taken for gone, as everywhere where it is decided who may have what (P5). Orphans are charged
        to queues as well, so that they are not taken off here.
        """
        if self._pool is None:
            self._pool = total(
                add(site.capacity if site.is_usable else subtract(site.booked, site.leaving), site.orphans.total)
                for site in self._sites.values()
            )
        return self._pool

    def present_pool(self) -> Resources:
        """Return the root's ceiling as long as nobody who leaves is gone."""
        away = (site.leaving for site in self._sites.values() if not site.is_usable)
        return add(self.pool(), total(away))

    @property
    def is_unknown(self) -> bool:
        """Say whether there are clusters, and none has told what it has."""
        known = [site for site in self._sites.values() if site.cluster is not None]
        return bool(known) and all(site.is_unknown for site in known)

    def potential(self) -> Resources:
        """Return the root's ceiling as it would be with all clusters usable and empty (C5)."""
        return total(site.allocatable for site in self._sites.values())

    def settles_at(self, settle_ms: int) -> int | None:
        """Return the first moment at which some foreign use may change by itself, or ``None``."""
        return earliest(self._sites[name].settles_at(settle_ms) for name in self._restless if name in self._sites)


def earliest(times: Iterable[int | None]) -> int | None:
    """Return the smallest of the times that are set, or ``None``."""
    known = [time for time in times if time is not None]
    return min(known) if known else None
