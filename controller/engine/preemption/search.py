"""Finds the victims that must be evicted to admit a blocked workload, and its cluster (P3, P5).

The search assumes that evictions in progress have finished. A policy decides which workloads may be victims:
see ``reclaim``. The search changes no usage.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Protocol

from controller.engine.fairness.shares import QueueShares
from controller.engine.fairness.tournament import Head
from controller.engine.placement.feasibility_cache import FeasibilityCache
from controller.engine.placement.fit import (
    ClusterRank,
    fixed_rank,
    free_after_evictions,
    rank_cluster,
    required_after_evictions,
    units_of,
)
from controller.engine.placement.part_order import PartOrder, PartSorter
from controller.engine.preemption.attempt import PreemptionAttempt, RankedVictims, SelectionRank, SetAside, Shortage
from controller.engine.preemption.candidates import Rank as VictimRank
from controller.engine.preemption.candidates import Victim, without_parts
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.clusters import ClusterName
from controller.engine.state.pending import PendingWorkloads
from controller.engine.state.resources import EMPTY, Resources, add, elementwise_max, fits, positive, subtract, total
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadUid

#: Maximum number of assignments that are tried for a HyperJob, and of pairs of a part and a cluster in all of them: a
#: search interrupts the cycle no longer than the first assignment of a large HyperJob does.
_MAX_ASSIGNMENTS = 8
_MAX_PAIRS = 20_000


class PreemptionPolicy(Protocol):
    """Decides which victims may be evicted for a preemptor."""

    def allows(self, attempt: PreemptionAttempt, victim: Victim) -> bool:
        """Return whether *victim* may be selected next."""

    def keeps_fair_share(self, attempt: PreemptionAttempt, victim: Victim) -> bool:
        """Return whether the branch of *victim* keeps its fair share without it."""

    def accepts(self, attempt: PreemptionAttempt) -> bool:
        """Return whether the selected victims may be evicted together."""


class VictimSearch(NamedTuple):
    """The victims to select from, and the rules."""

    candidates: Sequence[Victim]
    """Sorted by rank."""
    policy: PreemptionPolicy
    set_aside: SetAside
    """What of the free quota and capacity must stay free."""


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """A preemption that admits its preemptor."""

    attempt: PreemptionAttempt
    clusters: Mapping[WorkloadUid, ClusterName]
    """Cluster of the head, or of each part that starts with it."""
    rank: ClusterRank | None
    """Rank of the cluster in C3's order, where there is only one."""

    @property
    def victims(self) -> list[Victim]:
        """Return the victims in eviction order."""
        return sorted(self.attempt.selected, key=lambda victim: self.attempt.selected[victim])

    @property
    def order(self) -> tuple[SelectionRank, int, ClusterRank | None]:
        """Return P3's order of plans: the worst victim, the number of victims, C3's cluster order."""
        return max(self.attempt.selected.values()), len(self.attempt.selected), self.rank


def find_plan(
    queue_shares: QueueShares, head: Head, cluster_states: Sequence[ClusterState], victim_search: VictimSearch
) -> PreemptionPlan | None:
    """Return the best plan that admits *head* on one of *cluster_states*; ``None`` where there is none."""
    candidates, policy, set_aside = victim_search
    requirements = head.workload_class.requirements
    units = units_of(total(cluster_state.allocatable for cluster_state in cluster_states), requirements)
    by_cluster = _by_cluster(candidates)
    plans = []
    for equivalent in _equivalent_clusters(head, cluster_states, set_aside):
        cluster_state = equivalent[0]
        required = required_after_evictions(requirements, cluster_state, set_aside.by_cluster.get(cluster_state.name))
        targets = {cluster_state.name: (cluster_state, required, [requirements])}
        attempt = PreemptionAttempt(queue_shares, head, [head.workload_class], targets, set_aside)
        victims = RankedVictims(candidates, by_cluster.get(cluster_state.name, ()))
        if select_victims(attempt, victims, policy):
            best, name = min(
                (rank_cluster(requirements, attempt.free_capacity(cluster_state), units), cluster_state.name)
                for cluster_state in equivalent
            )
            plans.append(PreemptionPlan(attempt, {head.workload.uid: name}, best))
    return min(plans, key=lambda plan: plan.order, default=None)


