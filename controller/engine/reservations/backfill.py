"""Forecasts when reservations are fulfilled, so that others may use the reserved capacity until then (O9).

EASY backfill (Lifka, 1995): the *shadow time* of a reservation is when the workloads that run now have released what
it waits for, as far as their run times are known. A workload that ends before then may use what is reserved; another
one may use what the reservation does not need even then.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from controller.engine.policy import Policy
from controller.engine.state.cluster_usage import ClusterUsage, earliest
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, fits, scale
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import Choice, ClusterCharge, Workload, WorkloadState, WorkloadUid

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


@dataclass(slots=True)
class Window:
    """The time until a reservation is fulfilled, and what is released in it."""

    shadow_time: int
    by_queue: dict[QueueName, Resources]
    by_cluster: dict[ClusterName, Resources]
    next_end: int | None
    """When the next of its releases is expected."""
    clusters: frozenset[ClusterName] = frozenset()
    """The clusters on which capacity is reserved."""


def expected_end(workload: Workload, now: int) -> int | None:
    """Return when an admitted workload is expected to end, ``None`` where its run time is unknown."""
    if workload.run_time_ms is None or workload.admission is None or workload.admission.admitted_at <= 0:
        return None
    end, overrun = workload.admission.admitted_at + workload.run_time_ms, _OVERRUN_MS
    while end <= now:
        end, overrun = end + overrun, 2 * overrun
    return end


def presumed_end(workload: Workload, now: int) -> int:
    """Return when an admitted workload may be presumed to end: without a known run time after as long as it has run.

    Where it is unknown when it was admitted, it may end at once.
    """
    end, admission = expected_end(workload, now), workload.admission
    if end is not None or admission is None:
        return end if end is not None else now
    return now + (now - admission.admitted_at if admission.admitted_at > 0 else 0)


class BackfillWindows:
    """The windows of all reservations, as of the last cycle."""

    def __init__(self, workloads: WorkloadIndex, cluster_usage: ClusterUsage) -> None:
        self.by_owner: dict[str, Window] = {}
        self.backfilled: dict[WorkloadUid, str] = {}
        """Admitted workloads that use reserved clusters because they end in a window, with the reservation's owner."""
        self._workloads = workloads
        self._cluster_usage = cluster_usage

    def update(self, demands: Iterable[ReservationDemand], quota: Quota, policy: Policy, now: int) -> None:
        """Forecast the reservations again, the oldest first: each is expected to start before the next."""
        before, self.by_owner = self.by_owner, {}
        for demand, window in self._forecast(demands, quota, policy, now):
            known = before.get(demand.owner)
            # An equal window stays the same object, so that what is cached for it stays valid.
            self.by_owner[demand.owner] = known if known == window else window
        owners = {owner_of(workload) for workload in self._workloads.with_reservation.values()}
        by_uid = self._workloads.by_uid
        self.backfilled = {
            uid: owner
            for uid, owner in self.backfilled.items()
            if owner in owners and uid in by_uid and by_uid[uid].state is WorkloadState.ADMITTED
        }

    def _forecast(
        self, demands: Iterable[ReservationDemand], quota: Quota, policy: Policy, now: int
    ) -> Iterator[tuple[ReservationDemand, Window]]:
        demands = tuple(demands)
        if not policy.backfill.enabled or not demands:
            return
        releases, older = self._known_releases(now), list[Release]()
        for demand in demands:
            window = self._window(demand, releases, older, quota, now)
            if window is not None:
                yield demand, window
            taken = [Release(now, demand.owner, node.name, charge, ()) for node, charge in demand.charges]
            charges = tuple(ClusterCharge(name, charge) for name, charge in sorted(demand.by_cluster.items()))
            taken.append(Release(now, demand.owner, ROOT, EMPTY, charges))
            older += taken
            if window is not None and demand.run_time_ms is not None:
                end = window.shadow_time + demand.run_time_ms
                releases += [release._replace(at=end) for release in taken]

    def forecast(
        self, demand: ReservationDemand, others: Iterable[ReservationDemand], quota: Quota, policy: Policy, now: int
    ) -> int | None:
        """Return the shadow time of a reservation that is not granted yet, after those of *others*."""
        for known, window in self._forecast([*others, demand], quota, policy, now):
            if known is demand:
                return window.shadow_time
        return None

    def presumed_start(self, demand: ReservationDemand, quota: Quota, now: int) -> int | None:
        """Return when *demand* could be fulfilled if unknown run times are as long again as what has passed of them."""
        running = (workload for by_uid in self._workloads.admitted.values() for workload in by_uid.values())
        releases = [_release(workload, presumed_end(workload, now)) for workload in running]
        releases += [_release(workload, now) for workload in self._leaving()]
        window = self._window(demand, filter(None, releases), (), quota, now)
        return None if window is None else window.shadow_time

    def _leaving(self) -> Iterator[Workload]:
        for workload_class in self._workloads.pending.classes():
            yield from workload_class if workload_class.is_leaving else ()

    def _known_releases(self, now: int) -> list[Release]:
        running = (workload for by_uid in self._workloads.admitted.values() for workload in by_uid.values())
        ends = ((workload, expected_end(workload, now)) for workload in running)
        return list(filter(None, (_release(workload, end) for workload, end in ends if end is not None)))

    def _window(
        self,
        demand: ReservationDemand,
        releases: Iterable[Release],
        older: Iterable[Release],
        quota: Quota,
        now: int,
    ) -> Window | None:
        """Return the window of *demand*, ``None`` where *releases* do not suffice; *older* reservations go first."""
        window, after = Window(now, {}, {}, None, frozenset(demand.by_cluster)), quota.overlay()
        free = {name: self._cluster_usage.cluster_state(name).available for name in demand.by_cluster}
        for taken in older:
            _apply(taken, window, free, after, times=-1)
        in_order = sorted(releases, key=lambda release: (release.at, release.uid))
        for at, ending in groupby(in_order, key=lambda release: release.at):
            if _is_fulfilled(demand, free, after):
                return window
            window.shadow_time = max(at, now)
            window.next_end = at if window.next_end is None else window.next_end
            for release in ending:
                _apply(release, window, free, after)
        return window if _is_fulfilled(demand, free, after) else None

    def on_admitted(self, workload: Workload, choice: Choice, quota: Quota, now: int) -> None:
        """Count the charges of a workload that is being admitted as released where it ends in a window."""
        if workload.run_time_ms is None:
            return
        node = quota.tree.nodes[workload.queue]
        choice_clusters = {cluster_charge.cluster for cluster_charge in choice.cluster_charges}
        for owner, window in self.by_owner.items():
            if now + workload.run_time_ms <= window.shadow_time:
                # A new object, because the reservations that are computed from it change.
                next_end = earliest((window.next_end, now + workload.run_time_ms))
                changed = replace(
                    window, by_queue={**window.by_queue}, by_cluster={**window.by_cluster}, next_end=next_end
                )
                if owner != owner_of(workload) and not window.clusters.isdisjoint(choice_clusters):
                    self.backfilled[workload.uid] = owner
                _count(changed, node, choice.charge, choice.cluster_charges)
                self.by_owner[owner] = changed

    def next_overrun(self, now: int) -> int | None:
        """Return when the next workload that a window counts on will have exceeded its run time."""
        ends = (window.next_end for window in self.by_owner.values())
        return earliest(end for end in ends if end is not None and end > now)


