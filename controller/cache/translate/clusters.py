"""Translates Karmada's Clusters into the engine's."""

from typing import Final

from controller.api import clusters as wire
from controller.api.meta import Quantities
from controller.cache.objects import CachedCluster
from controller.cache.translate.units import (
    AmountError,
    join_errors,
    parse_resource_version,
    parse_resources,
    to_milliseconds,
)
from controller.engine.state.clusters import ApiKind, Cluster, ClusterName, Taint
from controller.engine.state.resources import EMPTY, Resources, add, base_units, fits

#: A cluster that becomes ready within this time after its creation has joined.
_JOINING_MS: Final = 300_000
#: Limits of what the agent of a cluster writes: shares of queues are computed for each resource, and each grade is
#: compared with all others.
_MAX_RESOURCES: Final = 500
_MAX_RANGES: Final = 200
#: Karmada's upper bound of the last grade, in whole units: unlimited.
_UNBOUNDED: Final = 2**63 - 1


def translate_cluster(cluster: wire.Cluster) -> CachedCluster:
    """Return the cached form of *cluster*.

    A cluster with an unreadable summary has none, so no workloads are admitted to it.
    """
    try:
        allocatable, used = _resource_summary(cluster)
        grades, invalid = _grade_limits(cluster), ""
    except AmountError as error:
        allocatable, used, grades, invalid = None, EMPTY, (), str(error)
    if cluster.decode_errors:
        allocatable = None
    spec = cluster.spec
    ready = next((condition for condition in cluster.status.conditions if condition.type == "Ready"), None)
    value = Cluster(
        name=ClusterName(cluster.metadata.name),
        labels=cluster.metadata.labels,
        provider=spec.provider,
        region=spec.region,
        zones=tuple(spec.zones) or ((spec.zone,) if spec.zone else ()),
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.taints),
        enablements=_enablements(cluster),
        ready=ready is not None and ready.status == "True",
        ready_changed_at=_ready_changed_at(cluster, ready),
        deleting=cluster.metadata.deletion_timestamp is not None,
        allocatable=allocatable,
        used=used,
        grades=grades,
    )
    decode_error = join_errors(cluster.decode_errors, invalid)
    return CachedCluster(
        cluster.metadata.uid, parse_resource_version(cluster.metadata.resource_version), value, decode_error
    )


def _ready_changed_at(cluster: wire.Cluster, ready: wire.ClusterCondition | None) -> int | None:
    """Return when the cluster last became ready or not ready, in milliseconds; ``None`` if it has only joined."""
    changed_at = to_milliseconds(ready.last_transition_time) if ready is not None else None
    created_at = to_milliseconds(cluster.metadata.creation_timestamp)
    if changed_at is None or created_at is None or changed_at - created_at < _JOINING_MS:
        return None
    return changed_at


def _enablements(cluster: wire.Cluster) -> frozenset[ApiKind]:
    return frozenset(
        ApiKind(enablement.group_version, resource.kind)
        for enablement in cluster.status.api_enablements
        for resource in enablement.resources
    )


def _resource_summary(cluster: wire.Cluster) -> tuple[Resources | None, Resources]:
    """Return the allocatable and the used resources of the cluster."""
    summary = cluster.status.resource_summary
    if summary is None:
        return None, EMPTY
    where = "status.resourceSummary"
    used = add(
        _few_resources(summary.allocated, f"{where}.allocated"),
        _few_resources(summary.allocating, f"{where}.allocating"),
    )
    return _few_resources(summary.allocatable, f"{where}.allocatable"), used


def _few_resources(quantities: Quantities, where: str) -> Resources:
    if len(quantities) > _MAX_RESOURCES:
        raise AmountError(f"{where} has {len(quantities)} resources; at most {_MAX_RESOURCES} are read")
    return parse_resources(quantities, where)


def _grade_limits(cluster: wire.Cluster) -> tuple[Resources, ...]:
    """Return the maximal upper bounds of the populated grades; none if some node may have unlimited resources.

    Karmada does not count overcommitted nodes, nor the nodes that it examines after one with the maximum number of
    pods: then the counted grades bound nothing. Neither do very many grades.
    """
    if sum(len(model.ranges) for model in cluster.spec.resource_models) > _MAX_RANGES:
        return ()
    summary = cluster.status.resource_summary or wire.ResourceSummary()
    populated = {grade.grade for grade in summary.allocatable_modelings if grade.count > 0}
    nodes = cluster.status.node_summary.total_num if cluster.status.node_summary else 0
    if sum(max(grade.count, 0) for grade in summary.allocatable_modelings) < nodes:
        return ()
    ends = [_upper_bounds(model) for model in cluster.spec.resource_models if model.grade in populated]
    if len(ends) < len(populated) or not all(ends):
        return ()
    return tuple(end for end in ends if not any(end != other and _covers(other, end) for other in ends))


def _upper_bounds(model: wire.ResourceModel) -> Resources:
    """Return the exclusive upper bound of each resource of a grade; empty for a grade without a bound."""
    ends = parse_resources({resource.name: resource.max for resource in model.ranges}, "spec.resourceModels")
    is_open = any(end >= _UNBOUNDED * base_units(name) for name, end in ends.items())
    return EMPTY if is_open else ends


def _covers(other: Resources, end: Resources) -> bool:
    return other.keys() == end.keys() and fits(end, other)
