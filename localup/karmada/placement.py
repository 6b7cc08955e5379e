"""Selects the clusters of a binding and divides its replicas among them, as Karmada's scheduler does.

Clusters in `spec.clusters` are preferred, so a preset feasible cluster is confirmed (facts, no. 4). Then come
clusters with more capacity for divisible workloads, then names. A division is kept if it adds up; otherwise all
replicas are divided again, whereas Karmada moves as few as possible. Spread by region and the component estimator are
not supported.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from controller.engine.state.resources import MILLI, PODS, Resources, subtract
from localup.karmada.feasibility import candidates, cluster_matches, fit_error, target_names
from localup.karmada.members.workloads import amounts
from localup.karmada.objects import Condition, Object, spec_of, status_of

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


class Reason(StrEnum):
    """Reason of the condition `Scheduled`."""

    SUCCESS = "Success"
    NO_CLUSTER_FIT = "NoClusterFit"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULER_ERROR = "SchedulerError"


@dataclass(frozen=True, slots=True)
class SchedulingResult:
    """Result of a scheduling attempt."""

    reason: Reason
    message: str = "Binding has been scheduled successfully."
    targets: tuple[Object, ...] | None = None
    """The new `spec.clusters`; ``None`` leaves it unchanged."""
    term: str = ""
    """Name of the affinity term that was used, if there are several."""

    @property
    def condition(self) -> Condition:
        """Return the condition `Scheduled` for this result."""
        status = "True" if self.reason is Reason.SUCCESS else "False"
        return Condition("Scheduled", status, self.reason, self.message)


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options that change the scheduler's behaviour."""

    affinity_terms: bool = True
    """Try ordered affinities in order; otherwise use only the first."""
    copies: bool = True
    """Without a spread constraint select all feasible clusters; otherwise the best one."""


_DEFAULT_OPTIONS: Final = SchedulerOptions()


def place(
    binding: Object, clusters: Sequence[Object], options: SchedulerOptions = _DEFAULT_OPTIONS
) -> SchedulingResult:
    """Try affinity terms in order from the last observed one; if all fail, return the first failure."""
    first: SchedulingResult | None = None
    terms = _affinity_terms(binding)
    for name, affinity in terms if options.affinity_terms else terms[:1]:
        outcome = _place_with(binding, affinity, clusters, options)
        if outcome.reason is Reason.SUCCESS:
            return SchedulingResult(outcome.reason, targets=outcome.targets, term=name)
        first = first or outcome
    return first or SchedulingResult(Reason.SCHEDULER_ERROR, "no affinity term")


def affinity_allows(binding: Object, cluster: Object) -> bool:
    """Return whether the observed affinity of a binding allows *cluster*, so that its changes trigger a retry."""
    return cluster_matches(_affinity_terms(binding)[0][1], cluster)


def format_applied_placement(placement: Object) -> str:
    """Return a placement in the format of the scheduler's annotation, with fields in the order of Karmada's types."""
    return json.dumps(_ordered(placement), separators=(",", ":"), ensure_ascii=False)


def _affinity_terms(binding: Object) -> list[tuple[str, Object | None]]:
    placement = spec_of(binding)["placement"]
    terms = placement.get("clusterAffinities")
    if placement.get("clusterAffinity") or not terms:
        return [("", placement.get("clusterAffinity"))]
    named = [(str(term["affinityName"]), term) for term in terms]
    observed = status_of(binding).get("schedulerObservingAffinityName", "")
    begin = next((index for index, (name, _) in enumerate(named) if name == observed), 0)
    return named[begin:]


def _place_with(
    binding: Object, affinity: Object | None, clusters: Sequence[Object], options: SchedulerOptions
) -> SchedulingResult:
    feasible = candidates(binding, affinity, clusters)
    if not feasible:
        return SchedulingResult(Reason.NO_CLUSTER_FIT, fit_error(binding, affinity, clusters), targets=())
    spec = spec_of(binding)
    try:
        chosen = _select_clusters(spec, _ranked(binding, feasible))
        if not options.copies and not has_replicas(spec):
            chosen = chosen[:1]
        return SchedulingResult(Reason.SUCCESS, targets=_targets(spec, chosen))
    except InsufficientReplicasError as error:
        return SchedulingResult(Reason.UNSCHEDULABLE, str(error))
    except _SpreadError as error:
        return SchedulingResult(Reason.SCHEDULER_ERROR, str(error))


class _SpreadError(Exception):
    """The spread constraints cannot be satisfied."""


