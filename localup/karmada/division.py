"""Divides the replicas of a divisible workload among clusters.

A previous division is kept if it adds up. Otherwise all replicas are divided again, whereas Karmada moves as few as
possible.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.engine.state.resources import MILLI, PODS, Resources, subtract
from localup.karmada.objects import Object, status_of
from localup.karmada.pods import amounts
from localup.karmada.selectors import cluster_matches

Shares = dict[str, int]


class InsufficientReplicasError(Exception):
    """All clusters together have too little capacity for the replicas."""


def divide(spec: Mapping[str, Any], clusters: Sequence[Object]) -> Shares:
    """Return the nonzero replicas by cluster; *clusters* are the selected ones, best first."""
    replicas = int(spec.get("replicas", 0))
    strategy = spec["placement"].get("replicaScheduling") or {}
    chosen = [str(cluster["metadata"]["name"]) for cluster in clusters]
    if strategy.get("replicaSchedulingType", "Duplicated") == "Duplicated":
        return dict.fromkeys(chosen, replicas)
    if is_static(strategy):
        return _by_weight(replicas, _static_weights(strategy, clusters))
    placed = {
        cluster["name"]: int(cluster.get("replicas", 0))
        for cluster in spec.get("clusters") or ()
        if cluster["name"] in chosen
    }
    if placed and sum(placed.values()) == replicas:
        return placed
    capacity = {
        str(cluster["metadata"]["name"]): available(cluster, spec.get("replicaRequirements")) for cluster in clusters
    }
    capacity = {name: count + placed.get(name, 0) for name, count in capacity.items()}
    if sum(capacity.values()) < replicas:
        raise InsufficientReplicasError(
            f"Clusters available replicas {sum(capacity.values())} are not enough to schedule."
        )
    if strategy.get("replicaDivisionPreference") == "Aggregated":
        capacity = _largest_clusters(replicas, capacity)
    return _by_weight(replicas, capacity)


def is_static(strategy: Object) -> bool:
    """Return whether replicas are divided by static weights, so that Karmada ignores spread constraints."""
    if strategy.get("replicaSchedulingType") != "Divided" or strategy.get("replicaDivisionPreference") != "Weighted":
        return False
    return not (strategy.get("weightPreference") or {}).get("dynamicWeight")


def available(cluster: Object, requirements: Object | None) -> int:
    """Return how many replicas fit by the summary of a cluster; 0 without a summary."""
    free = free_capacity(cluster)
    request = {PODS: MILLI, **amounts((requirements or {}).get("resourceRequest"))}
    return max(0, min(free.get(name, 0) // amount for name, amount in request.items() if amount > 0))


def free_capacity(cluster: Object) -> Resources:
    """Return the free resources by the summary of a cluster."""
    summary = status_of(cluster).get("resourceSummary") or {}
    taken = [amounts(summary.get(part)) for part in ("allocated", "allocating")]
    return subtract(subtract(amounts(summary.get("allocatable")), taken[0]), taken[1])


def _static_weights(strategy: Object, clusters: Sequence[Object]) -> Shares:
    entries = (strategy.get("weightPreference") or {}).get("staticWeightList") or ()
    weights = {
        str(cluster["metadata"]["name"]): max(
            (int(entry["weight"]) for entry in entries if cluster_matches(entry["targetCluster"], cluster)), default=0
        )
        for cluster in clusters
    }
    return weights if any(weights.values()) else dict.fromkeys(weights, 1)


def _largest_clusters(replicas: int, capacity: Shares) -> Shares:
    """Return the clusters with the most capacity that together fit *replicas*."""
    taken: Shares = {}
    for name in sorted(capacity, key=lambda name: (-capacity[name], name)):
        taken[name] = capacity[name]
        if sum(taken.values()) >= replicas:
            break
    return taken


def _by_weight(replicas: int, weights: Shares) -> Shares:
    """Divide in proportion to the weights; the remainder goes to the heaviest clusters, one replica each."""
    whole = sum(weights.values())
    order = sorted(weights, key=lambda name: (-weights[name], name))
    shares = {name: replicas * weights[name] // whole if whole else 0 for name in order}
    for name in order[: replicas - sum(shares.values())]:
        shares[name] += 1
    return {name: share for name, share in shares.items() if share}
