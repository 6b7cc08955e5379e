"""Determines where scheduling requirements could be satisfied if clusters were empty.

Separates "exceeds every cluster" and "no matching cluster" from "insufficient
capacity now" (C5), once per requirements and change of the clusters.
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
    """The clusters that requirements may use now, or why no cluster ever can satisfy them."""

    names: tuple[ClusterName, ...]
    """The candidate clusters that accept new admissions."""
    copies: int
    """How many clusters get a full copy (D5)."""
    refusal: Refusal | None = None
    """Set where even empty clusters would not suffice."""

    def charge(self, shape: SchedulingRequirements) -> Resources:
        """Return the total charge of admitting a workload with these requirements."""
        return shape.requests if self.copies == 1 else scale(shape.requests, self.copies)


def feasibility(shape: SchedulingRequirements, ledger: ClusterUsage) -> Feasibility:
    """Return where *shape* can be satisfied in the clusters of *ledger*."""
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
    """Return how many of the candidates *names* get a full copy (D5)."""
    if shape.replicas and shape.placement.divided:
        return 1
    wanted = targets(shape)
    return len(names) if wanted is None else min(wanted, len(names))


def _fits_nowhere(shape: SchedulingRequirements, names: Sequence[ClusterName], ledger: ClusterUsage) -> Refusal | None:
    """Return ``ExceedsEveryCluster`` where even empty clusters lack capacity for *shape*.

    ``None`` while a candidate has no resource summary, because it might be large enough.
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
    """Return whether the gang minimum fits the cluster's nodes while they are empty, as far as they are known."""
    is_divided = shape.replicas > 0 and shape.placement.divided
    return is_divided or not cluster.nodes or can_hold_gang(shape.pod_sets, cluster.nodes)


def _why(found: Candidates) -> str:
    """Return a short text with the reasons of up to three excluded clusters."""
    if not found.excluded:
        return "there is no cluster"
    shown = [f"{name}: {why}" for name, why in sorted(found.excluded.items())[:3]]
    more = len(found.excluded) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def why_unusable(cluster: Cluster) -> str | None:
    """Return why *cluster* accepts no new admission, or ``None`` (C1)."""
    if cluster.deleting:
        return "is being deleted"
    if cluster.allocatable is None:
        return "has no resource summary"
    return None if cluster.ready else "is not ready"
