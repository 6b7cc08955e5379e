"""Implements Karmada's scheduler: selects clusters for bindings that are not suspended, and divides their replicas.

Suspension is only checked when an event arrives (facts, no. 1): queued bindings are scheduled even if suspended
meanwhile. Patches have no resourceVersion (facts, §1), so a concurrent write is no conflict. Freed capacity triggers no
retry. Clusters in `spec.clusters` are preferred, so a preset feasible cluster is confirmed (no. 4). Then come clusters
with more capacity for divisible workloads, then names. A division stays if it adds up, except by static weights;
otherwise all replicas are divided again, whereas Karmada moves as few as possible. Spread by region and the component
estimator are not supported.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import structlog

from controller.engine.state.resources import MILLI, PODS, subtract
from controller.kube.timing import Backoff
from localup.karmada.cache import STATUS, ControlPlaneCache, Store
from localup.karmada.controller import ObjectController
from localup.karmada.detector import is_claimed
from localup.karmada.objects import (
    APPLIED_PLACEMENT,
    Condition,
    Key,
    Object,
    annotations_of,
    generation_of,
    is_terminating,
    key_of,
    labels_match,
    labels_of,
    requirement_holds,
    spec_of,
    status_of,
    target_names,
    timestamp,
    with_conditions,
    with_metadata,
    with_spec,
    with_status,
)
from localup.karmada.workloads import amounts

Shares = dict[str, int]

_SPREAD: Final = {"provider": "provider", "region": "region", "zone": "zones"}


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


class _SchedulingError(Exception):
    """No selection of the feasible clusters satisfies the placement."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.result = SchedulingResult(reason, message)


def place(binding: Object, clusters: Sequence[Object]) -> SchedulingResult:
    """Try affinity terms in order from the last observed one; if all fail, return the first failure."""
    failures = []
    for name, affinity in _affinity_terms(binding):
        outcome = _place_with(binding, affinity, clusters)
        if outcome.reason is Reason.SUCCESS:
            return SchedulingResult(outcome.reason, targets=outcome.targets, term=name)
        failures.append(outcome)
    return failures[0]


def affinity_allows(binding: Object, cluster: Object) -> bool:
    """Return whether the observed affinity of a binding allows *cluster*, so that its changes trigger a retry."""
    return cluster_matches(_affinity_terms(binding)[0][1], cluster)


def _affinity_terms(binding: Object) -> list[tuple[str, Object | None]]:
    placement = spec_of(binding)["placement"]
    terms = placement.get("clusterAffinities")
    if placement.get("clusterAffinity") or not terms:
        return [("", placement.get("clusterAffinity"))]
    named = [(str(term["affinityName"]), term) for term in terms]
    observed = status_of(binding).get("schedulerObservingAffinityName", "")
    begin = next((index for index, (name, _) in enumerate(named) if name == observed), 0)
    return named[begin:]


def _place_with(binding: Object, affinity: Object | None, clusters: Sequence[Object]) -> SchedulingResult:
    reasons = [(item, _infeasibility(binding, affinity, item)) for item in clusters if not is_terminating(item)]
    feasible = [item for item, reason in reasons if reason is None]
    if not feasible:
        counts = Counter(reason for _, reason in reasons)
        listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items())) or "no cluster exists"
        message = f"0/{len(clusters)} clusters are available: {listed}."
        return SchedulingResult(Reason.NO_CLUSTER_FIT, message, targets=())
    spec, current = spec_of(binding), set(target_names(binding))
    ranked = sorted(feasible, key=lambda item: (_name(item) not in current, -_capacity(spec, item), _name(item)))
    try:
        return SchedulingResult(Reason.SUCCESS, targets=_targets(spec, _select_clusters(spec, ranked)))
    except _SchedulingError as error:
        return error.result


def cluster_matches(affinity: Object | None, cluster: Object) -> bool:
    """Return whether a cluster affinity allows *cluster*; an absent one allows all."""
    if not affinity:
        return True
    name, spec = _name(cluster), spec_of(cluster)
    fields = {part: [spec[part]] if spec.get(part) else [] for part in ("provider", "region")}
    fields["zone"] = list(spec.get("zones") or ())
    return (
        name not in (affinity.get("exclude") or ())
        and name in (affinity.get("clusterNames") or [name])
        and labels_match(affinity.get("labelSelector"), labels_of(cluster))
        and all(
            requirement_holds(item, fields.get(item["key"], []))
            for item in (affinity.get("fieldSelector") or {}).get("matchExpressions") or ()
        )
    )


