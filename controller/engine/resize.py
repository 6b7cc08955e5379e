"""Admitted workloads that ask for more than they were let in with (D7).

What they have grown by is charged at once, whether it fits or not. Where it
does not, they have a while to shrink, or the others to make room; then they
go. That while is a budget: shrinking for a moment does not begin it again, it
comes back slowly. Those that ran on after they had finished are judged in the
same way.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from controller.engine.cluster_usage import earliest
from controller.engine.plan import Evict
from controller.engine.quota import Quota
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.resources import EMPTY, Resources, scale
from controller.engine.workloads import Admission, ClusterCharge, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.state import State

#: So much longer a workload must hold no more than fits until the time is returned that it did not.
_BUDGET_RETURN_FACTOR: Final = 24


def evict_rejected(state: "State", now: int) -> Iterator[Evict]:
    """Note since when each growth does not fit, and evict whose time is over, the first to outgrow first."""
    for uid in [uid for uid in state.outgrown if uid not in state.grown]:
        _stop_timer(state, uid, now)
    grown = sorted((state.workloads[uid] for uid in state.grown), key=lambda each: _eviction_order(state, each, now))
    for workload in grown:
        if _fits(state, workload):
            _stop_timer(state, workload.uid, now)
            if workload.uid not in state.moved:
                state.accepted.add(workload.uid)
            continue
        if workload.uid not in state.outgrown:
            state.outgrown[workload.uid] = now - _spent_budget(state, workload.uid, now)
        if state.policy.growth.evict and _eviction_due_at(state, workload) <= now:
            for part in (workload, *state.gangs.dependents(workload, state.workloads)):
                state.evict(part, now)
                yield Evict(part, EvictionReason.RESIZE_REJECTED)


def _stop_timer(state: "State", uid: WorkloadUid, now: int) -> None:
    """Note how long a workload held more than fitted, which counts when it does so again."""
    since = state.outgrown.pop(uid, None)
    if since is not None:
        state.overrun[uid] = (now - since, now)


def _spent_budget(state: "State", uid: WorkloadUid, now: int) -> int:
    """Return how much of its time a workload has spent before *now* and was not returned since."""
    spent, ended = state.overrun.pop(uid, (0, now))
    return max(spent - max(now - ended, 0) // _BUDGET_RETURN_FACTOR, 0)


def next_eviction_at(state: "State") -> int | None:
    """Return when the next one has to go."""
    if not state.policy.growth.evict:
        return None
    return earliest(_eviction_due_at(state, state.workloads[uid]) for uid in state.outgrown)


def _eviction_due_at(state: "State", workload: Workload) -> int:
    return max(state.outgrown[workload.uid] + state.policy.growth.grace_ms, workload.stays_until)


def _eviction_order(state: "State", workload: Workload, now: int) -> tuple[int, int, int, str, str, str]:
    """Return who goes first: who has not fitted for longest, then the lowest priority, then the newest."""
    since = state.outgrown.get(workload.uid, now)
    admitted_at = workload.admission.admitted_at if workload.admission else 0
    return since, workload.priority, -admitted_at, workload.name, workload.namespace, workload.uid


def _fits(state: "State", workload: Workload) -> bool:
    """Say whether it would be let in with what it holds now, in its queue and on the clusters where it is."""
    admission = workload.admission
    if workload.hold is not None and workload.hold.reason is Reason.REQUESTS_UNKNOWN:
        return False
    if admission is None:
        return True
    quota = state.books.quota()
    return _fits_quota(quota, workload, admission) and all(
        _fits_cluster(state, workload, booking) for booking in admission.bookings
    )


def _fits_quota(quota: Quota, workload: Workload, admission: Admission) -> bool:
    node = quota.tree.nodes.get(workload.queue, quota.tree.root)
    trial = quota.trial()
    trial.carry(node, scale(admission.charge, -1))
    return trial.refusal(node, admission.charge) is None


def _fits_cluster(state: "State", workload: Workload, booking: ClusterCharge) -> bool:
    """Say whether the cluster holds as much of it as must run at once (D11); one that is unusable is not asked."""
    site = state.ledger.site(booking.cluster)
    asked: Resources = booking.charge if workload.shape.replicas else workload.shape.gang
    left, own = site.settled if site.is_usable else EMPTY, booking.charge
    return not site.is_usable or all(
        amount <= left.get(name, 0) + own.get(name, 0) for name, amount in asked.items() if amount > 0
    )
