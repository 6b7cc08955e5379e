"""Determines where scheduling requirements could be satisfied if clusters were empty.

Separates "exceeds every cluster" and "no matching cluster" from "insufficient
capacity now" (C5), once per requirements and change of the clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.engine.placement.filter import Candidates, targets
from controller.engine.placement.fit import capacities_when_empty, choose_clusters, fits_enough_clusters
from controller.engine.placement.node_packing import can_hold_gang
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.resources import Resources, scale
from controller.engine.state.workloads import SchedulingRequirements


@dataclass(frozen=True, slots=True)
class Feasibility:
    """The clusters that requirements may use now, or why no cluster ever can satisfy them."""

    names: tuple[ClusterName, ...]
    """The candidate clusters that accept new admissions."""
    copies: int
    """How many clusters get a full copy (D5)."""
    refusal: Refusal | None = None
    """Set where even empty clusters would not suffice."""

    def charge(self, requirements: SchedulingRequirements) -> Resources:
        """Return the total charge of admitting a workload with these requirements."""
        return requirements.requests if self.copies == 1 else scale(requirements.requests, self.copies)


def feasibility(requirements: SchedulingRequirements, cluster_usage: ClusterUsage) -> Feasibility:
    """Return where *requirements* can be satisfied in the clusters of *cluster_usage*."""
    clusters = cluster_usage.clusters
    potential = cluster_usage.candidates.of(requirements, clusters, as_if_usable=True)
    if not potential.names:
        return Feasibility((), 1, Refusal(Reason.NO_MATCHING_CLUSTER, subject=_exclusions_text(potential)))
    refusal = _exceeds_every_cluster(requirements, potential.names, cluster_usage)
    now = cluster_usage.candidates.of(requirements, clusters)
    usable = {cluster.name for cluster in clusters if cluster.is_usable and _has_nodes(requirements, cluster)}
    names = tuple(name for name in now.names if name in usable)
    return Feasibility(names, copies(requirements, now.names or potential.names), refusal)


def copies(requirements: SchedulingRequirements, names: Sequence[ClusterName]) -> int:
    """Return how many of the candidates *names* get a full copy (D5)."""
    if requirements.replicas and requirements.placement.divided:
        return 1
    copies_wanted = targets(requirements)
    return len(names) if copies_wanted is None else min(copies_wanted, len(names))


def _exceeds_every_cluster(
    requirements: SchedulingRequirements, names: Sequence[ClusterName], cluster_usage: ClusterUsage
) -> Refusal | None:
    """Return ``ExceedsEveryCluster`` where even empty clusters lack capacity for *requirements*.

    ``None`` while a candidate has no resource summary, because it might be large enough.
    """
    rooms = capacities_when_empty(cluster_usage.cluster_state(name) for name in names)
    holding = [
        room
        for room in rooms
        if room.cluster_state.cluster is None or _has_nodes(requirements, room.cluster_state.cluster)
    ]
    if any(room.cluster_state.is_unknown for room in holding):
        return None
    copies_wanted = copies(requirements, names)
    if fits_enough_clusters(requirements, holding, copies_wanted) or not isinstance(
        choose_clusters(requirements, holding, copies_wanted), Refusal
    ):
        return None
    verdict = choose_clusters(requirements, rooms, copies_wanted)
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


def _has_nodes(requirements: SchedulingRequirements, cluster: Cluster) -> bool:
    """Return whether the gang minimum fits the cluster's nodes while they are empty, as far as they are known."""
    is_divided = requirements.replicas > 0 and requirements.placement.divided
    return is_divided or not cluster.nodes or can_hold_gang(requirements.pod_sets, cluster.nodes)


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
