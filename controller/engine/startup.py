"""Who was admitted and does not start: given to Karmada again, then taken back, with its group if need be (R1, G1).

Who has run is never taken back because it does not run; as a part of a group
it goes when too few of the group are left to go on.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from controller.engine.clusters import ClusterName
from controller.engine.plan import Evict, StartupBackoff
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.resources import EMPTY, Resources, add, subtract
from controller.engine.workloads import ClusterCharge, HyperJobGang, Workload, WorkloadState, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.state import State

_HOUR_MS: Final = 3_600_000
#: What pauses are counted from where nobody looks whether workloads start.
_DEFAULT_TIMEOUT_MS: Final = 1_800_000
#: Why a part may wait that is to be started by us, and by nobody else.
_STARTABLE_REASONS: Final = {Reason.STARTUP_BACKOFF, Reason.PREEMPTION_IN_PROGRESS}


class StartupTracker:
    """When to look at whom, whom Karmada was given again, and which groups have lost parts that they need."""

    def __init__(self) -> None:
        self.requeued: dict[WorkloadUid, int] = {}
        """Whom Karmada's scheduler was given once more, and when; in milliseconds."""
        self.incomplete_gangs: dict[HyperJobGang, int] = {}
        """Since when parts of a group hold places, and others that it needs wait; in milliseconds."""
        self._check_at: dict[WorkloadUid, int] = {}
        self._checks: list[tuple[int, WorkloadUid]] = []
        """The same by time, with entries that do not count any more."""

    def track(self, workload: Workload, timeout_ms: int | None) -> None:
        """Take a workload as it is now."""
        admission = workload.admission
        if timeout_ms is None or admission is None or not workload.is_to_start:
            self._check_at.pop(workload.uid, None)
            if not workload.is_leaving:
                # Until it has left, its eviction may still be refused: then it is due as before.
                self.requeued.pop(workload.uid, None)
            return
        admitted_at = max(admission.admitted_at, workload.placed_at)
        if self.requeued.get(workload.uid, admitted_at) < admitted_at:
            del self.requeued[workload.uid]
        began = self.requeued.get(workload.uid, admitted_at)
        at = max(began + timeout_ms, workload.stays_until)
        if self._check_at.get(workload.uid) != at:
            self._check_at[workload.uid] = at
            heappush(self._checks, (at, workload.uid))

    def reschedule_all(self, workloads: Iterable[Workload], timeout_ms: int | None) -> None:
        """Give all who have yet to run another time for it."""
        for workload in workloads:
            self.track(workload, timeout_ms)

    def forget(self, uid: WorkloadUid) -> None:
        """Look at it no more."""
        self._check_at.pop(uid, None)
        self.requeued.pop(uid, None)

    def pop_due(self, now: int) -> list[WorkloadUid]:
        """Return whom to look at now; each is returned once."""
        found = set()
        while (at := self.next_check_at) is not None and at <= now:
            _, uid = heappop(self._checks)
            del self._check_at[uid]
            found.add(uid)
        return sorted(found)

    @property
    def next_check_at(self) -> int | None:
        """Return when to look at the next one."""
        while self._checks and self._check_at.get(self._checks[0][1]) != self._checks[0][0]:
            heappop(self._checks)
        return self._checks[0][0] if self._checks else None


def check_timeouts(state: "State", now: int) -> tuple[list[Evict], list[Workload]]:
    """Take back who has not started in time; return them, and whom Karmada's scheduler is to be given again."""
    timeout = state.policy.startup_timeout_ms
    if timeout is None:
        return [], []
    failed: list[Workload] = []
    again: list[Workload] = []
    for uid in state.startup.pop_due(now):
        workload = state.workloads[uid]
        # To give it to Karmada again where Karmada has no cluster for it would mean to admit it anew.
        if workload.unplaced or uid in state.startup.requeued:
            failed.append(workload)
            continue
        state.startup.requeued[uid] = now
        state.startup.track(workload, timeout)
        again.append(workload)
    uncounted, state.gangs.unchecked = state.gangs.unchecked, set()
    _track_incomplete_gangs(state, uncounted | _overdue_gangs(state, now, timeout), now)
    units = _eviction_units(state, failed, _overdue_gangs(state, now, timeout))
    return list(_evict_units(state, units, failed, now)), again


