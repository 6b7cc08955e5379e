"""Parses pod templates into requests.

Karmada counts differently from the API server: it treats sidecars as init containers that end, and ignores pod-level
resources.
"""

from collections.abc import Mapping
from typing import Any

from controller.api.quantity import format_quantity, parse_quantity
from controller.engine.state.requests import Container, PodTemplate
from controller.engine.state.resources import CPU, MEMORY, MILLI, Resources, add, elementwise_max, total
from localup.karmada.objects import Object


def pod_template(template: Object) -> PodTemplate:
    """Parse a pod template."""
    spec = template.get("spec") or {}
    level = spec.get("resources") or {}
    return PodTemplate(
        containers=tuple(_container(container) for container in spec.get("containers") or ()),
        init=tuple(_container(container) for container in spec.get("initContainers") or ()),
        overhead=amounts(spec.get("overhead")),
        requests=amounts(level.get("requests")),
        limits=amounts(level.get("limits")),
        priority_class=spec.get("priorityClassName", ""),
    )


def amounts(quantities: Mapping[str, Any] | None) -> Resources:
    """Parse quantities by resource."""
    return {name: parse_quantity(name, value) for name, value in (quantities or {}).items()}


def quantities(amounts: Resources) -> dict[str, str]:
    """Format amounts by resource; zero amounts are omitted, as in Karmada."""
    return {name: format_quantity(name, amounts[name]) for name in sorted(amounts) if amounts[name]}


def replica_requirements(template: Object) -> dict[str, Any] | None:
    """Return the requirements of one replica, as Karmada writes them in a binding."""
    spec = template.get("spec") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    claim = {
        "hardNodeAffinity": affinity,
        "nodeSelector": spec.get("nodeSelector"),
        "tolerations": spec.get("tolerations"),
    }
    requirements = {
        "nodeClaim": {name: value for name, value in claim.items() if value},
        "resourceRequest": quantities(_as_karmada_counts(pod_template(template))),
    }
    return {name: value for name, value in requirements.items() if value} or None


def _as_karmada_counts(pod: PodTemplate) -> Resources:
    running = total(container.effective_requests for container in pod.containers)
    starting: Resources = {}
    for item in pod.init:
        starting = elementwise_max(starting, item.effective_requests)
    return {
        name: _whole(name, amount) for name, amount in add(elementwise_max(running, starting), pod.overhead).items()
    }


def _whole(resource: str, amount: int) -> int:
    """Round up to whole units, except CPU and memory."""
    return amount if resource in {CPU, MEMORY} else -(-amount // MILLI) * MILLI


def _container(container: Object) -> Container:
    resources = container.get("resources") or {}
    return Container(
        requests=amounts(resources.get("requests")),
        limits=amounts(resources.get("limits")),
        restarts=container.get("restartPolicy") == "Always",
    )
