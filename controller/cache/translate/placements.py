"""Translates a binding's placement, with the defaults that Karmada applies."""

from collections.abc import Iterable
from typing import get_args

from controller.api import placements as wire
from controller.engine.state.clusters import (
    Affinity,
    ClusterName,
    Operator,
    Placement,
    Requirement,
    Spread,
    StaticWeight,
    Term,
    Toleration,
)

ANY_CLUSTER = Placement()

#: Maximum number of ordered affinities: each is compared with every cluster until one has candidates.
MAX_TERMS = 100
#: Maximum number of names, expressions, values, tolerations, constraints and weights together.
MAX_CONDITIONS = 2000

_OPERATORS: dict[str, Operator] = {operator: operator for operator in get_args(Operator)}


class PlacementError(ValueError):
    """An invalid placement, or one that is too large; the message names the field."""


def translate_placement(wire_placement: wire.Placement | None) -> Placement:
    """Return the engine's form of a placement; without one, any cluster."""
    if wire_placement is None:
        return ANY_CLUSTER
    _check_size(wire_placement)
    scheduling = wire_placement.replica_scheduling
    divided = scheduling is not None and scheduling.replica_scheduling_type in {"", "Divided"}
    return Placement(
        affinity=_affinity(wire_placement.cluster_affinity) if wire_placement.cluster_affinity else None,
        terms=tuple(Term(term.affinity_name, _affinity(term)) for term in wire_placement.cluster_affinities),
        tolerations=tuple(_tolerations(wire_placement.cluster_tolerations)),
        spread=tuple(_spread(constraint) for constraint in wire_placement.spread_constraints),
        divided=divided,
        weights=_weights(scheduling) if divided and scheduling else (),
        aggregated=divided and scheduling is not None and scheduling.replica_division_preference == "Aggregated",
    )


def _check_size(wire_placement: wire.Placement) -> None:
    """Raise `PlacementError` if comparing the placement with each cluster would be too expensive."""
    terms = len(wire_placement.cluster_affinities)
    if terms > MAX_TERMS:
        raise PlacementError(f"spec.placement: {terms} clusterAffinities are too many; use at most {MAX_TERMS}")
    size = _size(wire_placement)
    if size > MAX_CONDITIONS:
        raise PlacementError(
            f"spec.placement: {size} names, expressions, values, tolerations, constraints and weights are too many;"
            f" use at most {MAX_CONDITIONS}, for example by selecting clusters by label"
        )


def _size(wire_placement: wire.Placement) -> int:
    preference = wire_placement.replica_scheduling.weight_preference if wire_placement.replica_scheduling else None
    weights = preference.static_weight_list if preference else []
    own = [wire_placement.cluster_affinity] if wire_placement.cluster_affinity else []
    affinities = [*own, *wire_placement.cluster_affinities, *(weight.target_cluster for weight in weights)]
    return (
        len(wire_placement.cluster_tolerations)
        + len(wire_placement.spread_constraints)
        + len(weights)
        + sum(_affinity_size(affinity) for affinity in affinities)
    )


def _affinity_size(wire_placement: wire.ClusterAffinity) -> int:
    labels = wire_placement.label_selector
    expressions = [
        *(labels.match_expressions if labels else ()),
        *(wire_placement.field_selector.match_expressions if wire_placement.field_selector else ()),
    ]
    return (
        len(wire_placement.cluster_names)
        + len(wire_placement.exclude)
        + (len(labels.match_labels) if labels else 0)
        + sum(1 + len(expression.values) for expression in expressions)
        + sum(_affinity_size(further) for further in wire_placement.overflow_affinities)
    )


def _affinity(wire_placement: wire.ClusterAffinity) -> Affinity:
    labels = wire_placement.label_selector
    return Affinity(
        names=tuple(ClusterName(name) for name in wire_placement.cluster_names),
        excluded=frozenset(ClusterName(name) for name in wire_placement.exclude),
        labels=_labels(labels) if labels else (),
        fields=_requirements(wire_placement.field_selector.match_expressions) if wire_placement.field_selector else (),
    )


def _labels(selector: wire.LabelSelector) -> tuple[Requirement, ...]:
    equal = (Requirement(key, "In", (selector.match_labels[key],)) for key in sorted(selector.match_labels))
    return (*equal, *_requirements(selector.match_expressions))


def _requirements(expressions: Iterable[wire.Expression]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(expression.key, _operator(expression.operator), tuple(expression.values))
        for expression in expressions
    )


def _operator(name: str) -> Operator:
    if name not in _OPERATORS:
        raise PlacementError(f"spec.placement: operator {name!r} is unknown; use one of {', '.join(_OPERATORS)}")
    return _OPERATORS[name]


def _tolerations(wire_placement: Iterable[wire.ClusterToleration]) -> Iterable[Toleration]:
    """Yield the tolerations with a known operator; the others tolerate nothing."""
    for toleration in wire_placement:
        if toleration.operator in {"", "Equal"}:
            yield Toleration(toleration.key, "Equal", toleration.value, toleration.effect)
        elif toleration.operator == "Exists":
            yield Toleration(toleration.key, "Exists", toleration.value, toleration.effect)


def _spread(wire_placement: wire.SpreadConstraint) -> Spread:
    by = (
        f"label:{wire_placement.spread_by_label}"
        if wire_placement.spread_by_label
        else wire_placement.spread_by_field or "cluster"
    )
    return Spread(by, max(wire_placement.min_groups, 1), max(wire_placement.max_groups, 0))


def _weights(scheduling: wire.ReplicaScheduling) -> tuple[StaticWeight, ...]:
    """Return the static weights; equal weights where replicas are weighted and the policy names no weights."""
    preference = scheduling.weight_preference
    if scheduling.replica_division_preference == "Aggregated" or (preference and preference.dynamic_weight):
        return ()
    listed = preference.static_weight_list if preference else []
    return tuple(StaticWeight(_affinity(weight.target_cluster), weight.weight) for weight in listed) or _EQUAL


_EQUAL = (StaticWeight(Affinity(), 1),)
