"""Clusters with Karmada's default resource models, whose grades count their nodes."""

from collections.abc import Iterable, Mapping
from typing import Any

from localup.karmada.member import Node, allocatable_modelings, default_models
from localup.karmada.workloads import amounts


def with_models(cluster: dict[str, Any], nodes: Iterable[Node] | None = None) -> dict[str, Any]:
    """Return *cluster* with the default grades and its summary with the counts of *nodes*; one node by default."""
    spec = {"resourceModels": default_models(), **cluster.get("spec", {})}
    status = cluster.get("status") or {}
    summary = status.get("resourceSummary")
    if not summary:
        return {**cluster, "spec": spec}
    counted = list(nodes) if nodes is not None else [Node(_sum(summary, "allocatable"), _sum(summary, "allocated"))]
    modelings = allocatable_modelings(spec["resourceModels"], counted)
    told = {
        **status,
        "nodeSummary": {"readyNum": len(counted), "totalNum": len(counted)},
        "resourceSummary": {**summary, "allocatableModelings": modelings},
    }
    return {**cluster, "spec": spec, "status": told}


def _sum(summary: Mapping[str, Any], part: str) -> Mapping[str, int]:
    """Return the amounts of one part; unreadable values, which some tests use, count as zero."""
    try:
        return amounts(summary.get(part))
    except ValueError:
        return {}
