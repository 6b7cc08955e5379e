"""Label and field selectors with the semantics of Kubernetes and Karmada."""

from collections.abc import Mapping, Sequence
from typing import Any

from localup.karmada.objects import Object, labels_of, spec_of


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
