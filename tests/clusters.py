"""Clusters with Karmada's default resource models, whose grades count their nodes."""

from collections.abc import Iterable, Mapping
from typing import Any

from localup.karmada.member import Node, allocatable_modelings
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


_UNBOUNDED = str(2**63 - 1)
_CPU = ("0", "1", "2", "4", "8", "16", "32", "64", "128", _UNBOUNDED)
_MEMORY = ("0", "4Gi", "16Gi", "32Gi", "64Gi", "128Gi", "256Gi", "512Gi", "1Ti", _UNBOUNDED)


def default_models() -> list[dict[str, Any]]:
    """Return the grades that Karmada's API server sets in new Clusters; the CRD has the same defaults."""
    return [
        {
            "grade": grade,
            "ranges": [
                {"name": name, "min": ends[grade], "max": ends[grade + 1]}
                for name, ends in (("cpu", _CPU), ("memory", _MEMORY))
            ],
        }
        for grade in range(len(_CPU) - 1)
    ]
