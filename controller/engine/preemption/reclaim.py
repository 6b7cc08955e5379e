"""Decides which workloads may be evicted for a preemptor: by reclaim across queues (P1), by preemption within one (P2).

``search`` decides whether victims suffice.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from controller.engine.fairness.borrowing import BorrowingPolicy
from controller.engine.fairness.shares import INFINITE, ZERO, QueueShares, UsageRatio
from controller.engine.fairness.tournament import Head
from controller.engine.policy import EvictionPolicy
from controller.engine.preemption.attempt import PreemptionAttempt
from controller.engine.preemption.candidates import PreemptionCandidates, Victim, keeps_guarantee
from controller.engine.state.hierarchy import Node
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, PODS, Resources, scale
from controller.engine.state.workloads import HyperJobGang, Workload

#: No workload is reclaimed for this long after a cluster has become usable or unusable, in milliseconds.
TOPOLOGY_COOLDOWN_MS = 300_000


@dataclass(frozen=True, slots=True)
class DivergingPaths:
    """Queues on two paths below their lowest common ancestor, from the leaf upwards."""

    preemptor_path: tuple[Node, ...]
    victim_path: tuple[Node, ...]


def diverge(preemptor_queue: Node, victim_queue: Node) -> DivergingPaths | None:
    """Return where the paths of two queues diverge; ``None`` where one is an ancestor of the other."""
    ancestors = {node.name for node in preemptor_queue.path()}
    victim_path = tuple(node for node in victim_queue.path() if node.name not in ancestors)
    victim_ancestors = {node.name for node in victim_queue.path()}
    preemptor_path = tuple(node for node in preemptor_queue.path() if node.name not in victim_ancestors)
    return DivergingPaths(preemptor_path, victim_path) if preemptor_path and victim_path else None


def reclaim_candidates(
    policy: EvictionPolicy, queue_shares: QueueShares, head: Head, charge: Resources, candidates: PreemptionCandidates
) -> list[Victim]:
    """Return the victims that may be reclaimed for *head* with *charge*, in eviction order."""
    requested = frozenset(name for name, amount in charge.items() if amount > 0 and name != PODS)
    victims: list[Victim] = []
    for node in candidates.queues():
        paths = diverge(head.leaf, node)
        if paths is not None and all(_is_reclaimable(queue_shares, node, requested) for node in paths.victim_path):
            victims += candidates.in_queue(node.name)
    return sorted(_evictable(victims, policy, head.workload_class.gang), key=lambda victim: victim.rank)


def _evictable(victims: Iterable[Victim], policy: EvictionPolicy, gang: HyperJobGang | None) -> Iterator[Victim]:
    """Yield those of *victims* that were not evicted too often and are no parts of *gang*, which is to start."""
    for victim in victims:
        if victim.evictions < policy.max_evictions and (gang is None or victim.workloads[0].gang != gang):
            yield victim


def _is_reclaimable(queue_shares: QueueShares, node: Node, resources: frozenset[str]) -> bool:
    return node.queue.reclaimable and _exceeds_fair_share(queue_shares, node, resources, queue_shares.quota)


class ReclaimPolicy:
    """P1's conditions; what a branch above the common ancestor gains counts as borrowing."""

    def __init__(self, borrowing: BorrowingPolicy | None) -> None:
        self._borrowing = borrowing

    def allows(self, attempt: PreemptionAttempt, victim: Victim) -> bool:
        """Return whether *victim* may be selected next: its branch borrows a resource that the preemptor lacks."""
        paths = diverge(attempt.head.leaf, victim.node)
        lacking = _lacking_resources(attempt, victim)
        if paths is None or not lacking:
            return False
        return (
            all(_exceeds_fair_share(attempt.queue_shares, node, lacking, attempt.quota) for node in paths.victim_path)
            and all(keeps_guarantee(node, victim, attempt.quota) for node in paths.victim_path)
            and _stays_within_fair_share(attempt, paths)
            and _improves_fairness(attempt, paths, victim, also_freed=victim.charge)
        )

    def keeps_fair_share(self, attempt: PreemptionAttempt, victim: Victim) -> bool:
        """Return whether the victim's branch keeps its fair share of what the preemptor lacks without *victim*."""
        paths = diverge(attempt.head.leaf, victim.node)
        if paths is None:
            return False
        branch = paths.victim_path[-1]
        fair_share = attempt.queue_shares.fair_shares[branch.name]
        return all(
            attempt.quota.usage(branch.name, name) - victim.charge[name] >= fair_share.get(name, 0)
            for name in _lacking_resources(attempt, victim)
        )

    def accepts(self, attempt: PreemptionAttempt) -> bool:
        """Return whether the preemptor stays within its fair share and every eviction improves fairness."""
        if not attempt.may_borrow(self._borrowing):
            return False
        diverging = [(diverge(attempt.head.leaf, victim.node), victim) for victim in attempt.selected]
        return all(
            paths is not None
            and _stays_within_fair_share(attempt, paths)
            and _improves_fairness(attempt, paths, victim, also_freed=EMPTY)
            for paths, victim in diverging
        )


