"""Divides the replicas of a workload among clusters, as Karmada's scheduler would (C4)."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from controller.engine.placement.filter import select_clusters
from controller.engine.state.clusters import Cluster, ClusterName, Placement, StaticWeight, matches
from controller.engine.state.workloads import SchedulingRequirements


def divide(
    requirements: SchedulingRequirements, capacity_by_cluster: Mapping[ClusterName, int], clusters: Sequence[Cluster]
) -> dict[ClusterName, int] | None:
    """Return the replicas by cluster, ``None`` where they do not fit, or not in the regions that the spread allows.

    *capacity_by_cluster* says how many replicas fit each candidate; *clusters* describes the candidates.
    """
    if requirements.placement.weights:
        return _divide_by_weight(requirements, capacity_by_cluster, clusters)
    capacity_by_cluster = _select_regions(requirements.placement, capacity_by_cluster, clusters)
    overflow_order = _overflow_order(requirements, clusters)
    parts = _fill_largest_first(requirements, capacity_by_cluster, overflow_order)
    if sum(parts.values()) != requirements.replicas:
        return None
    is_aggregated = requirements.placement.aggregated or bool(overflow_order)
    return parts if is_aggregated else _spread_by_capacity(parts, capacity_by_cluster)


def has_static_weights(requirements: SchedulingRequirements) -> bool:
    """Return whether static weights determine the clusters, so that unavailable ones cannot be left out."""
    return requirements.is_divided and bool(requirements.placement.weights)


def _divide_by_weight(
    requirements: SchedulingRequirements, capacity_by_cluster: Mapping[ClusterName, int], clusters: Sequence[Cluster]
) -> dict[ClusterName, int] | None:
    """Return the replicas by static weights, ``None`` where a part does not fit."""
    parts = parts_by_weight(requirements, capacity_by_cluster, clusters)
    is_fitting = all(count <= capacity_by_cluster[name] for name, count in parts.items())
    return parts if is_fitting and sum(parts.values()) == requirements.replicas else None


def parts_by_weight(
    requirements: SchedulingRequirements, capacity_by_cluster: Mapping[ClusterName, int], clusters: Sequence[Cluster]
) -> dict[ClusterName, int]:
    """Return the replicas by static weights, whether they fit or not.

    With overflow affinities the clusters of each one divide what does not fit those before it.
    """
    overflow_order = _overflow_order(requirements, clusters)
    parts: dict[ClusterName, int] = {}
    for place in sorted({overflow_order.get(cluster.name, 0) for cluster in clusters}):
        alike = [cluster for cluster in clusters if overflow_order.get(cluster.name, 0) == place]
        count = requirements.replicas - sum(parts.values())
        if overflow_order:
            count = min(count, sum(capacity_by_cluster[cluster.name] for cluster in alike))
        weights = static_weights(requirements.placement.weights, alike)
        parts |= split_by_weight(count, weights, reverses_ties=requirements.reverses_ties)
    return parts


def _select_regions(
    placement: Placement, capacity_by_cluster: Mapping[ClusterName, int], clusters: Sequence[Cluster]
) -> Mapping[ClusterName, int]:
    """Return the capacity of the clusters among which a spread by region allows to divide; of all without one.

    Karmada keeps to the regions of the clusters that an admission names where these have enough capacity.
    """
    constraints = {constraint.by: constraint for constraint in placement.spread}
    if "region" not in constraints:
        return capacity_by_cluster
    most = constraints["cluster"].maximum if "cluster" in constraints else 0
    further = max(most - constraints["region"].minimum, 0)
    ranked = sorted(clusters, key=lambda cluster: (-capacity_by_cluster[cluster.name], cluster.name))
    selected = select_clusters(
        placement,
        ranked,
        size=lambda members: sum(capacity_by_cluster[cluster.name] for cluster in members[: 1 + further]),
    )
    return {cluster.name: capacity_by_cluster[cluster.name] for cluster in selected}


def _spread_by_capacity(
    parts: Mapping[ClusterName, int], capacity_by_cluster: Mapping[ClusterName, int]
) -> dict[ClusterName, int]:
    """Return the replicas of *parts* in proportion to the capacity of these clusters, as dynamic weights ask for.

    Karmada keeps the division that an admission names, so it would not spread them itself.
    """
    weights = {name: capacity_by_cluster[name] for name in parts if capacity_by_cluster[name] > 0}
    spread = split_by_weight(sum(parts.values()), weights)
    # Rounding may exceed a small capacity.
    return spread if all(count <= weights[name] for name, count in spread.items()) else {**parts}


def _overflow_order(requirements: SchedulingRequirements, clusters: Sequence[Cluster]) -> Mapping[ClusterName, int]:
    """Return the place of each cluster among the overflow affinities of the term that selects the *clusters*.

    Clusters of the term's own affinity have none.
    """
    for term in requirements.placement.terms if requirements.placement.affinity is None else ():
        affinities = (term.affinity, *term.overflow)
        places = {
            cluster.name: next((place for place, affinity in enumerate(affinities) if matches(affinity, cluster)), None)
            for cluster in clusters
        }
        if None not in places.values():
            return {name: place for name, place in places.items() if place}
    return {}


def _fill_largest_first(
    requirements: SchedulingRequirements,
    capacity_by_cluster: Mapping[ClusterName, int],
    overflow_order: Mapping[ClusterName, int],
) -> dict[ClusterName, int]:
    """Return replicas by cluster, filling the largest clusters first, up to the spread's maximum of clusters.

    Overflow clusters come after the others, except where a maximum would leave too few replicas.
    """
    by_size = sorted(capacity_by_cluster, key=lambda name: (-capacity_by_cluster[name], name))
    parts = _fill(requirements, capacity_by_cluster, sorted(by_size, key=lambda name: overflow_order.get(name, 0)))
    if overflow_order and sum(parts.values()) < requirements.replicas:
        return _fill(requirements, capacity_by_cluster, by_size)
    return parts


def _fill(
    requirements: SchedulingRequirements,
    capacity_by_cluster: Mapping[ClusterName, int],
    ordered: Sequence[ClusterName],
) -> dict[ClusterName, int]:
    """Return replicas by cluster, filling the clusters in this order, up to the spread's maximum of clusters."""
    parts: dict[ClusterName, int] = {}
    remaining = requirements.replicas
    max_clusters = min(
        (
            constraint.maximum
            for constraint in requirements.placement.spread
            if constraint.by == "cluster" and constraint.maximum
        ),
        default=None,
    )
    for name in ordered[:max_clusters]:
        parts[name] = min(remaining, capacity_by_cluster[name])
        remaining -= parts[name]
    return parts


