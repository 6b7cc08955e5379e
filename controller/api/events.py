"""Wire types of Kubernetes' Event (events.k8s.io/v1).

An event created through core/v1, as by Karmada, is served with ``eventTime: null`` and deprecated fields instead.
"""

from datetime import datetime

import msgspec

from controller.api.meta import WatchedObject, decode_watched


class EventSeries(msgspec.Struct, rename="camel", frozen=True):
    """Count and last occurrence of a repeated event."""

    count: int = 1
    last_observed_time: datetime | None = None


class Event(WatchedObject, rename="camel", frozen=True):
    """An event."""

    reason: str = ""
    note: str = ""
    event_time: datetime | None = None
    reporting_controller: str = ""
    series: EventSeries | None = None
    deprecated_last_timestamp: datetime | None = None
    deprecated_count: int = 1

    @property
    def count(self) -> int:
        """Number of occurrences."""
        return self.series.count if self.series else self.deprecated_count

    @property
    def last_seen(self) -> datetime | None:
        """Time of the last occurrence; ``None`` where no readable field has it."""
        series = self.series.last_observed_time if self.series else None
        times = (series, self.event_time, self.deprecated_last_timestamp, self.metadata.creation_timestamp)
        return next((time for time in times if time is not None), None)


_EVENT = msgspec.json.Decoder(Event)


def decode_event(raw: bytes | memoryview) -> Event:
    """Decode an Event."""
    return decode_watched(_EVENT, raw)
