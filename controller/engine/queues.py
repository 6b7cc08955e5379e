"""Queues as operators write them; the tree that they form is ``tree``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NewType

from controller.engine.resources import EMPTY, Resources

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
    """One Volcano Queue: what it may use, is due and can count on."""

    name: QueueName
    parent: QueueName = ROOT
    weight: int = 1
    priority: int = 0
    capability: Resources = EMPTY
    """The most it may ever hold; a name that is missing is limited by the parent only."""
    deserved: Resources = EMPTY
    guarantee: Resources = EMPTY
    reclaimable: bool = True
    fifo: bool = False
    """``dequeueStrategy: fifo``; ``traverse`` otherwise."""
    state: QueueState = QueueState.OPEN

    def names(self, resource: str) -> bool:
        """Say whether this queue names *resource* in any of its amounts."""
        return resource in self.capability or resource in self.deserved or resource in self.guarantee


QueueOrder = Literal["PriorityFirst", "FairShareFirst"]
TenantFairness = Literal["None", "Namespace", "NamespaceFirst"]
"""Whether a queue is shared evenly among namespaces: among workloads of equal job priority, or before it (O2)."""
