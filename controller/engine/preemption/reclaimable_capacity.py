"""Estimates where workloads would fit once borrowed capacity is reclaimed (O3).

The estimate is updated during a cycle; requirements are searched again only on clusters that gained capacity.
"""

from dataclasses import dataclass, replace

from controller.engine.fairness.ordering import QueueShares
from controller.engine.placement.feasibility_cache import ClassFeasibility, FeasibilityCache
from controller.engine.placement.fit import FreeCapacity, choose_clusters, free_after_evictions
from controller.engine.policy import Policy
from controller.engine.preemption.candidates import PreemptionCandidates
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.resources import EMPTY, PODS, Resources, add, subtract
from controller.engine.state.workloads import Choice, SchedulingRequirements


@dataclass(slots=True)
class _Finding:
    """Result of the search for one set of requirements."""

    requirements: SchedulingRequirements
    fits: bool
    fitting_cluster: ClusterName | None
    """A cluster on which they would fit."""
    generation: int
    """Generation of the cluster usage at the search."""


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
            self._reclaimable[node.name] = self._reclaimable_from(node.name)
            for name, amounts in self._reclaimable[node.name].items():
                self._reclaimable_by_cluster[name] = add(self._reclaimable_by_cluster.get(name, EMPTY), amounts)
                self._gained.add(name)

    def _reclaimable_from(self, queue: QueueName) -> dict[ClusterName, Resources]:
        """Return by cluster what would be freed if reclaim evicted all it may before a reservation begins (O3)."""
        rules, latest = self._policy.reclaim, self._now + self._policy.head_reservation.after_ms
        freed: dict[ClusterName, Resources] = {}
        for victim in self._candidates.in_queue(queue):
            evictable_at = rules.evictable_at(victim.evictions, victim.admitted_at)
            if evictable_at is not None and max(evictable_at, victim.stays_until) <= latest:
                for cluster_charge in victim.bookings:
                    freed[cluster_charge.cluster] = add(freed.get(cluster_charge.cluster, EMPTY), cluster_charge.charge)
        return freed

    def _has_borrowed(self, node: Node) -> bool:
        """Say whether a queue exceeds its fair share and is reclaimable."""
        fair_share = self._shares.fair_shares[node.name]
        usage = self._shares.quota.allocated[node.name]
        exceeds_fair_share = any(amount > fair_share.get(name, 0) for name, amount in usage.items() if name != PODS)
        return exceeds_fair_share and all(
            ancestor.queue.reclaimable for ancestor in node.path() if ancestor.parent is not None
        )

    def fits(self, requirements: SchedulingRequirements) -> bool:
        """Say whether a candidate cluster would fit *requirements* after reclaim."""
        if id(requirements) not in self._results:
            self._results[id(requirements)] = self._evaluate(requirements, None)
        return self._results[id(requirements)].fits

    def has_changed(self) -> bool:
        """Say whether any finding has changed since the last call."""
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

    def _find_cluster(self, feasibility: ClassFeasibility, before: _Finding | None) -> ClusterName | None:
        names = feasibility.candidates.names
        if (
            before is not None
            and before.fitting_cluster is not None
            and self._free_capacity(before.fitting_cluster).fits(feasibility.requirements)
        ):
            return before.fitting_cluster
        if before is not None and before.fitting_cluster is None:
            freed = self._cluster_usage.freed_since(before.generation)
            if freed is not None:
                names = tuple(name for name in names if name in freed or name in self._gained)
        return next((name for name in names if self._free_capacity(name).fits(feasibility.requirements)), None)

    def _free_capacity(self, name: ClusterName) -> FreeCapacity:
        cluster_state, evicted = self._cluster_usage.cluster_state(name), self._reclaimable_by_cluster.get(name, EMPTY)
        capacity = free_after_evictions(cluster_state, evicted)
        # Without evictions, the estimates of the cluster's nodes stay valid.
        return (
            capacity
            if cluster_state.leaving or any(evicted.values())
            else replace(capacity, estimates=cluster_state.estimates)
        )
