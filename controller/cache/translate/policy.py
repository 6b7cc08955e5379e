"""Translates the configuration into the engine's policy: the parts that decisions depend on."""

from datetime import timedelta

from controller.api import configuration as config
from controller.cache.translate.units import parse_resources, to_milliseconds
from controller.engine.policy import (
    AdvanceReservation,
    Ageing,
    Backfill,
    EvictionPolicy,
    HeadReservationPolicy,
    NodeShapes,
    Policy,
    Resize,
    Tenant,
)
from controller.engine.state.clusters import Affinity, ClusterName, NodeShape, Requirement
from controller.engine.state.hierarchy import QueueName

_MILLISECOND = timedelta(milliseconds=1)


def translate_policy(configuration: config.VolcanoGlobalConfiguration, *, can_estimate: bool = False) -> Policy:
    """Return the parts of *configuration* that decisions depend on; *can_estimate*: estimators can be queried."""
    return Policy(
        queue_order=configuration.queue_order,
        tenant_fairness=configuration.tenant_fairness,
        resize=Resize(
            evict=configuration.resize.action == "Evict", grace_ms=configuration.resize.grace_period // _MILLISECOND
        ),
        settle_ms=configuration.cluster_status_settle_period // _MILLISECOND,
        startup_timeout_ms=configuration.startup_timeout // _MILLISECOND,
        head_reservation=HeadReservationPolicy(
            after_ms=configuration.head_reservation.after // _MILLISECOND,
            max_ms=configuration.head_reservation.max // _MILLISECOND,
            max_idle_permille=round(1000 * configuration.head_reservation.max_idle),
        ),
        backfill=Backfill(
            enabled=configuration.backfill.enabled, evicts_overrun=configuration.backfill.on_overrun == "Evict"
        ),
        ageing=Ageing(
            after_ms=configuration.ageing.after // _MILLISECOND,
            step=configuration.ageing.step,
            max_raise=configuration.ageing.max,
        ),
        advance_reservations=tuple(map(_advance_reservation, configuration.advance_reservations)),
        reclaim=_eviction(configuration.reclaim),
        preemption=_eviction(configuration.preemption),
        tenants=tuple(
            Tenant(tenant.namespaces, queues=tenant.queues, priority_classes=tenant.priority_classes)
            for tenant in configuration.tenants
        ),
        deny_unmatched=configuration.unmatched_tenants == "Deny",
        node_shapes=tuple(map(_node_shapes, configuration.node_shapes)),
        node_estimates=can_estimate and configuration.node_estimates == "Estimator",
    )


def _advance_reservation(entry: config.AdvanceReservation) -> AdvanceReservation:
    namespace, _, name = (entry.workload or "").partition("/")
    return AdvanceReservation(
        entry.name,
        clusters=tuple(map(ClusterName, entry.clusters)),
        since=to_milliseconds(entry.since) or 0,
        until=to_milliseconds(entry.until) or 0,
        queue=QueueName(entry.queue) if entry.queue is not None else None,
        workload=(namespace, name) if entry.workload is not None else None,
        amounts=parse_resources(entry.amounts or {}, "advanceReservations"),
        evicts=entry.evict,
        drain_ms=entry.drain // _MILLISECOND,
    )


def _node_shapes(entry: config.NodeShapes) -> NodeShapes:
    nodes = tuple(
        NodeShape(shape.count, tuple(sorted(parse_resources(shape.allocatable, "nodeShapes").items())))
        for shape in entry.nodes
    )
    return NodeShapes(_affinity(entry.clusters), nodes)


def _affinity(clusters: tuple[str, ...] | config.ClusterSelector) -> Affinity:
    if isinstance(clusters, tuple):
        return Affinity(names=tuple(map(ClusterName, clusters)))
    labels = [Requirement(key, "In", (value,)) for key, value in sorted(clusters.match_labels.items())]
    labels += [
        Requirement(expression.key, expression.operator, expression.values) for expression in clusters.match_expressions
    ]
    return Affinity(labels=tuple(labels))


def _eviction(section: config.Eviction) -> EvictionPolicy:
    return EvictionPolicy(
        enabled=section.enabled,
        min_runtime_ms=section.min_runtime // _MILLISECOND,
        max_evictions=section.max_evictions,
        grace_ms=section.grace_period // _MILLISECOND,
    )
