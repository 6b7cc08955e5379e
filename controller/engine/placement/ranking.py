"""Ranks the clusters for the workloads of one class, and ranks again only those that have changed."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from math import lcm

from controller.engine.placement.fit import ClusterRank, free_capacity, insufficient_capacity, rank_cluster, units_of
from controller.engine.reasons import Refusal
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.resources import first_insufficient, total
from controller.engine.state.workloads import SchedulingRequirements


class RankedClusters:
    """The clusters of *names* that fit one more workload, in C3's order, and the others by how much they lack.

    Valid until a cluster is described again.
    """

    def __init__(
        self, requirements: SchedulingRequirements, names: frozenset[ClusterName], cluster_usage: ClusterUsage
    ) -> None:
        self._requirements = requirements
        self._names = names
        self._cluster_usage = cluster_usage
        fleet = total(cluster_usage.cluster_state(name).allocatable for name in names)
        self._units = units_of(fleet, requirements)
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

    def refusal(self) -> Refusal | None:
        """Return what the closest cluster lacks; ``None`` where some cluster lacks nothing and still does not fit."""
        if self._others or not self._closest:
            return None
        closest = self._cluster_usage.cluster_state(self._closest[0][1])
        return insufficient_capacity(self._requirements, [free_capacity(closest)])

    def _rank(self, names: Iterable[ClusterName]) -> None:
        requests = self._requirements.gang_requests
        for name in names:
            self._forget(name)
            capacity = free_capacity(self._cluster_usage.cluster_state(name))
            if capacity.fits(self._requirements):
                self._ranks[name] = rank = rank_cluster(self._requirements, capacity, self._units)
                insort(self._order, rank)
            elif (resource := first_insufficient(requests, capacity.headroom)) is not None:
                free = capacity.headroom.get(resource, 0) * (self._unit // requests[resource])
                self._shortages[name] = shortage = -free, name
                insort(self._closest, shortage)
            else:
                self._others.add(name)

    def _forget(self, name: ClusterName) -> None:
        self._others.discard(name)
        if (rank := self._ranks.pop(name, None)) is not None:
            del self._order[bisect_left(self._order, rank)]
        if (shortage := self._shortages.pop(name, None)) is not None:
            del self._closest[bisect_left(self._closest, shortage)]
