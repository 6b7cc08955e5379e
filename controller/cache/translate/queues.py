"""Translates Volcano Queues and PriorityClasses into cached objects."""

import sys

from controller.api import queues as wire
from controller.api.queues import PriorityClass
from controller.cache.objects import CachedPriorityClass, CachedQueue, QueueCounts
from controller.cache.translate.units import AmountError, join_errors, parse_resource_version, parse_resources
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, QueueState

_STATES = {"": QueueState.OPEN, **{state.value: state for state in QueueState}}


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
