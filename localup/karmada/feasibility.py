"""Filters the clusters that are feasible for a binding, as Karmada's scheduler does (facts, §2).

Capacity is not considered. Affinity between workloads is not supported.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from localup.karmada.objects import Object, is_terminating, is_true, labels_of, spec_of, status_of


def labels_match(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects *labels*; an absent or empty one selects all."""
    if not selector:
        return True
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    return all(
        _requirement_holds(expression, _listed(labels, expression))
        for expression in selector.get("matchExpressions") or ()
    )


def cluster_matches(affinity: Object | None, cluster: Object) -> bool:
    """Return whether a cluster affinity allows *cluster*; an absent one allows all."""
    if not affinity:
        return True
    name = cluster["metadata"]["name"]
    names = affinity.get("clusterNames") or [name]
    return (
        name not in (affinity.get("exclude") or ())
        and name in names
        and labels_match(affinity.get("labelSelector"), labels_of(cluster))
        and _fields_match(affinity.get("fieldSelector"), spec_of(cluster))
    )


def _fields_match(selector: Object | None, spec: Mapping[str, Any]) -> bool:
    fields = {
        "provider": [spec["provider"]] if spec.get("provider") else [],
        "region": [spec["region"]] if spec.get("region") else [],
        "zone": list(spec.get("zones") or ()),
    }
    expressions = (selector or {}).get("matchExpressions") or ()
    return all(_requirement_holds(expression, fields.get(expression["key"], [])) for expression in expressions)


def _requirement_holds(requirement: Object, values: Sequence[str]) -> bool:
    """Return whether a requirement holds for *values*: none, one, or several for zones."""
    wanted = set(requirement.get("values") or ())
    match requirement["operator"]:
        case "In":
            return not wanted.isdisjoint(values)
        case "NotIn":
            return wanted.isdisjoint(values)
        case "Exists":
            return bool(values)
        case "DoesNotExist":
            return not values
    return False


def _listed(labels: Mapping[str, str], requirement: Object) -> list[str]:
    return [labels[requirement["key"]]] if requirement["key"] in labels else []


_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})

_SPREAD: Final = {"provider": "provider", "region": "region", "zone": "zones"}


def candidates(binding: Object, affinity: Object | None, clusters: Iterable[Object]) -> list[Object]:
    """Return the feasible *clusters*."""
    return [
        cluster
        for cluster in clusters
        if not is_terminating(cluster) and infeasibility_reason(binding, affinity, cluster) is None
    ]


def fit_error(binding: Object, affinity: Object | None, clusters: Sequence[Object]) -> str:
    """Return the scheduler's message if none of *clusters* is feasible."""
    refusals = Counter(
        infeasibility_reason(binding, affinity, cluster) for cluster in clusters if not is_terminating(cluster)
    )
    reasons = sorted(f"{count} {reason}" for reason, count in refusals.items())
    return f"0/{len(clusters)} clusters are available: {', '.join(reasons) or 'no cluster exists'}."


def infeasibility_reason(binding: Object, affinity: Object | None, cluster: Object) -> str | None:
    """Return why *cluster* is infeasible, or ``None``.

    API enablement and taints are not checked for current targets.
    """
    spec = spec_of(binding)
    name = cluster["metadata"]["name"]
    is_target = name in target_names(binding)
    if not is_target and not serves(cluster, spec["resource"]):
        return "cluster(s) did not have the API resource"
    if not cluster_matches(affinity, cluster):
        return "cluster(s) did not match the placement cluster affinity constraint"
    if any(task["fromCluster"] == name for task in spec.get("gracefulEvictionTasks") or ()):
        return "cluster(s) is in the process of eviction"
    for constraint in spec["placement"].get("spreadConstraints") or ():
        field = _SPREAD.get(constraint.get("spreadByField", ""))
        if field and not spec_of(cluster).get(field):
            return f"cluster(s) did not have {field} property"
    taint = None if is_target else _untolerated(cluster, spec["placement"])
    return f"cluster(s) had untolerated taint {{{_format_taint(taint)}}}" if taint else None


def target_names(binding: Object) -> list[str]:
    """Return the cluster names in `spec.clusters`."""
    return [str(cluster["name"]) for cluster in spec_of(binding).get("clusters") or ()]


def serves(cluster: Object, resource: Object) -> bool:
    """Return whether a cluster is known to serve the kind of *resource*."""
    return any(
        enabled.get("groupVersion") == resource["apiVersion"]
        and any(item.get("kind") == resource["kind"] for item in enabled.get("resources") or ())
        for enabled in status_of(cluster).get("apiEnablements") or ()
    )


def is_ready(cluster: Object) -> bool:
    """Return whether a cluster is Ready; the scheduler does not check this."""
    return is_true(status_of(cluster).get("conditions") or (), "Ready")


def _untolerated(cluster: Object, placement: Object) -> Object | None:
    tolerations = placement.get("clusterTolerations") or ()
    taints = (taint for taint in spec_of(cluster).get("taints") or () if taint.get("effect") in _REPELLING)
    return next(
        (taint for taint in taints if not any(tolerates(toleration, taint) for toleration in tolerations)), None
    )


def tolerates(toleration: Object, taint: Object) -> bool:
    """Return whether a toleration tolerates a taint."""
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    key = toleration.get("key")
    if key and key != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and toleration.get("value", "") == taint.get("value", "")


def _format_taint(taint: Object) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"
