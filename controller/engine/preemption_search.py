"""An exchange on paper: which victims must leave so that one who waits gets in, and on which cluster (P3, P5).

It is judged as if all evictions under way were done. Who may be a victim is a
rule's matter: ``reclaim`` or ``preemption``. Nothing is booked here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

from controller.engine.borrowing import BorrowingPolicy
from controller.engine.cluster_usage import ClusterState
from controller.engine.clusters import ClusterName
from controller.engine.fit import ClusterRank, FreeCapacity, free_after_evictions, rank_cluster
from controller.engine.ordering import Head, QueueShares
from controller.engine.pending import WorkloadClass
from controller.engine.queues import QueueName
from controller.engine.resources import Resources, add, scale, total
from controller.engine.victims import Rank as VictimRank
from controller.engine.victims import Victim
from controller.engine.workloads import WorkloadUid

SelectionRank = tuple[int, VictimRank]
"""How a victim was chosen: 0 over its charge, 1 its branch keeps its entitlement, 2 otherwise; then its own order."""


ClusterTarget = tuple[ClusterState, Resources]
"""A cluster, and what must be free there at once."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is lacking still: by resource the queues whose ceilings are in the way, and the clusters without room."""

    quota: Mapping[str, frozenset[QueueName]]
    clusters: Mapping[str, frozenset[ClusterName]]

    def __bool__(self) -> bool:
        return bool(self.quota or self.clusters)

    @property
    def resources(self) -> frozenset[str]:
        """Return all resources that are lacking."""
        return frozenset({*self.clusters, *self.quota})


_Name = TypeVar("_Name", bound=str)


def _freeze(found: Mapping[str, set[_Name]]) -> dict[str, frozenset[_Name]]:
    return {resource: frozenset(names) for resource, names in found.items()}


class PreemptionAttempt:
    """One try to let a head in on one cluster, or a group on several, victims taken and spared one by one.

    *quota* is without the charge of the head itself.
    """

    def __init__(
        self,
        standing: QueueShares,
        head: Head,
        lanes: Sequence[WorkloadClass],
        asked: Mapping[ClusterName, ClusterTarget],
    ) -> None:
        self.standing = standing
        self.head = head
        self.lanes = lanes
        """Of the head; of each part that starts together with others."""
        self.charge = total(lane.charge for lane in lanes)
        self.quota = standing.quota.trial()
        self.selected: dict[Victim, SelectionRank] = {}
        self._requested = {name: amounts for name, (_, amounts) in asked.items()}
        self._free = {name: site.settled for name, (site, _) in asked.items()}
        self.initial_shortage = self.shortage()
        """What is lacking before anybody is taken."""

    def free_capacity(self, site: ClusterState) -> FreeCapacity:
        """Return what a cluster would have left by then."""
        return free_after_evictions(site, total(victim.charge_on(site.name) for victim in self.selected))

    def shortage(self) -> Shortage:
        """Return what is lacking with the victims taken so far."""
        over: dict[str, set[QueueName]] = {}
        for fault in self.quota.faults(self.head.leaf, self.charge):
            if fault.resource is not None and fault.queue is not None:
                over.setdefault(fault.resource, set()).add(QueueName(fault.queue))
        room: dict[str, set[ClusterName]] = {}
        for cluster, asked in self._requested.items():
            for name, amount in asked.items():
                if amount > 0 and amount > self._free[cluster].get(name, 0):
                    room.setdefault(name, set()).add(cluster)
        return Shortage(_freeze(over), _freeze(room))

    def helps(self, victim: Victim, short: Shortage) -> bool:
        """Say whether losing *victim* frees something that is lacking: on the clusters first, then in the queues."""
        if short.clusters:
            here = [booking for booking in victim.bookings if booking.cluster in self._free]
            return any(
                booking.charge.get(name, 0) > 0 and booking.cluster in places
                for booking in here
                for name, places in short.clusters.items()
            )
        return any(
            victim.charge.get(name, 0) > 0 and any(node.name in queues for node in victim.node.path())
            for name, queues in short.quota.items()
        )

    def may_select(self, victim: Victim) -> bool:
        """Say whether *victim* is next: still there, and not before others of its group."""
        return victim not in self.selected and (victim.preceded_by is None or victim.preceded_by in self.selected)

    def must_stay_selected(self, victim: Victim) -> bool:
        """Say whether others of its group go only because *victim* does."""
        return any(other.preceded_by is victim for other in self.selected)

    def select(self, victim: Victim, taken: SelectionRank) -> None:
        """Take *victim* for gone."""
        self.selected[victim] = taken
        self._release(victim, 1)

    def unselect(self, victim: Victim) -> SelectionRank:
        """Take *victim* for staying after all; return how it was chosen."""
        self._release(victim, -1)
        return self.selected.pop(victim)

    def _release(self, victim: Victim, times: int) -> None:
        self.quota.book(victim.node, scale(victim.charge, -times))
        for booking in victim.bookings:
            if booking.cluster in self._free:
                self._free[booking.cluster] = add(self._free[booking.cluster], scale(booking.charge, times))

    def may_borrow(self, lending: BorrowingPolicy | None) -> bool:
        """Say whether the queue may borrow what the head, or one part after the other, takes beyond the victims'."""
        if lending is None:
            return True
        quota = self.quota.trial()
        for lane in self.lanes:
            if lending.refusal(self.head.leaf, lane, quota) is not None:
                return False
            quota.carry(quota.tree.nodes[self.head.leaf.name], lane.charge)
        return True


