"""Ranks the clusters that fit the workloads of one class, and ranks again only those that have changed."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from controller.engine.placement.fit import ClusterRank, free_capacity, rank_cluster
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.resources import total
from controller.engine.state.workloads import SchedulingRequirements


class RankedClusters:
    """The clusters of *names* that fit one more workload, in C3's order; valid until clusters are described anew."""

    def __init__(
        self, requirements: SchedulingRequirements, names: frozenset[ClusterName], cluster_usage: ClusterUsage
    ) -> None:
        self._requirements = requirements
        self._names = names
        self._cluster_usage = cluster_usage
        self._fleet = total(cluster_usage.cluster_state(name).allocatable for name in names)
        self._ranks: dict[ClusterName, ClusterRank] = {}
        self._order: list[ClusterRank] = []
        self._version: int | None = None
        """The version of the cluster usage that the ranks follow from; ``None`` before the first ranking."""
        self.steps = 0
        """How often a cluster was ranked."""

    def first(self, count: int) -> list[ClusterName]:
        """Return the first *count* clusters, or fewer where fewer fit."""
        changed = None if self._version is None else self._cluster_usage.changed_since(self._version)
        self._version = self._cluster_usage.version
        names = self._names if changed is None else self._names & changed
        self._rank(names)
        self.steps += len(names)
        return [ClusterName(rank[-1]) for rank in self._order[:count]]

    def _rank(self, names: Iterable[ClusterName]) -> None:
        for name in names:
            before = self._ranks.pop(name, None)
            if before is not None:
                del self._order[bisect_left(self._order, before)]
            capacity = free_capacity(self._cluster_usage.cluster_state(name))
            if capacity.fits(self._requirements):
                self._ranks[name] = rank = rank_cluster(self._requirements, capacity, self._fleet)
                insort(self._order, rank)
