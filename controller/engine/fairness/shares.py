"""Keeps the fair shares and usage ratios of the queues current."""

from collections.abc import Mapping

from controller.engine.fairness.fair_share import FairShareDivision
from controller.engine.fairness.ordering import QueueShares
from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.pending import PendingWorkloads
from controller.engine.state.queue_usage import QueueUsage
from controller.engine.state.resources import Resources, add, scale


class FairShareTracker:
    """Divides quota again where requests have changed."""

    def __init__(self, queue_usage: QueueUsage, pending: PendingWorkloads) -> None:
        self._queue_usage = queue_usage
        self._pending = pending
        self._requested: dict[QueueName, Resources] = {}
        self._shares: QueueShares | None = None
        self._division: FairShareDivision | None = None
        queue_usage.on_usage_change.append(self._invalidate)

    @property
    def requested(self) -> Mapping[QueueName, Resources]:
        """Return the requests of each queue: its charges and those of competing workloads, as of ``update``."""
        return self._requested

    @property
    def current(self) -> QueueShares | None:
        """Return fair shares and usage ratios; without any fair share where the quota is newer than ``update``."""
        quota = self._queue_usage.latest_quota
        if quota is not None and (self._shares is None or self._shares.quota is not quota):
            self._shares, self._division = QueueShares(quota, {}, self._queue_usage.by_namespace), None
        return self._shares

    def update(self) -> QueueShares:
        """Return fair shares and usage ratios after all changes (Q4)."""
        quota = self._queue_usage.quota()
        self._queue_usage.drop_stale_current_quota()
        changed = self._queue_usage.changed | self._pending.changed
        for name in changed:
            self._requested[name] = self._queue_requests(name)
        shares = self.current
        if shares is None or self._division is None:
            self._division = FairShareDivision(quota, self._requested)
            shares = self._shares = QueueShares(quota, self._division.shares, self._queue_usage.by_namespace)
        else:
            others = {ROOT} if any(name not in quota.tree.nodes for name in changed) else set()
            shares.fair_shares_changed(self._division.update(self._requested, changed | others))
        self._queue_usage.changed = set()
        self._pending.changed = set()
        return shares

    def _invalidate(self, node: Node) -> None:
        if self._shares is not None:
            self._shares.invalidate(above.name for above in node.path())

    def _queue_requests(self, queue: QueueName) -> Resources:
        """Return a queue's requests: its charges, and those of its classes that only capacity holds back."""
        requests = self._queue_usage.settled.get(queue, {})
        for workload_class in self._pending.queues.get(queue, ()):
            if workload_class.inadmissible is None and workload_class.nominated_cluster is None:
                requests = add(requests, scale(workload_class.charge, len(workload_class.workloads)))
        return requests
