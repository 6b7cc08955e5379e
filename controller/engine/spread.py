"""Spread constraints: whether clusters satisfy them, and which of them Karmada would select.

Karmada groups by cluster and by region only. What else a constraint names is a
property that a cluster must have.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from controller.engine.clusters import Cluster, Placement, Spread

_PROPERTIES: Mapping[str, Callable[[Cluster], bool]] = {
    "provider": lambda cluster: bool(cluster.provider),
    "region": lambda cluster: bool(cluster.region),
    "zone": lambda cluster: bool(cluster.zones),
}


def has_property(cluster: Cluster, spread: Spread) -> bool:
    """Say whether *cluster* has the property by which *spread* groups; a label is not asked for."""
    return spread.by not in _PROPERTIES or _PROPERTIES[spread.by](cluster)


def is_effective(placement: Placement) -> bool:
    """Say whether the placement's constraints limit the selection: static weights overrule them."""
    return bool(placement.spread) and not (placement.divided and placement.weights)


def unmet_constraint(placement: Placement, clusters: Sequence[Cluster]) -> Spread | None:
    """Return the constraint for which *clusters* are too few, or which Karmada cannot group by."""
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
    """Return those of *ranked* on which a workload that is not divided runs, best first (D5).

    By region: the regions with most clusters, as few as the constraints allow;
    then the best cluster of each, then the best of the others.
    """
    if not ranked or unmet_constraint(placement, ranked) is not None:
        return ()
    if not is_effective(placement):
        return tuple(ranked)
    by_field = {spread.by: spread for spread in placement.spread}
    cluster = by_field.get("cluster")
    most = (cluster.maximum or len(ranked)) if cluster is not None else 0
    if "region" not in by_field:
        return tuple(ranked[:most])
    groups = _fewest_regions(by_field["region"], cluster, ranked)
    first = [group[0] for group in groups]
    others = [each for each in ranked if any(each in group[1:] for group in groups)]
    return (*first, *others[: max(most - len(first), 0)])


def _unmet_regions(region: Spread, cluster: Spread | None, clusters: Sequence[Cluster]) -> Spread | None:
    if len(_regions(clusters)) < region.minimum:
        return region
    return None if _fewest_regions(region, cluster, clusters) else cluster or region


def _regions(ranked: Sequence[Cluster]) -> list[list[Cluster]]:
    """Return the clusters by region: those with most clusters first, else in the order of their best cluster."""
    groups: dict[str, list[Cluster]] = {}
    for cluster in ranked:
        groups.setdefault(cluster.region, []).append(cluster)
    return sorted(groups.values(), key=lambda group: -len(group))


def _fewest_regions(region: Spread, cluster: Spread | None, ranked: Sequence[Cluster]) -> list[list[Cluster]]:
    """Return the largest regions, as few as hold the clusters wanted; empty where none do."""
    groups = _regions(ranked)
    wanted = cluster.minimum if cluster is not None else 0
    for number, held in enumerate(accumulate(len(group) for group in groups), start=1):
        if held >= wanted and number >= region.minimum:
            return groups[:number] if number <= (region.maximum or number) else []
    return []
