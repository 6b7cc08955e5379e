"""Preemption: inside one queue a higher job priority takes the place of lower ones (P2).

Whether victims suffice, and which are spared again, is ``exchange``.
"""

from typing import TYPE_CHECKING

from controller.engine.exchange import Attempt, Short
from controller.engine.lending import Lending
from controller.engine.ordering import Head
from controller.engine.victims import Roster, Victim

if TYPE_CHECKING:
    from controller.engine.world import World


def candidates(world: "World", head: Head, roster: Roster) -> list[Victim]:
    """Return who might be evicted for *head*, the first to go first."""
    if not head.workload.preempts:
        return []
    most = world.policy.preemption.max_evictions
    return [
        victim
        for victim in roster.of(head.leaf.name)
        if victim.priority < head.workload.priority and victim.evictions < most
    ]


class Preemption:
    """P2's conditions for one preemptor; what the queue takes besides is borrowed like everything else."""

    def __init__(self, lending: Lending | None) -> None:
        self._lending = lending

    def allows(self, attempt: Attempt, victim: Victim, short: Short) -> bool:  # noqa: ARG002 - all candidates are lower
        """Say that any of the candidates may be taken."""
        return True

    def keeps(self, attempt: Attempt, victim: Victim, short: Short) -> bool:  # noqa: ARG002 - no branch loses anything
        """Say that the branch keeps what it has: preemptor and victim are of one queue."""
        return True

    def holds(self, attempt: Attempt) -> bool:
        """Say whether the queue may borrow what the preemptor takes beyond its victims."""
        return self._lending is None or (
            self._lending.refusal(attempt.head.leaf, attempt.head.lane, attempt.quota) is None
        )
