"""Checks spread constraints, and selects the clusters that Karmada would select.

Karmada groups by cluster and by region only. Any other constraint names a property that a cluster must have.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from controller.engine.state.clusters import Cluster, Placement, Spread

_PROPERTIES: Mapping[str, Callable[[Cluster], bool]] = {
    "provider": lambda cluster: bool(cluster.provider),
    "region": lambda cluster: bool(cluster.region),
    "zone": lambda cluster: bool(cluster.zones),
}


def has_property(cluster: Cluster, spread: Spread) -> bool:
    """Say whether *cluster* has the property by which *spread* groups; labels are not checked."""
    return spread.by not in _PROPERTIES or _PROPERTIES[spread.by](cluster)


def is_effective(placement: Placement) -> bool:
    """Say whether the spread constraints are effective: static weights override them."""
    return bool(placement.spread) and not (placement.divided and placement.weights)


def unmet_constraint(placement: Placement, clusters: Sequence[Cluster]) -> Spread | None:
    """Return the constraint that *clusters* do not satisfy, or by which Karmada cannot group."""
    if not is_effective(placement):
        return None
    by_field = {spread.by: spread for spread in placement.spread}
    region, cluster = by_field.get("region"), by_field.get("cluster")
    if region is not None:
        return _unmet_regions(region, cluster, clusters)
    if cluster is None:
        return placement.spread[0]
    return cluster if len(clusters) < cluster.minimum else None


def select_clusters(placement: Placement, ranked: Sequence[Cluster]) -> tuple[Cluster, ...]:
    """Return the clusters of *ranked* that an undivided workload runs on, best first (D5).

    By region: the regions with most clusters, as few as the constraints allow; then the best cluster of each,
    then the best others.
    """
    if not ranked or unmet_constraint(placement, ranked) is not None:
        return ()
    if not is_effective(placement):
        return tuple(ranked)
    by_field = {spread.by: spread for spread in placement.spread}
    cluster = by_field.get("cluster")
    max_clusters = (cluster.maximum or len(ranked)) if cluster is not None else 0
    if "region" not in by_field:
        return tuple(ranked[:max_clusters])
    regions = _fewest_regions(by_field["region"], cluster, ranked)
    best = [region_clusters[0] for region_clusters in regions]
    rest = [candidate for candidate in ranked if any(candidate in region_clusters[1:] for region_clusters in regions)]
    return (*best, *rest[: max(max_clusters - len(best), 0)])


def _unmet_regions(region: Spread, cluster: Spread | None, clusters: Sequence[Cluster]) -> Spread | None:
    if len(_regions(clusters)) < region.minimum:
        return region
    return None if _fewest_regions(region, cluster, clusters) else cluster or region


def _regions(ranked: Sequence[Cluster]) -> list[list[Cluster]]:
    """Return the clusters by region: regions with most clusters first, else in the order of their best cluster."""
    by_region: dict[str, list[Cluster]] = {}
    for cluster in ranked:
        by_region.setdefault(cluster.region, []).append(cluster)
    return sorted(by_region.values(), key=lambda members: -len(members))


def _fewest_regions(region: Spread, cluster: Spread | None, ranked: Sequence[Cluster]) -> list[list[Cluster]]:
    """Return the fewest, largest regions that hold enough clusters; empty where none do."""
    regions = _regions(ranked)
    minimum = cluster.minimum if cluster is not None else 0
    for number, count in enumerate(accumulate(len(members) for members in regions), start=1):
        if count >= minimum and number >= region.minimum:
            return regions[:number] if number <= (region.maximum or number) else []
    return []
