"""Wire types of the Volcano Queue, of commands on queues and jobs, and of Kubernetes' PriorityClass."""

import msgspec

from controller.api.meta import Quantities, WatchedObject, decode_watched


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
    return decode_watched(_QUEUE, raw)


class PriorityClass(WatchedObject, frozen=True):
    """A PriorityClass."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


_PRIORITY_CLASS = msgspec.json.Decoder(PriorityClass)


def decode_priority_class(raw: bytes | memoryview) -> PriorityClass:
    """Decode a PriorityClass."""
    return decode_watched(_PRIORITY_CLASS, raw)


class Target(msgspec.Struct, rename="camel", frozen=True):
    """The object of the action."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def group_kind(self) -> tuple[str, str]:
        """Group and kind of the target, in any version."""
        return self.api_version.partition("/")[0], self.kind


class Command(WatchedObject, frozen=True):
    """A command; unlike other objects it has no spec."""

    action: str = ""
    target: Target = msgspec.field(default_factory=Target)


_COMMAND = msgspec.json.Decoder(Command)


def decode_command(raw: bytes | memoryview) -> Command:
    """Decode a Command."""
    return decode_watched(_COMMAND, raw)
