"""Translates the configuration into the engine's policy."""

from datetime import timedelta

from controller.api import configuration as wire
from controller.cache.translate.units import parse_resources
from controller.engine.policy import EvictionPolicy, HeadReservation, NodeShapes, Policy, Resize, Tenant
from controller.engine.state.clusters import Affinity, ClusterName, NodeShape, Requirement

_MILLISECOND = timedelta(milliseconds=1)


def translate_policy(configuration: wire.VolcanoGlobalConfiguration, *, can_estimate: bool = False) -> Policy:
    """Return the parts of *configuration* that decisions depend on; *can_estimate*: estimators can be queried."""
    growth = configuration.resize
    return Policy(
        queue_order=configuration.queue_order,
        tenant_fairness=configuration.tenant_fairness,
        resize=Resize(evict=growth.action == "Evict", grace_ms=growth.grace_period // _MILLISECOND),
        settle_ms=configuration.cluster_status_settle_period // _MILLISECOND,
        startup_timeout_ms=configuration.startup_timeout // _MILLISECOND,
        head_reservation=HeadReservation(
            after_ms=configuration.head_reservation.after // _MILLISECOND,
            max_ms=configuration.head_reservation.max // _MILLISECOND,
        ),
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


def _node_shapes(entry: wire.NodeShapes) -> NodeShapes:
    nodes = tuple(
        NodeShape(shape.count, tuple(sorted(parse_resources(shape.allocatable, "nodeShapes").items())))
        for shape in entry.nodes
    )
    return NodeShapes(_affinity(entry.clusters), nodes)


def _affinity(clusters: tuple[str, ...] | wire.LabelSelector) -> Affinity:
    if isinstance(clusters, tuple):
        return Affinity(names=tuple(map(ClusterName, clusters)))
    labels = [Requirement(key, "In", (value,)) for key, value in sorted(clusters.match_labels.items())]
    labels += [
        Requirement(expression.key, expression.operator, expression.values) for expression in clusters.match_expressions
    ]
    return Affinity(labels=tuple(labels))


def _eviction(section: wire.Eviction) -> EvictionPolicy:
    return EvictionPolicy(
        enabled=section.enabled,
        min_runtime_ms=section.min_runtime // _MILLISECOND,
        max_evictions=section.max_evictions,
        grace_ms=section.grace_period // _MILLISECOND,
    )