def _is_fulfilled(demand: ReservationDemand, free: Mapping[ClusterName, Resources], quota: Quota) -> bool:
    if not all(fits(charge, free[name]) for name, charge in demand.by_cluster.items()):
        return False
    after = quota.overlay() if len(demand.charges) > 1 else quota
    for leaf, charge in demand.charges:
        node = after.tree.nodes[leaf.name]
        if after.refusal(node, charge) is not None:
            return False
        if after is not quota:
            after.add_assumed(node, charge)
    return True


def _apply(
    release: Release, window: Window, free: dict[ClusterName, Resources], quota: Quota, *, times: int = 1
) -> None:
    """Release the charges of one workload, or with *times* -1 use them."""
    charges = [ClusterCharge(each.cluster, scale(each.charge, times)) for each in release.cluster_charges]
    for cluster_charge in charges:
        if cluster_charge.cluster in free:
            free[cluster_charge.cluster] = add(free[cluster_charge.cluster], cluster_charge.charge)
    node, charge = quota.tree.nodes.get(release.queue, quota.tree.root), scale(release.charge, times)
    quota.add_assumed(node, scale(charge, -1))
    _count(window, node, charge, charges)


def _count(window: Window, node: Node, charge: Resources, cluster_charges: Iterable[ClusterCharge]) -> None:
    for above in node.path():
        window.by_queue[above.name] = add(window.by_queue.get(above.name, EMPTY), charge)
    for cluster_charge in cluster_charges:
        name = cluster_charge.cluster
        window.by_cluster[name] = add(window.by_cluster.get(name, EMPTY), cluster_charge.charge)


def remaining(due: Resources, released: Resources) -> Resources:
    """Return what a reservation of *due* still sets aside where *released* becomes free in its window."""
    return {name: max(amount - released.get(name, 0), 0) for name, amount in due.items()}


def _release(workload: Workload, at: int) -> Release | None:
    admission = workload.admission
    if admission is None:
        return None
    return Release(at, workload.uid, workload.queue, admission.charge, admission.cluster_charges)


def longest_run_time(workloads: Collection[Workload]) -> int | None:
    """Return the longest expected run time of *workloads* in milliseconds, ``None`` where one is unknown."""
    known = [workload.run_time_ms for workload in workloads if workload.run_time_ms is not None]
    return max(known) if len(known) == len(workloads) else None


def owner_of(workload: Workload) -> str:
    """Return what identifies a reservation: the HyperJob of its parts, otherwise the workload."""
    return workload.gang.key if workload.gang is not None else workload.uid
