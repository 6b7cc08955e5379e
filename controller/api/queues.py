"""The Volcano Queue, as far as it is read."""

import msgspec

from controller.api import lenient_decode
from controller.api.meta import Quantities, WatchedObject


class Guarantee(msgspec.Struct, rename="camel", frozen=True):
    """What a queue can count on."""

    resource: Quantities = msgspec.field(default_factory=dict)


class QueueSpec(msgspec.Struct, rename="camel", frozen=True):
    """What a queue may use, is due and can count on."""

    weight: int = 1
    parent: str = ""
    priority: int = 0
    capability: Quantities = msgspec.field(default_factory=dict)
    deserved: Quantities = msgspec.field(default_factory=dict)
    guarantee: Guarantee | None = None
    reclaimable: bool = True
    dequeue_strategy: str = ""


class QueueStatus(msgspec.Struct, rename="camel", frozen=True):
    """Whether it takes workloads."""

    state: str = ""


class Queue(WatchedObject, frozen=True):
    """One Volcano Queue."""

    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


_QUEUE = msgspec.json.Decoder(Queue)


def decode_queue(raw: bytes | memoryview) -> Queue:
    """Return the Queue in *raw*."""
    return lenient_decode.decode(_QUEUE, raw)
