"""Ranks the clusters for the workloads of one class, and ranks again only those that have changed."""

from bisect import bisect_left, insort
from collections.abc import Collection
from math import lcm

from controller.engine.placement.fit import (
    PODS_PER_STEP,
    ClusterRank,
    FixedRank,
    fixed_rank,
    free_capacity,
    insufficient_capacity,
    units_of,
)
from controller.engine.reasons import Refusal
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.resources import Resources, fits
from controller.engine.state.workloads import SchedulingRequirements


class RankedClusters:
    """The clusters of *names* that fit one more workload, in C3's order, and the others by how much they lack.

    *fleet* is their allocatable total. Valid until the feasibility cache is cleared. The first ranking costs a sort of
    all clusters, and each further one a bisection for each cluster that has changed.
    """

    def __init__(
        self,
        requirements: SchedulingRequirements,
        names: frozenset[ClusterName],
        cluster_usage: ClusterUsage,
        fleet: Resources,
    ) -> None:
        self._requirements = requirements
        self._names = names
        self._cluster_usage = cluster_usage
        self._units = units_of(fleet, requirements)
        self._is_gang_whole = requirements.gang_requests == requirements.requests
        self._fixed: dict[ClusterName, FixedRank] = {}
        """The fixed ranks of the clusters that were ranked."""
        self._ranks: dict[ClusterName, ClusterRank] = {}
        self._order: list[ClusterRank] = []
        self._shortages: dict[ClusterName, tuple[int, ClusterName]] = {}
        """The clusters that lack a resource: its free part of the request, negative, so that the closest is first."""
        self._closest: list[tuple[int, ClusterName]] = []
        """The same in order."""
        self._others: set[ClusterName] = set()
        """Clusters that do not fit for other reasons: of their nodes, estimators, nominations or reservations."""
        self._unit = lcm(*(amount for amount in requirements.gang_requests.values() if amount > 0))
        """A multiple of all requests: it makes parts of different requests comparable as integers."""
        self._gang_requests = sorted(item for item in requirements.gang_requests.items() if item[1] > 0)
        self._version: int | None = None
        """The version of the cluster usage that the ranks follow from; ``None`` before the first ranking."""
        self.steps = 0
        """How often a cluster was ranked, and the steps for its resource models."""

    def first(self, count: int) -> list[ClusterName]:
        """Return the first *count* clusters, or fewer where fewer fit."""
        changed = None if self._version is None else self._cluster_usage.changed_since(self._version)
        self._version = self._cluster_usage.version
        names = self._names if changed is None else self._names & changed
        self._rank(names)
        self.steps += len(names)
        return [ClusterName(rank[-1]) for rank in self._order[:count]]

    def refusal(self) -> Refusal | None:
        """Return what the closest cluster lacks; ``None`` where some cluster lacks nothing and still does not fit."""
        if self._others or not self._closest:
            return None
        closest = self._cluster_usage.cluster_state(self._closest[0][1])
        return insufficient_capacity(self._requirements, [free_capacity(closest)])

    def _rank(self, names: Collection[ClusterName]) -> None:
        is_first = not (self._ranks or self._shortages or self._others)
        for name in names:
            if not is_first:
                self._forget(name)
            cluster_state = self._cluster_usage.cluster_state(name)
            # Most clusters of a full fleet lack a resource, which is cheaper to find than their free capacity.
            if (shortage := self._shortage(cluster_state)) is not None:
                self._shortages[name] = shortage
                if not is_first:
                    insort(self._closest, shortage)
                continue
            if not cluster_state.is_headroom_available:
                self.steps += len(self._requirements.pods) // PODS_PER_STEP
                if not free_capacity(cluster_state).fits(self._requirements):
                    self._others.add(name)
                    continue
            self._ranks[name] = rank = self._rank_of(cluster_state)
            if not is_first:
                insort(self._order, rank)
        if is_first:
            self._order, self._closest = sorted(self._ranks.values()), sorted(self._shortages.values())

    def _rank_of(self, cluster_state: ClusterState) -> ClusterRank:
        """Return the rank of a cluster that fits, by its headroom after the evictions in progress (P5)."""
        name, headroom = cluster_state.name, cluster_state.headroom_after_evictions
        fixed = self._fixed.get(name)
        if fixed is None:
            fixed = fixed_rank(self._requirements, name, cluster_state.allocatable, self._units)
            self._fixed[name] = fixed
        fits_all_pods = self._is_gang_whole or fits(self._requirements.requests, headroom)
        return fixed.rank(headroom, fits_gang=True, fits_all_pods=fits_all_pods)

    def _shortage(self, cluster_state: ClusterState) -> tuple[int, ClusterName] | None:
        """Return how far a cluster is from the gang minimum by the first resource that it lacks, if it lacks one."""
        available = cluster_state.available
        for resource, amount in self._gang_requests:
            if amount > (free := available.get(resource, 0)):
                return -free * (self._unit // amount), cluster_state.name
        return None

    def _forget(self, name: ClusterName) -> None:
        self._others.discard(name)
        if (rank := self._ranks.pop(name, None)) is not None:
            del self._order[bisect_left(self._order, rank)]
        if (shortage := self._shortages.pop(name, None)) is not None:
            del self._closest[bisect_left(self._closest, shortage)]
