"""Tracks the requests that were last dispatched of workloads with suspended dispatching.

A tenant's policy may suspend dispatching at any time; the clusters then run what was dispatched before. They report the
pods of a Volcano Job, which survives a restart; the size of other kinds' pods is known only from earlier observations.
"""

from dataclasses import replace

from controller.cache.objects import CachedBinding, WorkloadRequests
from controller.engine.state.resources import elementwise_max
from controller.engine.state.workloads import WorkloadUid


class DispatchedRequests:
    """Stores the requests of each placed workload while it may be dispatched, and the largest since then."""

    def __init__(self) -> None:
        self._demands: dict[WorkloadUid, WorkloadRequests] = {}

    def effective_requests(self, binding: CachedBinding, requests: WorkloadRequests | None) -> WorkloadRequests | None:
        """Return the requests that *binding* may run: *demand*, or more where that is not dispatched."""
        if not binding.targets or binding.is_suspended:
            self._demands.pop(binding.uid, None)
            return requests
        known = self._demands.get(binding.uid)
        if binding.suspension is not None and binding.suspension.dispatching and known is not None:
            requests = known if requests is None else _merge(known, requests)
        if requests is not None:
            self._demands[binding.uid] = requests
        return requests

    def forget(self, uid: WorkloadUid) -> None:
        """Forget a deleted workload."""
        self._demands.pop(uid, None)


def _merge(known: WorkloadRequests, requests: WorkloadRequests) -> WorkloadRequests:
    """Return requests with the larger amounts of both, or one of the two where it is the larger.

    A job's pods are counted by its dispatched tasks, a divisible kind's by its current replicas.
    """
    whole = elementwise_max(known.total, requests.total)
    base = requests if known.job is None else known
    alike = (
        candidate
        for candidate in (known, requests)
        if candidate.job is base.job and candidate.replicas == base.replicas
    )
    return next((candidate for candidate in alike if candidate.total == whole), replace(base, total=whole))
