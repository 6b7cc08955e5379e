"""Forecasts when reservations are fulfilled, so that others may use the reserved capacity until then (O9).

EASY backfill (Lifka, 1995): the *shadow time* of a reservation is when the workloads that run now have released what
it waits for, as far as their run times are known. A workload that ends before then may use what is reserved; another
one may use what the reservation does not need even then.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol

from controller.engine.placement.feasibility_cache import FeasibilityCache
from controller.engine.policy import Policy
from controller.engine.state.cluster_state import earliest
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.pending import owner_of, run_time_bounds
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, add_to, scale
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import Choice, ClusterCharge, Workload, WorkloadState, WorkloadUid

AmountsToLeaveFree = Callable[[int], Mapping[ClusterName, Resources] | None]
"""Returns what advance reservations reserve on each cluster at a time; ``None`` where they exclude one of them."""

#: The budget of each reservation: 1 - `backfill.confidence`, the probability that some backfilled workload ends late.
MISS_BUDGET = 64

#: A run that has exceeded its expected time is expected to end this much later, then twice as much, and so on.
_OVERRUN_MS = 60_000


class Release(NamedTuple):
    """What a running workload is expected to release."""

    at: int
    uid: str
    queue: QueueName
    charge: Resources
    cluster_charges: tuple[ClusterCharge, ...]


class ReservationDemand(NamedTuple):
    """What a reservation needs before its workloads can start."""

    owner: str
    charges: Sequence[tuple[Node, Resources]]
    """Quota by leaf."""
    by_cluster: Mapping[ClusterName, Resources]
    run_time_ms: int | None
    """For how long it is expected to hold them; ``None`` where unknown."""
    promised_start: int | None = None
    uids: tuple[WorkloadUid, ...] = ()
    """Its workloads."""


@dataclass(slots=True)
class Window:
    """The time until a reservation is fulfilled, and what is released in it."""

    shadow_time: int
    by_queue: dict[QueueName, Resources]
    """Released, for each queue in which quota is reserved."""
    by_cluster: dict[ClusterName, Resources]
    """Released, for each cluster on which capacity is reserved."""
    next_end: int | None
    """When the next of its releases is expected."""
    backfill_until: int
    """When backfilled workloads must end: the shadow time, or the promised start while that is earlier and to come."""
    spent: int = 0
    """Which part of the budget backfilled workloads have spent."""


def _holds_capacity(workload: Workload) -> bool:
    """Return whether a workload is admitted or being evicted: the write of its eviction may be rejected."""
    return workload.state is not WorkloadState.FINISHED and workload.admission is not None


def expected_end(workload: Workload, now: int) -> int | None:
    """Return when an admitted workload is expected to end, ``None`` where its run time is unknown."""
    if workload.run_time_ms is None or workload.admission is None or workload.admission.admitted_at <= 0:
        return None
    end, overrun = workload.admission.admitted_at + workload.run_time_ms, _OVERRUN_MS
    while end <= now:
        end, overrun = end + overrun, 2 * overrun
    return end


def spends(run_times_ms: Sequence[int], time_left: int) -> int | None:
    """Return which part of `MISS_BUDGET` a workload spends that must end in time; ``None`` if it is not expected to.

    *run_times_ms* are its expected run time and less probable bounds. An exact run time, without such, spends nothing.
    """
    count = bisect_right(run_times_ms, time_left)
    if not count:
        return None
    return MISS_BUDGET >> (count - 1) if len(run_times_ms) > 1 else 0


def presumed_end(workload: Workload, now: int) -> int:
    """Return when an admitted workload may be presumed to end: without a known run time after as long as it has run.

    Where it is unknown when it was admitted, it may end at once.
    """
    end, admission = expected_end(workload, now), workload.admission
    if end is not None or admission is None:
        return end if end is not None else now
    return now + (now - admission.admitted_at if admission.admitted_at > 0 else 0)


class AdvanceLimits(Protocol):
    """What advance reservations allow at later times (O11)."""

    def to_leave_free(
        self, workloads: Iterable[Workload], clusters: AbstractSet[ClusterName], at: int
    ) -> Mapping[ClusterName, Resources] | None:
        """Return what *workloads* must leave free on *clusters* at *at*, ``None`` if they may not use one then."""

    def ends_after(self, now: int) -> list[int]:
        """Return when reservations end after *now*."""


class BackfillWindows:
    """The windows of all reservations, as of the last cycle."""

    def __init__(
        self, workloads: WorkloadIndex, feasibility_cache: FeasibilityCache, in_advance: AdvanceLimits
    ) -> None:
        self.by_owner: dict[str, Window] = {}
        self.backfilled: dict[WorkloadUid, str] = {}
        """Workloads that use reserved capacity because they end in a window, with the reservation's owner."""
        self.spent: dict[str, int] = {}
        """Which part of its budget each reservation has spent, by owner."""
        self._inputs: tuple[object, ...] = ()
        """What the windows were computed from."""
        self._valid_until: int | None = None
        """When they change although these are the same; ``None``: never."""
        self._workloads = workloads
        self._feasibility_cache = feasibility_cache
        self._cluster_usage = feasibility_cache.cluster_usage
        self._in_advance = in_advance

    def update(
        self, demands: Callable[[], Iterable[ReservationDemand]], quota: Quota, policy: Policy, now: int
    ) -> bool:
        """Forecast the reservations where that is needed, the oldest first; return whether they were forecast.

        Each is expected to start before the next. Until an expected end, or while a reservation is fulfilled, windows
        depend only on the workloads and on usage.
        """
        workloads = self._workloads
        clusters = self._feasibility_cache.generation, self._cluster_usage.version
        inputs = quota, quota.version, clusters, workloads.version, policy.backfill, policy.advance_reservations
        if inputs == self._inputs and (self._valid_until is None or now < self._valid_until):
            return False
        releases = sorted(self._known_releases(now), key=_release_order) if workloads.with_reservation else []
        self._inputs = inputs
        self._valid_until = releases[0].at if releases else None
        before, self.by_owner = self.by_owner, {}
        for demand, window in self._forecast(demands(), releases, quota, policy, now):
            known = before.get(demand.owner)
            # An equal window stays the same object, so that what is cached for it stays valid.
            self.by_owner[demand.owner] = known if known == window else window
            self._valid_until = earliest((self._valid_until, window.shadow_time, window.backfill_until))
        owners = {owner_of(workload) for workload in workloads.with_reservation.values()}
        self.backfilled = {
            uid: owner
            for uid, owner in self.backfilled.items()
            if owner in owners and uid in workloads.by_uid and _holds_capacity(workloads[uid])
        }
        self.spent = {owner: spent for owner, spent in self.spent.items() if owner in owners}
        return True

    def have_changed_since(self, before: Mapping[str, Window]) -> bool:
        """Return whether a reservation has another window than *before*, so that it may bind fewer workloads."""
        windows = self.by_owner
        return any(owner in windows and windows[owner] is not window for owner, window in before.items())

    def _forecast(
        self,
        demands: Iterable[ReservationDemand],
        releases: list[Release],
        quota: Quota,
        policy: Policy,
        now: int,
    ) -> Iterator[tuple[ReservationDemand, Window]]:
        """Yield the windows of *demands*; the expected ends of their workloads are inserted into *releases*."""
        if not policy.backfill.enabled:
            return
        older: list[Release] = []
        for demand in demands:
            window = self._window(demand, releases, older, quota, now)
            if window is not None:
                yield demand, window
            taken = [Release(now, demand.owner, node.name, charge, ()) for node, charge in demand.charges]
            charges = tuple(ClusterCharge(name, charge) for name, charge in sorted(demand.by_cluster.items()))
            taken.append(Release(now, demand.owner, ROOT, EMPTY, charges))
            older += map(_as_use, taken)
            if window is not None and demand.run_time_ms is not None:
                end = window.shadow_time + demand.run_time_ms
                for release in taken:
                    insort(releases, release._replace(at=end), key=_release_order)

    def forecast(
        self, demand: ReservationDemand, others: Iterable[ReservationDemand], quota: Quota, policy: Policy, now: int
    ) -> int | None:
        """Return the shadow time of a reservation that is not granted yet, after those of *others*."""
        releases = sorted(self._known_releases(now), key=_release_order)
        for known, window in self._forecast([*others, demand], releases, quota, policy, now):
            if known is demand:
                return window.shadow_time
        return None

    def presumed_start(self, demand: ReservationDemand, quota: Quota, now: int) -> int | None:
        """Return when *demand* could be fulfilled if unknown run times are as long again as what has passed of them."""
        running = (workload for by_uid in self._workloads.admitted.values() for workload in by_uid.values())
        releases = [_release(workload, presumed_end(workload, now)) for workload in running]
        releases += [_release(workload, now) for workload in self._being_evicted()]
        releases += self._ends_in_advance(now)
        window = self._window(demand, sorted(filter(None, releases), key=_release_order), (), quota, now)
        return None if window is None else window.shadow_time

    def remaining_charges(self, until: int, now: int) -> dict[ClusterName, Resources]:
        """Return the charges on each cluster of the running workloads that are presumed to end after *until*."""
        remaining = dict[ClusterName, dict[str, int]]()
        for by_uid in self._workloads.admitted.values():
            for workload in by_uid.values():
                if presumed_end(workload, now) > until:
                    for cluster_charge in workload.cluster_charges:
                        add_to(remaining.setdefault(cluster_charge.cluster, {}), cluster_charge.charge)
        return {**remaining}

    def _being_evicted(self) -> Iterator[Workload]:
        for workload_class in self._workloads.pending.classes():
            yield from workload_class if workload_class.key.is_being_evicted else ()

    def _known_releases(self, now: int) -> list[Release]:
        running = (workload for by_uid in self._workloads.admitted.values() for workload in by_uid.values())
        ends = ((workload, expected_end(workload, now)) for workload in running)
        releases = filter(None, (_release(workload, end) for workload, end in ends if end is not None))
        return [*releases, *self._ends_in_advance(now)]

    def _ends_in_advance(self, now: int) -> list[Release]:
        """Return the ends of advance reservations, which release nothing but bind no longer (O11)."""
        return [Release(at, "", ROOT, EMPTY, ()) for at in self._in_advance.ends_after(now)]

    def _window(
        self,
        demand: ReservationDemand,
        releases: Iterable[Release],
        older: Iterable[Release],
        quota: Quota,
        now: int,
    ) -> Window | None:
        """Return the window of *demand*, ``None`` where *releases* do not suffice; *older* reservations go first.

        The releases are in order.
        """
        workloads = [self._workloads[uid] for uid in demand.uids]
        to_leave_free = partial(self._in_advance.to_leave_free, workloads, demand.by_cluster.keys())
        trial = _Trial(demand, quota, self._cluster_usage, to_leave_free)
        for taken in older:
            trial.release(taken)
        shadow_time, next_end, is_fulfilled = now, None, trial.is_fulfilled(now)
        for at, ending in groupby(releases, key=lambda release: release.at):
            if is_fulfilled:
                break
            shadow_time, next_end = max(at, now), at if next_end is None else next_end
            for release in ending:
                trial.release(release)
            is_fulfilled = trial.is_fulfilled(shadow_time)
        if not is_fulfilled:
            return None
        promised = demand.promised_start
        backfill_until = shadow_time if promised is None or promised <= now else min(shadow_time, promised)
        window, spent = trial.window(shadow_time, next_end), self.spent.get(demand.owner, 0)
        return replace(window, backfill_until=backfill_until, spent=spent)

    def on_admitted(
        self, workload: Workload, choice: Choice, quota: Quota, now: int, *, backfilled_onto: Iterable[str] = ()
    ) -> None:
        """Count the charges of a workload that is being admitted as released where it ends in a window.

        From the budgets of the reservations that it is *backfilled_onto* it spends the probability that it ends late.
        """
        if workload.run_time_ms is None:
            return
        for owner in backfilled_onto:
            window = self.by_owner[owner]
            spent = spends(run_time_bounds(workload), window.backfill_until - now)
            self.spent[owner] = window.spent + (MISS_BUDGET if spent is None else spent)
            self.by_owner[owner] = replace(window, spent=self.spent[owner])
            self.backfilled[workload.uid] = owner
        node = quota.tree.nodes[workload.queue]
        for owner, window in self.by_owner.items():
            if now + workload.run_time_ms <= window.shadow_time:
                # A new object, because the reservations that are computed from it change.
                next_end = earliest((window.next_end, now + workload.run_time_ms))
                changed = replace(
                    window, by_queue={**window.by_queue}, by_cluster={**window.by_cluster}, next_end=next_end
                )
                for above in node.path():
                    if above.name in changed.by_queue:
                        changed.by_queue[above.name] = add(changed.by_queue[above.name], choice.charge)
                for cluster_charge in choice.cluster_charges:
                    name = cluster_charge.cluster
                    if name in changed.by_cluster:
                        changed.by_cluster[name] = add(changed.by_cluster[name], cluster_charge.charge)
                self.by_owner[owner] = changed

    def next_change(self, now: int) -> int | None:
        """Return when a workload that a window counts on will have exceeded its run time, or a promise be missed."""
        windows = self.by_owner.values()
        ends = (window.next_end for window in windows if window.next_end is not None)
        missed = (window.backfill_until for window in windows if window.backfill_until < window.shadow_time)
        return earliest(at for at in (*ends, *missed) if at > now)