def _infeasibility(binding: Object, affinity: Object | None, cluster: Object) -> str | None:
    """Return why *cluster* is infeasible, or ``None``; capacity is not considered.

    API enablement and taints are not checked for current targets.
    """
    spec, placement, name = spec_of(binding), spec_of(binding)["placement"], _name(cluster)
    is_target = name in target_names(binding)
    if not is_target and not _serves(cluster, spec["resource"]):
        return "cluster(s) did not have the API resource"
    if not cluster_matches(affinity, cluster):
        return "cluster(s) did not match the placement cluster affinity constraint"
    if any(task["fromCluster"] == name for task in spec.get("gracefulEvictionTasks") or ()):
        return "cluster(s) is in the process of eviction"
    for constraint in placement.get("spreadConstraints") or ():
        field = _SPREAD.get(constraint.get("spreadByField", ""))
        if field and not spec_of(cluster).get(field):
            return f"cluster(s) did not have {field} property"
    taint = None if is_target else untolerated_taint(cluster, placement, "NoSchedule", "NoExecute")
    if taint is None:
        return None
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"cluster(s) had untolerated taint {{{taint['key']}{value}:{taint['effect']}}}"


def untolerated_taint(cluster: Object, placement: Object, *effects: str) -> Object | None:
    """Return the first taint of *cluster* with one of these effects that *placement* does not tolerate."""
    tolerations = placement.get("clusterTolerations") or ()
    taints = (taint for taint in spec_of(cluster).get("taints") or () if taint.get("effect") in effects)
    return next((taint for taint in taints if not any(_tolerates(item, taint) for item in tolerations)), None)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    key = toleration.get("key")
    if key and key != taint["key"]:
        return False
    is_equal = bool(key) and toleration.get("value", "") == taint.get("value", "")
    return toleration.get("operator") == "Exists" or is_equal


def _serves(cluster: Object, resource: Object) -> bool:
    """Return whether a cluster is known to serve the kind of *resource*."""
    return any(
        enabled.get("groupVersion") == resource["apiVersion"]
        and any(item.get("kind") == resource["kind"] for item in enabled.get("resources") or ())
        for enabled in status_of(cluster).get("apiEnablements") or ()
    )


def _select_clusters(spec: Mapping[str, Any], ranked: Sequence[Object]) -> Sequence[Object]:
    """Return the clusters that satisfy the spread constraints."""
    placement = spec["placement"]
    constraints = placement.get("spreadConstraints") or ()
    if not constraints:
        return ranked
    by_cluster = next((constraint for constraint in constraints if constraint.get("spreadByField") == "cluster"), None)
    if by_cluster is None:
        raise _SchedulingError(Reason.SCHEDULER_ERROR, "just support cluster and region spread constraint")
    if len(ranked) < int(by_cluster.get("minGroups", 1)):
        message = "the number of feasible clusters is less than spreadConstraint.MinGroups"
        raise _SchedulingError(Reason.SCHEDULER_ERROR, message)
    count = min(int(by_cluster.get("maxGroups") or 0), len(ranked))
    chosen = ranked[:count]
    if is_divided(spec) and sum(_capacity(spec, item) for item in chosen) < int(spec["replicas"]):
        raise _SchedulingError(Reason.SCHEDULER_ERROR, f"no enough resource when selecting {count} clusters")
    if not chosen:
        raise _SchedulingError(Reason.SCHEDULER_ERROR, "no clusters available to schedule")
    return chosen


def _targets(spec: Mapping[str, Any], chosen: Sequence[Object]) -> tuple[Object, ...]:
    if has_replicas(spec):
        shares = _divide(spec, chosen)
        return tuple({"name": name, "replicas": shares[name]} for name in sorted(shares))
    components = spec.get("components") or ()
    extra = {}
    if len(components) > 1 and _goes_to_one(spec):
        extra = {"components": [{"name": item["name"], "replicas": item["replicas"]} for item in components]}
    return tuple({"name": _name(item), **extra} for item in chosen)


def _goes_to_one(spec: Mapping[str, Any]) -> bool:
    one = {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}
    return any(one.items() <= constraint.items() for constraint in spec["placement"].get("spreadConstraints") or ())


def has_replicas(spec: Mapping[str, Any]) -> bool:
    """Return whether a binding's spec has replicas; without them Karmada does not treat it as a workload."""
    return bool(spec.get("replicas") or spec.get("replicaRequirements"))


def is_divided(spec: Mapping[str, Any]) -> bool:
    """Return whether replicas are divided among clusters."""
    strategy = spec["placement"].get("replicaScheduling") or {}
    return has_replicas(spec) and strategy.get("replicaSchedulingType") == "Divided"


