"""What was last dispatched of workloads whose dispatching is suspended: their clusters run that, whatever they ask now.

A policy of a tenant may suspend dispatching at any time. The clusters report how many pods of a Volcano Job there are,
which survives a restart; how large the pods of other kinds are is only known from what was seen here before.
"""

from dataclasses import replace

from controller.cache.objects import CachedBinding, WorkloadRequests
from controller.engine.resources import elementwise_max
from controller.engine.workloads import WorkloadUid


class DispatchedRequests:
    """Remembers the demand of each placed workload while it may be dispatched, and the largest since then."""

    def __init__(self) -> None:
        self._demands: dict[WorkloadUid, WorkloadRequests] = {}

    def charged(self, binding: CachedBinding, demand: WorkloadRequests | None) -> WorkloadRequests | None:
        """Return what *binding* may run: *demand*, or more where that is not dispatched."""
        if not binding.targets or binding.paused:
            self._demands.pop(binding.uid, None)
            return demand
        known = self._demands.get(binding.uid)
        if binding.suspension is not None and binding.suspension.dispatching and known is not None:
            demand = known if demand is None else _merge(known, demand)
        if demand is not None:
            self._demands[binding.uid] = demand
        return demand

    def forget(self, uid: WorkloadUid) -> None:
        """Forget a workload that is gone."""
        self._demands.pop(uid, None)


def _merge(known: WorkloadRequests, demand: WorkloadRequests) -> WorkloadRequests:
    """Return a demand with the larger amounts of both, one of the two where that is it.

    A job's pods are counted by the tasks that were dispatched, a divisible kind's by its replicas as they are now.
    """
    whole = elementwise_max(known.whole, demand.whole)
    base = demand if known.job is None else known
    alike = (each for each in (known, demand) if each.job is base.job and each.replicas == base.replicas)
    return next((each for each in alike if each.whole == whole), replace(base, whole=whole))
