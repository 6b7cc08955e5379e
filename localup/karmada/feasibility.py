"""Filters the clusters that are feasible for a binding, as Karmada's scheduler does (facts, §2).

Capacity is not considered. Affinity between workloads is not supported.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from localup.karmada.conditions import is_true
from localup.karmada.objects import Object, is_terminating, spec_of, status_of
from localup.karmada.selectors import cluster_matches

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
