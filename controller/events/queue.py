"""The news that are to be told yet: only the newest of a sort, only so many, what is rare first.

Pure; it knows neither times nor servers.
"""

from collections import OrderedDict

from controller.events.message import EventMessage


class EventQueue:
    """At most *capacity* news."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._urgent: OrderedDict[tuple[str, str], EventMessage] = OrderedDict()
        self._normal: OrderedDict[tuple[str, str], EventMessage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._normal)

    @property
    def is_full(self) -> bool:
        """Say whether somebody must go before somebody else can come."""
        return len(self) >= self.capacity

    def put(self, news: EventMessage) -> EventMessage | None:
        """Take *news*; return what is not told instead, because there is too much.

        A wait that is not told yet has no meaning any more once the workload is admitted.
        """
        if news.topic == "admitted":
            self._normal.pop((news.uid, "waits"), None)
        box = self._urgent if news.topic in {"evicted", "warned"} else self._normal
        dropped = None
        if news.key not in box and self.is_full:
            if news.topic == "waits":
                return news
            dropped = self._drop_oldest()
            if dropped is None:
                return news
        box[news.key] = news
        return dropped

    def contains(self, news: EventMessage) -> bool:
        """Say whether there is something of the sort already."""
        return news.key in self._urgent or news.key in self._normal

    def pop(self) -> EventMessage | None:
        """Return what is to be told next and forget it, ``None`` where there is nothing."""
        for box in (self._urgent, self._normal):
            if box:
                return box.popitem(last=False)[1]
        return None

    def clear(self) -> None:
        """Forget everything: somebody else tells now."""
        self._urgent.clear()
        self._normal.clear()

    def _drop_oldest(self) -> EventMessage | None:
        """Forget what has waited longest among the plain ones."""
        return self._normal.popitem(last=False)[1] if self._normal else None
