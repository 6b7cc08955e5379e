"""Simulated member clusters as described by their Clusters, and the status of these Clusters.

Zero amounts and empty parts of the summary are omitted (facts, §2); the summary has no timestamp.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from controller.api.quantity import QuantityError
from controller.engine.state.resources import EMPTY, MILLI, PODS, Resources, total
from localup.karmada.member import Member, allocatable_modelings
from localup.karmada.objects import (
    TEMPLATES,
    Condition,
    Object,
    annotations_of,
    nonempty,
    spec_of,
    with_conditions,
    with_status,
)
from localup.karmada.workloads import amounts, quantities

ALLOCATABLE: Final = "standin.volcano-global.io/allocatable"
NODES: Final = "standin.volcano-global.io/nodes"
EXTERNAL_USAGE: Final = "standin.volcano-global.io/external-usage"
READY: Final = "standin.volcano-global.io/ready"

#: Pod capacity of a member whose description has none.
_DEFAULT_MEMBER_PODS: Final = 1000 * MILLI

#: Pod capacity of a node whose description has none.
_DEFAULT_NODE_PODS: Final = 110 * MILLI

#: Maximum number of nodes of a member.
_MAX_NODES: Final = 10_000

_READINESS: Final[Mapping[str, Condition]] = {
    "True": Condition("Ready", "True", "ClusterReady", "cluster is healthy and ready to accept workloads"),
    "False": Condition(
        "Ready", "False", "ClusterNotReady", "cluster is reachable but health endpoint responded without ok"
    ),
    "Unknown": Condition("Ready", "Unknown", "ClusterStatusUnknown", "cluster is not reachable"),
}

_COMPLETE: Final = Condition(
    "CompleteAPIEnablements", "True", "Complete", "collected complete APIEnablements from the cluster"
)


class DescriptionError(ValueError):
    """An annotation of a Cluster is invalid."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """Simulated member cluster as described by annotations of its Cluster."""

    allocatable: Resources = EMPTY
    external_usage: Resources = EMPTY
    ready: str = "True"
    nodes: tuple[Resources, ...] = ()
    """Allocatable resources of each node; if empty, one node has all allocatable resources."""

    @classmethod
    def of(cls, cluster: Object) -> Self | None:
        """Parse the annotations; ``None`` without ``allocatable`` and ``nodes``.

        Raises:
            DescriptionError: An annotation is invalid.
        """
        parsed = annotations_of(cluster)
        if ALLOCATABLE not in parsed and NODES not in parsed:
            return None
        ready = parsed.get(READY, "True")
        if ready not in _READINESS:
            raise DescriptionError(f"{READY}: {ready!r} is not one of {', '.join(_READINESS)}")
        nodes = _nodes(parsed[NODES]) if NODES in parsed else ()
        allocatable = (
            total(nodes) if nodes else {PODS: _DEFAULT_MEMBER_PODS, **_amounts(ALLOCATABLE, parsed[ALLOCATABLE])}
        )
        return cls(allocatable, _amounts(EXTERNAL_USAGE, parsed.get(EXTERNAL_USAGE, "{}")), ready, nodes)

    @property
    def is_reachable(self) -> bool:
        """Whether Karmada can reach the cluster."""
        return self.ready == "True"

    def apply_to(self, member: Member[Any]) -> None:
        """Give *member* the described capacity and external usage."""
        member.allocatable, member.external_usage = self.allocatable, self.external_usage
        member.node_sizes = self.nodes


def with_summary(cluster: Object, description: MemberDescription, member: Member[Any], *, now: float) -> Object:
    """Return *cluster* with the current status of its member; if not Ready, the last summary remains."""
    updated = with_conditions(cluster, _READINESS[description.ready], _COMPLETE, now=now)
    if not description.is_reachable:
        return updated
    return with_status(
        updated,
        apiEnablements=_enablements(),
        kubernetesVersion="v1.33.0",
        nodeSummary={"readyNum": len(description.nodes) or 1, "totalNum": len(description.nodes) or 1},
        resourceSummary=nonempty(
            {
                "allocatable": quantities(description.allocatable),
                "allocated": quantities(member.allocated),
                "allocating": quantities(member.allocating),
                "allocatableModelings": allocatable_modelings(
                    spec_of(cluster).get("resourceModels") or (), member.nodes
                ),
            }
        ),
    )


def _enablements() -> list[Object]:
    kinds = TEMPLATES.values()
    return [
        {
            "groupVersion": version,
            "resources": [{"kind": kind.kind, "name": kind.plural} for kind in kinds if kind.api_version == version],
        }
        for version in sorted({kind.api_version for kind in kinds})
    ]


def _amounts(annotation: str, text: str) -> Resources:
    try:
        parsed: Any = json.loads(text)
        return amounts(parsed)
    except (AttributeError, QuantityError, TypeError, ValueError) as error:
        raise DescriptionError(f'{annotation}: {error}; write it like {{"cpu": "64", "memory": "256Gi"}}') from error


def _nodes(text: str) -> tuple[Resources, ...]:
    """Parse the allocatable resources of each node.

    Raises:
        DescriptionError: It is not a list of counts and amounts, or the number of nodes is 0 or too large.
    """
    example = '[{"count": 4, "allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}}]'
    try:
        parsed: Any = json.loads(text)
        shapes = [(int(item["count"]), {PODS: _DEFAULT_NODE_PODS, **amounts(item["allocatable"])}) for item in parsed]
    except (AttributeError, KeyError, QuantityError, TypeError, ValueError) as error:
        raise DescriptionError(f"{NODES}: {error}; write it like {example}") from error
    if not all(count > 0 for count, _ in shapes) or not 0 < sum(count for count, _ in shapes) <= _MAX_NODES:
        raise DescriptionError(f"{NODES}: write 1 to {_MAX_NODES} nodes, like {example}")
    return tuple(size for count, size in shapes for _ in range(count))
