"""Evicts workloads that do not start in time after admission, with their HyperJob parts if needed (R1, G1).

A workload is first handed to Karmada's scheduler again. One that has run is not evicted for not running; as a
HyperJob part it is evicted when too few parts are left.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final

from controller.engine.plan import Assume, Evict, StartupBackoff
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.resources import EMPTY, Resources, add, subtract
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import ClusterCharge, HyperJobGang, Workload, WorkloadState, WorkloadUid

_HOUR_MS: Final = 3_600_000
#: Base of the backoff where no startup timeout is configured.
_DEFAULT_TIMEOUT_MS: Final = 1_800_000
#: So many outdated check times are kept, in addition to as many as there are current ones.
_MAX_OUTDATED: Final = 1_024
#: Pending reasons of parts that their users stopped, or that are not evaluated: the other parts run without them.
_STOPPED_REASONS: Final = {Reason.ABORTED, Reason.SUSPENDED, Reason.INTERNAL_ERROR}


class StartupTracker:
    """Tracks when to check workloads, which were requeued, and which gangs lack parts that they need."""

    def __init__(self) -> None:
        self.requeued: dict[WorkloadUid, int] = {}
        """When workloads were handed to Karmada's scheduler again, in milliseconds."""
        self.incomplete_gangs: dict[HyperJobGang, int] = {}
        """Since when gangs hold clusters while parts that they need are pending, in milliseconds."""
        self._check_at: dict[WorkloadUid, int] = {}
        self._checks: list[tuple[int, WorkloadUid]] = []
        """Heap of check times; may contain outdated entries."""

    def track(self, workload: Workload, timeout_ms: int | None) -> None:
        """Update the check time of a workload."""
        admission = workload.admission
        if timeout_ms is None or admission is None or not workload.awaits_start:
            self._check_at.pop(workload.uid, None)
            if not workload.is_being_evicted:
                # Its eviction may still be refused; then the earlier deadline applies.
                self.requeued.pop(workload.uid, None)
            return
        admitted_at = max(admission.admitted_at, workload.details.placed_at)
        if self.requeued.get(workload.uid, admitted_at) < admitted_at:
            del self.requeued[workload.uid]
        started_at = self.requeued.get(workload.uid, admitted_at)
        at = max(started_at + timeout_ms, workload.eviction_retry_at)
        if self._check_at.get(workload.uid) != at:
            self._check_at[workload.uid] = at
            heappush(self._checks, (at, workload.uid))
            if len(self._checks) > 2 * len(self._check_at) + _MAX_OUTDATED:
                self._checks = sorted((check_at, uid) for uid, check_at in self._check_at.items())

    def reschedule_all(self, workloads: Iterable[Workload], timeout_ms: int | None) -> None:
        """Reschedule all workloads that have not run yet."""
        for workload in workloads:
            self.track(workload, timeout_ms)

    def forget(self, uid: WorkloadUid) -> None:
        """Stop tracking a workload."""
        self._check_at.pop(uid, None)
        self.requeued.pop(uid, None)

    def pop_due(self, now: int) -> list[WorkloadUid]:
        """Return the workloads that are due, once each."""
        due = set()
        while (at := self.next_check_at) is not None and at <= now:
            _, uid = heappop(self._checks)
            del self._check_at[uid]
            due.add(uid)
        return sorted(due)

    @property
    def next_check_at(self) -> int | None:
        """Return when the next workload is due."""
        while self._checks and self._check_at.get(self._checks[0][1]) != self._checks[0][0]:
            heappop(self._checks)
        return self._checks[0][0] if self._checks else None


