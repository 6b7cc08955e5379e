"""Member clusters, and the placements that select them.

Values only: ``candidates`` selects clusters, ``cluster_usage`` tracks their capacity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NewType

from controller.engine.state.resources import EMPTY, Resources

ClusterName = NewType("ClusterName", str)

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


@dataclass(frozen=True, slots=True)
class ApiKind:
    """A kind as a cluster enables it: ``batch.volcano.sh/v1alpha1`` and ``Job``."""

    group_version: str
    kind: str


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a cluster; only ``NoSchedule`` and ``NoExecute`` exclude workloads."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Equal nodes of a cluster, as the operator describes them; hashable, so that it can be part of a key."""

    count: int
    allocatable: tuple[tuple[str, int], ...]
    """Of one empty node; a resource that is not named is checked against the cluster's sum only."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One member cluster: its properties and its resource summary."""

    name: ClusterName
    labels: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    enablements: frozenset[ApiKind] = frozenset()
    ready: bool = True
    deleting: bool = False
    allocatable: Resources | None = None
    """``None`` while the cluster has no resource summary."""
    used: Resources = EMPTY
    """The usage in the summary: ``allocated`` and ``allocating`` together."""
    grades: tuple[Resources, ...] = ()
    """Exclusive upper ends of the populated grades of its resource models, without those that others exceed.

    Each node has less free than one of them on at least one of its resources.
    Empty where the models bound nothing, or do not count every node.
    """
    nodes: tuple[NodeShape, ...] = ()
    """All its nodes, where the operator's configuration describes them; added by ``State``."""

    @property
    def is_usable(self) -> bool:
        """Return whether it accepts new admissions (C1)."""
        return self.ready and not self.deleting and self.allocatable is not None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a selector over labels or fields."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Affinity:
    """The clusters that a placement selects; an empty part does not restrict."""

    names: tuple[ClusterName, ...] = ()
    excluded: frozenset[ClusterName] = frozenset()
    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """One of several ordered affinities, by its ``affinityName``."""

    name: str
    affinity: Affinity
    overflow: tuple[Affinity, ...] = ()
    """Further clusters that a workload with replicas may overflow to."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """The taints that a placement tolerates; an empty key with ``Exists`` tolerates all."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """One spread constraint; *maximum* 0 means no limit."""

    by: str
    """``cluster``, ``region``, ``zone`` or ``provider``; ``label:KEY`` for a label."""
    minimum: int = 1
    maximum: int = 0


@dataclass(frozen=True, slots=True)
class StaticWeight:
    """The weight of the matching clusters in a static division of replicas."""

    affinity: Affinity
    weight: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a workload may run, according to its policy."""

    affinity: Affinity | None = None
    terms: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[Spread, ...] = ()
    divided: bool = False
    """``Divided`` replicas; ``Duplicated`` or unset otherwise. Applies to divisible kinds only."""
    weights: tuple[StaticWeight, ...] = ()
    """Static weights of a ``Divided``, ``Weighted`` placement."""
    aggregated: bool = False
    """``Divided`` and ``Aggregated``: as few clusters as possible."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One cluster in ``spec.clusters``; *replicas* only for kinds that have them."""

    name: ClusterName
    replicas: int | None = None
