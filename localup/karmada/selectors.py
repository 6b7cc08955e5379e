"""Selectors of labels and fields, matched as Kubernetes and Karmada match them."""

from collections.abc import Mapping, Sequence
from typing import Any

from localup.karmada.objects import Object, labels_of, spec_of


def labels_match(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Say whether a label selector selects *labels*; a missing or empty one selects all."""
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
    """Say whether a cluster affinity allows *cluster*; a missing one allows all."""
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
    """Judge one requirement against the values a thing has: none, one, or for zones several."""
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