class PreemptionPolicy(Protocol):
    """Who may be evicted for whom."""

    def allows(self, attempt: PreemptionAttempt, victim: Victim, short: Shortage) -> bool:
        """Say whether *victim* may be the next to be taken."""

    def keeps_fair_share(self, attempt: PreemptionAttempt, victim: Victim, short: Shortage) -> bool:
        """Say whether its branch stays at or above its entitlement without it."""

    def accepts(self, attempt: PreemptionAttempt) -> bool:
        """Say whether the exchange as a whole may be made."""


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """An exchange that works."""

    attempt: PreemptionAttempt
    clusters: Mapping[WorkloadUid, ClusterName]
    """Where the head goes, or each part that starts together with others."""
    rank: ClusterRank | None
    """That cluster's place in C3's order, where there is but one."""

    @property
    def victims(self) -> list[Victim]:
        """Return who must leave, the first to go first."""
        return sorted(self.attempt.selected, key=lambda victim: self.attempt.selected[victim])

    @property
    def order(self) -> tuple[SelectionRank, int, ClusterRank | None]:
        """Return P3's order of clusters: the worst victim, the number of victims, C3's order."""
        return max(self.attempt.selected.values()), len(self.attempt.selected), self.rank


def find_plan(
    standing: QueueShares,
    head: Head,
    sites: Sequence[ClusterState],
    *,
    candidates: Sequence[Victim],
    rule: PreemptionPolicy,
) -> PreemptionPlan | None:
    """Return the best exchange that lets *head* in on one of *sites*, ``None`` where there is none.

    *candidates* come in the order of their ranks.
    """
    shape, fleet = head.lane.shape, total(site.allocatable for site in sites)
    deals = []
    for group in _equivalent_clusters(head, sites):
        site = group[0]
        asked = shape.demand if site.held else shape.gang
        attempt = PreemptionAttempt(standing, head, [head.lane], {site.name: (site, asked)})
        if select_victims(attempt, candidates, rule) and attempt.free_capacity(site).has_nodes_for(shape.pods):
            best, name = min((rank_cluster(shape, attempt.free_capacity(site), fleet), site.name) for site in group)
            deals.append(PreemptionPlan(attempt, {head.workload.uid: name}, best))
    return min(deals, key=lambda deal: deal.order, default=None)


def select_victims(attempt: PreemptionAttempt, candidates: Sequence[Victim], rule: PreemptionPolicy) -> bool:
    """Choose the victims of *attempt*; say whether the exchange may be made."""
    if not attempt.initial_shortage or not _select_until_it_fits(attempt, candidates, rule):
        return False
    return _try_single_victim(attempt, candidates, rule) or _minimise(attempt, rule)


