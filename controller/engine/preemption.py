"""Preemption: inside one queue a higher job priority takes the place of lower ones (P2).

Whether victims suffice, and which are spared again, is ``exchange``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from controller.engine.borrowing import BorrowingPolicy
from controller.engine.preemption_search import PreemptionAttempt, Shortage
from controller.engine.victims import PreemptionCandidates, Victim
from controller.engine.workloads import Workload

if TYPE_CHECKING:
    from controller.engine.state import State


def preemption_candidates(state: "State", together: Sequence[Workload], roster: PreemptionCandidates) -> list[Victim]:
    """Return who might be evicted for those who start *together*, the first to go first."""
    if not all(workload.preempts for workload in together):
        return []
    most, priority = state.policy.preemption.max_evictions, min(workload.priority for workload in together)
    group = together[0].group
    return [
        victim
        for victim in roster.in_queue(together[0].queue)
        if victim.priority < priority and victim.evictions < most
        if group is None or victim.workloads[0].group != group
    ]


class PriorityPreemptionPolicy:
    """P2's conditions for one preemptor; what the queue takes besides is borrowed like everything else."""

    def __init__(self, lending: BorrowingPolicy | None) -> None:
        self._borrowing = lending

    def allows(self, attempt: PreemptionAttempt, victim: Victim, short: Shortage) -> bool:  # noqa: ARG002 - all candidates are lower
        """Say that any of the candidates may be taken."""
        return True

    def keeps_fair_share(self, attempt: PreemptionAttempt, victim: Victim, short: Shortage) -> bool:  # noqa: ARG002 - no branch loses anything
        """Say that the branch keeps what it has: preemptor and victim are of one queue."""
        return True

    def accepts(self, attempt: PreemptionAttempt) -> bool:
        """Say whether the queue may borrow what the preemptor takes beyond its victims."""
        return attempt.may_borrow(self._borrowing)
