"""Translates Volcano Queues into the engine's."""

from controller.api import queues as wire
from controller.cache.objects import CachedQueue
from controller.cache.translate.units import AmountError, join_errors, parse_resource_version, parse_resources
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, QueueState
from controller.engine.state.resources import EMPTY

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
    return CachedQueue(queue.metadata.uid, parse_resource_version(queue.metadata.resource_version), value, decode_error)


def _queue(queue: wire.Queue) -> Queue:
    spec = queue.spec
    return Queue(
        name=QueueName(queue.metadata.name),
        parent=QueueName(spec.parent) if spec.parent else ROOT,
        weight=max(spec.weight, 1),
        priority=spec.priority,
        capability=parse_resources(spec.capability, "spec.capability"),
        deserved=parse_resources(spec.deserved, "spec.deserved"),
        guarantee=parse_resources(spec.guarantee.resource, "spec.guarantee.resource") if spec.guarantee else EMPTY,
        reclaimable=spec.reclaimable,
        fifo=spec.dequeue_strategy == "fifo",
        state=_state(queue),
    )


def _state(queue: wire.Queue) -> QueueState:
    if queue.metadata.deletion_timestamp is not None:
        return QueueState.CLOSING
    return _STATES.get(queue.status.state, QueueState.UNKNOWN)
