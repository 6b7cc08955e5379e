"""Computes the requests of jobs, and of one replica of a Deployment, independently of the controller.

It supports the workloads of fault scenarios: containers with requests or limits, and tasks in list order (D4).
"""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

Amount = int | Fraction
"""Exact; whole numbers, which are the most, are integers, because these are faster."""

Amounts = Mapping[str, Amount]

_UNITS = {
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("k", "M", "G", "T"), start=1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), start=1)},
}


@lru_cache(maxsize=4096)
def amount(written: str | int) -> Amount:
    """Parse a quantity."""
    text = str(written)
    digits = text.rstrip("".join({letter for unit in _UNITS for letter in unit}))
    value = Fraction(digits) * _UNITS[text[len(digits) :]]
    return int(value) if value.denominator == 1 else value


def amounts(written: Mapping[str, Any] | None) -> Amounts:
    """Parse a resource list."""
    return {name: amount(value) for name, value in (written or {}).items()}


def job_requests(job: Mapping[str, Any]) -> Amounts:
    """Return the total requests of *job*."""
    return _requests(job)[0]


def gang_requests(job: Mapping[str, Any]) -> Amounts:
    """Return the requests of the gang."""
    return _requests(job)[1]


_COMPUTED: dict[tuple[str, int], tuple[Mapping[str, Any], tuple[Amounts, Amounts]]] = {}
_MOST_COMPUTED = 4096


def _requests(job: Mapping[str, Any]) -> tuple[Amounts, Amounts]:
    """Return all requests of *job* and those of its gang, computed once for each spec."""
    spec, metadata = job["spec"], job["metadata"]
    key = metadata.get("uid", ""), metadata.get("generation", 0)
    known = _COMPUTED.get(key)
    if known is None or known[0] != spec:
        known = spec, (_sum(_pods(job)), _sum(_gang(job)))
        if len(_COMPUTED) >= _MOST_COMPUTED:
            _COMPUTED.clear()
        _COMPUTED[key] = known
    return known[1]


def add(*many: Amounts) -> Amounts:
    """Return the sum of *many* amounts."""
    return _sum(list(many))


def _pods(job: Mapping[str, Any]) -> list[Amounts]:
    if "tasks" not in job["spec"]:
        return [_pod(job["spec"]["template"])] * job["spec"].get("parallelism", 1)
    return [_pod(task["template"]) for task in job["spec"]["tasks"] for _ in range(task.get("replicas", 1))]


def _gang(job: Mapping[str, Any]) -> list[Amounts]:
    """Return the pods of the gang: the minimum of each task and then the first others, or the first of all (D4)."""
    if "tasks" not in job["spec"]:
        return _pods(job)
    first: list[Amounts] = []
    others: list[Amounts] = []
    for task in job["spec"]["tasks"]:
        replicas = task.get("replicas", 1)
        least = task.get("minAvailable", replicas)
        first += [_pod(task["template"])] * least
        others += [_pod(task["template"])] * (replicas - least)
    wanted = job["spec"].get("minAvailable") or len(first)
    return [*first, *others][:wanted] if wanted >= len(first) else _pods(job)[:wanted]


def _pod(template: Mapping[str, Any]) -> Amounts:
    asked = [container.get("resources") or {} for container in template["spec"]["containers"]]
    return _sum([{"pods": 1}, *(amounts({**r.get("limits", {}), **r.get("requests", {})}) for r in asked)])


def _sum(many: list[Amounts]) -> Amounts:
    sums: Counter[str] = Counter()
    for item in many:
        for name, value in item.items():
            sums[name] += value
    return sums
