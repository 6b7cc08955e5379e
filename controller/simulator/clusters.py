"""Simulates member clusters: the usage of jobs, and the delayed resource summaries.

All pods of a job use their requests as soon as its admission takes effect. Pods of a job that
wait in the member cluster, because only its gang fits (D11), are not simulated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.resources import EMPTY, Resources, add, clamp_non_negative, positive, subtract
from controller.engine.state.workloads import ClusterCharge


@dataclass(slots=True)
class _SimulatedCluster:
    reported: Cluster
    """The cluster with its last reported summary."""
    external_usage: Resources
    """External usage, which is constant."""
    job_usage: Resources = EMPTY

    @property
    def now(self) -> Cluster:
        return replace(self.reported, used=positive(add(self.external_usage, self.job_usage)))


class SimulatedClusters:
    """All member clusters; charges on unknown clusters are ignored."""

    def __init__(self, clusters: Iterable[Cluster], status_period: int) -> None:
        self._clusters = {
            cluster.name: _SimulatedCluster(replace(cluster, used=positive(cluster.used)), cluster.used)
            for cluster in clusters
        }
        self._period = status_period
        self._due: set[ClusterName] = set()

    def add_existing(self, charges: Iterable[ClusterCharge]) -> None:
        """Count *charges* as part of the usage that the summaries report at the start."""
        for charge in charges:
            cluster = self._clusters.get(charge.cluster)
            if cluster is not None:
                cluster.external_usage = clamp_non_negative(subtract(cluster.external_usage, charge.charge))
                cluster.job_usage = add(cluster.job_usage, charge.charge)

    def start(self, charges: Iterable[ClusterCharge]) -> list[ClusterName]:
        """Add the usage of *charges*; return the clusters that need a status update."""
        return self._change(charges, 1)

    def stop(self, charges: Iterable[ClusterCharge]) -> list[ClusterName]:
        """Remove the usage of *charges*; return the clusters that need a status update."""
        return self._change(charges, -1)

    def _change(self, charges: Iterable[ClusterCharge], sign: int) -> list[ClusterName]:
        changed = []
        for charge in charges:
            cluster = self._clusters.get(charge.cluster)
            if cluster is None:
                continue
            cluster.job_usage = (add if sign > 0 else subtract)(cluster.job_usage, charge.charge)
            if charge.cluster not in self._due:
                self._due.add(charge.cluster)
                changed.append(charge.cluster)
        return changed

    def next_update(self, now: int) -> int:
        """Return the time of the next status update after *now*; *now* itself without a period."""
        return (now // self._period + 1) * self._period if self._period else now

    def update(self, name: ClusterName) -> Cluster | None:
        """Return the cluster with an updated summary, or ``None`` if its usage has not changed."""
        self._due.discard(name)
        cluster = self._clusters[name]
        if cluster.now.used == cluster.reported.used:
            return None
        cluster.reported = cluster.now
        return cluster.reported
