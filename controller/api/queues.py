"""Wire types of the Volcano Queue."""

import msgspec

from controller.api import lenient_decode
from controller.api.meta import Quantities, WatchedObject


class Guarantee(msgspec.Struct, rename="camel", frozen=True):
    """Guaranteed resources of a queue."""

    resource: Quantities = msgspec.field(default_factory=dict)


class QueueSpec(msgspec.Struct, rename="camel", frozen=True):
    """Spec of a queue: its limit, share and guarantee."""

    weight: int = 1
    parent: str = ""
    priority: int = 0
    capability: Quantities = msgspec.field(default_factory=dict)
    deserved: Quantities = msgspec.field(default_factory=dict)
    guarantee: Guarantee | None = None
    reclaimable: bool = True
    dequeue_strategy: str = ""


class QueueStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a queue: whether it is open."""

    state: str = ""


class Queue(WatchedObject, frozen=True):
    """A Volcano Queue."""

    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


_QUEUE = msgspec.json.Decoder(Queue)


def decode_queue(raw: bytes | memoryview) -> Queue:
    """Decode a Queue."""
    return lenient_decode.decode(_QUEUE, raw)
