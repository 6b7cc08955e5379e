"""A Volcano Queue as it is judged, and what is remembered of each to judge others by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

import msgspec

from controller.api.meta import Quantities
from controller.api.quantity import QuantityError, parse_quantity

QueueName = NewType("QueueName", str)
Amounts = Mapping[str, int]
"""Resource -> how much of it, in base units."""

ROOT = QueueName("root")
OPEN_STATES = frozenset({"", "Open"})
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"


class Guarantee(msgspec.Struct, frozen=True):
    """What a queue can count on."""

    resource: Quantities | None = None


class Spec(msgspec.Struct, frozen=True):
    """What a queue may use, is due and can count on."""

    weight: int = 0
    parent: str = ""
    reclaimable: bool | None = None
    capability: Quantities | None = None
    deserved: Quantities | None = None
    guarantee: Guarantee | None = None


class Status(msgspec.Struct, frozen=True):
    """Whether it takes jobs, and what those it took hold."""

    state: str = ""
    allocated: Quantities | None = None


class Metadata(msgspec.Struct, frozen=True):
    """Who it is, and what others have written on it."""

    name: str = ""
    annotations: dict[str, str] | None = None


class Queue(msgspec.Struct, frozen=True):
    """One Volcano Queue."""

    metadata: Metadata = Metadata()
    spec: Spec | None = None
    status: Status | None = None

    @property
    def state(self) -> str:
        """Return its state; empty means open."""
        return self.status.state if self.status else ""

    def annotation(self, name: str) -> str:
        """Return an annotation, empty where there is none."""
        return (self.metadata.annotations or {}).get(name, "")

    def quantities(self) -> Mapping[str, Quantities]:
        """Return its three amounts as they are written, by the name of their field."""
        spec = self.spec or Spec()
        return {
            "capability": spec.capability or {},
            "deserved": spec.deserved or {},
            "guarantee": (spec.guarantee and spec.guarantee.resource) or {},
        }


@dataclass(frozen=True, slots=True)
class CachedQueue:
    """What is kept of a queue."""

    name: QueueName
    parent: QueueName
    state: str
    hierarchy: str
    amounts: Mapping[str, Amounts]
    pods: int

    @property
    def is_open(self) -> bool:
        """Say whether it takes jobs; a state that nobody has written is open."""
        return self.state in OPEN_STATES


_QUEUE = msgspec.json.Decoder(Queue)


def read_queue(raw: bytes | msgspec.Raw) -> Queue:
    """Return the Queue in *raw*, or raise `ValueError` with what cannot be read of it."""
    return _QUEUE.decode(raw)


def to_cached(queue: Queue) -> CachedQueue:
    """Return what is kept of *queue*."""
    name = QueueName(queue.metadata.name)
    parent = QueueName("" if name == ROOT else (queue.spec and queue.spec.parent) or ROOT)
    amounts = {field: _parse_amounts(quantities) for field, quantities in queue.quantities().items()}
    pods = _parse_amounts((queue.status and queue.status.allocated) or {}).get("pods", 0)
    return CachedQueue(name, parent, queue.state, queue.annotation(HIERARCHY), amounts, pods)


def decode_cached(raw: bytes) -> CachedQueue:
    """Return what is kept of the Queue in *raw*."""
    return to_cached(read_queue(raw))


def _parse_amounts(quantities: Quantities) -> Amounts:
    """Return the amounts that can be read; one that cannot bounds nobody else."""
    found = {}
    for resource, value in quantities.items():
        try:
            found[resource] = parse_quantity(resource, value)
        except QuantityError:
            continue
    return found
