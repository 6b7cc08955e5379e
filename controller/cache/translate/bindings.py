"""Translates Karmada's bindings and their placements: the fields that decisions and patches depend on."""

import sys
from collections.abc import Iterable, Sequence
from itertools import product
from typing import get_args

import msgspec

from controller.api import bindings as wire
from controller.api.keys import DATA_PLACEMENT_ANNOTATION, POLICY_LABELS
from controller.api.meta import ObjectMeta, Quantities
from controller.cache.integrations import Integrations
from controller.cache.interning import InternPool, TemplateNames, fingerprint
from controller.cache.objects import (
    VOLCANO_JOB,
    BindingDetails,
    CachedBinding,
    ClusterProgress,
    TemplateKey,
    WorkloadRequests,
    group_kind,
)
from controller.cache.record import AdmissionRecord, read_record
from controller.cache.translate.progress import read_progress, read_unapplied
from controller.cache.translate.units import (
    AmountError,
    join_errors,
    parse_resource_version,
    parse_resources,
    require_few_resources,
    to_milliseconds,
    without_frames,
)
from controller.engine.state.clusters import (
    Affinity,
    ApiKind,
    Assignment,
    ClusterName,
    Operator,
    Placement,
    Requirement,
    Spread,
    StaticWeight,
    Term,
    Toleration,
)
from controller.engine.state.resources import EMPTY, MILLI, PODS, Resources, add, positive, scale, total
from controller.engine.state.workloads import WorkloadUid

ANY_CLUSTER = Placement()

#: Maximum number of ordered affinities: each is compared with every cluster until one has candidates.
MAX_TERMS = 100

#: Maximum number of names, expressions, values, tolerations, constraints and weights together.
MAX_CONDITIONS = 2000

_OPERATORS: dict[str, Operator] = {operator: operator for operator in get_args(Operator)}

_EQUAL = (StaticWeight(Affinity(), 1),)
Targets = tuple[Assignment, ...]

_SUSPENSIONS = {
    (scheduling, dispatching): wire.Suspension(scheduling=bool(scheduling), dispatching=bool(dispatching))
    for scheduling, dispatching in product((None, False, True), repeat=2)
}
"""The suspensions without clusters, so that bindings share them; null means false."""


class PlacementError(ValueError):
    """An invalid placement, or one that is too large; the message names the field."""


def translate_placement(placement: wire.Placement | None) -> Placement:
    """Return the engine's form of a placement; without one, any cluster."""
    if placement is None:
        return ANY_CLUSTER
    _check_size(placement)
    scheduling = placement.replica_scheduling
    divided = scheduling is not None and scheduling.replica_scheduling_type in {"", "Divided"}
    return Placement(
        affinity=_affinity(placement.cluster_affinity) if placement.cluster_affinity else None,
        terms=tuple(
            Term(term.affinity_name, _affinity(term), tuple(map(_affinity, term.overflow_affinities)))
            for term in placement.cluster_affinities
        ),
        tolerations=tuple(_tolerations(placement.cluster_tolerations)),
        spread=tuple(_spread(constraint) for constraint in placement.spread_constraints),
        divided=divided,
        weights=_weights(scheduling) if divided and scheduling else (),
        aggregated=divided and scheduling is not None and scheduling.replica_division_preference == "Aggregated",
    )


def _check_size(placement: wire.Placement) -> None:
    """Raise `PlacementError` if comparing the placement with each cluster would be too expensive."""
    terms = len(placement.cluster_affinities)
    if terms > MAX_TERMS:
        raise PlacementError(f"spec.placement: {terms} clusterAffinities are too many; use at most {MAX_TERMS}")
    size = _size(placement)
    if size > MAX_CONDITIONS:
        raise PlacementError(
            f"spec.placement: {size} names, expressions, values, tolerations, constraints and weights are too many;"
            f" use at most {MAX_CONDITIONS}, for example by selecting clusters by label"
        )


def _size(placement: wire.Placement) -> int:
    preference = placement.replica_scheduling.weight_preference if placement.replica_scheduling else None
    weights = preference.static_weight_list if preference else []
    own = [placement.cluster_affinity] if placement.cluster_affinity else []
    affinities = [*own, *placement.cluster_affinities, *(weight.target_cluster for weight in weights)]
    return (
        len(placement.cluster_tolerations)
        + len(placement.spread_constraints)
        + len(weights)
        + sum(_affinity_size(affinity) for affinity in affinities)
    )


def _affinity_size(affinity: wire.ClusterAffinity) -> int:
    labels = affinity.label_selector
    expressions = [
        *(labels.match_expressions if labels else ()),
        *(affinity.field_selector.match_expressions if affinity.field_selector else ()),
    ]
    return (
        len(affinity.cluster_names)
        + len(affinity.exclude)
        + (len(labels.match_labels) if labels else 0)
        + sum(1 + len(expression.values) for expression in expressions)
        + sum(1 + _affinity_size(further) for further in affinity.overflow_affinities)
    )