def _lacking_resources(attempt: PreemptionAttempt, victim: Victim) -> frozenset[str]:
    """Return the resources that the preemptor lacks and *victim* holds; ``pods`` alone justify no reclaim.

    It lacks what is missing before any eviction, also once the victims selected so far release enough of it.
    """
    lacking = attempt.initial_shortage.resources - {PODS}
    return frozenset(name for name in lacking if victim.charge.get(name, 0) > 0)


def _exceeds_fair_share(queue_shares: QueueShares, node: Node, resources: frozenset[str], quota: Quota) -> bool:
    fair_share = queue_shares.fair_shares[node.name]
    return any(quota.usage(node.name, name) > fair_share.get(name, 0) for name in resources)


def _stays_within_fair_share(attempt: PreemptionAttempt, paths: DivergingPaths) -> bool:
    """Return whether the preemptor's queues below the common ancestor stay within their fair shares."""
    return all(
        attempt.queue_shares.first_above_fair_share(node, attempt.charge, attempt.quota) is None
        for node in paths.preemptor_path
    )


def _improves_fairness(
    attempt: PreemptionAttempt, paths: DivergingPaths, victim: Victim, *, also_freed: Resources
) -> bool:
    """Return whether the smaller usage ratio of the two branches grows, with *also_freed* freed as well.

    The ratios count the resources that the preemptor lacks; preemptor and victim are the next to be admitted.
    """
    preemptor_branch, victim_branch = paths.preemptor_path[-1], paths.victim_path[-1]
    before = min(
        _usage_ratio(attempt, preemptor_branch, attempt.charge), _usage_ratio(attempt, victim_branch, victim.charge)
    )
    after = min(
        _usage_ratio(attempt, preemptor_branch, attempt.charge, added=attempt.charge),
        _usage_ratio(attempt, victim_branch, victim.charge, added=scale(also_freed, -1)),
    )
    return after > before


def _usage_ratio(
    attempt: PreemptionAttempt, branch: Node, requested: Resources, *, added: Resources | None = None
) -> UsageRatio:
    """Return the usage ratio of *branch* over what the preemptor lacks, with *requested* next to be admitted.

    Without *added*, before the preemption; else after it, with *added* charged.
    """
    fair_share = attempt.queue_shares.fair_shares[branch.name]
    quota = attempt.queue_shares.quota if added is None else attempt.quota
    largest = ZERO
    for name in sorted(attempt.initial_shortage.resources - {PODS}):
        usage = quota.usage(branch.name, name) + (added or EMPTY).get(name, 0)
        if fair_share.get(name):
            largest = max(largest, usage / fair_share[name])
        elif usage > 0 or requested.get(name, 0) > 0:
            return INFINITE
    return 0, largest


def preemption_candidates(
    policy: EvictionPolicy, parts: Sequence[Workload], candidates: PreemptionCandidates
) -> list[Victim]:
    """Return the victims that may be evicted for *parts* that start together, in eviction order."""
    if not all(workload.details.preempts for workload in parts):
        return []
    priority, gang = min(workload.priority for workload in parts), parts[0].gang
    return [
        victim for victim in _evictable(candidates.in_queue(parts[0].queue), policy, gang) if victim.priority < priority
    ]


class PriorityPreemptionPolicy:
    """P2's conditions; what the queue uses in addition counts as borrowing."""

    def __init__(self, borrowing: BorrowingPolicy | None) -> None:
        self._borrowing = borrowing

    def allows(self, attempt: PreemptionAttempt, victim: Victim) -> bool:  # noqa: ARG002 - all candidates are lower
        """Allow every candidate."""
        return True

    def keeps_fair_share(self, attempt: PreemptionAttempt, victim: Victim) -> bool:  # noqa: ARG002 - the queue itself evicts
        """Return ``True``: preemptor and victim share a queue."""
        return True

    def accepts(self, attempt: PreemptionAttempt) -> bool:
        """Return whether the queue may borrow what the preemptor needs beyond its victims' charges."""
        return attempt.may_borrow(self._borrowing)