def _ranked(binding: Object, feasible: Sequence[Object]) -> list[Object]:
    spec = spec_of(binding)
    current = set(target_names(binding))

    def rank(cluster: Object) -> tuple[bool, int, str]:
        name = cluster["metadata"]["name"]
        return name not in current, -_capacity(spec, cluster), name

    return sorted(feasible, key=rank)


def _select_clusters(spec: Mapping[str, Any], ranked: Sequence[Object]) -> Sequence[Object]:
    """Return the clusters that satisfy the spread constraints; divisible workloads swap in larger clusters."""
    placement = spec["placement"]
    constraints = placement.get("spreadConstraints") or ()
    if not constraints or is_static(placement.get("replicaScheduling") or {}):
        return ranked
    by_cluster = next((constraint for constraint in constraints if constraint.get("spreadByField") == "cluster"), None)
    if by_cluster is None:
        raise _SpreadError("just support cluster and region spread constraint")
    if len(ranked) < int(by_cluster.get("minGroups", 1)):
        raise _SpreadError("the number of feasible clusters is less than spreadConstraint.MinGroups")
    count = min(int(by_cluster.get("maxGroups") or len(ranked)), len(ranked))
    if not is_divided(spec):
        return ranked[:count]
    chosen = _swap_for_capacity(spec, ranked, count)
    if sum(_capacity(spec, item) for item in chosen) < int(spec["replicas"]):
        raise _SpreadError(f"no enough resource when selecting {count} clusters")
    return chosen


def _swap_for_capacity(spec: Mapping[str, Any], ranked: Sequence[Object], count: int) -> list[Object]:
    chosen, rest = list(ranked[:count]), list(ranked[count:])
    for index in reversed(range(count)):
        if not rest or sum(_capacity(spec, item) for item in chosen) >= int(spec["replicas"]):
            break
        best = max(range(len(rest)), key=lambda other: _capacity(spec, rest[other]))
        if _capacity(spec, rest[best]) > _capacity(spec, chosen[index]):
            chosen[index], rest[best] = rest[best], chosen[index]
    return chosen


def _targets(spec: Mapping[str, Any], chosen: Sequence[Object]) -> tuple[Object, ...]:
    if has_replicas(spec):
        shares = divide(spec, chosen)
        return tuple({"name": name, "replicas": shares[name]} for name in sorted(shares))
    names = [item["metadata"]["name"] for item in chosen]
    components = spec.get("components") or ()
    if len(components) > 1 and _goes_to_one(spec):
        components_of_target = [
            {"name": component["name"], "replicas": component["replicas"]} for component in components
        ]
        return tuple({"name": name, "components": components_of_target} for name in names)
    return tuple({"name": name} for name in names)


def _goes_to_one(spec: Mapping[str, Any]) -> bool:
    return any(
        (constraint.get("spreadByField"), constraint.get("minGroups"), constraint.get("maxGroups")) == ("cluster", 1, 1)
        for constraint in spec["placement"].get("spreadConstraints") or ()
    )


def has_replicas(spec: Mapping[str, Any]) -> bool:
    """Return whether a binding's spec has replicas; without them Karmada does not treat it as a workload."""
    return bool(spec.get("replicas") or spec.get("replicaRequirements"))


def is_divided(spec: Mapping[str, Any]) -> bool:
    """Return whether replicas are divided among clusters."""
    strategy = spec["placement"].get("replicaScheduling") or {}
    return has_replicas(spec) and strategy.get("replicaSchedulingType") == "Divided"


def _capacity(spec: Mapping[str, Any], cluster: Object) -> int:
    return available(cluster, spec.get("replicaRequirements")) if has_replicas(spec) else 0


#: The fields of a placement in the order in which Karmada's types declare them.
_FIELDS: Final = (
    *("clusterAffinity", "clusterAffinities", "clusterTolerations", "spreadConstraints", "replicaScheduling"),
    *("affinityName", "labelSelector", "fieldSelector", "clusterNames", "exclude"),
    *("matchLabels", "matchExpressions", "key", "operator", "value", "values", "effect", "tolerationSeconds"),
    *("spreadByField", "spreadByLabel", "maxGroups", "minGroups"),
    *("replicaSchedulingType", "replicaDivisionPreference", "weightPreference"),
    *("targetCluster", "weight", "staticWeightList", "dynamicWeight"),
)

_ORDER: Final = {name: index for index, name in enumerate(_FIELDS)}


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        names = sorted(value, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
        return {name: _ordered(value[name]) for name in names}
    return [_ordered(item) for item in value] if isinstance(value, list) else value
