"""Karmada's resource models: default grades, and the counts of a member's nodes per grade.

It follows ``SetDefaultClusterResourceModels`` of Karmada's API server, ``getAllocatableModelings`` of its status
controller, and ``pkg/modeling``.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from controller.api.quantity import parse_quantity
from controller.engine.state.resources import EMPTY, PODS, Resources, subtract
from localup.karmada.objects import Object

_UNBOUNDED: Final = str(2**63 - 1)
_CPU: Final = ("0", "1", "2", "4", "8", "16", "32", "64", "128", _UNBOUNDED)
_MEMORY: Final = ("0", "4Gi", "16Gi", "32Gi", "64Gi", "128Gi", "256Gi", "512Gi", "1Ti", _UNBOUNDED)


def default_models() -> list[Object]:
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


@dataclass(frozen=True, slots=True)
class Node:
    """Allocatable resources of a node and the usage of its pods."""

    allocatable: Resources
    used: Resources = EMPTY


def allocatable_modelings(models: Sequence[Object], nodes: Iterable[Node]) -> list[Object]:
    """Return the number of nodes per grade by their free resources.

    As in Karmada, counting stops at the first node without a free pod slot, and nodes with negative free resources
    are skipped.
    """
    lows = {name: [parse_quantity(name, _range(model, name)["min"]) for model in models] for name in _graded(models)}
    counts = [0] * len(models)
    for node in nodes:
        free = subtract(node.allocatable, node.used)
        if node.used and free.get(PODS, 0) <= 0:
            break
        grade = min((bisect_right(low, free.get(name, 0)) - 1 for name, low in lows.items()), default=-1)
        if grade >= 0:
            counts[grade] += 1
    return [{"grade": model["grade"], "count": count} for model, count in zip(models, counts, strict=True)]


def _graded(models: Sequence[Object]) -> list[str]:
    return [item["name"] for item in models[0]["ranges"]] if models else []


def _range(model: Object, name: str) -> Object:
    found: Object = next(item for item in model["ranges"] if item["name"] == name)
    return found
