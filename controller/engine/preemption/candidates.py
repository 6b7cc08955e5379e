"""Preemption candidates of each queue, in eviction order (P3, P4).

From them follows where workloads would fit once borrowed capacity is reclaimed (O3). ``reclaim`` decides whether a
candidate may be evicted for a certain preemptor.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from controller.engine.fairness.ageing import VictimPriorities
from controller.engine.fairness.shares import QueueShares
from controller.engine.placement.feasibility_cache import Feasibility, FeasibilityCache
from controller.engine.placement.fit import FreeCapacity, choose_clusters, free_after_evictions
from controller.engine.policy import Policy
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node, QueueName, Tree
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, PODS, Resources, add, subtract, total
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import (
    Admission,
    Choice,
    ClusterCharge,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadState,
)

Rank = tuple[bool, int, int, int, str, str, str]

"""Within its charge; queue priority; job priority; newest first; name, namespace, uid."""


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """Workloads that can only be evicted together.

    One admitted workload, or the parts of a gang that cannot run without one another (G1).
    """

    workloads: tuple[Workload, ...]
    node: Node
    """The queue that is charged."""
    rank: Rank
    charge: Resources
    """Their charge in the queue."""
    priority: int
    """The highest job priority among them, as raised by waiting when they were admitted (O10)."""
    spare: int | None = None
    """How many parts of its gang may be evicted one by one, if it is one of these."""
    parts: "tuple[Victim, ...]" = ()
    """The single parts of a gang, if it is all of them together."""
    kind: tuple[QueueName, frozenset[tuple[str, int]], bool] = field(init=False)
    """Queue, charge, and whether it exceeds its charge: a policy decides alike on all victims of one kind."""

    cluster_charges: tuple[ClusterCharge, ...] = field(init=False)
    """Their charges by cluster; a field, because a search reads them for each cluster."""

    def __post_init__(self) -> None:
        cluster_charges = tuple(
            cluster_charge for admission in self.admissions for cluster_charge in admission.cluster_charges
        )
        object.__setattr__(self, "cluster_charges", cluster_charges)
        object.__setattr__(self, "kind", (self.node.name, frozenset(self.charge.items()), self.exceeds_charge))

    @property
    def queue(self) -> QueueName:
        """Return the queue that is charged."""
        return self.workloads[0].queue

    @property
    def evictions(self) -> int:
        """Return the highest number of earlier evictions among them."""
        return max(workload.evictions for workload in self.workloads)

    @property
    def stays_until(self) -> int:
        """Return until when an eviction of one of them is backed off."""
        return max(workload.eviction_retry_at for workload in self.workloads)

    @property
    def exceeds_charge(self) -> bool:
        """Return whether one of them requests more than its charge (D7)."""
        return any(workload.has_resized for workload in self.workloads)

    @property
    def admitted_at(self) -> int:
        """Return when the last of them was admitted."""
        return max(admission.admitted_at for admission in self.admissions)

    @property
    def admissions(self) -> list[Admission]:
        """Return their admissions."""
        return [workload.admission for workload in self.workloads if workload.admission is not None]

    def charge_on(self, name: ClusterName) -> Resources:
        """Return their charge on a cluster."""
        charge = EMPTY
        for cluster_charge in self.cluster_charges:
            charge = add(charge, cluster_charge.charge) if cluster_charge.cluster == name else charge
        return charge


class PreemptionCandidates:
    """Victims of every queue; ``invalidate`` must be called for queues with changed admitted workloads."""

    def __init__(self, tree: Tree, workloads: WorkloadIndex, cluster_usage: ClusterUsage, policy: Policy) -> None:
        self._tree = tree
        self._workloads = workloads
        self._cluster_usage = cluster_usage
        self._by_queue: dict[QueueName, list[Victim]] = {}
        self._queues_by_gang: dict[HyperJobGang, set[QueueName]] = {}
        self._priorities = VictimPriorities(policy)

    def queues(self) -> list[Node]:
        """Return the queues with admitted workloads, by name."""
        return [self._tree.nodes[name] for name in sorted(self._workloads.admitted) if name in self._tree.nodes]

    def in_queue(self, queue: QueueName) -> list[Victim]:
        """Return the victims of one queue in eviction order."""
        if queue not in self._by_queue:
            node = self._tree.nodes[queue]
            admitted = self._workloads.admitted.get(queue, {}).values()
            victims = [
                self._victim(workload, node)
                for workload in admitted
                if workload.gang is None and self._is_evictable(workload)
            ]
            for gang in {workload.gang for workload in admitted if workload.gang is not None}:
                victims += self._gang_victims(gang, node)
                self._queues_by_gang.setdefault(gang, set()).add(queue)
            self._by_queue[queue] = sorted(victims, key=lambda victim: victim.rank)
        return self._by_queue[queue]

    def invalidate(self, queue: QueueName) -> None:
        """Drop the cached victims of *queue*."""
        self._by_queue.pop(queue, None)

    def queues_of(self, gang: HyperJobGang | None) -> frozenset[QueueName]:
        """Return the queues whose victims depend on the number of parts of *gang* that have started."""
        return frozenset(self._queues_by_gang.get(gang, ())) if gang is not None else frozenset()

    def _gang_victims(self, gang: HyperJobGang, node: Node) -> list[Victim]:
        """Return the victims of a gang in one queue: single parts where it has some to spare, and all together.

        Its parts in other queues are evicted with all of these, because too few would be left (G1). Where some parts
        are protected, only single ones are victims, of a gang in one queue.
        """
        parts = self._workloads.parts(gang)
        admitted = [part for part in parts if part.state is WorkloadState.ADMITTED]
        evictable = [part for part in admitted if self._is_evictable(part)]
        if len(evictable) < len(admitted) and any(part.queue != node.name for part in admitted):
            # Single ones of several queues may be too many together.
            return []
        spare = max(sum(part.state is not WorkloadState.PENDING for part in parts) - gang.minimum, 0)
        own = (part for part in evictable if part.queue == node.name)
        singles = sorted((self._victim(part, node, spare) for part in own), key=lambda victim: victim.rank)
        victims = singles if spare else []
        if len(evictable) < len(admitted) or len(singles) <= spare:
            return victims
        return [*victims, _all_together(singles)]

    def _victim(self, workload: Workload, node: Node, spare: int | None = None) -> Victim:
        priority, charge = self._priorities.of(workload), workload.admission.charge if workload.admission else EMPTY
        return Victim((workload,), node, _rank(workload, node, priority), charge, priority, spare)

    def _is_evictable(self, workload: Workload) -> bool:
        """Return whether evicting it certainly frees capacity and is up to the controller."""
        if workload.preserved or workload.admission is None or workload.admission.adopted:
            return False
        cluster_states = (
            self._cluster_usage.cluster_state(cluster_charge.cluster)
            for cluster_charge in workload.admission.cluster_charges
        )
        return all(cluster_state.is_usable for cluster_state in cluster_states)


def _all_together(parts: Sequence[Victim]) -> Victim:
    """Return the victim that consists of *parts* of one gang in one queue."""
    return Victim(
        tuple(part.workloads[0] for part in parts),
        parts[0].node,
        max(part.rank for part in parts),
        total(part.charge for part in parts),
        max(part.priority for part in parts),
        parts=tuple(parts),
    )


def without_parts(victim: Victim, evicted: Container[Victim]) -> Victim:
    """Return *victim* without those of its parts that are *evicted* one by one; a part of a gang is always left."""
    rest = [part for part in victim.parts if part not in evicted]
    return victim if len(rest) == len(victim.parts) else _all_together(rest)


def _each_part_once(victims: Iterable[Victim]) -> Iterator[Victim]:
    """Yield the first parts of each gang that may be evicted one by one, all its others together, and other victims."""
    singles: dict[HyperJobGang | None, set[Victim]] = {}
    for victim in victims:
        gang = victim.workloads[0].gang
        evicted = singles.setdefault(gang, set())
        if victim.spare is None:
            yield without_parts(victim, evicted)
        elif len(evicted) < victim.spare:
            evicted.add(victim)
            yield victim


def _rank(workload: Workload, node: Node, priority: int) -> Rank:
    admission = workload.admission
    if admission is None:
        raise AssertionError(f"{workload.path} is admitted without an admission")
    return (
        not workload.has_resized,
        node.queue.priority,
        priority,
        -admission.admitted_at,
        workload.name,
        workload.namespace,
        workload.uid,
    )


def keeps_guarantee(node: Node, victim: Victim, quota: Quota) -> bool:
    """Return whether a queue on the path of *victim* keeps its guarantee without it (P1)."""
    guarantee = quota.limits[node.name].guarantee
    return all(
        amount <= 0 or quota.usage(node.name, name) - amount >= guarantee.get(name, 0)
        for name, amount in victim.charge.items()
    )


@dataclass(slots=True)
class _Finding:
    """Result of the search for one set of requirements."""

    requirements: SchedulingRequirements
    fits: bool
    fitting_cluster: ClusterName | None
    """A cluster on which they would fit."""
    free_count: int
    """``free_count`` of the cluster usage at the search."""


class ReclaimableCapacity:
    """Where workloads would fit after reclaim; ``invalidate`` must be called for queues whose workloads change."""

    def __init__(
        self,
        shares: QueueShares,
        feasibility_cache: FeasibilityCache,
        candidates: PreemptionCandidates,
        policy: Policy,
        now: int,
    ) -> None:
        self._shares = shares
        self._feasibility_cache = feasibility_cache
        self._cluster_usage = feasibility_cache.cluster_usage
        self._policy = policy
        self._now = now
        self._candidates = candidates
        self._reclaimable: dict[QueueName, dict[ClusterName, Resources]] = {}
        """What can be reclaimed from each borrowing queue, by cluster."""
        self._reclaimable_by_cluster: dict[ClusterName, Resources] = {}
        """The sum over all queues."""
        self._results: dict[int, _Finding] = {}
        self._gained: set[ClusterName] = set()
        self._version = self._cluster_usage.version
        for node in candidates.queues():
            self._update(node)

    def invalidate(self, queue: QueueName) -> None:
        """Recompute what can be reclaimed from *queue*, whose workloads have changed."""
        self._candidates.invalidate(queue)
        node = self._shares.quota.tree.nodes.get(queue)
        if node is not None:
            self._update(node)

    def _update(self, node: Node) -> None:
        for name, amounts in self._reclaimable.pop(node.name, {}).items():
            self._reclaimable_by_cluster[name] = subtract(self._reclaimable_by_cluster[name], amounts)
        if self._has_borrowed(node):
            self._reclaimable[node.name] = self._reclaimable_from(node)
            for name, amounts in self._reclaimable[node.name].items():
                self._reclaimable_by_cluster[name] = add(self._reclaimable_by_cluster.get(name, EMPTY), amounts)
                self._gained.add(name)

    def _reclaimable_from(self, node: Node) -> dict[ClusterName, Resources]:
        """Return by cluster what would be freed if reclaim evicted all it may before a reservation begins (O3).

        Without a victim alone the queue must keep its guarantee. Its ancestors are not evaluated: reclaim below them
        need not keep theirs.
        """
        rules, latest = self._policy.reclaim, self._now + self._policy.head_reservation.after_ms
        freed: dict[ClusterName, Resources] = {}
        evictable: list[Victim] = []
        for victim in self._candidates.in_queue(node.name):
            evictable_at = rules.evictable_at(victim.evictions, victim.admitted_at)
            if evictable_at is None or not keeps_guarantee(node, victim, self._shares.quota):
                continue
            if max(evictable_at, victim.stays_until) <= latest:
                evictable.append(victim)
        for victim in _each_part_once(evictable):
            for cluster_charge in victim.cluster_charges:
                freed[cluster_charge.cluster] = add(freed.get(cluster_charge.cluster, EMPTY), cluster_charge.charge)
        return freed

    def _has_borrowed(self, node: Node) -> bool:
        """Return whether a queue exceeds its fair share and is reclaimable."""
        fair_share = self._shares.fair_shares[node.name]
        usage = self._shares.quota.allocated[node.name]
        exceeds_fair_share = any(amount > fair_share.get(name, 0) for name, amount in usage.items() if name != PODS)
        return exceeds_fair_share and all(
            ancestor.queue.reclaimable for ancestor in node.path() if ancestor.parent is not None
        )

    def fits(self, requirements: SchedulingRequirements) -> bool:
        """Return whether a candidate cluster would fit *requirements* after reclaim."""
        if id(requirements) not in self._results:
            self._results[id(requirements)] = self._evaluate(requirements, None)
        return self._results[id(requirements)].fits

    def has_changed(self) -> bool:
        """Return whether any finding has changed since the last call."""
        if self._version == self._cluster_usage.version:
            return False
        before, self._version = self._results, self._cluster_usage.version
        self._results = {key: self._evaluate(finding.requirements, finding) for key, finding in before.items()}
        self._gained.clear()
        return any(finding.fits != before[key].fits for key, finding in self._results.items())

    def _evaluate(self, requirements: SchedulingRequirements, before: _Finding | None) -> _Finding:
        feasibility = self._feasibility_cache.get(requirements)
        if not feasibility.needs_one_cluster:
            capacities = [self._free_capacity(name) for name in feasibility.candidates.names]
            fits = isinstance(choose_clusters(requirements, capacities, feasibility.candidates.copies), Choice)
            return _Finding(requirements, fits, None, self._cluster_usage.free_count)
        fitting_cluster = self._find_cluster(feasibility, before)
        return _Finding(requirements, fitting_cluster is not None, fitting_cluster, self._cluster_usage.free_count)

    def _find_cluster(self, feasibility: Feasibility, before: _Finding | None) -> ClusterName | None:
        names = feasibility.candidates.names
        if (
            before is not None
            and before.fitting_cluster is not None
            and self._free_capacity(before.fitting_cluster).fits(feasibility.requirements)
        ):
            return before.fitting_cluster
        if before is not None and before.fitting_cluster is None:
            freed = self._cluster_usage.freed_since(before.free_count)
            if freed is not None:
                names = tuple(name for name in names if name in freed or name in self._gained)
        return next((name for name in names if self._free_capacity(name).fits(feasibility.requirements)), None)

    def _free_capacity(self, name: ClusterName) -> FreeCapacity:
        cluster_state, evicted = self._cluster_usage.cluster_state(name), self._reclaimable_by_cluster.get(name, EMPTY)
        return free_after_evictions(cluster_state, evicted, with_estimates=True)