def _by_cluster(victims: Iterable[Victim]) -> dict[ClusterName, list[Victim]]:
    """Return the victims on each cluster, in the same order."""
    by_cluster: dict[ClusterName, list[Victim]] = {}
    for victim in victims:
        for name in {cluster_charge.cluster for cluster_charge in victim.cluster_charges}:
            by_cluster.setdefault(name, []).append(victim)
    return by_cluster


def _each_workload_once(victims: Iterable[Victim]) -> Iterator[Victim]:
    """Yield *victims*; of the parts of a gang together only those that are not yielded one by one."""
    single = set[Victim]()
    for victim in victims:
        if not victim.parts:
            single.add(victim)
            yield victim
        elif not single.issuperset(victim.parts):
            yield without_parts(victim, single)


def select_victims(attempt: PreemptionAttempt, victims: RankedVictims, policy: PreemptionPolicy) -> bool:
    """Select the victims of *attempt*; say whether the preemption may be carried out."""
    if not attempt.initial_shortage:
        return False
    if _select_until_it_fits(attempt, victims, policy):
        return _try_single_victim(attempt, victims, policy) or _minimise(attempt, policy)
    return _select_before_evaluating(attempt, victims, policy) and attempt.accepts_pods()


def _equivalent_clusters(
    head: Head, cluster_states: Sequence[ClusterState], set_aside: SetAside
) -> list[list[ClusterState]]:
    """Return clusters grouped by equal victim search: all that fit without evictions, then each other one alone."""
    requirements, fitting, others = head.workload_class.requirements, list[ClusterState](), list[list[ClusterState]]()
    for cluster_state in cluster_states:
        capacity = free_after_evictions(cluster_state, EMPTY, with_estimates=True)
        if cluster_state.name not in set_aside.by_cluster and capacity.fits(requirements):
            fitting.append(cluster_state)
        else:
            others.append([cluster_state])
    return [fitting, *others] if fitting else others


def _select_until_it_fits(attempt: PreemptionAttempt, victims: RankedVictims, policy: PreemptionPolicy) -> bool:
    """Select victims until the head fits; say whether it does.

    Selecting one victim may allow another, so the victims are scanned again while any was selected. Once only quota
    is missing, all victims of the queues help, also those before the last selected one.
    """
    shortage, count = attempt.initial_shortage, -1
    while shortage and len(attempt.selected) != count:
        count = len(attempt.selected)
        for tier in range(3):
            before = shortage
            shortage = _select_tier(attempt, victims, policy, tier=tier, shortage=shortage)
            if before.clusters and not shortage.clusters:
                break
    return not shortage


def _select_tier(
    attempt: PreemptionAttempt, victims: RankedVictims, policy: PreemptionPolicy, *, tier: int, shortage: Shortage
) -> Shortage:
    """Select the allowed victims of one tier while clusters lack capacity, or else quota; return the shortage left."""
    lacks_capacity = bool(shortage.clusters)
    for victim in victims.that_may_help(shortage):
        if not shortage or lacks_capacity != bool(shortage.clusters):
            break
        if not attempt.may_select(victim):
            continue
        unselected = attempt.unselected(victim)
        if attempt.helps(unselected, shortage) and _evaluate(attempt, unselected, policy) == (True, tier):
            attempt.select(unselected, (tier, unselected.rank))
            shortage = attempt.shortage()
    return shortage


def _evaluate(attempt: PreemptionAttempt, victim: Victim, policy: PreemptionPolicy) -> tuple[bool, int]:
    """Return whether *victim* may be selected next, and its tier."""
    known = attempt.evaluated.get(victim.kind)
    if known is None:
        keeps = not victim.exceeds_charge and policy.keeps_fair_share(attempt, victim)
        tier = 0 if victim.exceeds_charge else 1 if keeps else 2
        known = attempt.evaluated[victim.kind] = policy.allows(attempt, victim), tier
    return known


