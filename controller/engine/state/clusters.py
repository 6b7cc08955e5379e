"""Member clusters, and the placements and affinities that select them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NewType

from controller.engine.state.resources import EMPTY, Resources

ClusterName = NewType("ClusterName", str)

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_ZONE_TESTS: Mapping[Operator, Callable[[frozenset[str], tuple[str, ...]], bool]] = {
    "In": lambda zones, values: not zones.isdisjoint(values),
    "NotIn": lambda zones, values: zones.isdisjoint(values),
    "Exists": lambda zones, _: bool(zones),
    "DoesNotExist": lambda zones, _: not zones,
}
_COMPARING = frozenset({"Gt", "Lt"})


@dataclass(frozen=True, slots=True)
class ApiKind:
    """A kind as a cluster enables it: ``batch.volcano.sh/v1alpha1`` and ``Job``."""

    group_version: str
    kind: str

    @property
    def group(self) -> str:
        """Return the API group, empty for the core group."""
        return self.group_version.rpartition("/")[0]


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
    ready_changed_at: int | None = None
    """When *ready* last changed, in milliseconds; ``None`` if that is unknown, or it has only joined."""
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
    """All its nodes, where the operator's configuration describes them; added by ``Engine``."""

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
    """One spread constraint; *maximum* 0, where the policy has none, lets Karmada select no group."""

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


def matches(affinity: Affinity, cluster: Cluster) -> bool:
    """Return whether *affinity* selects *cluster*; an invalid selector selects nothing."""
    if cluster.name in affinity.excluded or (affinity.names and cluster.name not in affinity.names):
        return False
    return all(_matches_label(requirement, cluster.labels) for requirement in affinity.labels) and all(
        _matches_field(requirement, cluster) for requirement in affinity.fields
    )


def _integer(text: str | None) -> int | None:
    """Return *text* as a 64-bit number, ``None`` where it is none."""
    number = int(text) if text is not None and _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _is_greater(value: str | None, bound: str) -> bool:
    left, right = _integer(value), _integer(bound)
    return left is not None and right is not None and left > right


def _is_less(value: str | None, bound: str) -> bool:
    left, right = _integer(value), _integer(bound)
    return left is not None and right is not None and left < right


# What an operator says of a value that may be missing, and of a cluster's zones.
_LABEL_TESTS: Mapping[Operator, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _is_greater(value, values[0]),
    "Lt": lambda value, values: _is_less(value, values[0]),
}


def _matches_label(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator in _COMPARING or not _is_valid(requirement):
        return False
    return _LABEL_TESTS[requirement.operator](labels.get(requirement.key), requirement.values)


def _matches_field(requirement: Requirement, cluster: Cluster) -> bool:
    """Return whether *cluster* matches a field selector's expression; other fields than these three never match."""
    if requirement.key == "zone":
        test = _ZONE_TESTS.get(requirement.operator)
        return test is not None and test(frozenset(cluster.zones), requirement.values)
    fields = {"provider": cluster.provider or None, "region": cluster.region or None}
    return _is_valid(requirement) and _LABEL_TESTS[requirement.operator](
        fields.get(requirement.key), requirement.values
    )


def _is_valid(requirement: Requirement) -> bool:
    """Return whether Kubernetes accepts the requirement; a selector with an invalid one selects nothing."""
    match requirement.operator:
        case "In" | "NotIn":
            counted = len(requirement.values) > 0
        case "Exists" | "DoesNotExist":
            counted = len(requirement.values) == 0
        case _:
            counted = len(requirement.values) == 1 and _integer(requirement.values[0]) is not None
    return counted and all(_LABEL_VALUE.fullmatch(value) for value in requirement.values)
