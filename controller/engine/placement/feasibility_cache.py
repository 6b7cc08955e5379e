"""Caches whether pending workload classes fit the clusters now.

A class that does not fit is tried again only on clusters that gained capacity; one that fits is checked first
on its last fitting cluster.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from controller.engine.placement.division import has_static_weights, static_weights
from controller.engine.placement.filter import (
    CandidateCache,
    Candidates,
    Exclusion,
    FindCandidates,
    candidates,
    wanted_copies,
)
from controller.engine.placement.fit import (
    PODS_PER_STEP,
    FreeCapacity,
    capacities_when_empty,
    choose_clusters,
    fits_enough_clusters,
    free_capacities,
    free_capacity,
    place_copies,
)
from controller.engine.placement.node_packing import can_hold_gang
from controller.engine.placement.ranking import RankedClusters
from controller.engine.reasons import ADVANCE_RESERVATION, NEW_WORKLOADS, Reason, Refusal
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.resources import EMPTY, PODS, Resources, first_insufficient, fits, scale, subtract, total
from controller.engine.state.workloads import Choice, SchedulingRequirements

LastFit = tuple[int, ClusterName | None]
"""``free_count`` of the cluster usage at the last check, and a cluster that fitted then."""

_MAX_UNUSED = 1024
#: Pod templates of unused requirements: a job may have thousands, of which each takes about 500 bytes.
_MAX_UNUSED_PODS = 65_536
#: For so many classes the ranks of fitting clusters are cached; those of 1,000 clusters take 0.3 MB.
_MAX_RANKED = 64


@dataclass(frozen=True, slots=True)
class CandidateClusters:
    """The clusters that requirements may use now, or why no cluster ever can satisfy them."""

    names: tuple[ClusterName, ...]
    """The candidate clusters that accept new admissions."""
    copies: int
    """How many clusters get a full copy (D5)."""
    refusal: Refusal | None = None
    """Set where even empty clusters would not suffice."""
    potential: tuple[ClusterName, ...] = ()
    """The candidate clusters as if all were usable, and those of the affinity term that Karmada uses now."""

    def charge(self, requirements: SchedulingRequirements) -> Resources:
        """Return the total charge of admitting a workload with these requirements."""
        return requirements.requests if self.copies == 1 else scale(requirements.requests, self.copies)


def candidate_clusters(
    requirements: SchedulingRequirements, cluster_usage: ClusterUsage, find: FindCandidates = candidates
) -> CandidateClusters:
    """Return where *requirements* can be satisfied in the clusters of *cluster_usage*."""
    clusters = cluster_usage.clusters
    potential = find(requirements, clusters, as_if_usable=True)
    if not potential.names:
        return CandidateClusters((), 1, Refusal(Reason.NO_MATCHING_CLUSTER, subject=_exclusions_text(potential)))
    refusal = _exceeds_every_cluster(requirements, potential.names, cluster_usage)
    now = candidates_now(requirements, cluster_usage, find)
    if refusal is not None and now.names and now.names != potential.names:
        # Karmada uses these: clusters of a later term, or fewer copies while a cluster does not match (C1, D5).
        fits_now = _exceeds_every_cluster(requirements, now.names, cluster_usage) is None
        refusal = None if fits_now else refusal
    usable = {cluster.name for cluster in clusters if cluster.is_usable and has_nodes(requirements, cluster)}
    names = tuple(name for name in now.names if name in usable)
    if has_static_weights(requirements) and not _may_use_all_weighted(requirements, names, now, clusters):
        names = ()
    known = {*potential.names}
    # Mostly none, and then the tuple is shared with all equal placements.
    others = tuple(name for name in _used_by_karmada(now) if name not in known)
    return CandidateClusters(
        names, copies(requirements, now.names or potential.names), refusal, potential.names + others
    )


def candidates_now(
    requirements: SchedulingRequirements, cluster_usage: ClusterUsage, find: FindCandidates = candidates
) -> Candidates:
    """Return the ``candidates`` of *requirements*, with retryable ones where no others can ever hold it (R1)."""
    now = find(requirements, cluster_usage.clusters)
    if not requirements.retryable_clusters:
        return now
    if now.names and _exceeds_every_cluster(requirements, now.names, cluster_usage) is None:
        return now
    excluded = requirements.excluded_clusters - requirements.retryable_clusters
    retrying = replace(requirements, excluded_clusters=excluded, retryable_clusters=frozenset())
    return find(retrying, cluster_usage.clusters)


def _used_by_karmada(now: Candidates) -> Iterator[ClusterName]:
    """Yield the clusters that Karmada would choose from: it knows of no reservation and no failed start."""
    yield from now.names
    yield from (name for name, why in now.excluded.items() if why in {Exclusion.STARTUP_FAILED, Exclusion.RESERVED})


def _may_use_all_weighted(
    requirements: SchedulingRequirements, names: Sequence[ClusterName], now: Candidates, clusters: Sequence[Cluster]
) -> bool:
    """Return whether all clusters to which Karmada gives replicas by static weights are among the usable *names*.

    With overflow affinities these get the rest only, which may be nothing.
    """
    if any(term.overflow for term in requirements.placement.terms):
        return True
    divided = {*_used_by_karmada(now)}
    members = [cluster for cluster in clusters if cluster.name in divided]
    return static_weights(requirements.placement.weights, members).keys() <= {*names}


def copies(requirements: SchedulingRequirements, names: Sequence[ClusterName]) -> int:
    """Return how many of the candidates *names* get a full copy (D5)."""
    if requirements.is_divided:
        return 1
    most = wanted_copies(requirements)
    return len(names) if most is None else min(most, len(names))


def _exceeds_every_cluster(
    requirements: SchedulingRequirements, names: Sequence[ClusterName], cluster_usage: ClusterUsage
) -> Refusal | None:
    """Return ``ExceedsEveryCluster`` where even empty clusters lack capacity for *requirements*.

    ``None`` while a candidate has no resource summary, because it might be large enough.
    """
    capacities = capacities_when_empty(cluster_usage.cluster_state(name) for name in names)
    holding = [
        capacity
        for capacity in capacities
        if capacity.cluster_state.cluster is None or has_nodes(requirements, capacity.cluster_state.cluster)
    ]
    if any(capacity.cluster_state.is_unknown for capacity in holding):
        return None
    copies_wanted = copies(requirements, names)
    if fits_enough_clusters(requirements, holding, copies_wanted) or not isinstance(
        choose_clusters(requirements, holding, copies_wanted), Refusal
    ):
        return None
    verdict = choose_clusters(requirements, capacities, copies_wanted)
    if not isinstance(verdict, Refusal):
        verdict = Refusal(
            Reason.EXCEEDS_EVERY_CLUSTER, subject="its gang has no place on the nodes of a cluster, even empty"
        )
    return Refusal(
        Reason.EXCEEDS_EVERY_CLUSTER,
        verdict.resource,
        verdict.asked,
        verdict.available,
        cluster=verdict.cluster,
        subject=verdict.subject,
    )


def has_nodes(requirements: SchedulingRequirements, cluster: Cluster) -> bool:
    """Return whether the gang minimum fits the cluster's nodes while they are empty, as far as they are known."""
    return requirements.is_divided or not cluster.nodes or can_hold_gang(requirements.pod_sets, cluster.nodes)