def evict_moved(state: "State", now: int) -> list[Evict]:
    """Evict the workloads that others have moved to clusters where their gangs cannot fit (R1); return the evictions.

    Those that stay are accepted: one that has run there, one that Karmada divides, and, the first in order first, as
    many others as fit beside one another. Each is judged without its own charge there.
    """
    moved = sorted((state.workloads[uid] for uid in state.moved - state.accepted), key=_keep_order)
    judged = [each for each in moved if not (each.has_run or _is_divided(each))]
    state.accepted.update(each.uid for each in moved if each not in judged)
    lifted: dict[ClusterName, Resources] = {}
    for workload in judged:
        for booking in _bookings_of(workload):
            lifted[booking.cluster] = add(lifted.get(booking.cluster, EMPTY), booking.charge)
    failed: list[Workload] = []
    for workload in judged:
        if not all(
            _fits_cluster(state, workload, each.cluster, lifted[each.cluster]) for each in _current_bookings(workload)
        ):
            failed.append(workload)
            continue
        state.accepted.add(workload.uid)
        for booking in _bookings_of(workload):
            lifted[booking.cluster] = subtract(lifted[booking.cluster], booking.charge)
    leaving = [each for each in failed if each.stays_until <= now]
    return list(
        _evict_units(state, _eviction_units(state, leaving, set()), leaving, now, reason=EvictionReason.CLUSTER_CHANGED)
    )


def _keep_order(workload: Workload) -> tuple[int, int, str, str, str]:
    """Return which of those that were moved stays first: the highest priority, then the oldest admission."""
    admitted_at = workload.admission.admitted_at if workload.admission else 0
    return -workload.priority, admitted_at, workload.name, workload.namespace, workload.uid


def _bookings_of(workload: Workload) -> tuple[ClusterCharge, ...]:
    return workload.admission.bookings if workload.admission is not None else ()


def _current_bookings(workload: Workload) -> tuple[ClusterCharge, ...]:
    """Return its bookings but for those on clusters that Karmada evicts it from: it runs on there only for a while."""
    bookings = _bookings_of(workload)
    placed = tuple(each for each in bookings if each.cluster not in workload.shape.evicting_from)
    return placed or bookings


def _is_divided(workload: Workload) -> bool:
    return workload.shape.replicas > 0 and workload.shape.placement.divided


def _fits_cluster(state: "State", workload: Workload, name: ClusterName, lifted: Resources) -> bool:
    """Say whether a cluster holds the gang beside all that is not *lifted*; one that is unusable is not asked."""
    site = state.ledger.site(name)
    left = add(site.settled, lifted)
    return not site.is_usable or all(
        amount <= left.get(resource, 0) for resource, amount in workload.shape.gang.items() if amount > 0
    )


def next_check_at(state: "State") -> int | None:
    """Return when somebody is to be looked at, or a group has waited long enough for its parts."""
    refused = [state.workloads[uid].stays_until for uid in state.moved - state.accepted]
    if state.policy.startup_timeout_ms is None:
        return min(refused, default=None)
    times = [*refused]
    times += [
        _may_lack_parts_until(state, group, state.policy.startup_timeout_ms) for group in state.startup.incomplete_gangs
    ]
    return min((at for at in (*times, state.startup.next_check_at) if at is not None), default=None)


def with_startup_backoff(workload: Workload, back_off: StartupBackoff) -> Workload:
    """Return one that is taken back, as it waits from then on.

    Whose run is ended was evicted; who has not run has tried in vain once more.
    """
    return replace(
        workload,
        state=WorkloadState.PENDING,
        shape=replace(workload.shape, excluded_clusters=frozenset(back_off.excluded_clusters)),
        has_run=False,
        hold=back_off.refusal,
        held=None,
        reserved=None,
        **workload.past.once_gone(has_run=workload.has_run, taken_back=True)._asdict(),
    )


