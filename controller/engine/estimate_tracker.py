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
        self._wanted: list[Query] = []
        self._ends: list[tuple[int, int, ClusterName, Pods]] = []
        """When answers end and questions are given up, with a number of each; some have ended before."""
        self._number = 0

    def switch(self, workloads: Iterable[Workload], *, on: bool) -> None:
        """Begin to ask, or give up all that was asked."""
        self._wanted.clear()
        self._ends.clear()
        self._ledger.switch_estimates(on=on)
        if on:
            for workload in workloads:
                self.change(None, workload, 0)

    def change(self, before: Workload | None, workload: Workload | None, now: int) -> bool:
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
                estimates.unseen.pop(before.uid, None)
                has_doubts |= self.doubt(name, now)
        for name in sorted(name for name in new if name not in old):
            estimates = self._ledger.site(name).estimates
            if estimates is not None and workload is not None:
                estimates.admit(workload.uid, new[name])
        return has_doubts

    def doubt(self, name: ClusterName, now: int) -> bool:
        """Ask the estimator of a cluster again, where it was asked before: something has changed there."""
        estimates = self._ledger.site(name).estimates
        if estimates is None or not (estimates.answers or estimates.open):
            return False
        for pods, answer in estimates.doubt(now):
            self._end(answer.expires_at, name, pods)
        self._ledger.reestimated(name)
        return True

    def lend(self, workload: Workload, bookings: Iterable[ClusterCharge], times: int = 1) -> None:
        """Take *workload* for admitted, for a trial; end it with *times* -1."""
        for booking in bookings:
            estimates = self._ledger.site(booking.cluster).estimates
            if estimates is not None:
                estimates.lend(pods_of(workload, booking), times)

    def is_settled(
        self, shape: SchedulingRequirements, choice: Choice, candidates: Iterable[ClusterName], now: int
    ) -> bool:
        """Say whether *shape* need not wait for answers of the clusters chosen; ask what has to be asked."""
        chosen = [booking.cluster for booking in choice.bookings]
        awaited = [name for name in chosen if self._ask(name, shape, now)]
        if awaited:
            others = [name for name in candidates if name not in chosen]
            if any(self._refuses(name, shape) for name in others):
                free = [name for name in others if fits(shape.gang, self._ledger.site(name).headroom)]
                for name in sorted(free)[:_MAX_ALTERNATIVES]:
                    self._ask(name, shape, now)
        return not awaited

    def _refuses(self, name: ClusterName, shape: SchedulingRequirements) -> bool:
        estimates = self._ledger.site(name).estimates
        return estimates is not None and estimates.refuses(shape)

    def _ask(self, name: ClusterName, shape: SchedulingRequirements, now: int) -> bool:
        """Ask one cluster where that makes sense; say whether its answer is waited for."""
        estimates = self._ledger.site(name).estimates
        if estimates is None:
            return False
        is_awaited = estimates.is_awaited(shape, now)
        if estimates.may_ask(shape, now):
            query = Query(name, shape.pod_sets, now)
            estimates.ask(query)
            self._wanted.append(query)
            self._end(estimates.open[query.pods].ends_at, name, query.pods)
        return is_awaited

    def answered(self, estimate: Estimate, now: int) -> bool:
        """Take an answer; say whether it was one to an open question."""
        name = estimate.query.cluster
        estimates = self._ledger.site(name).estimates if name in self._ledger else None
        answer = estimates.take(estimate, now) if estimates is not None else None
        if answer is None:
            return False
        if answer.left is not None:
            self._end(answer.expires_at, name, estimate.query.pods)
        self._ledger.reestimated(name)
        return True

    def expire(self, now: int) -> None:
        """End answers that have counted long enough, and questions that nobody has answered."""
        while self._ends and self._ends[0][0] <= now:
            _, _, name, pods = heappop(self._ends)
            estimates = self._ledger.site(name).estimates if name in self._ledger else None
            if estimates is None:
                continue
            answer, asked = estimates.answers.get(pods), estimates.open.get(pods)
            if asked is not None and asked.ends_at <= now:
                estimates.take(Estimate(asked.query, is_silent=True), now)
                self._ledger.reestimated(name)
            elif answer is not None and answer.expires_at <= now:
                del estimates.answers[pods]
                if answer.refuses:
                    self._ledger.reestimated(name)

    def ends_at(self) -> int | None:
        """Return when the next answer ends, or question is given up."""
        while self._ends and not self._is_due(*self._ends[0]):
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def _is_due(self, at: int, _: int, name: ClusterName, pods: Pods) -> bool:
        """Say whether something ends at *at*, as was noted."""
        estimates = self._ledger.site(name).estimates if name in self._ledger else None
        if estimates is None:
            return False
        answer, asked = estimates.answers.get(pods), estimates.open.get(pods)
        return (answer is not None and answer.expires_at == at) or (asked is not None and asked.ends_at == at)

    def take_queries(self) -> tuple[Query, ...]:
        """Return what is to be asked, once."""
        found, self._wanted = tuple(self._wanted), []
        return found

    def recall(self, name: ClusterName, memory: EstimatesCheckpoint) -> None:
        """Give a cluster the questions and answers back that it had."""
        estimates = self._ledger.site(name).estimates
        if estimates is None:
            return
        estimates.recall(memory)
        for pods, answer in estimates.answers.items():
            if answer.left is not None:
                self._end(answer.expires_at, name, pods)
        for pods, asked in estimates.open.items():
            self._end(asked.ends_at, name, pods)

    def _end(self, at: int, name: ClusterName, pods: Pods) -> None:
        self._number += 1
        heappush(self._ends, (at, self._number, name, pods))


def _booked_clusters(workload: Workload | None) -> set[ClusterName]:
    admission = workload.admission if workload is not None else None
    return {booking.cluster for booking in admission.bookings} if admission is not None else set()


def _unobserved_pods(workload: Workload | None) -> dict[ClusterName, Pods]:
    """Return the pods of a workload that its clusters' estimators may not see yet."""
    if workload is None or workload.admission is None or not is_unobserved(workload):
        return {}
    return {booking.cluster: pods_of(workload, booking) for booking in workload.admission.bookings}
