"""Asks the clusters' estimators before an admission that the sum allows, and keeps their answers true (C3).

Nothing is sent from here: the queries are part of the plan, and each answer
comes in as an event. A workload that waits for an answer is passed over until
it comes; nobody else waits for it.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

from controller.engine.cluster_usage import ClusterUsage
from controller.engine.clusters import ClusterName
from controller.engine.estimates import Estimate, EstimatesCheckpoint, Pods, Query, is_unobserved, pods_of
from controller.engine.resources import fits
from controller.engine.workloads import Choice, ClusterCharge, SchedulingRequirements, Workload

#: Once a cluster has refused a shape, so many others are asked at once.
_MAX_ALTERNATIVES: Final = 8


class EstimateTracker:
    """The estimates of all clusters; without ``estimating`` of the ledger there are none, and nothing is asked."""

    def __init__(self, ledger: ClusterUsage) -> None:
        self._ledger = ledger
        self._new_queries: list[Query] = []
        self._expirations: list[tuple[int, int, ClusterName, Pods]] = []
        """When answers end and questions are given up, with a number of each; some have ended before."""
        self._sequence = 0

    def set_enabled(self, workloads: Iterable[Workload], *, on: bool) -> None:
        """Begin to ask, or give up all that was asked."""
        self._new_queries.clear()
        self._expirations.clear()
        self._ledger.switch_estimates(on=on)
        if on:
            for workload in workloads:
                self.workload_changed(None, workload, 0)

    def workload_changed(self, before: Workload | None, workload: Workload | None, now: int) -> bool:
        """Take a workload as it is at *now* in place of what it was *before*; ``None`` where it is not.

        Return whether something is to be asked again for it.
        """
        has_doubts = False
        old, new = _unobserved_pods(before), _unobserved_pods(workload)
        for name in sorted(
            _booked_clusters(before) - _booked_clusters(workload) | {name for name in old if name not in new}
        ):
            estimates = self._ledger.site(name).estimates
            if estimates is not None and before is not None:
                estimates.unobserved_pods.pop(before.uid, None)
                has_doubts |= self.invalidate(name, now)
        for name in sorted(name for name in new if name not in old):
            estimates = self._ledger.site(name).estimates
            if estimates is not None and workload is not None:
                estimates.add_unobserved(workload.uid, new[name])
        return has_doubts

    def invalidate(self, name: ClusterName, now: int) -> bool:
        """Ask the estimator of a cluster again, where it was asked before: something has changed there."""
        estimates = self._ledger.site(name).estimates
        if estimates is None or not (estimates.answers or estimates.open_queries):
            return False
        for pods, answer in estimates.invalidate(now):
            self._schedule_expiry(answer.expires_at, name, pods)
        self._ledger.reestimated(name)
        return True

    def deduct(self, workload: Workload, bookings: Iterable[ClusterCharge], times: int = 1) -> None:
        """Take *workload* for admitted, for a trial; end it with *times* -1."""
        for booking in bookings:
            estimates = self._ledger.site(booking.cluster).estimates
            if estimates is not None:
                estimates.deduct(pods_of(workload, booking), times)

    def has_answers(
        self, shape: SchedulingRequirements, choice: Choice, candidates: Iterable[ClusterName], now: int
    ) -> bool:
        """Say whether *shape* need not wait for answers of the clusters chosen; ask what has to be asked."""
        chosen = [booking.cluster for booking in choice.bookings]
        awaited = [name for name in chosen if self._query(name, shape, now)]
        if awaited:
            others = [name for name in candidates if name not in chosen]
            if any(self._refuses(name, shape) for name in others):
                free = [name for name in others if fits(shape.gang, self._ledger.site(name).headroom)]
                for name in sorted(free)[:_MAX_ALTERNATIVES]:
                    self._query(name, shape, now)
        return not awaited

    def _refuses(self, name: ClusterName, shape: SchedulingRequirements) -> bool:
        estimates = self._ledger.site(name).estimates
        return estimates is not None and estimates.refuses(shape)

    def _query(self, name: ClusterName, shape: SchedulingRequirements, now: int) -> bool:
        """Ask one cluster where that makes sense; say whether its answer is waited for."""
        estimates = self._ledger.site(name).estimates
        if estimates is None:
            return False
        is_awaited = estimates.must_wait(shape, now)
        if estimates.may_query(shape, now):
            query = Query(name, shape.pod_sets, now)
            estimates.add_query(query)
            self._new_queries.append(query)
            self._schedule_expiry(estimates.open_queries[query.pods].expires_at, name, query.pods)
        return is_awaited

    def answer_received(self, estimate: Estimate, now: int) -> bool:
        """Take an answer; say whether it was one to an open question."""
        name = estimate.query.cluster
        estimates = self._ledger.site(name).estimates if name in self._ledger else None
        answer = estimates.add_answer(estimate, now) if estimates is not None else None
        if answer is None:
            return False
        if answer.remaining is not None:
            self._schedule_expiry(answer.expires_at, name, estimate.query.pods)
        self._ledger.reestimated(name)
        return True

    def expire(self, now: int) -> None:
        """End answers that have counted long enough, and questions that nobody has answered."""
        while self._expirations and self._expirations[0][0] <= now:
            _, _, name, pods = heappop(self._expirations)
            estimates = self._ledger.site(name).estimates if name in self._ledger else None
            if estimates is None:
                continue
            answer, asked = estimates.answers.get(pods), estimates.open_queries.get(pods)
            if asked is not None and asked.expires_at <= now:
                estimates.add_answer(Estimate(asked.query, is_silent=True), now)
                self._ledger.reestimated(name)
            elif answer is not None and answer.expires_at <= now:
                del estimates.answers[pods]
                if answer.refuses:
                    self._ledger.reestimated(name)

    def next_expiry(self) -> int | None:
        """Return when the next answer ends, or question is given up."""
        while self._expirations and not self._is_current(*self._expirations[0]):
            heappop(self._expirations)
        return self._expirations[0][0] if self._expirations else None

    def _is_current(self, at: int, _: int, name: ClusterName, pods: Pods) -> bool:
        """Say whether something ends at *at*, as was noted."""
        estimates = self._ledger.site(name).estimates if name in self._ledger else None
        if estimates is None:
            return False
        answer, asked = estimates.answers.get(pods), estimates.open_queries.get(pods)
        return (answer is not None and answer.expires_at == at) or (asked is not None and asked.expires_at == at)

    def pop_queries(self) -> tuple[Query, ...]:
        """Return what is to be asked, once."""
        found, self._new_queries = tuple(self._new_queries), []
        return found

    def restore(self, name: ClusterName, memory: EstimatesCheckpoint) -> None:
        """Give a cluster the questions and answers back that it had."""
        estimates = self._ledger.site(name).estimates
        if estimates is None:
            return
        estimates.restore(memory)
        for pods, answer in estimates.answers.items():
            if answer.remaining is not None:
                self._schedule_expiry(answer.expires_at, name, pods)
        for pods, asked in estimates.open_queries.items():
            self._schedule_expiry(asked.expires_at, name, pods)

    def _schedule_expiry(self, at: int, name: ClusterName, pods: Pods) -> None:
        self._sequence += 1
        heappush(self._expirations, (at, self._sequence, name, pods))


def _booked_clusters(workload: Workload | None) -> set[ClusterName]:
    admission = workload.admission if workload is not None else None
    return {booking.cluster for booking in admission.bookings} if admission is not None else set()


def _unobserved_pods(workload: Workload | None) -> dict[ClusterName, Pods]:
    """Return the pods of a workload that its clusters' estimators may not see yet."""
    if workload is None or workload.admission is None or not is_unobserved(workload):
        return {}
    return {booking.cluster: pods_of(workload, booking) for booking in workload.admission.bookings}