def backoff_ms(attempts: int, timeout_ms: int) -> int:
    """Return how long one that did not start *attempts* times before waits: half the timeout, doubled each time."""
    return min((timeout_ms << min(attempts, 16)) // 2, max_backoff_ms(timeout_ms))


def max_backoff_ms(timeout_ms: int) -> int:
    """Return how long it waits at most."""
    return max(timeout_ms, _HOUR_MS)


def _evict_units(
    state: "State",
    units: Iterable[list[Workload]],
    failed: Collection[Workload],
    now: int,
    *,
    reason: EvictionReason = EvictionReason.STARTUP_TIMEOUT,
) -> Iterator[Evict]:
    """Take *units* back: those who have *failed* to start or were moved, and the groups that cannot go on."""
    at_fault = {each.uid for each in failed}
    has_moved = reason is EvictionReason.CLUSTER_CHANGED
    for unit in units:
        places = {booking.cluster for each in unit if each.uid in at_fault for booking in _current_bookings(each)}
        moved_to = tuple(sorted(places)) if has_moved else ()
        until = now + _backoff_for_ms(state, max(each.attempts for each in unit), has_moved=has_moved)
        for workload in unit:
            is_at_fault = workload.uid in at_fault
            excluded_clusters = _excluded_clusters(workload, is_at_fault=is_at_fault and not has_moved)
            back_off = StartupBackoff(now, until, excluded_clusters, is_at_fault, moved_to)
            state.take_back(workload, back_off, now)
            yield Evict(workload, reason, back_off=back_off)


def _backoff_for_ms(state: "State", attempts: int, *, has_moved: bool) -> int:
    """Return for how long one waits that is taken back: one that others have moved for the first time not at all."""
    timeout = _DEFAULT_TIMEOUT_MS if state.policy.startup_timeout_ms is None else state.policy.startup_timeout_ms
    if not has_moved:
        return backoff_ms(attempts, timeout)
    return backoff_ms(attempts - 1, timeout) if attempts else 0


def _excluded_clusters(workload: Workload, *, is_at_fault: bool) -> tuple[ClusterName, ...]:
    """Return where it is not tried again; where it has not been tried before is no lesson for one that has run."""
    known = frozenset[ClusterName]() if workload.has_run else workload.shape.excluded_clusters
    bookings = _current_bookings(workload) if is_at_fault else ()
    return tuple(sorted(known | {booking.cluster for booking in bookings}))


def _eviction_units(
    state: "State", failed: Collection[Workload], overdue: set[HyperJobGang]
) -> Iterator[list[Workload]]:
    """Yield those who go together: one alone, or those of a group."""
    yield from ([each] for each in failed if each.group is None)
    groups = {each.group for each in failed if each.group is not None} | overdue
    for group in sorted(groups, key=lambda each: each.key):
        gone = [each for each in failed if each.group == group]
        yield [*gone, *_dependent_parts(state, group, gone)]


def _overdue_gangs(state: "State", now: int, timeout: int) -> set[HyperJobGang]:
    """Return the groups that have gone on for too long without parts that they need."""
    return {group for group in state.startup.incomplete_gangs if _may_lack_parts_until(state, group, timeout) <= now}


def _dependent_parts(state: "State", group: HyperJobGang, gone: Collection[Workload]) -> list[Workload]:
    """Return who else of *group* has to go: nobody while enough of its parts are left without those who are *gone*."""
    left = [each for each in _parts(state, group) if each not in gone]
    if group.parts - len(gone) - sum(_is_to_be_admitted(each) for each in left) >= group.minimum:
        return []
    return [each for each in left if _is_admitted_by_us(each)]


def _track_incomplete_gangs(state: "State", groups: Collection[HyperJobGang], now: int) -> None:
    """Note since when *groups* hold places and lack parts."""
    for group in groups:
        parts = _parts(state, group)
        lacks = group.parts - sum(_is_to_be_admitted(each) for each in parts) < group.minimum
        if lacks and any(_is_admitted_by_us(each) for each in parts):
            state.startup.incomplete_gangs.setdefault(group, now)
        else:
            state.startup.incomplete_gangs.pop(group, None)


def _may_lack_parts_until(state: "State", group: HyperJobGang, timeout: int) -> int:
    """Return until when the others of a group may go on without the parts that it lacks."""
    stays = (each.stays_until for each in _parts(state, group) if _is_admitted_by_us(each))
    return max(state.startup.incomplete_gangs[group] + timeout, *stays, 0)


def _parts(state: "State", group: HyperJobGang) -> list[Workload]:
    return [state.workloads[uid] for uid in state.gangs.parts(group)]


def _is_to_be_admitted(part: Workload) -> bool:
    """Say whether it is for us to start; who was finished and deleted, or is held back by its tenant, is not."""
    return part.state is WorkloadState.PENDING and (part.hold is None or part.hold.reason in _STARTABLE_REASONS)


def _is_admitted_by_us(part: Workload) -> bool:
    """Say whether we let it in; what ran before we came is left alone (D10)."""
    return part.state is WorkloadState.ADMITTED and part.admission is not None and not part.admission.adopted
