"""Translates Karmada's bindings: the fields that decisions and patches depend on."""

import sys
from collections.abc import Iterable

from controller.api import bindings as wire
from controller.api import placements
from controller.api.keys import POLICY_LABELS
from controller.api.meta import ObjectMeta, Quantities
from controller.api.record import read_record
from controller.cache.integrations import Integrations
from controller.cache.interning import InternPool, fingerprint
from controller.cache.objects import (
    VOLCANO_JOB,
    CachedBinding,
    ClusterProgress,
    Suspension,
    TemplateKey,
    WorkloadRequests,
    group_kind,
)
from controller.cache.translate.placements import ANY_CLUSTER, PlacementError, translate_placement
from controller.cache.translate.progress import read_progress
from controller.cache.translate.records import translate_record
from controller.cache.translate.units import (
    AmountError,
    join_errors,
    parse_resource_version,
    parse_resources,
    to_milliseconds,
)
from controller.engine.state.clusters import ApiKind, Assignment, ClusterName, Placement
from controller.engine.state.resources import EMPTY, MILLI, PODS, Resources, add, positive, scale, total
from controller.engine.state.workloads import WorkloadUid

Targets = tuple[Assignment, ...]


class BindingTranslator:
    """Translates bindings; equal parts of them are interned."""

    def __init__(self, integrations: Integrations) -> None:
        self.integrations = integrations
        self._apis: InternPool[ApiKind] = InternPool()
        self._placements: InternPool[Placement | PlacementError] = InternPool()
        self._interned_requests: InternPool[WorkloadRequests | AmountError | _NotCounted] = InternPool()
        self._targets: InternPool[Targets] = InternPool()
        self._progress: InternPool[tuple[ClusterProgress, ...]] = InternPool()

    def translate(self, binding: wire.ResourceBinding) -> CachedBinding:
        """Return the cached form of *binding*."""
        meta, spec = binding.metadata, binding.spec
        resource = spec.resource
        api = self._apis.get(
            (resource.api_version, resource.kind), lambda: ApiKind(resource.api_version, resource.kind)
        )
        template = TemplateKey(group_kind(api), sys.intern(resource.namespace), sys.intern(resource.name))
        placement, placement_error = self._placement(spec.placement)
        requests, requests_error = self._requests(spec, template)
        record, record_error = translate_record(read_record(meta.annotations, meta.uid))
        progress, ended_at = self._read_progress(binding, template)
        return CachedBinding(
            uid=WorkloadUid(meta.uid or f"{meta.namespace}/{meta.name}"),
            resource_version=parse_resource_version(meta.resource_version),
            namespace=sys.intern(meta.namespace),
            name=meta.name,
            generation=meta.generation,
            created_at=to_milliseconds(meta.creation_timestamp) or 0,
            api=api,
            template=template,
            template_uid=sys.intern(resource.uid),
            placement=placement,
            clusters=self._clusters(spec.clusters),
            suspension=_suspension(spec.suspension),
            requests=requests,
            evicting=tuple(
                Assignment(ClusterName(sys.intern(task.from_cluster)), task.replicas)
                for task in spec.graceful_eviction_tasks
            ),
            progress=progress,
            ended_at=ended_at,
            observed_term=sys.intern(binding.status.scheduler_observing_affinity_name),
            record=record,
            record_error=record_error,
            has_annotations=bool(meta.annotations),
            has_policy=_has_policy(meta),
            is_dependency=bool(spec.required_by),
            deleting=meta.deletion_timestamp is not None,
            preserved=spec.preserve_resources_on_deletion,
            # Without propagateDeps Karmada's failover controller ignores it.
            application_failover=spec.propagate_deps
            and spec.failover is not None
            and spec.failover.application is not None,
            decode_error=join_errors(binding.decode_errors, placement_error, requests_error),
        )

    def _placement(self, asked: placements.Placement | None) -> tuple[Placement, str]:
        found = self._placements.get(fingerprint(asked), lambda: _read_placement(asked))
        return (ANY_CLUSTER, str(found)) if isinstance(found, PlacementError) else (found, "")

    def _requests(self, spec: wire.BindingSpec, template: TemplateKey) -> tuple[WorkloadRequests | None, str]:
        """Return the requests that Karmada counted; not for Volcano Jobs, which it counts incorrectly (D3)."""
        if template.kind == VOLCANO_JOB or self.integrations.get(template.kind) is None:
            return None, ""
        key = fingerprint(spec.replicas, spec.replica_requirements, spec.components)
        counted = self._interned_requests.get(key, lambda: _count_requests(spec))
        if isinstance(counted, _NotCounted):
            return None, ""
        return (None, str(counted)) if isinstance(counted, AmountError) else (counted, "")

    def _clusters(self, clusters: Iterable[wire.TargetCluster] | None) -> Targets | None:
        if clusters is None:
            return None
        targets = tuple(Assignment(ClusterName(sys.intern(cluster.name)), cluster.replicas) for cluster in clusters)
        return self._targets.get(targets, lambda: targets)

    def _read_progress(
        self, binding: wire.ResourceBinding, template: TemplateKey
    ) -> tuple[tuple[ClusterProgress, ...], int | None]:
        """Return its progress by cluster, and the latest time at which it finished in a cluster."""
        ending = self.integrations.finished_rule(template.kind)
        items = binding.status.aggregated_status
        courses = [read_progress(item.status, ending) for item in items]
        progress = tuple(
            ClusterProgress(
                ClusterName(sys.intern(item.cluster_name)), found.phase, found.has_run, found.pods, found.replicas
            )
            for item, found in zip(items, courses, strict=True)
        )
        ends = [found.ended_at for found in courses if found.ended_at is not None]
        return self._progress.get(progress, lambda: progress), max(ends, default=None)


def _read_placement(asked: placements.Placement | None) -> Placement | PlacementError:
    try:
        return translate_placement(asked)
    except PlacementError as error:
        return error


def _suspension(suspension: wire.Suspension | None) -> Suspension | None:
    return None if suspension is None else _SUSPENSIONS[suspension.scheduling, suspension.dispatching]


_SUSPENSIONS = {
    (scheduling, dispatching): Suspension(scheduling, dispatching)
    for scheduling in (False, True)
    for dispatching in (False, True)
}


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
                positive(total(scale(pod, count) for pod, count in parts)),
                pods=tuple(pod for pod, _ in parts),
            )
        replica = _pod_requests(spec.replica_requirements, "spec.replicaRequirements")
        replicas = _require_non_negative(spec.replicas, "spec.replicas")
    except AmountError as error:
        return error
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