def _try_single_victim(attempt: PreemptionAttempt, victims: RankedVictims, policy: PreemptionPolicy) -> bool:
    """Replace the selection by the smallest victim of the last one's tier, if it suffices alone (P3)."""
    selected = attempt.unselect_all()
    last, shortage = next(reversed(selected)), attempt.initial_shortage
    tier = _evaluate(attempt, last, policy)[1]
    candidates_alone = [
        (_relative_size(attempt, victim), number, victim)
        for number, victim in enumerate(victims.that_may_help(shortage))
        if attempt.may_select(victim)
        and attempt.helps(victim, shortage)
        and _evaluate(attempt, victim, policy) == (True, tier)
        and _tier_key((tier, victim.rank)) == _tier_key((tier, last.rank))
    ]
    for _, _, victim in sorted(candidates_alone, key=lambda item: item[:2]):
        attempt.select(victim, (tier, victim.rank))
        if not attempt.shortage() and policy.accepts(attempt) and attempt.accepts_pods():
            return True
        attempt.unselect(victim)
    for victim, selection in selected.items():
        attempt.select(victim, selection)
    return False


def _select_before_evaluating(attempt: PreemptionAttempt, victims: RankedVictims, policy: PreemptionPolicy) -> bool:
    """Select victims that may each be evicted alone, drop the unnecessary ones, and only then evaluate them together.

    A small victim that precedes a large one may leave its queue too little to lose the large one as well, although the
    large one suffices.
    """
    if not attempt.selected:
        return False
    attempt.unselect_all()
    if not _select_until_it_fits(attempt, victims, _AllowedAlone(policy, attempt.without_victims())):
        return False
    if _try_single_victim(attempt, victims, policy):
        return True
    in_order = list(attempt.selected)
    for victim in reversed(in_order):
        if not attempt.must_stay_selected(victim):
            selection = attempt.unselect(victim)
            if attempt.shortage():
                attempt.select(victim, selection)
    necessary = attempt.unselect_all()
    for victim in in_order:
        if victim in necessary:
            is_allowed, tier = _evaluate(attempt, victim, policy)
            if not is_allowed:
                return False
            attempt.select(victim, (tier, victim.rank))
    return policy.accepts(attempt)


class _AllowedAlone:
    """A policy that allows what *policy* allows alone, so that victims are evaluated together after their selection."""

    def __init__(self, policy: PreemptionPolicy, without_victims: PreemptionAttempt) -> None:
        self.keeps_fair_share = policy.keeps_fair_share
        self.accepts = policy.accepts
        self._policy = policy
        self._without_victims = without_victims

    def allows(self, attempt: PreemptionAttempt, victim: Victim) -> bool:  # noqa: ARG002 - what is selected does not count
        """Return whether *policy* allows *victim* before any is selected."""
        return _evaluate(self._without_victims, victim, self._policy)[0]


def _tier_key(selection: SelectionRank) -> tuple[int, bool, int, int]:
    """Return what all victims of one tier have in common: charge exceeded, branch, queue priority, job priority."""
    tier, (is_within_charge, queue_priority, priority, *_) = selection
    return tier, is_within_charge, queue_priority, priority


def _relative_size(attempt: PreemptionAttempt, victim: Victim) -> tuple[Fraction, ...]:
    """Return the victim's charge relative to the request for each missing resource, largest first."""
    requested = attempt.charge
    return tuple(
        sorted(
            (Fraction(victim.charge.get(name, 0), requested[name]) for name in attempt.initial_shortage.resources),
            reverse=True,
        )
    )


def _minimise(attempt: PreemptionAttempt, policy: PreemptionPolicy) -> bool:
    """Unselect unnecessary victims, last selected first; say whether the preemption may be carried out."""
    for victim in reversed(list(attempt.selected)):
        if attempt.must_stay_selected(victim):
            continue
        selection = attempt.unselect(victim)
        if attempt.shortage() or not policy.accepts(attempt) or not attempt.accepts_pods():
            attempt.select(victim, selection)
    return bool(attempt.selected) and policy.accepts(attempt) and attempt.accepts_pods()


def parts_to_admit(workloads: WorkloadIndex, head: Head, feasibility_cache: FeasibilityCache) -> list[list[Workload]]:
    """Return the fewest workloads that must start together with *head*, in the order in which they are to be tried.

    The head alone outside a gang, else the first parts by name, and the smallest parts. Empty if some parts are
    nominated already, or too few are pending in one queue.
    """
    gang = head.workload_class.gang
    if not workloads.gangs.is_all_or_nothing(gang):
        return [[head.workload]]
    pending = workloads.pending_parts(gang)
    workload_classes = [workloads.pending.class_of(part.uid) for part in pending]
    if any(workload_class.key.nominated_cluster is not None for workload_class in workload_classes):
        return []
    eligible = [
        part
        for part, workload_class in zip(pending, workload_classes, strict=True)
        if workload_class.competes and workload_class.queue == head.workload_class.queue
    ]
    missing = workloads.gangs.missing(gang)
    if len(eligible) < missing:
        return []
    sorter = PartSorter(eligible, workloads.pending, feasibility_cache)
    smallest = {part.uid for part in sorter.in_order(PartOrder.SMALLEST_FIRST)[:missing]}
    first, others = eligible[:missing], [part for part in eligible if part.uid in smallest]
    return [first] if first == others else [first, others]