class StartupChecks:
    """Evicts workloads that do not start, or that others moved where they do not fit."""

    def __init__(
        self,
        tracker: StartupTracker,
        workloads: WorkloadIndex,
        cluster_usage: ClusterUsage,
        timeout_ms: int | None,
        assume: Assume,
    ) -> None:
        self._tracker = tracker
        self._workloads = workloads
        self._cluster_usage = cluster_usage
        self._timeout_ms = timeout_ms
        self._assume = assume

    def check_timeouts(self, now: int) -> tuple[list[Evict], list[Workload]]:
        """Evict workloads past their startup timeout; return the evictions, and the workloads to requeue in Karmada."""
        timeout = self._timeout_ms
        unchecked, self._workloads.gangs.unchecked = self._workloads.gangs.unchecked, set()
        if timeout is None:
            return [], []
        failed: list[Workload] = []
        requeued: list[Workload] = []
        for uid in self._tracker.pop_due(now):
            workload = self._workloads[uid]
            # Karmada has no cluster for it, so requeueing would mean a new admission.
            if workload.details.unplaced or uid in self._tracker.requeued:
                failed.append(workload)
                continue
            self._tracker.requeued[uid] = now
            self._tracker.track(workload, timeout)
            requeued.append(workload)
        self._track_incomplete_gangs(unchecked | self._overdue_gangs(now, timeout), now)
        units = self._eviction_units(failed, self._overdue_gangs(now, timeout))
        return list(self._evict_units(units, failed, now)), requeued

    def evict_moved(self, now: int) -> list[Evict]:
        """Evict workloads that others have moved to clusters where their gangs do not fit (R1).

        A workload stays if it has run there or Karmada divides it; of the rest, as many stay as fit together, in
        order. Each is checked without its own charge, once its clusters are usable.
        """
        checked: list[Workload] = []
        for workload in sorted(self._moved(), key=_keep_order):
            if workload.has_run or workload.requirements.is_divided:
                self._workloads.accepted.add(workload.uid)
            elif self._is_on_usable_clusters(workload):
                checked.append(workload)
        freed: dict[ClusterName, Resources] = {}
        for workload in checked:
            for cluster_charge in workload.cluster_charges:
                freed[cluster_charge.cluster] = add(freed.get(cluster_charge.cluster, EMPTY), cluster_charge.charge)
        failed: list[Workload] = []
        for workload in checked:
            if not all(
                _fits_cluster(self._cluster_usage.cluster_state(charge.cluster), workload, freed[charge.cluster])
                for charge in _current_charges(workload)
            ):
                failed.append(workload)
                continue
            self._workloads.accepted.add(workload.uid)
            for cluster_charge in workload.cluster_charges:
                freed[cluster_charge.cluster] = subtract(freed[cluster_charge.cluster], cluster_charge.charge)
        due = [workload for workload in failed if workload.eviction_retry_at <= now]
        return list(
            self._evict_units(self._eviction_units(due, set()), due, now, reason=EvictionReason.CLUSTER_CHANGED)
        )

    def next_check_at(self) -> int | None:
        """Return when the next workload or incomplete gang must be checked."""
        evictable_at = [
            workload.eviction_retry_at for workload in self._moved() if self._is_on_usable_clusters(workload)
        ]
        if self._timeout_ms is None:
            return min(evictable_at, default=None)
        times = [*evictable_at]
        times += [self._may_lack_parts_until(gang, self._timeout_ms) for gang in self._tracker.incomplete_gangs]
        return min((at for at in (*times, self._tracker.next_check_at) if at is not None), default=None)

    def _moved(self) -> Iterator[Workload]:
        """Yield the moved workloads that are not accepted where they are."""
        return (self._workloads[uid] for uid in self._workloads.moved - self._workloads.accepted)

    def _is_on_usable_clusters(self, workload: Workload) -> bool:
        return all(self._cluster_usage.cluster_state(charge.cluster).is_usable for charge in _current_charges(workload))

    def _evict_units(
        self,
        units: Iterable[list[Workload]],
        failed: Collection[Workload],
        now: int,
        *,
        reason: EvictionReason = EvictionReason.STARTUP_TIMEOUT,
    ) -> Iterator[Evict]:
        """Evict *units*: workloads that *failed* to start or were moved, and gangs that lack parts."""
        at_fault = {part.uid for part in failed}
        has_moved = reason is EvictionReason.CLUSTER_CHANGED
        for unit in units:
            clusters = {
                cluster_charge.cluster
                for part in unit
                if part.uid in at_fault
                for cluster_charge in _current_charges(part)
            }
            moved_clusters = tuple(sorted(clusters)) if has_moved else ()
            until = now + self._backoff_for_ms(max(part.details.failed_starts for part in unit), has_moved=has_moved)
            has_gang_run = has_moved or unit[0].gang is None or self._has_gang_run(unit[0].gang)
            for workload in unit:
                is_at_fault = workload.uid in at_fault
                failed_clusters = _failed_clusters(workload) if is_at_fault and not has_moved else frozenset()
                back_off = StartupBackoff(
                    now,
                    until,
                    excluded_clusters=tuple(sorted(_excluded_before(workload) | failed_clusters)),
                    caused_failure=is_at_fault,
                    moved_to=moved_clusters,
                    failed_clusters=tuple(sorted(failed_clusters)),
                    has_gang_run=has_gang_run,
                )
                self._assume(with_startup_backoff(workload, back_off), now)
                yield Evict(workload, reason, back_off=back_off)

    def _backoff_for_ms(self, attempts: int, *, has_moved: bool) -> int:
        """Return the backoff of an eviction; a workload moved by others has none the first time."""
        timeout = _DEFAULT_TIMEOUT_MS if self._timeout_ms is None else self._timeout_ms
        if not has_moved:
            return backoff_ms(attempts, timeout)
        return backoff_ms(attempts - 1, timeout) if attempts else 0

    def _eviction_units(self, failed: Collection[Workload], overdue: set[HyperJobGang]) -> Iterator[list[Workload]]:
        """Yield the workloads to evict together: single ones, or the parts of a gang."""
        by_gang: dict[HyperJobGang, list[Workload]] = {gang: [] for gang in overdue}
        for workload in failed:
            if workload.gang is None:
                yield [workload]
            else:
                by_gang.setdefault(workload.gang, []).append(workload)
        for gang, evicted in sorted(by_gang.items(), key=lambda item: item[0].key):
            yield [*evicted, *self._dependent_parts(gang, {part.uid for part in evicted})]

    def _overdue_gangs(self, now: int, timeout: int) -> set[HyperJobGang]:
        """Return the gangs that have lacked needed parts for too long."""
        return {gang for gang in self._tracker.incomplete_gangs if self._may_lack_parts_until(gang, timeout) <= now}

    def _dependent_parts(self, gang: HyperJobGang, evicted: Collection[WorkloadUid]) -> list[Workload]:
        """Return the other parts of *gang* to evict; none while enough remain without those *evicted*."""
        remaining = [part for part in self._workloads.parts(gang) if part.uid not in evicted]
        if not _lacks_parts(gang, remaining):
            return []
        return [part for part in remaining if part.is_admitted_here]

    def _has_gang_run(self, gang: HyperJobGang) -> bool:
        """Return whether enough parts of *gang* have run since their admission, or were stopped by their users."""
        parts = self._workloads.parts(gang)
        return not _lacks_parts(gang, [part for part in parts if part.state is WorkloadState.PENDING or _has_run(part)])

    def _track_incomplete_gangs(self, gangs: Collection[HyperJobGang], now: int) -> None:
        """Track since when *gangs* hold clusters and lack parts."""
        for gang in gangs:
            parts = self._workloads.parts(gang)
            if _lacks_parts(gang, parts) and any(part.is_admitted_here for part in parts):
                self._tracker.incomplete_gangs.setdefault(gang, now)
            else:
                self._tracker.incomplete_gangs.pop(gang, None)

    def _may_lack_parts_until(self, gang: HyperJobGang, timeout: int) -> int:
        """Return until when a gang may run without the parts that it lacks."""
        evictable_at = (part.eviction_retry_at for part in self._workloads.parts(gang) if part.is_admitted_here)
        return max(self._tracker.incomplete_gangs[gang] + timeout, *evictable_at, 0)


