"""Evicts admitted workloads with resized requests that do not fit (D7).

The increase is charged at once, whether it fits or not. A workload that does not fit has a grace period to
shrink or for capacity to become free; then it is evicted. The grace period is a budget: shrinking for a
moment does not restart it, it returns slowly. Workloads that run again after they finished are treated in the
same way.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from controller.engine.plan import Assume, Evict
from controller.engine.policy import Resize
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.state.cluster_state import earliest
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.queue_usage import QueueUsage
from controller.engine.state.resources import add, scale
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import Admission, ClusterCharge, Workload, WorkloadUid

#: A workload must fit this many times as long as it did not fit, until its grace period is whole again.
_BUDGET_RETURN_FACTOR: Final = 24


class ResizeTracker:
    """Tracks since when resized workloads do not fit, and how much of their grace periods they have used."""

    def __init__(self, workloads: WorkloadIndex, queue_usage: QueueUsage, cluster_usage: ClusterUsage) -> None:
        self.not_fitting_since: dict[WorkloadUid, int] = {}
        """When each resized workload that exceeds quota or capacity began to, in milliseconds."""
        self.spent_grace: dict[WorkloadUid, tuple[int, int]] = {}
        """How long workloads exceeded quota or capacity before they shrank or were evicted, and when that was."""
        self._workloads = workloads
        self._queue_usage = queue_usage
        self._cluster_usage = cluster_usage

    def forget(self, uid: WorkloadUid) -> None:
        """Stop tracking a workload."""
        self.not_fitting_since.pop(uid, None)
        self.spent_grace.pop(uid, None)

    def evict_rejected(self, policy: Resize, now: int, assume: Assume) -> Iterator[Evict]:
        """Update since when each resized workload does not fit; evict those past their grace period, longest first."""
        workloads = self._workloads
        for uid in [uid for uid in self.not_fitting_since if uid not in workloads.resized]:
            self.stop_timer(uid, now)
        resized = (workloads[uid] for uid in workloads.resized)
        for workload in sorted(resized, key=lambda workload: self._eviction_order(workload, now)):
            if workload.uid not in workloads.resized:
                continue  # evicted with another part of its gang
            if self._fits(workload):
                self.stop_timer(workload.uid, now)
                if workload.uid not in workloads.moved and self._is_evaluated(workload):
                    workloads.accepted.add(workload.uid)
                if workload.details.runs_after_finish and workload.uid in workloads.accepted:
                    assume(replace(workload, details=replace(workload.details, runs_after_finish=False)), now)
                continue
            if workload.uid not in self.not_fitting_since:
                self.not_fitting_since[workload.uid] = now - self._spent_budget(workload.uid, now)
            if policy.evict and self._eviction_due_at(workload, policy) <= now:
                for part in (workload, *workloads.gangs.dependents(workload, workloads.by_uid)):
                    assume(part.evicted(EvictionReason.RESIZE_REJECTED), now)
                    yield Evict(part, EvictionReason.RESIZE_REJECTED)

    def stop_timer(self, uid: WorkloadUid, now: int) -> None:
        """Record how long a workload did not fit; the time counts if it does not fit again."""
        since = self.not_fitting_since.pop(uid, None)
        if since is not None:
            self.spent_grace[uid] = (now - since, now)

    def _spent_budget(self, uid: WorkloadUid, now: int) -> int:
        """Return how much of its grace period a workload has used and not regained before *now*."""
        spent, ended = self.spent_grace.pop(uid, (0, now))
        return max(spent - max(now - ended, 0) // _BUDGET_RETURN_FACTOR, 0)

    def next_eviction_at(self, policy: Resize) -> int | None:
        """Return when the next resized workload must be evicted."""
        if not policy.evict:
            return None
        return earliest(self._eviction_due_at(self._workloads[uid], policy) for uid in self.not_fitting_since)

    def _eviction_due_at(self, workload: Workload, policy: Resize) -> int:
        return max(self.not_fitting_since[workload.uid] + policy.grace_ms, workload.eviction_retry_at)

    def _eviction_order(self, workload: Workload, now: int) -> tuple[int, int, int, str, str, str]:
        """Return the eviction order: longest without fitting, then lowest priority, then newest."""
        since = self.not_fitting_since.get(workload.uid, now)
        admitted_at = workload.admission.admitted_at if workload.admission else 0
        return since, workload.priority, -admitted_at, workload.name, workload.namespace, workload.uid

    def _fits(self, workload: Workload) -> bool:
        """Return whether the resources of which the workload requests more now fit its queue and clusters.

        After it had finished it has none of its requests, so all of them must fit.
        """
        admission = workload.admission
        if workload.hold is not None and workload.hold.reason is Reason.REQUESTS_UNKNOWN:
            return False
        if admission is None:
            return True
        increased = admission.increased
        if workload.details.runs_after_finish or not increased:
            increased = frozenset(admission.charge)
        return all(
            self._fits_cluster(workload, cluster_charge, increased) for cluster_charge in admission.cluster_charges
        ) and self._fits_quota(workload, admission, increased)

    def _is_evaluated(self, workload: Workload) -> bool:
        """Return whether its clusters are usable, and have got its requests: not while dispatching is suspended."""
        is_usable = (self._cluster_usage.cluster_state(own.cluster).is_usable for own in workload.cluster_charges)
        return workload.hold is None and all(is_usable)

    def _fits_cluster(self, workload: Workload, own: ClusterCharge, increased: AbstractSet[str]) -> bool:
        """Return whether the cluster holds what must run at once (D11); an unusable one may."""
        cluster_state = self._cluster_usage.cluster_state(own.cluster)
        if not cluster_state.is_usable:
            return True
        requirements = workload.requirements
        required = own.charge if requirements.replicas else requirements.gang_requests
        free = cluster_state.headroom_after_evictions
        return all(
            amount <= free.get(name, 0) + own.charge.get(name, 0)
            for name, amount in required.items()
            if amount > 0 and name in increased
        )

    def _fits_quota(self, workload: Workload, admission: Admission, increased: AbstractSet[str]) -> bool:
        quota = self._queue_usage.quota()
        node = quota.tree.nodes.get(workload.queue, quota.tree.root)
        trial = quota.overlay()
        trial.add_assumed(node, scale(admission.charge, -1))
        charge = {name: amount for name, amount in admission.charge.items() if name in increased}
        if trial.refusal(node, charge) is not None:
            return False
        if quota.capacity is None:
            return True
        # What others have overcommitted takes nothing of what exists.
        existing = add(quota.capacity, self._cluster_usage.overcommitted(without=admission))
        return trial.fits_root(node, charge, existing)
