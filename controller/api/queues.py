"""Wire types of the Volcano Queue, of commands on queues and jobs, and of Kubernetes' PriorityClass."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.api.meta import Quantities, WatchedObject, decode_watched

#: Name of the root of the queue hierarchy.
ROOT_QUEUE = "root"


class Guarantee(msgspec.Struct, rename="camel", frozen=True):
    """Guaranteed resources of a queue."""

    resource: Quantities | None = None


class QueueSpec(msgspec.Struct, rename="camel", frozen=True):
    """Spec of a queue: its limit, share and guarantee."""

    weight: int = 0
    """Its default is 1."""
    parent: str = ""
    priority: int = 0
    capability: Quantities | None = None
    deserved: Quantities | None = None
    guarantee: Guarantee | None = None
    reclaimable: bool | None = None
    """Its default is true."""
    dequeue_strategy: str = ""

    @property
    def quantities(self) -> Mapping[str, Quantities]:
        """Capability, deserved and guarantee, by field name."""
        return {
            "capability": self.capability or {},
            "deserved": self.deserved or {},
            "guarantee": (self.guarantee and self.guarantee.resource) or {},
        }


class QueueStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a queue: whether it is open, and what the controller published; decisions depend on the state only."""

    state: str = ""
    pending: Any = None
    inqueue: Any = None
    running: Any = None
    unknown: Any = None
    completed: Any = None
    allocated: Any = None


class Queue(WatchedObject, frozen=True):
    """A Volcano Queue."""

    spec: QueueSpec | None = None
    status: QueueStatus | None = None

    @property
    def parent(self) -> str:
        """Name of its parent, by default the root; the root itself has none."""
        return "" if self.metadata.name == ROOT_QUEUE else (self.spec and self.spec.parent) or ROOT_QUEUE

    @property
    def state(self) -> str:
        """State of the queue; empty means open."""
        return self.status.state if self.status else ""


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
