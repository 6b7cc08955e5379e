"""Preemption within a queue: higher job priority replaces lower job priority (P2).

``preemption_search`` decides whether victims suffice.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from controller.engine.fairness.borrowing import BorrowingPolicy
from controller.engine.preemption.candidates import PreemptionCandidates, Victim
from controller.engine.preemption.search import PreemptionAttempt, Shortage
from controller.engine.state.workloads import Workload

if TYPE_CHECKING:
    from controller.engine.engine import Engine


def preemption_candidates(state: "Engine", parts: Sequence[Workload], candidates: PreemptionCandidates) -> list[Victim]:
    """Return the victims that may be evicted for *parts* that start together, in eviction order."""
    if not all(workload.preempts for workload in parts):
        return []
    max_evictions, priority = state.policy.preemption.max_evictions, min(workload.priority for workload in parts)
    gang = parts[0].gang
    return [
        victim
        for victim in candidates.in_queue(parts[0].queue)
        if victim.priority < priority and victim.evictions < max_evictions
        if gang is None or victim.workloads[0].gang != gang
    ]


class PriorityPreemptionPolicy:
    """P2's conditions; what the queue uses in addition counts as borrowing."""

    def __init__(self, borrowing: BorrowingPolicy | None) -> None:
        self._borrowing = borrowing

    def allows(self, attempt: PreemptionAttempt, victim: Victim, shortage: Shortage) -> bool:  # noqa: ARG002 - all candidates are lower
        """Allow every candidate."""
        return True

    def keeps_fair_share(self, attempt: PreemptionAttempt, victim: Victim, shortage: Shortage) -> bool:  # noqa: ARG002 - no branch loses anything
        """Return ``True``: preemptor and victim share a queue."""
        return True

    def accepts(self, attempt: PreemptionAttempt) -> bool:
        """Say whether the queue may borrow what the preemptor needs beyond its victims' charges."""
        return attempt.may_borrow(self._borrowing)
