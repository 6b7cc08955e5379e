"""Queues as operators define them; ``tree`` has the hierarchy that they form."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NewType

from controller.engine.state.resources import EMPTY, Resources

QueueName = NewType("QueueName", str)

ROOT = QueueName("root")


class QueueState(StrEnum):
    """A Queue's ``status.state``; an empty one is open (Q5)."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Queue:
    """One Volcano Queue: its limit, weight, deserved amounts and guarantee."""

    name: QueueName
    parent: QueueName = ROOT
    weight: int = 1
    priority: int = 0
    capability: Resources = EMPTY
    """The most it may hold; a resource that is missing is limited by the parent only."""
    deserved: Resources = EMPTY
    guarantee: Resources = EMPTY
    reclaimable: bool = True
    fifo: bool = False
    """``dequeueStrategy: fifo``; ``traverse`` otherwise."""
    state: QueueState = QueueState.OPEN

    def names(self, resource: str) -> bool:
        """Return whether this queue names *resource* in any of its amounts."""
        return resource in self.capability or resource in self.deserved or resource in self.guarantee


QueueOrder = Literal["PriorityFirst", "FairShareFirst"]
TenantFairness = Literal["None", "Namespace", "NamespaceFirst"]
"""Whether namespaces share a queue evenly: among workloads of equal job priority, or before job priority (O2)."""