def _divide(spec: Mapping[str, Any], clusters: Sequence[Object]) -> Shares:
    """Return the nonzero replicas by cluster; *clusters* are the selected ones, best first."""
    replicas = int(spec.get("replicas", 0))
    strategy = spec["placement"].get("replicaScheduling") or {}
    chosen = [_name(cluster) for cluster in clusters]
    if not is_divided(spec):
        return dict.fromkeys(chosen, replicas)
    uid = str(spec["resource"].get("uid", ""))
    weights = _static_weights(spec, clusters)
    if weights is not None:
        return _by_weight(replicas, weights, uid)
    placed = {
        cluster["name"]: int(cluster.get("replicas", 0))
        for cluster in spec.get("clusters") or ()
        if cluster["name"] in chosen
    }
    if placed and sum(placed.values()) == replicas:
        return placed
    capacity = {_name(cluster): _capacity(spec, cluster) + placed.get(_name(cluster), 0) for cluster in clusters}
    if sum(capacity.values()) < replicas:
        message = f"Clusters available replicas {sum(capacity.values())} are not enough to schedule."
        raise _SchedulingError(Reason.UNSCHEDULABLE, message)
    if strategy.get("replicaDivisionPreference") == "Aggregated":
        capacity = _largest_clusters(replicas, capacity)
    return _by_weight(replicas, capacity, uid)


def _static_weights(spec: Mapping[str, Any], clusters: Sequence[Object]) -> Shares | None:
    """Return the static weights by cluster, equal ones where no rule gives any; ``None`` for other divisions."""
    strategy = spec["placement"]["replicaScheduling"]
    preference = strategy.get("weightPreference") or {}
    if strategy.get("replicaDivisionPreference") != "Weighted" or preference.get("dynamicWeight"):
        return None
    rules = preference.get("staticWeightList") or ()
    weights = {
        _name(cluster): max(
            (int(rule["weight"]) for rule in rules if cluster_matches(rule["targetCluster"], cluster)), default=0
        )
        for cluster in clusters
    }
    return {name: weight for name, weight in weights.items() if weight} or dict.fromkeys(weights, 1)


def _largest_clusters(replicas: int, capacity: Shares) -> Shares:
    """Return the clusters with the most capacity that together fit *replicas*."""
    taken: Shares = {}
    for name in sorted(capacity, key=lambda name: (-capacity[name], name)):
        taken[name] = capacity[name]
        if sum(taken.values()) >= replicas:
            break
    return taken


def _by_weight(replicas: int, weights: Shares, uid: str) -> Shares:
    """Divide by the method of Webster, as Karmada 1.16; the template's *uid* decides the order of equal clusters."""
    shares = dict.fromkeys(sorted(weights, reverse=bool(uid) and _fnv1a(uid) % 2 == 1), 0)
    for _ in range(replicas if any(weights.values()) else 0):
        name = min(shares, key=lambda name: (-weights[name] / (2 * shares[name] + 1), shares[name]))
        shares[name] += 1
    return {name: share for name, share in shares.items() if share}


def _fnv1a(text: str) -> int:
    """Return the 32-bit FNV-1a hash."""
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 % (1 << 32)
    return value