def _keep_order(workload: Workload) -> tuple[int, int, str, str, str]:
    """Return the order in which moved workloads stay: highest priority, then oldest admission."""
    admitted_at = workload.admission.admitted_at if workload.admission else 0
    return -workload.priority, admitted_at, workload.name, workload.namespace, workload.uid


def _current_charges(workload: Workload) -> tuple[ClusterCharge, ...]:
    """Return its charges without clusters that Karmada evicts it from, where it runs for a limited time only."""
    evicting_from = workload.requirements.evicting_from
    current = tuple(charge for charge in workload.cluster_charges if charge.cluster not in evicting_from)
    return current or workload.cluster_charges


def _fits_cluster(cluster_state: ClusterState, workload: Workload, freed: Resources) -> bool:
    """Return whether a cluster holds the gang next to all that is not *freed*."""
    free = add(cluster_state.headroom_after_evictions, freed)
    return all(
        amount <= free.get(resource, 0)
        for resource, amount in workload.requirements.gang_requests.items()
        if amount > 0
    )


def with_startup_backoff(workload: Workload, back_off: StartupBackoff) -> Workload:
    """Return *workload* as pending with *back_off*.

    If it has run, with enough parts of its HyperJob, it counts as evicted, else as one more failed start.
    """
    return replace(
        workload,
        state=WorkloadState.PENDING,
        requirements=replace(
            workload.requirements,
            excluded_clusters=frozenset(back_off.excluded_clusters),
            retryable_clusters=frozenset(),
        ),
        hold=back_off.refusal,
        details=workload.details.after_eviction(taken_back=True, has_gang_run=back_off.has_gang_run),
    )


def backoff_ms(attempts: int, timeout_ms: int) -> int:
    """Return the backoff after *attempts* earlier failures: half the timeout, doubled each time."""
    return min((timeout_ms << min(attempts, 16)) // 2, max_backoff_ms(timeout_ms))


def max_backoff_ms(timeout_ms: int) -> int:
    """Return the longest backoff."""
    return max(timeout_ms, _HOUR_MS)


def _excluded_before(workload: Workload) -> frozenset[ClusterName]:
    """Return the clusters where it failed to start earlier; none after a run."""
    has_run = workload.has_run or workload.details.has_run_before
    return frozenset() if has_run else workload.requirements.excluded_clusters


def _failed_clusters(workload: Workload) -> frozenset[ClusterName]:
    """Return the clusters where a workload that is at fault did not start.

    It did start in clusters from which Karmada took it away after a run, because they ceased to match.
    """
    charges = () if workload.details.has_run_before else _current_charges(workload)
    return frozenset(cluster_charge.cluster for cluster_charge in charges)


def _lacks_parts(gang: HyperJobGang, parts: Iterable[Workload]) -> bool:
    """Return whether *gang* needs more parts than those of *parts* that started, or that their users stopped."""
    counted = [
        part
        for part in parts
        if part.state is not WorkloadState.PENDING or (part.hold is not None and part.hold.reason in _STOPPED_REASONS)
    ]
    return len(counted) < gang.minimum


def _has_run(part: Workload) -> bool:
    """Return whether a part that is not pending has run since its admission."""
    return part.state is WorkloadState.FINISHED or part.has_run or part.details.has_run_before
