"""Translates Volcano Queues, PriorityClasses and the configuration into the engine's queues and policy."""

import sys
from datetime import timedelta

from controller.api import configuration as config
from controller.api import queues as wire
from controller.api.queues import PriorityClass
from controller.cache.objects import CachedPriorityClass, CachedQueue, QueueCounts
from controller.cache.translate.units import (
    AmountError,
    join_errors,
    parse_resource_version,
    parse_resources,
    to_milliseconds,
)
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
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, QueueState

_STATES = {"": QueueState.OPEN, **{state.value: state for state in QueueState}}

_MILLISECOND = timedelta(milliseconds=1)


def translate_queue(queue: wire.Queue) -> CachedQueue:
    """Return the cached form of *queue*.

    A queue with an unreadable field gets an unknown state, so that nothing is admitted without its limits.
    """
    try:
        value, invalid = _queue(queue), ""
    except AmountError as error:
        value, invalid = Queue(QueueName(queue.metadata.name), state=QueueState.UNKNOWN), str(error)
    decode_error = join_errors(queue.decode_errors, invalid)
    if queue.decode_errors:
        value = Queue(value.name, parent=value.parent, state=QueueState.UNKNOWN)
    version = parse_resource_version(queue.metadata.resource_version)
    counts = _counts(queue.status) if queue.status else None
    return CachedQueue(queue.metadata.uid, version, value, decode_error, counts, bool(queue.state))


def _counts(status: wire.QueueStatus) -> QueueCounts | None:
    numbers = (status.pending, status.inqueue, status.running, status.completed, status.unknown)
    allocated = status.allocated if isinstance(status.allocated, dict) else {}
    # A quantity may be a number, too.
    amounts = {name: str(amount) if isinstance(amount, int) else amount for name, amount in allocated.items()}
    is_readable = all(isinstance(number, int) for number in numbers) and isinstance(status.allocated, dict)
    if not is_readable or not all(isinstance(amount, str) for amount in amounts.values()):
        return None
    return QueueCounts(*numbers, allocated=amounts)


def _queue(queue: wire.Queue) -> Queue:
    spec = queue.spec or wire.QueueSpec()
    return Queue(
        name=QueueName(queue.metadata.name),
        parent=QueueName(queue.parent) if queue.parent else ROOT,
        weight=max(spec.weight, 1),
        priority=spec.priority,
        capability=parse_resources(spec.capability or {}, "spec.capability"),
        deserved=parse_resources(spec.deserved or {}, "spec.deserved"),
        guarantee=parse_resources(spec.quantities["guarantee"], "spec.guarantee.resource"),
        reclaimable=spec.reclaimable is not False,
        fifo=spec.dequeue_strategy == "fifo",
        state=_state(queue),
    )


def _state(queue: wire.Queue) -> QueueState:
    state = _STATES.get(queue.state, QueueState.UNKNOWN)
    if queue.metadata.deletion_timestamp is not None and state is not QueueState.CLOSED:
        return QueueState.CLOSING
    return state


def translate_priority_class(priority_class: PriorityClass) -> CachedPriorityClass:
    """Return the cached form of *priority_class*."""
    meta = priority_class.metadata
    return CachedPriorityClass(
        meta.uid,
        parse_resource_version(meta.resource_version),
        sys.intern(meta.name),
        priority_class.value,
        is_default=priority_class.global_default,
        preempts=priority_class.preemption_policy != "Never",
    )


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