def find_gang_plan(
    queue_shares: QueueShares, head: Head, parts: "GangParts", victim_search: VictimSearch
) -> PreemptionPlan | None:
    """Return a plan that admits all *parts*; ``None`` where there is none.

    Where the victims on the clusters of an assignment may not be evicted, the parts are assigned without these.
    """
    candidates, policy, set_aside = victim_search
    clusters = {cluster_charge.cluster for victim in candidates for cluster_charge in victim.cluster_charges}
    pairs = len(parts.classes) * len(clusters)
    for _ in range(max(min(_MAX_ASSIGNMENTS, _MAX_PAIRS // max(pairs, 1)), 1)):
        assigned = parts.assign_clusters(set_aside, candidates)
        if assigned is None:
            break
        cluster_of = {part.uid: name for name, cluster in assigned.clusters.items() for part in cluster.parts}
        attempt = PreemptionAttempt(
            queue_shares,
            head,
            [parts.classes[part.uid] for part in assigned.parts],
            {
                name: (cluster.cluster_state, cluster.requested, [part.requirements for part in cluster.parts])
                for name, cluster in assigned.clusters.items()
            },
            set_aside,
        )
        on_clusters = [
            victim
            for victim in candidates
            if any(cluster_charge.cluster in assigned.clusters for cluster_charge in victim.cluster_charges)
        ]
        victims = RankedVictims(candidates, on_clusters)
        if select_victims(attempt, victims, policy):
            return PreemptionPlan(attempt, {part.uid: cluster_of[part.uid] for part in assigned.parts}, None)
        allowed = _allowed_victims(attempt, victims, policy)
        if len(allowed) == len(candidates):
            return None
        candidates = allowed
    return None


def _allowed_victims(attempt: PreemptionAttempt, victims: RankedVictims, policy: PreemptionPolicy) -> list[Victim]:
    """Return the victims without those that a failed *attempt* may not evict.

    One on a cluster that lacks capacity must be allowed in addition to the victims that are selected first; one on
    another cluster must be allowed alone.
    """
    attempt.unselect_all()
    _select_until_it_fits(attempt, victims, policy)
    selected = {workload.uid for victim in attempt.selected for workload in victim.workloads}
    lacking = {name for names in attempt.shortage().clusters.values() for name in names}
    alone = _AllowedAlone(policy, attempt.without_victims())
    return [
        victim
        for victim in victims.everywhere
        if selected.issuperset(workload.uid for workload in victim.workloads)
        or (lacking.isdisjoint(charge.cluster for charge in victim.cluster_charges) and alone.allows(attempt, victim))
        or (attempt.may_select(victim) and _evaluate(attempt, attempt.unselected(victim), policy)[0])
    ]


_PartRank = tuple[tuple[VictimRank, ...], int, ClusterRank]
"""P3's cluster order for a part: the worst victim if there is one, the number of victims, C3's order."""


class ClusterAfterEvictions:
    """A cluster after the eviction of its first victim candidates."""

    def __init__(
        self, cluster_state: ClusterState, victims: Sequence[tuple[VictimRank, Resources]], reserved: Resources | None
    ) -> None:
        self.cluster_state = cluster_state
        self.parts: list[Workload] = []
        """Parts assigned to the cluster."""
        self.requested: Resources = EMPTY
        """What must be free at once for these parts, including what is reserved in advance."""
        self._free = cluster_state.headroom_after_evictions
        self._victims = victims
        self._reserved = reserved
        self._evicted = 0
        self._assigned: Resources = EMPTY

    def rank(self, requirements: SchedulingRequirements, units: Resources) -> _PartRank | None:
        """Return the rank of this cluster for a part; ``None`` if the part does not fit."""
        needed = self._evictions_needed(requirements)
        if needed is None:
            return None
        evicted, free = needed
        freed = total(charge for _, charge in self._victims[:evicted])
        if not free_after_evictions(self.cluster_state, freed, with_estimates=True).accepts_pods(requirements):
            return None
        worst = (self._victims[evicted - 1][0],) if evicted > self._evicted else ()
        fixed = fixed_rank(requirements, self.cluster_state.name, self.cluster_state.allocatable, units)
        fits_all_pods = fits(requirements.requests, free)
        return worst, evicted - self._evicted, fixed.rank(free, fits_gang=True, fits_all_pods=fits_all_pods)

    def assign(self, part: Workload, requirements: SchedulingRequirements) -> None:
        """Assign *part* to this cluster."""
        needed = self._evictions_needed(requirements)
        if needed is None:
            raise AssertionError(f"{self.cluster_state.name} cannot hold {part.path}")
        self._evicted, free = needed
        self.parts.append(part)
        required = positive(self._required(requirements))
        self.requested = elementwise_max(
            self.requested, {name: amount + self._assigned.get(name, 0) for name, amount in required.items()}
        )
        self._assigned = add(self._assigned, requirements.requests)
        self._free = subtract(free, requirements.requests)

    def _required(self, requirements: SchedulingRequirements) -> Resources:
        return required_after_evictions(
            requirements, self.cluster_state, self._reserved, is_evicted_from=bool(self._victims)
        )

    def _evictions_needed(self, requirements: SchedulingRequirements) -> tuple[int, Resources] | None:
        """Return how many candidates must be evicted for *requirements*, and what is free then."""
        evicted, free, required = self._evicted, self._free, self._required(requirements)
        while not fits(required, free):
            if evicted == len(self._victims):
                return None
            free = add(free, self._victims[evicted][1])
            evicted += 1
        return evicted, free


class GangAssignment(NamedTuple):
    """Clusters for all parts of a HyperJob."""

    parts: Sequence[Workload]
    """In the order in which they are placed."""
    clusters: Mapping[ClusterName, ClusterAfterEvictions]


class GangParts:
    """HyperJob parts that start together, with their classes and candidate clusters."""

    def __init__(
        self, parts: Sequence[Workload], pending: PendingWorkloads, feasibility_cache: FeasibilityCache
    ) -> None:
        self._parts = parts
        self.classes = {part.uid: pending.class_of(part.uid) for part in parts}
        self._sorter = PartSorter(parts, pending, feasibility_cache)
        self._feasibility_cache = feasibility_cache

    def assign_clusters(self, set_aside: SetAside, candidates: Iterable[Victim] = ()) -> GangAssignment | None:
        """Return clusters for all parts after evicting *candidates*; ``None`` if they fit in no order."""
        victims = {
            name: [(victim.rank, victim.charge_on(name)) for victim in _each_workload_once(on_cluster)]
            for name, on_cluster in _by_cluster(candidates).items()
        }
        assigned = self._assign(self._parts, victims, set_aside)
        if assigned is not None or self._sorter.has_equal_parts:
            return assigned
        return self._assign(self._sorter.in_order(PartOrder.MOST_CONSTRAINED_FIRST), victims, set_aside)

    def _assign(
        self,
        parts: Sequence[Workload],
        victims: Mapping[ClusterName, Sequence[tuple[VictimRank, Resources]]],
        set_aside: SetAside,
    ) -> GangAssignment | None:
        """Return clusters for *parts*, which are placed in this order."""
        states = self._feasibility_cache.cluster_usage
        clusters: dict[ClusterName, ClusterAfterEvictions] = {}
        units: dict[int, Resources] = {}
        for part in parts:
            requirements = self.classes[part.uid].requirements
            names = self._feasibility_cache.get(requirements).candidates.names
            if id(requirements) not in units:
                fleet = total(states.cluster_state(name).allocatable for name in names)
                units[id(requirements)] = units_of(fleet, requirements)
            for name in names:
                if name not in clusters:
                    reserved = set_aside.by_cluster.get(name)
                    clusters[name] = ClusterAfterEvictions(states.cluster_state(name), victims.get(name, ()), reserved)
            orders = (clusters[name].rank(requirements, units[id(requirements)]) for name in names)
            best = min((order for order in orders if order is not None), default=None)
            if best is None:
                return None
            clusters[ClusterName(best[-1][-1])].assign(part, requirements)
        return GangAssignment(parts, {name: cluster for name, cluster in clusters.items() if cluster.parts})