def _capacity(spec: Mapping[str, Any], cluster: Object) -> int:
    """Return how many replicas fit by the summary of a cluster; 0 without a summary or without replicas."""
    if not has_replicas(spec):
        return 0
    summary = status_of(cluster).get("resourceSummary") or {}
    free = subtract(amounts(summary.get("allocatable")), amounts(summary.get("allocated")))
    free = subtract(free, amounts(summary.get("allocating")))
    request = {PODS: MILLI, **amounts((spec.get("replicaRequirements") or {}).get("resourceRequest"))}
    return max(0, min(free.get(name, 0) // amount for name, amount in request.items() if amount > 0))


def _name(cluster: Object) -> str:
    return str(cluster["metadata"]["name"])


def format_applied_placement(placement: Object) -> str:
    """Return a placement as the scheduler's annotation has it, only with sorted fields."""
    return json.dumps(placement, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


log = structlog.get_logger()

_SCHEDULER: Final = "default-scheduler"

#: Maximum backoff after a `SchedulerError`; retries never end (facts, §1).
_MAX_BACKOFF_SECONDS: Final = 10

#: Bindings with too few available replicas are retried after this time, without regard to capacity changes (§1).
_UNSCHEDULABLE_SECONDS: Final = 300


class Scheduler(ObjectController):
    """Schedules bindings of one kind."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store) -> None:
        super().__init__(cache, bindings)
        self._backoffs: dict[Key, Backoff] = {}
        cache.clusters.add_event_handler(self._cluster_changed)

    def concerns(self, old: Object | None, new: Object) -> bool:
        """Return whether a new generation, or a binding that passes it now, passes the event filter."""
        return _passes_filter(new) and (
            old is None or not _passes_filter(old) or generation_of(old) != generation_of(new)
        )

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        """Queue bindings whose affinity allows the changed cluster; unclaimed bindings are included, as in Karmada."""
        if old is None:
            return  # a new cluster triggers when it becomes ready and loses its taint
        new = new or old  # a deleted cluster is handled like a terminating one
        if new is not old and _is_irrelevant_change(old, new):
            return
        for binding in self.store:
            if _is_schedulable(binding) and (affinity_allows(binding, old) or affinity_allows(binding, new)):
                self.queue.add(key_of(binding))

    async def reconcile_object(self, item: Object) -> None:
        """Set the clusters of a binding and its condition `Scheduled`."""
        binding, key = item, key_of(item)
        if not self._is_due(binding):
            seen = with_status(binding, schedulerObservedGeneration=generation_of(binding))
            await self.cache.update(binding, seen, part=STATUS, any_version=True)
            return
        outcome = place(binding, list(self.cache.clusters))
        placed = await self.cache.update(binding, _with_targets(binding, outcome), any_version=True)
        if placed is not binding:
            names = [target["name"] for target in outcome.targets or ()]
            log.info("binding scheduled", binding=str(key), clusters=names, reason=str(outcome.reason))
        scheduled = _with_scheduled_condition(placed, outcome, self.cache.now())
        await self.cache.update(placed, scheduled, part=STATUS, any_version=True)
        self._schedule_retry(key, outcome)

    def _is_due(self, binding: Object) -> bool:
        """Return whether a binding must be scheduled; divided replicas that add up are left unchanged."""
        spec = spec_of(binding)
        if annotations_of(binding).get(APPLIED_PLACEMENT) != format_applied_placement(spec["placement"]):
            return True
        if not is_divided(spec):
            return True
        placed = sum(int(cluster.get("replicas", 0)) for cluster in spec.get("clusters") or ())
        leaving = (cluster for cluster in self.cache.clusters if is_terminating(cluster))
        return placed != int(spec.get("replicas", 0)) or any(
            key_of(item).name in target_names(binding) for item in leaving
        )

    def _schedule_retry(self, key: Key, outcome: SchedulingResult) -> None:
        """Queue a retry after a failure; the delay depends on the reason."""
        if outcome.reason is Reason.SCHEDULER_ERROR:
            backoff = Backoff(initial=1, maximum=_MAX_BACKOFF_SECONDS, jitter=lambda: 1)
            self.queue.add(key, seconds=self._backoffs.setdefault(key, backoff).next_delay())
            return
        self._backoffs.pop(key, None)
        if outcome.reason is Reason.UNSCHEDULABLE:
            self.queue.add(key, seconds=_UNSCHEDULABLE_SECONDS)


def _passes_filter(binding: Object) -> bool:
    """Return whether a binding passes the event filter: own scheduler name, not suspended, claimed."""
    return _is_schedulable(binding) and is_claimed(binding)


def _is_schedulable(binding: Object) -> bool:
    spec = spec_of(binding)
    is_ours = spec.get("schedulerName", _SCHEDULER) == _SCHEDULER and "placement" in spec
    return is_ours and not (spec.get("suspension") or {}).get("scheduling")


def _with_targets(binding: Object, outcome: SchedulingResult) -> Object:
    if outcome.targets is None:
        return binding
    applied = format_applied_placement(spec_of(binding)["placement"])
    noted = with_metadata(binding, annotations={**annotations_of(binding), APPLIED_PLACEMENT: applied})
    return with_spec(noted, clusters=list(outcome.targets) or None)


def _with_scheduled_condition(binding: Object, outcome: SchedulingResult, now: float) -> Object:
    """Return *binding* with the result of the attempt; an unchanged success changes nothing."""
    status, updated = status_of(binding), with_conditions(binding, outcome.condition, now=now)
    if outcome.reason is not Reason.SUCCESS:
        return updated
    details = {
        "conditions": updated["status"]["conditions"],
        "schedulerObservedGeneration": generation_of(binding),
        "schedulerObservingAffinityName": outcome.term or status.get("schedulerObservingAffinityName"),
    }
    if all(status.get(name) == value for name, value in details.items()):
        return binding
    return with_status(binding, **details, lastScheduledTime=timestamp(now))


def _is_irrelevant_change(old: Object, new: Object) -> bool:
    """Return whether a cluster change triggers no scheduling."""
    return (
        labels_of(old) == labels_of(new)
        and generation_of(old) == generation_of(new)
        and is_terminating(old) == is_terminating(new)
    )
