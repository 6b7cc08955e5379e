"""Reclaim: who is entitled to it takes back what other queues have borrowed (P1).

Whether victims suffice, and which are spared again, is ``exchange``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.engine.borrowing import BorrowingPolicy
from controller.engine.ordering import INFINITE, ZERO, Head, QueueShares, UsageRatio
from controller.engine.preemption_search import PreemptionAttempt, Shortage
from controller.engine.quota import Quota
from controller.engine.resources import EMPTY, PODS, Resources, scale
from controller.engine.tree import Node
from controller.engine.victims import PreemptionCandidates, Victim

if TYPE_CHECKING:
    from controller.engine.state import State

#: So long nothing is reclaimed after a cluster has become usable or unusable.
TOPOLOGY_COOLDOWN_MS = 300_000


@dataclass(frozen=True, slots=True)
class DivergingPaths:
    """Where the paths of two queues meet: those below the lowest common ancestor, from below."""

    preemptor_branch: tuple[Node, ...]
    victim_branch: tuple[Node, ...]


def diverge(ours: Node, theirs: Node) -> DivergingPaths | None:
    """Return where two queues fork, ``None`` where one lies above the other."""
    above = {node.name for node in ours.path()}
    lower = tuple(node for node in theirs.path() if node.name not in above)
    below = {node.name for node in theirs.path()}
    upper = tuple(node for node in ours.path() if node.name not in below)
    return DivergingPaths(upper, lower) if upper and lower else None


def reclaim_candidates(
    state: "State", standing: QueueShares, head: Head, charge: Resources, roster: PreemptionCandidates
) -> list[Victim]:
    """Return who might be evicted for *head*, that is to be charged with *charge*, the first to go first."""
    asks = frozenset(name for name, amount in charge.items() if amount > 0 and name != PODS)
    found: list[Victim] = []
    for node in roster.queues():
        split = diverge(head.leaf, node)
        if split is not None and all(_is_reclaimable(standing, each, asks) for each in split.victim_branch):
            found += roster.in_queue(node.name)
    most = state.policy.reclaim.max_evictions
    return sorted((each for each in found if each.evictions < most), key=lambda victim: victim.rank)


def _is_reclaimable(standing: QueueShares, node: Node, resources: frozenset[str]) -> bool:
    return node.queue.reclaimable and _exceeds_fair_share(standing, node, resources, standing.quota)


class ReclaimPolicy:
    """P1's conditions; what a branch above the common ancestor grows by is borrowed like everything else."""

    def __init__(self, lending: BorrowingPolicy | None) -> None:
        self._borrowing = lending

    def allows(self, attempt: PreemptionAttempt, victim: Victim, short: Shortage) -> bool:
        """Say whether *victim* may be the next to be taken: its branch has borrowed what is lacking."""
        split = diverge(attempt.head.leaf, victim.node)
        lacking = _lacking_resources(short, victim)
        if split is None or not lacking:
            return False
        return (
            all(_exceeds_fair_share(attempt.queue_shares, node, lacking, attempt.quota) for node in split.victim_branch)
            and all(_keeps_guarantee(node, victim, attempt.quota) for node in split.victim_branch)
            and _stays_within_fair_share(attempt, split)
            and _improves_fairness(attempt, split, victim, further=victim.charge)
        )

    def keeps_fair_share(self, attempt: PreemptionAttempt, victim: Victim, short: Shortage) -> bool:
        """Say whether its branch stays at or above its entitlement, in what is lacking, without *victim*."""
        split = diverge(attempt.head.leaf, victim.node)
        if split is None:
            return False
        branch = split.victim_branch[-1]
        due = attempt.queue_shares.entitlements[branch.name]
        return all(
            attempt.quota.amount(branch.name, name) - victim.charge[name] >= due.get(name, 0)
            for name in _lacking_resources(short, victim)
        )

    def accepts(self, attempt: PreemptionAttempt) -> bool:
        """Say whether the reclaimer stays within its entitlements and every exchange of two branches is fairer."""
        if not attempt.may_borrow(self._borrowing):
            return False
        forks = [(diverge(attempt.head.leaf, victim.node), victim) for victim in attempt.selected]
        return all(
            split is not None
            and _stays_within_fair_share(attempt, split)
            and _improves_fairness(attempt, split, victim, further=EMPTY)
            for split, victim in forks
        )


def _lacking_resources(short: Shortage, victim: Victim) -> frozenset[str]:
    """Return what is lacking and *victim* holds; ``pods`` alone reclaim nothing."""
    return frozenset(name for name in short.resources if name != PODS and victim.charge.get(name, 0) > 0)


def _exceeds_fair_share(standing: QueueShares, node: Node, resources: frozenset[str], quota: Quota) -> bool:
    """Say whether a queue is above its entitlement on one of *resources*."""
    due = standing.entitlements[node.name]
    return any(quota.amount(node.name, name) > due.get(name, 0) for name in resources)


def _keeps_guarantee(node: Node, victim: Victim, quota: Quota) -> bool:
    guarantee = quota.limits[node.name].guarantee
    return all(
        amount <= 0 or quota.amount(node.name, name) - amount >= guarantee.get(name, 0)
        for name, amount in victim.charge.items()
    )


def _stays_within_fair_share(attempt: PreemptionAttempt, split: DivergingPaths) -> bool:
    """Say whether the reclaimer's queues below the common ancestor are within their entitlements with it."""
    return all(
        attempt.queue_shares.over(node, attempt.charge, attempt.quota) is None for node in split.preemptor_branch
    )


def _improves_fairness(
    attempt: PreemptionAttempt, split: DivergingPaths, victim: Victim, *, further: Resources
) -> bool:
    """Say whether the smaller share of the two branches becomes larger, *further* being freed as well.

    Over what the reclaimer lacks; next in line are the reclaimer and the victim.
    """
    ours, theirs = split.preemptor_branch[-1], split.victim_branch[-1]
    before = min(_usage_ratio(attempt, ours, attempt.charge), _usage_ratio(attempt, theirs, victim.charge))
    after = min(
        _usage_ratio(attempt, ours, attempt.charge, more=attempt.charge),
        _usage_ratio(attempt, theirs, victim.charge, more=scale(further, -1)),
    )
    return after > before


def _usage_ratio(
    attempt: PreemptionAttempt, branch: Node, asks: Resources, *, more: Resources | None = None
) -> UsageRatio:
    """Return the share of *branch* in what the reclaimer lacks, while *asks* is next in line.

    As it stands before the exchange; with *more* charged, after it.
    """
    due = attempt.queue_shares.entitlements[branch.name]
    quota = attempt.queue_shares.quota if more is None else attempt.quota
    largest = ZERO
    for name in sorted(attempt.initial_shortage.resources - {PODS}):
        held = quota.amount(branch.name, name) + (more or EMPTY).get(name, 0)
        if due.get(name):
            largest = max(largest, held / due[name])
        elif held > 0 or asks.get(name, 0) > 0:
            return INFINITE
    return 0, largest