def _equivalent_clusters(head: Head, sites: Sequence[ClusterState]) -> list[list[ClusterState]]:
    """Return the sites in groups for which the same victims would do: those with room, and each other by itself."""
    shape = head.lane.shape
    roomy = [site for site in sites if free_after_evictions(site).fits(shape)]
    others = [[site] for site in sites if site not in roomy]
    return [roomy, *others] if roomy else others


def _select_until_it_fits(attempt: PreemptionAttempt, candidates: Sequence[Victim], rule: PreemptionPolicy) -> bool:
    """Take victims until the head fits; say whether it does.

    A victim that may not go yet may go once another has gone, so they are gone
    through again as long as somebody was taken.
    """
    short, before = attempt.initial_shortage, -1
    while short and len(attempt.selected) != before:
        before = len(attempt.selected)
        for tier in range(3):
            short = _select_tier(attempt, candidates, rule, tier=tier, short=short)
    return not short


def _select_tier(
    attempt: PreemptionAttempt, candidates: Sequence[Victim], rule: PreemptionPolicy, *, tier: int, short: Shortage
) -> Shortage:
    """Take what may be taken of one tier; return what is lacking then."""
    for victim in candidates:
        if not short:
            break
        if (
            not attempt.may_select(victim)
            or not attempt.helps(victim, short)
            or not rule.allows(attempt, victim, short)
        ):
            continue
        if tier == _tier(attempt, victim, rule, short):
            attempt.select(victim, (tier, victim.rank))
            short = attempt.shortage()
    return short


def _tier(attempt: PreemptionAttempt, victim: Victim, rule: PreemptionPolicy, short: Shortage) -> int:
    if victim.exceeds_charge:
        return 0
    return 1 if rule.keeps_fair_share(attempt, victim, short) else 2


def _try_single_victim(attempt: PreemptionAttempt, candidates: Sequence[Victim], rule: PreemptionPolicy) -> bool:
    """Take the smallest victim of the last one's tier instead of all that were taken, where it suffices alone (P3)."""
    gathered = dict(attempt.selected)
    for victim in gathered:
        attempt.unselect(victim)
    last = next(reversed(gathered))
    tier = _tier_key((_tier(attempt, last, rule, attempt.initial_shortage), last.rank))
    alone = [
        (_relative_size(attempt, victim), number, victim)
        for number, victim in enumerate(candidates)
        if attempt.may_select(victim)
        and attempt.helps(victim, attempt.initial_shortage)
        and rule.allows(attempt, victim, attempt.initial_shortage)
        and _tier_key((_tier(attempt, victim, rule, attempt.initial_shortage), victim.rank)) == tier
    ]
    for _, _, victim in sorted(alone, key=lambda each: each[:2]):
        attempt.select(victim, (_tier(attempt, victim, rule, attempt.initial_shortage), victim.rank))
        if not attempt.shortage() and rule.accepts(attempt):
            return True
        attempt.unselect(victim)
    for victim, taken in gathered.items():
        attempt.select(victim, taken)
    return False


def _tier_key(taken: SelectionRank) -> tuple[int, bool, int, int]:
    """Return what is alike for all victims of one tier: over its charge, branch, queue priority, job priority."""
    tier, (is_within_charge, queue_priority, priority, *_) = taken
    return tier, is_within_charge, queue_priority, priority


def _relative_size(attempt: PreemptionAttempt, victim: Victim) -> tuple[Fraction, ...]:
    """Return how much the victim holds of what is lacking, as parts of what is asked, the largest first."""
    asked = attempt.charge
    return tuple(
        sorted(
            (Fraction(victim.charge.get(name, 0), asked[name]) for name in attempt.initial_shortage.resources),
            reverse=True,
        )
    )


def _minimise(attempt: PreemptionAttempt, rule: PreemptionPolicy) -> bool:
    """Spare again who has proved unnecessary, the last taken first; say whether the exchange may be made."""
    for victim in reversed(list(attempt.selected)):
        if attempt.must_stay_selected(victim):
            continue
        taken = attempt.unselect(victim)
        if attempt.shortage() or not rule.accepts(attempt):
            attempt.select(victim, taken)
    return bool(attempt.selected) and rule.accepts(attempt)