def _exclusions_text(result: Candidates) -> str:
    """Return a short text with the reasons of up to three excluded clusters."""
    if not result.excluded:
        return "there is no cluster"
    shown = [f"{name}: {why}" for name, why in sorted(result.excluded.items())[:3]]
    more = len(result.excluded) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def why_unusable(cluster: Cluster) -> str | None:
    """Return why *cluster* accepts no new admission, or ``None`` (C1)."""
    if cluster.deleting:
        return "is being deleted"
    if cluster.allocatable is None:
        return "has no resource summary"
    return None if cluster.ready else "is not ready"


def _set_aside_refusal(feasibility: "Feasibility", capacities: Sequence[FreeCapacity]) -> Refusal | None:
    """Return the refusal of a class that would fit without advance reservations of amounts (O11)."""
    requirements, copies_wanted = feasibility.requirements, feasibility.candidates.copies
    unreserved = choose_clusters(
        requirements, [replace(capacity, in_advance=None) for capacity in capacities], copies_wanted
    )
    names = {charge.cluster for charge in unreserved.cluster_charges} if isinstance(unreserved, Choice) else ()
    for capacity in capacities:
        if capacity.name not in names or capacity.in_advance is None or capacity.fits(requirements):
            continue
        set_aside = capacity.in_advance.set_aside(requirements.amounts_reserved_by)
        remaining = subtract(capacity.headroom, set_aside)
        resource = first_insufficient(requirements.requests, remaining)
        return Refusal(
            Reason.BLOCKED_BY_RESERVATION,
            resource,
            requirements.requests.get(resource or "", 0),
            max(remaining.get(resource or "", 0), 0),
            cluster=capacity.name,
            subject=f"{ADVANCE_RESERVATION}{capacity.in_advance.first(requirements.amounts_reserved_by)}",
        )
    return None