def _affinity(affinity: wire.ClusterAffinity) -> Affinity:
    labels = affinity.label_selector
    return Affinity(
        names=tuple(ClusterName(name) for name in affinity.cluster_names),
        excluded=frozenset(ClusterName(name) for name in affinity.exclude),
        labels=_labels(labels) if labels else (),
        fields=_requirements(affinity.field_selector.match_expressions) if affinity.field_selector else (),
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
        raise PlacementError(f"spec.placement: operator {name[:63]!r} is unknown; use one of {', '.join(_OPERATORS)}")
    return _OPERATORS[name]


def _tolerations(tolerations: Iterable[wire.ClusterToleration]) -> Iterable[Toleration]:
    """Yield the tolerations with a known operator; the others tolerate nothing."""
    for toleration in tolerations:
        if toleration.operator in {"", "Equal"}:
            yield Toleration(toleration.key, "Equal", toleration.value, toleration.effect)
        elif toleration.operator == "Exists":
            yield Toleration(toleration.key, "Exists", toleration.value, toleration.effect)


def _spread(constraint: wire.SpreadConstraint) -> Spread:
    by = (
        f"label:{constraint.spread_by_label}" if constraint.spread_by_label else constraint.spread_by_field or "cluster"
    )
    return Spread(by, max(constraint.min_groups, 1), max(constraint.max_groups, 0))


def _weights(scheduling: wire.ReplicaScheduling) -> tuple[StaticWeight, ...]:
    """Return the static weights; equal weights where replicas are weighted and the policy names no weights."""
    preference = scheduling.weight_preference
    if scheduling.replica_division_preference == "Aggregated" or (preference and preference.dynamic_weight):
        return ()
    listed = preference.static_weight_list if preference else []
    return tuple(StaticWeight(_affinity(weight.target_cluster), weight.weight) for weight in listed) or _EQUAL


class BindingTranslator:
    """Translates bindings; equal parts of them are interned."""

    def __init__(self, integrations: Integrations, names: TemplateNames) -> None:
        self.integrations = integrations
        self._names = names
        self._apis: InternPool[ApiKind] = InternPool()
        self._placements: InternPool[Placement | PlacementError] = InternPool()
        self._interned_requests: InternPool[WorkloadRequests | AmountError | _NotCounted] = InternPool()
        self._targets: InternPool[Targets] = InternPool()
        self._progress: InternPool[tuple[ClusterProgress, ...]] = InternPool()
        self._interned_details: InternPool[BindingDetails] = InternPool()

    def translate(self, binding: wire.ResourceBinding) -> CachedBinding:
        """Return the cached form of *binding*."""
        meta, spec = binding.metadata, binding.spec
        resource = spec.resource
        api = self._apis.get(
            (resource.api_version, resource.kind), lambda: ApiKind(resource.api_version, resource.kind)
        )
        template = self._names.key(group_kind(api), resource.namespace, resource.name)
        placement, placement_error = self._placement(spec.placement)
        requests, requests_error = self._requests(spec, template)
        record, record_error = read_record(meta.annotations, meta.uid)
        progress, ended_at = self._read_progress(binding, template, record)
        decode_error = join_errors(binding.decode_errors, placement_error, requests_error)
        return CachedBinding(
            uid=WorkloadUid(meta.uid or f"{meta.namespace}/{meta.name}"),
            resource_version=parse_resource_version(meta.resource_version),
            namespace=sys.intern(meta.namespace),
            name=meta.name,
            generation=meta.generation,
            created_at=to_milliseconds(meta.creation_timestamp) or 0,
            api=api,
            template=template,
            template_uid=self._names.uid(resource.uid),
            placement=placement,
            clusters=self._clusters(spec.clusters),
            suspension=_suspension(spec.suspension),
            requests=requests,
            progress=progress,
            record=record,
            details=self._details(
                binding, ended_at, record_error, decode_error, has_invalid_requests=bool(requests_error)
            ),
        )

    def _details(
        self,
        binding: wire.ResourceBinding,
        ended_at: int | None,
        record_error: str,
        decode_error: str,
        *,
        has_invalid_requests: bool,
    ) -> BindingDetails:
        """Return the fields that have their defaults in most bindings."""
        meta, spec = binding.metadata, binding.spec
        details = BindingDetails(
            evicting=tuple(
                Assignment(ClusterName(sys.intern(task.from_cluster)), task.replicas)
                for task in spec.graceful_eviction_tasks or ()
            ),
            ended_at=ended_at,
            observed_term=sys.intern(binding.status.scheduler_observing_affinity_name),
            record_error=record_error,
            has_annotations=bool(meta.annotations),
            has_empty_eviction_tasks=spec.graceful_eviction_tasks == [],
            has_policy=_has_policy(meta),
            is_dependency=bool(spec.required_by),
            excludes_for_data=DATA_PLACEMENT_ANNOTATION in meta.annotations,
            deleting=meta.deletion_timestamp is not None,
            preserved=spec.preserve_resources_on_deletion,
            # Without propagateDeps Karmada's failover controller ignores it.
            application_failover=spec.propagate_deps
            and spec.failover is not None
            and spec.failover.application is not None,
            decode_error=decode_error,
            has_invalid_requests=has_invalid_requests,
        )
        return self._interned_details.get(details, lambda: details)

    def _placement(self, asked: wire.Placement | None) -> tuple[Placement, str]:
        placement = self._placements.get(fingerprint(asked), lambda: _read_placement(asked))
        return (ANY_CLUSTER, str(placement)) if isinstance(placement, PlacementError) else (placement, "")

    def _requests(self, spec: wire.BindingSpec, template: TemplateKey) -> tuple[WorkloadRequests | None, str]:
        """Return the requests that Karmada counted; not for Volcano Jobs, which it counts incorrectly (D3)."""
        if template.kind == VOLCANO_JOB or self.integrations.get(template.kind) is None:
            return None, ""
        key = fingerprint(spec.replicas, spec.replica_requirements, spec.components)
        counted = self._interned_requests.get(key, lambda: _count_requests(spec))
        if isinstance(counted, _NotCounted):
            return None, ""
        return (None, str(counted)) if isinstance(counted, AmountError) else (counted, "")

    def _clusters(self, clusters: Sequence[wire.TargetCluster] | None) -> Targets | None:
        if clusters is None:
            return None
        # Next to others, Karmada omits 0: for a cluster that its descheduler emptied, or that gets no replicas.
        omitted = 0 if any(cluster.replicas for cluster in clusters) else None
        targets = tuple(
            Assignment(ClusterName(sys.intern(cluster.name)), omitted if cluster.replicas is None else cluster.replicas)
            for cluster in clusters
        )
        return self._targets.get(targets, lambda: targets)

    def _read_progress(
        self, binding: wire.ResourceBinding, template: TemplateKey, record: AdmissionRecord | None
    ) -> tuple[tuple[ClusterProgress, ...], int | None]:
        """Return its progress by cluster, and the latest time at which it finished in a cluster."""
        items = binding.status.aggregated_status
        if not items:
            return (), None
        rule = self.integrations.finished_rule(template.kind)
        last_phase = record.last_phase if record is not None and record.admits else ""
        reports = [
            (read_unapplied(name, item.applied_message, last_phase), None)
            if item.is_refused
            else read_progress(name, item.status, template.kind, rule)
            for item in items
            for name in (ClusterName(sys.intern(item.cluster_name)),)
        ]
        progress = tuple(reported for reported, _ in reports)
        ends = [ended_at for _, ended_at in reports if ended_at is not None]
        return self._progress.get(progress, lambda: progress), max(ends, default=None)


def _suspension(suspension: wire.Suspension | None) -> wire.Suspension | None:
    if suspension is None:
        return None
    shared = _SUSPENSIONS[suspension.scheduling, suspension.dispatching]
    on_clusters = suspension.dispatching_on_clusters
    return msgspec.structs.replace(shared, dispatching_on_clusters=on_clusters) if on_clusters else shared


def _read_placement(asked: wire.Placement | None) -> Placement | PlacementError:
    try:
        return translate_placement(asked)
    except PlacementError as error:
        return without_frames(error)


def _has_policy(meta: ObjectMeta) -> bool:
    return any(meta.labels.get(label) for label in POLICY_LABELS)


class _NotCounted:
    """Karmada's interpreter does not know the kind, or counted nothing."""


def _count_requests(spec: wire.BindingSpec) -> WorkloadRequests | AmountError | _NotCounted:
    """Return the requests of a kind that Karmada interprets: of its components, or of its equal replicas (D3)."""
    if not spec.components and spec.replica_requirements is None and not spec.replicas:
        return _NotCounted()
    try:
        if spec.components:
            parts = [
                _component(component, f"spec.components[{index}]") for index, component in enumerate(spec.components)
            ]
            return WorkloadRequests(
                require_few_resources(positive(total(scale(pod, count) for pod, count in parts))),
                pods=tuple(pod for pod, count in parts if count),
            )
        replica = require_few_resources(_pod_requests(spec.replica_requirements, "spec.replicaRequirements"))
        replicas = _require_non_negative(spec.replicas, "spec.replicas")
    except AmountError as error:
        return without_frames(error)
    return WorkloadRequests(positive(scale(replica, replicas)), pods=(replica,) if replicas else (), replicas=replicas)


def _component(component: wire.Component, where: str) -> tuple[Resources, int]:
    replicas = _require_non_negative(component.replicas, f"{where}.replicas")
    return _pod_requests(component.replica_requirements, f"{where}.replicaRequirements"), replicas


def _pod_requests(requirements: wire.ReplicaRequirements | None, where: str) -> Resources:
    asked: Quantities = requirements.resource_request if requirements else {}
    return positive(add(parse_resources(asked, f"{where}.resourceRequest") if asked else EMPTY, {PODS: MILLI}))


def _require_non_negative(count: int, where: str) -> int:
    if count < 0:
        raise AmountError(f"{where} is {count}; write zero or more")
    return count
