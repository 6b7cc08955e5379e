"""Evicts admitted workloads with resized requests that do not fit (D7).

The increase is charged at once, whether it fits or not. A workload that does not fit has a grace period to
shrink or for capacity to become free; then it is evicted. The grace period is a budget: shrinking for a
moment does not restart it, it returns slowly. Workloads that run again after they finished are treated in the
same way.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from controller.engine.plan import Evict
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.state.cluster_usage import earliest
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, scale
from controller.engine.state.workloads import Admission, ClusterCharge, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.engine import Engine

#: A workload must fit this many times as long as it did not fit, until its grace period is whole again.
_BUDGET_RETURN_FACTOR: Final = 24


def evict_rejected(state: "Engine", now: int) -> Iterator[Evict]:
    """Track since when each resized workload does not fit, and evict those past their grace period, longest first."""
    for uid in [uid for uid in state.not_fitting_since if uid not in state.resized]:
        _stop_timer(state, uid, now)
    resized = sorted(
        (state.workloads[uid] for uid in state.resized), key=lambda workload: _eviction_order(state, workload, now)
    )
    for workload in resized:
        if _fits(state, workload):
            _stop_timer(state, workload.uid, now)
            if workload.uid not in state.moved:
                state.accepted.add(workload.uid)
            continue
        if workload.uid not in state.not_fitting_since:
            state.not_fitting_since[workload.uid] = now - _spent_budget(state, workload.uid, now)
        if state.policy.resize.evict and _eviction_due_at(state, workload) <= now:
            for part in (workload, *state.gangs.dependents(workload, state.workloads)):
                state.evict(part, now)
                yield Evict(part, EvictionReason.RESIZE_REJECTED)


def _stop_timer(state: "Engine", uid: WorkloadUid, now: int) -> None:
    """Record how long a workload did not fit; the time counts if it does not fit again."""
    since = state.not_fitting_since.pop(uid, None)
    if since is not None:
        state.spent_resize_grace[uid] = (now - since, now)


def _spent_budget(state: "Engine", uid: WorkloadUid, now: int) -> int:
    """Return how much of its grace period a workload has used and not regained before *now*."""
    spent, ended = state.spent_resize_grace.pop(uid, (0, now))
    return max(spent - max(now - ended, 0) // _BUDGET_RETURN_FACTOR, 0)


def next_eviction_at(state: "Engine") -> int | None:
    """Return when the next resized workload must be evicted."""
    if not state.policy.resize.evict:
        return None
    return earliest(_eviction_due_at(state, state.workloads[uid]) for uid in state.not_fitting_since)


def _eviction_due_at(state: "Engine", workload: Workload) -> int:
    return max(state.not_fitting_since[workload.uid] + state.policy.resize.grace_ms, workload.eviction_retry_at)


def _eviction_order(state: "Engine", workload: Workload, now: int) -> tuple[int, int, int, str, str, str]:
    """Return the eviction order: longest without fitting, then lowest priority, then newest."""
    since = state.not_fitting_since.get(workload.uid, now)
    admitted_at = workload.admission.admitted_at if workload.admission else 0
    return since, workload.priority, -admitted_at, workload.name, workload.namespace, workload.uid


def _fits(state: "Engine", workload: Workload) -> bool:
    """Say whether the workload's current requests fit its queue and clusters."""
    admission = workload.admission
    if workload.hold is not None and workload.hold.reason is Reason.REQUESTS_UNKNOWN:
        return False
    if admission is None:
        return True
    quota = state.queue_usage.quota()
    return _fits_quota(quota, workload, admission) and all(
        _fits_cluster(state, workload, cluster_charge) for cluster_charge in admission.cluster_charges
    )


def _fits_quota(quota: Quota, workload: Workload, admission: Admission) -> bool:
    node = quota.tree.nodes.get(workload.queue, quota.tree.root)
    trial = quota.overlay()
    trial.add_assumed(node, scale(admission.charge, -1))
    return trial.refusal(node, admission.charge) is None


def _fits_cluster(state: "Engine", workload: Workload, cluster_charge: ClusterCharge) -> bool:
    """Say whether the cluster holds what must run at once (D11); an unusable cluster counts as fitting."""
    cluster_state = state.cluster_usage.cluster_state(cluster_charge.cluster)
    required: Resources = (
        cluster_charge.charge if workload.requirements.replicas else workload.requirements.gang_requests
    )
    free, own_charge = (
        cluster_state.headroom_after_evictions if cluster_state.is_usable else EMPTY,
        cluster_charge.charge,
    )
    return not cluster_state.is_usable or all(
        amount <= free.get(name, 0) + own_charge.get(name, 0) for name, amount in required.items() if amount > 0
    )