def _refusal_without_candidates(feasibility: "Feasibility") -> Refusal | None:
    """Return why no cluster is a candidate now, ``None`` where all that match accept no new workloads."""
    requirements, matching = feasibility.requirements, feasibility.candidates.potential
    for reserved in requirements.reserved_clusters:
        if reserved.cluster in matching:
            subject = f"{ADVANCE_RESERVATION}{reserved.reservation}"
            return Refusal(Reason.BLOCKED_BY_RESERVATION, cluster=reserved.cluster, subject=subject)
    # This is called for each such class, and a set of all clusters is needed for few.
    if requirements.excluded_clusters and (excluded := requirements.excluded_clusters.intersection(matching)):
        subject = f"it or an equal workload did not start on {', '.join(sorted(excluded))}, which has not changed since"
        return Refusal(Reason.INSUFFICIENT_CAPACITY, subject=subject)
    if has_static_weights(requirements):
        subject = f"a cluster to which its static weights give replicas accepts no {NEW_WORKLOADS}"
        return Refusal(Reason.INSUFFICIENT_CAPACITY, subject=subject)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class ReservedCapacity:
    """Reserved amounts by cluster; compared by identity, so that it is a cheap key."""

    by_cluster: Mapping[ClusterName, Resources]


@dataclass(slots=True, eq=False)
class Feasibility:
    """The candidate clusters of requirements, and whether a workload with these fits them now."""

    requirements: SchedulingRequirements
    """Referenced so that its id stays unique."""
    candidates: CandidateClusters
    charge: Resources
    """Total charge of one admission."""
    requested_resources: frozenset[str]
    """Resources that count for usage ratios: all requested ones except ``pods``."""
    cluster_names: frozenset[ClusterName]
    cached_choice: tuple[int, Choice | Refusal] | None = None
    """Choice or refusal of one more admission, with the ``version`` of the cluster usage."""
    refused_at: int | None = None
    """``free_count`` of the cluster usage when a class that needs several clusters was last found not to fit."""
    last_fit: LastFit | None = None
    """Last fit of a class that needs only one cluster; ``None`` before the first check."""

    needs_one_cluster: bool = field(init=False)
    """One fitting cluster suffices."""
    is_monotone: bool = field(init=False)
    """It can become admissible only if a cluster gains capacity.

    Not so where regions are selected, or where weights divide what does not fit before the overflow clusters.
    """

    def __post_init__(self) -> None:
        placement = self.requirements.placement
        self.needs_one_cluster = self.candidates.copies == 1 and not self.requirements.is_divided
        overflows = bool(placement.weights) and any(term.overflow for term in placement.terms)
        self.is_monotone = not overflows and not any(spread.by == "region" for spread in placement.spread)


