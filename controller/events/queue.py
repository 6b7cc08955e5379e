"""Bounded queue of event messages: one per subject and topic, evictions and warnings first."""

from collections import OrderedDict

from controller.events.message import EventMessage


class EventQueue:
    """Holds at most *capacity* messages."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._urgent: OrderedDict[tuple[str, str], EventMessage] = OrderedDict()
        self._normal: OrderedDict[tuple[str, str], EventMessage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._normal)

    @property
    def is_full(self) -> bool:
        """Return whether a message must be dropped before another can be added."""
        return len(self) >= self.capacity

    def put(self, message: EventMessage) -> EventMessage | None:
        """Add *message*; return the message that was dropped for lack of capacity, if any.

        An admission removes the pending message of its workload.
        """
        if message.topic == "admitted":
            self._normal.pop((message.uid, "waits"), None)
        box = self._urgent if message.topic in {"evicted", "warned"} else self._normal
        dropped = None
        if message.key not in box and self.is_full:
            if message.topic == "waits":
                return message
            dropped = self._drop_oldest()
            if dropped is None:
                return message
        box[message.key] = message
        return dropped

    def contains(self, message: EventMessage) -> bool:
        """Return whether a message with the same key is queued."""
        return message.key in self._urgent or message.key in self._normal

    def pop(self) -> EventMessage | None:
        """Remove and return the next message, ``None`` if the queue is empty."""
        for box in (self._urgent, self._normal):
            if box:
                return box.popitem(last=False)[1]
        return None

    def clear(self) -> None:
        """Drop all messages, after losing leadership."""
        self._urgent.clear()
        self._normal.clear()

    def _drop_oldest(self) -> EventMessage | None:
        """Drop and return the oldest message of normal priority."""
        return self._normal.popitem(last=False)[1] if self._normal else None
