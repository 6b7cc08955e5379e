"""Defines the fields of a Volcano Queue that the webhook validates, and what is cached of each queue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

import msgspec

from controller.api.meta import Quantities
from controller.api.quantity import QuantityError, parse_quantity
from controller.api.queues import Queue, QueueSpec, QueueStatus

QueueName = NewType("QueueName", str)
Amounts = Mapping[str, int]
"""Amounts in base units, by resource."""

ROOT = QueueName("root")
OPEN_STATES = frozenset({"", "Open"})
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"


class ReviewedQueueStatus(QueueStatus, frozen=True):
    """Status of a queue, with the resources of its pods."""

    allocated: Quantities | None = None


class ReviewedQueue(Queue, frozen=True):
    """A Volcano Queue."""

    status: ReviewedQueueStatus | None = None

    def annotation(self, name: str) -> str:
        """Return an annotation, or an empty string if it is missing."""
        return self.metadata.annotations.get(name, "")

    @property
    def quantities(self) -> Mapping[str, Quantities]:
        """Return capability, deserved and guarantee, by field name."""
        return (self.spec or QueueSpec()).quantities


@dataclass(frozen=True, slots=True)
class CachedQueue:
    """What is cached of a queue."""

    name: QueueName
    parent: QueueName
    state: str
    hierarchy: str
    amounts: Mapping[str, Amounts]
    pods: int

    @property
    def is_open(self) -> bool:
        """Return whether the queue accepts jobs; an empty state means open."""
        return self.state in OPEN_STATES


_QUEUE = msgspec.json.Decoder(ReviewedQueue)


def read_queue(raw: bytes | msgspec.Raw) -> ReviewedQueue:
    """Return the Queue in *raw*, or raise `ValueError` if it cannot be decoded."""
    return _QUEUE.decode(raw)


def to_cached(queue: ReviewedQueue) -> CachedQueue:
    """Return what is cached of *queue*."""
    name = QueueName(queue.metadata.name)
    parent = QueueName("" if name == ROOT else (queue.spec and queue.spec.parent) or ROOT)
    amounts = {field: _parse_amounts(quantities) for field, quantities in queue.quantities.items()}
    pods = _parse_amounts((queue.status and queue.status.allocated) or {}).get("pods", 0)
    return CachedQueue(name, parent, queue.state, queue.annotation(HIERARCHY), amounts, pods)


def decode_cached(raw: bytes) -> CachedQueue:
    """Return what is cached of the Queue in *raw*."""
    return to_cached(read_queue(raw))


def _parse_amounts(quantities: Quantities) -> Amounts:
    """Return the amounts that can be parsed; others limit no queue."""
    amounts = {}
    for resource, value in quantities.items():
        try:
            amounts[resource] = parse_quantity(resource, value)
        except QuantityError:
            continue
    return amounts