class FeasibilityCache:
    """Feasibility of all requirements that were evaluated since the clusters last changed."""

    def __init__(self, cluster_usage: ClusterUsage) -> None:
        self.generation = 0
        """How often the results were dropped."""
        self.steps = 0
        """Number of evaluations of a cluster."""
        self.cluster_usage = cluster_usage
        self._candidates = CandidateCache()
        self._ranked: dict[Feasibility, RankedClusters] = {}
        """The fitting clusters of the classes placed last, the latest at the end."""
        self._fleets: dict[frozenset[ClusterName], Resources] = {}
        """Results of ``_fleet``."""
        self._allocatable: Resources | None = None
        self._by_requirements: dict[int, Feasibility] = {}
        self._pods = 0
        """Number of pod templates of all cached requirements."""
        self._max_pods = _MAX_UNUSED_PODS
        self._failures: list[Exception] = []

    def clear(self) -> None:
        """Drop everything after a change of clusters."""
        self._by_requirements.clear()
        self._pods = 0
        self._ranked.clear()
        self._fleets.clear()
        self._allocatable = None
        self.generation += 1

    def get(self, requirements: SchedulingRequirements) -> Feasibility:
        """Return the feasibility of *requirements*."""
        cached = self._by_requirements.get(id(requirements))
        if cached is None:
            try:
                cached = self._evaluate(requirements)
            except Exception as error:  # noqa: BLE001 -- tenants write what shapes are made of; one must not stop all
                self._failures.append(error)
                refusal = Refusal(Reason.INTERNAL_ERROR, subject=type(error).__name__)
                cached = Feasibility(requirements, CandidateClusters((), 1, refusal), EMPTY, frozenset(), frozenset())
            self._by_requirements[id(requirements)] = cached
            self._pods += len(requirements.pods)
        return cached

    @property
    def allocatable(self) -> Resources:
        """Return what is allocatable on all clusters; it changes only with ``generation``."""
        if self._allocatable is None:
            self._allocatable = self.cluster_usage.potential_root_limit()
        return self._allocatable

    def pop_failures(self) -> list[Exception]:
        """Return and clear the errors raised by evaluations."""
        failures, self._failures = self._failures, []
        return failures

    def _evaluate(self, requirements: SchedulingRequirements) -> Feasibility:
        candidates = candidate_clusters(requirements, self.cluster_usage, self._candidates.of)
        charge = candidates.charge(requirements)
        requested_resources = frozenset(name for name, amount in charge.items() if amount > 0 and name != PODS)
        feasibility = Feasibility(requirements, candidates, charge, requested_resources, frozenset(candidates.names))
        self.steps += len(candidates.names) + 1
        if feasibility.needs_one_cluster:
            self.fits(feasibility)
        return feasibility

    def prepare(self, all_requirements: Iterable[SchedulingRequirements], steps: int) -> bool:
        """Evaluate requirements in advance for about *steps* steps; say whether all are evaluated.

        The limit may be exceeded by one step per cluster. Calling this method changes no decision.
        """
        end = self.total_steps + steps
        for requirements in all_requirements:
            if id(requirements) in self._by_requirements:
                continue
            if self.total_steps >= end:
                return False
            self.get(requirements)
        return True

    def prune(self, used_ids: Container[int], count: int) -> None:
        """Drop requirements without pending workloads, if they outnumber the *count* of used ones or are larger."""
        if len(self._by_requirements) > 2 * count + _MAX_UNUSED or self._pods > self._max_pods:
            self._by_requirements = {key: cached for key, cached in self._by_requirements.items() if key in used_ids}
            self._pods = sum(len(cached.requirements.pods) for cached in self._by_requirements.values())
            self._max_pods = 2 * self._pods + _MAX_UNUSED_PODS

    @property
    def total_steps(self) -> int:
        """Return the number of all evaluations, those of affinities included."""
        return self.steps + self._candidates.steps

    def fits(self, feasibility: Feasibility) -> bool:
        """Return whether one more workload of the class fits the clusters."""
        if not feasibility.needs_one_cluster:
            return self._fits_several(feasibility)
        names: Iterable[ClusterName] = feasibility.candidates.names
        if feasibility.last_fit is not None:
            free_count, cluster = feasibility.last_fit
            if cluster is not None and self.fits_on(feasibility, cluster):
                return True
            if cluster is None and free_count == self.cluster_usage.free_count:
                return False
            names = self._clusters_to_check(feasibility, free_count, cluster)
        cluster = next((name for name in names if self.fits_on(feasibility, name)), None)
        feasibility.last_fit = self.cluster_usage.free_count, cluster
        return cluster is not None

    def _clusters_to_check(
        self, feasibility: Feasibility, free_count: int, last_fitting_cluster: ClusterName | None
    ) -> Iterable[ClusterName]:
        """Return the clusters that may fit now that the last fitting cluster no longer does, by name.

        Clusters before the last fitting one did not fit then; of these only those freed since are checked again.
        """
        freed = self.cluster_usage.freed_since(free_count)
        names = feasibility.candidates.names
        if freed is None:
            return names
        freed &= feasibility.cluster_names
        if last_fitting_cluster is None:
            return sorted(freed)
        later = names[bisect_right(names, last_fitting_cluster) :]
        return chain(sorted(name for name in freed if name < last_fitting_cluster), later)

    def _fits_several(self, feasibility: Feasibility) -> bool:
        """Return whether a class that needs several clusters fits; a refused one waits for a change of its clusters."""
        if feasibility.is_monotone and feasibility.refused_at is not None:
            freed = self.cluster_usage.freed_since(feasibility.refused_at)
            if freed is not None and freed.isdisjoint(feasibility.cluster_names):
                return False
        requirements = feasibility.requirements
        if feasibility.is_monotone and not requirements.is_divided:
            is_fitting = self._fits_copies(feasibility)
        else:
            is_fitting = isinstance(self.choose(feasibility), Choice)
        feasibility.refused_at = None if is_fitting else self.cluster_usage.free_count
        return is_fitting

    def _fits_copies(self, feasibility: Feasibility) -> bool:
        """Return whether enough clusters fit, and stop as soon as that is decided."""
        needed, spare_clusters = (
            feasibility.candidates.copies,
            len(feasibility.candidates.names) - feasibility.candidates.copies,
        )
        for name in feasibility.candidates.names:
            if needed == 0 or spare_clusters < 0:
                break
            if self.fits_on(feasibility, name):
                needed -= 1
            else:
                spare_clusters -= 1
        return needed <= 0 <= spare_clusters

    def choose(self, feasibility: Feasibility) -> Choice | Refusal:
        """Return where one more workload fits, or why it does not."""
        names, copies_wanted = feasibility.candidates.names, feasibility.candidates.copies
        if not names and (refusal := _refusal_without_candidates(feasibility)) is not None:
            return refusal
        if names and len(names) < copies_wanted:
            subject = f"it runs on {copies_wanted} clusters, but only {len(names)} that match accept {NEW_WORKLOADS}"
            return Refusal(Reason.INSUFFICIENT_CAPACITY, subject=subject)
        if feasibility.cached_choice is None or feasibility.cached_choice[0] != self.cluster_usage.version:
            choice = self._choose_ranked(feasibility) or self._choose_or_refuse(feasibility)
            feasibility.cached_choice = self.cluster_usage.version, choice
        return feasibility.cached_choice[1]

    def _choose_ranked(self, feasibility: Feasibility) -> Choice | Refusal | None:
        """Return the first clusters in C3's order, or what the closest lacks; ``None`` where more than ranks decides.

        An admission changes one cluster, so that the others are not ranked again.
        """
        requirements, copies = feasibility.requirements, feasibility.candidates.copies
        if requirements.is_divided or not feasibility.is_monotone or not feasibility.candidates.names:
            return None
        ranked = self._ranked.pop(feasibility, None)
        if ranked is None:
            if len(self._ranked) == _MAX_RANKED:
                del self._ranked[next(iter(self._ranked))]
            names = feasibility.cluster_names
            ranked = RankedClusters(requirements, names, self.cluster_usage, self._fleet(names))
        self._ranked[feasibility] = ranked
        before = ranked.steps
        chosen = ranked.first(copies)
        self.steps += ranked.steps - before
        if len(chosen) == copies:
            return place_copies(requirements, chosen)
        return None if requirements.amounts_reserved_by else ranked.refusal()

    def _fleet(self, names: frozenset[ClusterName]) -> Resources:
        """Return the allocatable total of the clusters *names*."""
        if names not in self._fleets:
            if len(self._fleets) == _MAX_RANKED:
                self._fleets.clear()
            self._fleets[names] = total(self.cluster_usage.cluster_state(name).allocatable for name in names)
        return self._fleets[names]

    def _choose_or_refuse(self, feasibility: Feasibility) -> Choice | Refusal:
        requirements, names = feasibility.requirements, feasibility.candidates.names
        candidates = free_capacities(self.cluster_usage.cluster_state(name) for name in names)
        self.steps += len(candidates)
        choice = choose_clusters(requirements, candidates, feasibility.candidates.copies)
        if isinstance(choice, Refusal) and requirements.amounts_reserved_by:
            return _set_aside_refusal(feasibility, candidates) or choice
        return choice

    def refusal(self, feasibility: Feasibility) -> Refusal | None:
        """Return why the class does not fit; ``None`` where it does."""
        choice = self.choose(feasibility)
        return choice if isinstance(choice, Refusal) else None

    def fits_on(self, feasibility: Feasibility, name: ClusterName, reserved: Resources | None = None) -> bool:
        """Return whether one more workload of the class fits a cluster of which *reserved* is not available to it."""
        cluster_state, requirements = self.cluster_usage.cluster_state(name), feasibility.requirements
        self.steps += 1
        # Most clusters lack capacity even without nominations and reservations, which is cheaper to check.
        if not fits(requirements.gang_requests, cluster_state.headroom):
            return False
        if not cluster_state.is_headroom_available:
            self.steps += len(requirements.pods) // PODS_PER_STEP
            capacity = free_capacity(cluster_state)
            return (capacity if reserved is None else capacity.without(reserved)).fits(requirements)
        if reserved is None:
            return True
        remaining = subtract(cluster_state.headroom, reserved)
        return fits(requirements.requests, remaining) and fits(requirements.gang_requests, remaining)