def static_weights(weights: Sequence[StaticWeight], clusters: Sequence[Cluster]) -> dict[ClusterName, int]:
    """Return each cluster's static weight: the largest of the matching rules, and 1 where no rule matches any."""
    weight_by_cluster: dict[ClusterName, int] = {}
    for cluster in clusters:
        matching = [rule.weight for rule in weights if rule.weight > 0 and matches(rule.affinity, cluster)]
        if matching:
            weight_by_cluster[cluster.name] = max(matching)
    return weight_by_cluster or {cluster.name: 1 for cluster in clusters}


def split_by_weight(
    replicas: int, weights: Mapping[ClusterName, int], *, reverses_ties: bool = False
) -> dict[ClusterName, int]:
    """Return the replicas by cluster, in proportion to *weights*, which are positive.

    By the method of Webster (Sainte-Laguë), as in Karmada since 1.16: each replica goes to the cluster with the
    largest weight / (2 x its replicas + 1), on a tie to the one with fewer replicas, then by name.
    """
    if not weights:
        return {}
    twice_divided, total_weight = 2 * replicas - len(weights), sum(weights.values())
    # Whatever the order, each cluster gets at least so many; they leave at most one replica per cluster to distribute.
    parts = {
        name: max(-((total_weight - weight * twice_divided) // (2 * total_weight)), 0)
        for name, weight in weights.items()
    }
    names = sorted(weights, reverse=reverses_ties)
    order = [(*_priority(weights[name], parts[name]), place) for place, name in enumerate(names)]
    heapify(order)
    for _ in range(replicas - sum(parts.values())):
        place = order[0][2]
        name = names[place]
        parts[name] += 1
        heapreplace(order, (*_priority(weights[name], parts[name]), place))
    return parts


def _priority(weight: int, replicas: int) -> tuple[int, int]:
    """Return the key that sorts clusters by which gets the next replica first.

    Different quotients of numbers below 2**32 differ by more than 2**-66, so that these integers are exact.
    """
    return -(weight << 66) // (2 * replicas + 1), replicas
