"""How many replicas of a divisible workload each cluster gets.

Pure. What is placed already stays while it adds up; otherwise everything is
divided anew, where Karmada would move as little as it can.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.engine.resources import MILLI, PODS, Resources, subtract
from localup.karmada.objects import Object, status_of
from localup.karmada.pods import amounts
from localup.karmada.selectors import cluster_matches

Shares = dict[str, int]


class InsufficientReplicasError(Exception):
    """The clusters together have no room for all replicas."""


def divide(spec: Mapping[str, Any], clusters: Sequence[Object]) -> Shares:
    """Return the replicas by cluster, without those that get none; *clusters* are the chosen ones, the best first."""
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
    room = {
        str(cluster["metadata"]["name"]): available(cluster, spec.get("replicaRequirements")) for cluster in clusters
    }
    room = {name: count + placed.get(name, 0) for name, count in room.items()}
    if sum(room.values()) < replicas:
        raise InsufficientReplicasError(f"Clusters available replicas {sum(room.values())} are not enough to schedule.")
    if strategy.get("replicaDivisionPreference") == "Aggregated":
        room = _largest_clusters(replicas, room)
    return _by_weight(replicas, room)


def is_static(strategy: Object) -> bool:
    """Say whether replicas are divided by fixed weights, which makes Karmada ignore spread constraints."""
    if strategy.get("replicaSchedulingType") != "Divided" or strategy.get("replicaDivisionPreference") != "Weighted":
        return False
    return not (strategy.get("weightPreference") or {}).get("dynamicWeight")


def available(cluster: Object, requirements: Object | None) -> int:
    """Return how many replicas the summary of a cluster has room for; none without a summary."""
    free = free_capacity(cluster)
    request = {PODS: MILLI, **amounts((requirements or {}).get("resourceRequest"))}
    return max(0, min(free.get(name, 0) // amount for name, amount in request.items() if amount > 0))


def free_capacity(cluster: Object) -> Resources:
    """Return what the summary of a cluster leaves free."""
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


def _largest_clusters(replicas: int, room: Shares) -> Shares:
    """Return the clusters with the most room that together hold *replicas*."""
    taken: Shares = {}
    for name in sorted(room, key=lambda name: (-room[name], name)):
        taken[name] = room[name]
        if sum(taken.values()) >= replicas:
            break
    return taken


def _by_weight(replicas: int, weights: Shares) -> Shares:
    """Divide in proportion, and deal out what is left over one by one, the heaviest first."""
    whole = sum(weights.values())
    order = sorted(weights, key=lambda name: (-weights[name], name))
    shares = {name: replicas * weights[name] // whole if whole else 0 for name in order}
    for name in order[: replicas - sum(shares.values())]:
        shares[name] += 1
    return {name: share for name, share in shares.items() if share}
