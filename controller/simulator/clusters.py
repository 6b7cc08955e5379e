"""The member clusters in a simulation: what runs there, and what their summaries say of it so far.

A job's pods take all they ask for from the moment its admission takes effect.
The engine may admit a gang of which not all fits at once (D11); that the rest
waits in the member is not played.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.engine.clusters import Cluster, ClusterName
from controller.engine.resources import EMPTY, Resources, add, clamp_non_negative, positive, subtract
from controller.engine.workloads import ClusterCharge


@dataclass(slots=True)
class _SimulatedCluster:
    told: Cluster
    """As the control plane has it."""
    foreign: Resources
    """What others use there, all the time."""
    ours: Resources = EMPTY

    @property
    def now(self) -> Cluster:
        return replace(self.told, used=positive(add(self.foreign, self.ours)))


class SimulatedClusters:
    """All member clusters; a booking on a cluster that is not there is nobody's."""

    def __init__(self, clusters: Iterable[Cluster], status_period: int) -> None:
        self._clusters = {
            each.name: _SimulatedCluster(replace(each, used=positive(each.used)), each.used) for each in clusters
        }
        self._period = status_period
        self._due: set[ClusterName] = set()

    def add_existing(self, bookings: Iterable[ClusterCharge]) -> None:
        """Take *bookings* for a part of what the summaries showed at the start."""
        for booking in bookings:
            member = self._clusters.get(booking.cluster)
            if member is not None:
                member.foreign = clamp_non_negative(subtract(member.foreign, booking.charge))
                member.ours = add(member.ours, booking.charge)

    def start(self, bookings: Iterable[ClusterCharge]) -> list[ClusterName]:
        """Let pods run; return the clusters whose summary is now to be looked at."""
        return self._change(bookings, 1)

    def stop(self, bookings: Iterable[ClusterCharge]) -> list[ClusterName]:
        """Let pods be gone; return the clusters whose summary is now to be looked at."""
        return self._change(bookings, -1)

    def _change(self, bookings: Iterable[ClusterCharge], sign: int) -> list[ClusterName]:
        changed = []
        for booking in bookings:
            member = self._clusters.get(booking.cluster)
            if member is None:
                continue
            member.ours = (add if sign > 0 else subtract)(member.ours, booking.charge)
            if booking.cluster not in self._due:
                self._due.add(booking.cluster)
                changed.append(booking.cluster)
        return changed

    def next_update(self, now: int) -> int:
        """Return when the summaries are looked at next after *now*; without a period, at once."""
        return (now // self._period + 1) * self._period if self._period else now

    def update(self, name: ClusterName) -> Cluster | None:
        """Return the cluster with its summary written anew, ``None`` where it has not changed."""
        self._due.discard(name)
        member = self._clusters[name]
        if member.now.used == member.told.used:
            return None
        member.told = member.now
        return member.told
