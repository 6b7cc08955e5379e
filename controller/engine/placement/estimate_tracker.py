"""Queries the clusters' estimators before an admission that the sum allows, and keeps their answers current (C3).

Queries are part of the plan, and each answer arrives as an event. A workload that waits for an answer is
skipped until the answer arrives; other workloads do not wait.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.estimates import (
    ClusterEstimates,
    Estimate,
    EstimatesCheckpoint,
    Pods,
    Query,
    is_unobserved,
    pods_of,
)
from controller.engine.state.resources import fits
from controller.engine.state.workloads import SchedulingRequirements, Workload

#: Number of other clusters that are queried at once after a cluster has refused.
_MAX_ALTERNATIVES: Final = 8


class EstimateTracker:
    """Queries and answers of all clusters; none while they are disabled."""

    def __init__(self, cluster_usage: ClusterUsage) -> None:
        self._cluster_usage = cluster_usage
        self._new_queries: list[Query] = []
        self._expirations: list[tuple[int, int, ClusterName, Pods]] = []
        """Heap of expiry times of answers and queries, with a sequence number; may contain outdated entries."""
        self._sequence = 0

    def set_enabled(self, workloads: Iterable[Workload], *, on: bool) -> None:
        """Enable or disable queries; disabling drops all answers."""
        self._new_queries.clear()
        self._expirations.clear()
        self._cluster_usage.switch_estimates(on=on)
        if on:
            for workload in workloads:
                self.workload_changed(None, workload, 0)

    def workload_changed(self, before: Workload | None, workload: Workload | None, now: int) -> bool:
        """Update unobserved pods after a workload changed from *before*; ``None`` where it does not exist.

        Return whether clusters must be queried again.
        """
        must_query_again = False
        old, new = _unobserved_pods(before), _unobserved_pods(workload)
        for name in sorted(
            _charged_clusters(before) - _charged_clusters(workload) | {name for name in old if name not in new}
        ):
            estimates = self._estimates_of(name)
            if estimates is not None and before is not None:
                estimates.unobserved_pods.pop(before.uid, None)
                must_query_again |= self.invalidate(name, now)
        for name in sorted(name for name in new if name not in old):
            estimates = self._estimates_of(name)
            if estimates is not None and workload is not None:
                estimates.add_unobserved(workload.uid, new[name])
        return must_query_again

    def _estimates_of(self, name: ClusterName) -> ClusterEstimates | None:
        """Return the estimates of a cluster; none for one that was removed."""
        return self._cluster_usage.cluster_state(name).estimates if name in self._cluster_usage else None

    def invalidate(self, name: ClusterName, now: int) -> bool:
        """Invalidate the answers of a changed cluster; say whether there were any."""
        estimates = self._estimates_of(name)
        if estimates is None or not (estimates.answers or estimates.open_queries):
            return False
        for pods, answer in estimates.invalidate(now):
            self._schedule_expiry(answer.expires_at, name, pods)
        self._cluster_usage.estimate_changed(name)
        return True

    def has_answers(
        self,
        workload: Workload,
        chosen: Sequence[ClusterName],
        candidates: Iterable[ClusterName],
        now: int,
    ) -> bool:
        """Return whether the *chosen* clusters have answered for *workload*; make the queries that are needed."""
        requirements = workload.requirements
        awaited = [name for name in chosen if self._query(name, workload, now)]
        if awaited:
            others = [name for name in candidates if name not in chosen]
            if any(self._refuses(name, requirements) for name in others):
                free = [
                    name
                    for name in others
                    if fits(requirements.gang_requests, self._cluster_usage.cluster_state(name).headroom)
                ]
                for name in sorted(free)[:_MAX_ALTERNATIVES]:
                    self._query(name, workload, now)
        return not awaited

    def _refuses(self, name: ClusterName, requirements: SchedulingRequirements) -> bool:
        estimates = self._cluster_usage.cluster_state(name).estimates
        return estimates is not None and estimates.refuses(requirements)

    def _query(self, name: ClusterName, workload: Workload, now: int) -> bool:
        """Query one cluster if useful; say whether the workload must wait for the answer."""
        estimates = self._cluster_usage.cluster_state(name).estimates
        if estimates is None:
            return False
        requirements = workload.requirements
        is_awaited = estimates.must_wait(requirements, now)
        if estimates.may_query(requirements, workload.queue, now):
            query = Query(name, requirements.pod_sets, now)
            estimates.add_query(query, workload.queue)
            self._new_queries.append(query)
            self._schedule_expiry(estimates.open_queries[query.pods].expires_at, name, query.pods)
        return is_awaited

    def answer_received(self, estimate: Estimate, now: int) -> bool:
        """Record an answer; say whether its query was open."""
        name = estimate.query.cluster
        estimates = self._estimates_of(name)
        answer = estimates.add_answer(estimate, now) if estimates is not None else None
        if answer is None:
            return False
        self._schedule_expiry(answer.expires_at, name, estimate.query.pods)
        self._cluster_usage.estimate_changed(name)
        return True

    def expire(self, now: int) -> None:
        """Drop expired answers, and give up queries without an answer."""
        while self._expirations and self._expirations[0][0] <= now:
            _, _, name, pods = heappop(self._expirations)
            estimates = self._estimates_of(name)
            if estimates is None:
                continue
            answer, query = estimates.answers.get(pods), estimates.open_queries.get(pods)
            if query is not None and query.expires_at <= now:
                estimates.add_answer(Estimate(query.query, is_silent=True), now)
                self._cluster_usage.estimate_changed(name)
            elif answer is not None and answer.expires_at <= now:
                del estimates.answers[pods]
                if answer.refuses:
                    self._cluster_usage.estimate_changed(name)

    def next_expiry(self) -> int | None:
        """Return when the next answer or query expires."""
        while self._expirations and not self._is_current(*self._expirations[0]):
            heappop(self._expirations)
        return self._expirations[0][0] if self._expirations else None

    def _is_current(self, at: int, _: int, name: ClusterName, pods: Pods) -> bool:
        """Return whether a heap entry still matches an answer or query."""
        estimates = self._estimates_of(name)
        if estimates is None:
            return False
        answer, query = estimates.answers.get(pods), estimates.open_queries.get(pods)
        return (answer is not None and answer.expires_at == at) or (query is not None and query.expires_at == at)

    def pop_queries(self) -> tuple[Query, ...]:
        """Return the new queries and clear them."""
        queries, self._new_queries = tuple(self._new_queries), []
        return queries

    def restore(self, name: ClusterName, checkpoint: EstimatesCheckpoint) -> None:
        """Restore the queries and answers of a cluster."""
        estimates = self._cluster_usage.cluster_state(name).estimates
        if estimates is None:
            return
        estimates.restore(checkpoint)
        for pods, answer in estimates.answers.items():
            self._schedule_expiry(answer.expires_at, name, pods)
        for pods, query in estimates.open_queries.items():
            self._schedule_expiry(query.expires_at, name, pods)

    def _schedule_expiry(self, at: int, name: ClusterName, pods: Pods) -> None:
        self._sequence += 1
        heappush(self._expirations, (at, self._sequence, name, pods))


def _charged_clusters(workload: Workload | None) -> set[ClusterName]:
    admission = workload.admission if workload is not None else None
    return admission.clusters if admission is not None else set()


def _unobserved_pods(workload: Workload | None) -> dict[ClusterName, Pods]:
    """Return the pods of a workload that the estimators of its clusters may not observe yet."""
    if workload is None or workload.admission is None or not is_unobserved(workload):
        return {}
    return {
        cluster_charge.cluster: pods_of(workload, cluster_charge)
        for cluster_charge in workload.admission.cluster_charges
    }
