"""What a shape can hope for from the clusters as they are, whatever is charged now.

Tells "fits nowhere, even empty" and "no cluster is a candidate" from "no room
now" (C5), once per shape and change of the clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.engine.candidates import Candidates, targets
from controller.engine.cluster_usage import ClusterUsage
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.fit import capacities_when_empty, choose_clusters, fits_enough_clusters
from controller.engine.node_packing import can_hold_gang
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import Resources, scale
from controller.engine.workloads import SchedulingRequirements


@dataclass(frozen=True, slots=True)
class Feasibility:
    """Where a shape may go now, on how many clusters at once, or why nowhere ever."""

    names: tuple[ClusterName, ...]
    """The candidates that take new admissions."""
    copies: int
    """On how many clusters the whole of it goes (D5)."""
    refusal: Refusal | None = None
    """Set where no room in the world would help."""

    def charge(self, shape: SchedulingRequirements) -> Resources:
        """Return what admitting *shape* would be charged in all."""
        return shape.requests if self.copies == 1 else scale(shape.requests, self.copies)


def feasibility(shape: SchedulingRequirements, ledger: ClusterUsage) -> Feasibility:
    """Return what *shape* can hope for from the clusters of *ledger*."""
    clusters = ledger.clusters
    hoped = ledger.candidates.of(shape, clusters, as_if_usable=True)
    if not hoped.names:
        return Feasibility((), 1, Refusal(Reason.NO_MATCHING_CLUSTER, subject=_why(hoped)))
    refusal = _fits_nowhere(shape, hoped.names, ledger)
    now = ledger.candidates.of(shape, clusters)
    usable = {cluster.name for cluster in clusters if cluster.is_usable and _has_nodes(shape, cluster)}
    names = tuple(name for name in now.names if name in usable)
    return Feasibility(names, copies(shape, now.names or hoped.names), refusal)


def copies(shape: SchedulingRequirements, names: Sequence[ClusterName]) -> int:
    """Return how many of the candidates *names* get the whole of *shape* (D5)."""
    if shape.replicas and shape.placement.divided:
        return 1
    wanted = targets(shape)
    return len(names) if wanted is None else min(wanted, len(names))


def _fits_nowhere(shape: SchedulingRequirements, names: Sequence[ClusterName], ledger: ClusterUsage) -> Refusal | None:
    """Return ``ExceedsEveryCluster`` where even empty clusters have no room for *shape*.

    A cluster without a resource summary might have it, so nothing is said while there is one.
    """
    rooms = capacities_when_empty(ledger.cluster_state(name) for name in names)
    holding = [
        room for room in rooms if room.cluster_state.cluster is None or _has_nodes(shape, room.cluster_state.cluster)
    ]
    if any(room.cluster_state.is_unknown for room in holding):
        return None
    wanted = copies(shape, names)
    if fits_enough_clusters(shape, holding, wanted) or not isinstance(choose_clusters(shape, holding, wanted), Refusal):
        return None
    verdict = choose_clusters(shape, rooms, wanted)
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


def _has_nodes(shape: SchedulingRequirements, cluster: Cluster) -> bool:
    """Say whether the gang has a place on the cluster's nodes while they are empty, as far as they are known."""
    is_divided = shape.replicas > 0 and shape.placement.divided
    return is_divided or not cluster.nodes or can_hold_gang(shape.pod_sets, cluster.nodes)


def _why(found: Candidates) -> str:
    """Return in short why each cluster is out, a few of them by name."""
    if not found.excluded:
        return "there is no cluster"
    shown = [f"{name}: {why}" for name, why in sorted(found.excluded.items())[:3]]
    more = len(found.excluded) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def why_unusable(cluster: Cluster) -> str | None:
    """Return why *cluster* takes no new admission, or ``None`` (C1)."""
    if cluster.deleting:
        return "is being deleted"
    if cluster.allocatable is None:
        return "has no resource summary"
    return None if cluster.ready else "is not ready"