class _Trial:
    """What a reservation still lacks while running workloads release their charges."""

    def __init__(
        self, demand: ReservationDemand, quota: Quota, cluster_usage: ClusterUsage, to_leave_free: AmountsToLeaveFree
    ) -> None:
        self._demand = demand
        self._to_leave_free = to_leave_free
        self._quota = quota.overlay()
        self._new_releases: list[Release] = []
        """Releases that the quota does not contain yet; it follows only where its guarantees must be checked."""
        self._by_cluster: dict[ClusterName, dict[str, int]] = {name: {} for name in demand.by_cluster}
        """Released on each cluster of the reservation."""
        needed = dict[QueueName, Resources]()
        for leaf, charge in demand.charges:
            for node in leaf.path():
                needed[node.name] = add(needed.get(node.name, EMPTY), charge)
        self._by_queue: dict[QueueName, dict[str, int]] = {name: {} for name in needed}
        """Released in each of its queues and their ancestors."""
        self._lacking: list[tuple[dict[str, int], str, int]] = []
        """What must be released: where, of which resource, and how much."""
        self._on_clusters = [
            (cluster, charge, cluster_usage.cluster_state(cluster).available)
            for cluster, charge in demand.by_cluster.items()
        ]
        """Each cluster, the charge of the reservation there, and what is available now."""
        for cluster, charge, available in self._on_clusters:
            self._add_lacking(self._by_cluster[cluster], charge, available)
        for queue, charge in needed.items():
            free = quota.free_amounts(quota.tree.nodes[queue], charge)
            self._add_lacking(self._by_queue[queue], {name: charge[name] for name in free}, free)

    def _add_lacking(self, released: dict[str, int], charge: Resources, free: Resources) -> None:
        amounts = ((name, amount - free.get(name, 0)) for name, amount in charge.items() if amount > 0)
        self._lacking += [(released, name, amount) for name, amount in amounts]

    def release(self, release: Release) -> None:
        """Release the charges of one workload."""
        self._new_releases.append(release)
        for node in self._quota.tree.nodes.get(release.queue, self._quota.tree.root).path():
            if node.name in self._by_queue:
                add_to(self._by_queue[node.name], release.charge)
        for cluster_charge in release.cluster_charges:
            if cluster_charge.cluster in self._by_cluster:
                add_to(self._by_cluster[cluster_charge.cluster], cluster_charge.charge)

    def is_fulfilled(self, at: int) -> bool:
        """Return whether the reserved workloads could start at *at*."""
        if any(released.get(name, 0) < amount for released, name, amount in self._lacking):
            return False
        return self._is_allowed(at) and (not self._quota.guaranteed or self._is_unreserved())

    def _is_allowed(self, at: int) -> bool:
        """Return whether advance reservations allow the reserved workloads to start at *at* (O11)."""
        to_leave_free = self._to_leave_free(at)
        if to_leave_free is None:
            return False
        return all(
            amount + to_leave_free[cluster].get(name, 0) <= free.get(name, 0) + self._by_cluster[cluster].get(name, 0)
            for cluster, charge, free in self._on_clusters
            if cluster in to_leave_free
            for name, amount in charge.items()
            if amount > 0
        )

    def _is_unreserved(self) -> bool:
        """Return whether the guarantees of other queues leave enough quota."""
        nodes, root = self._quota.tree.nodes, self._quota.tree.root
        for release in self._new_releases:
            self._quota.add_assumed(nodes.get(release.queue, root), scale(release.charge, -1))
        self._new_releases.clear()
        after = self._quota.overlay()
        for leaf, charge in self._demand.charges:
            node = nodes[leaf.name]
            if after.refusal(node, charge) is not None:
                return False
            after.add_assumed(node, charge)
        return True

    def window(self, shadow_time: int, next_end: int | None) -> Window:
        """Return the window of the releases until *shadow_time*, when the demand is fulfilled."""
        by_queue: dict[QueueName, Resources] = {**self._by_queue}
        by_cluster: dict[ClusterName, Resources] = {**self._by_cluster}
        return Window(shadow_time, by_queue, by_cluster, next_end, shadow_time)


def _release_order(release: Release) -> tuple[int, str]:
    return release.at, release.uid


def _as_use(release: Release) -> Release:
    """Return the opposite of *release*: the use of the same amounts."""
    charges = tuple(
        ClusterCharge(cluster_charge.cluster, scale(cluster_charge.charge, -1))
        for cluster_charge in release.cluster_charges
    )
    return release._replace(charge=scale(release.charge, -1), cluster_charges=charges)


def _release(workload: Workload, at: int) -> Release | None:
    admission = workload.admission
    if admission is None:
        return None
    return Release(at, workload.uid, workload.queue, admission.charge, admission.cluster_charges)


def longest_run_time(workloads: Collection[Workload]) -> int | None:
    """Return the longest expected run time of *workloads* in milliseconds, ``None`` where one is unknown."""
    known = [workload.run_time_ms for workload in workloads if workload.run_time_ms is not None]
    return max(known) if len(known) == len(workloads) else None
