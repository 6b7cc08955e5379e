"""Writes Kubernetes events at a limited rate; messages beyond its queue are dropped and counted.

Recording never blocks the caller. The queue holds one message per subject and topic. Namespaces take turns; in each,
evictions and warnings are first.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

import msgspec
import structlog

from controller.kube.client import Api
from controller.kube.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from controller.kube.events import Event, EventMessage, build_events, observed_count, series_patch
from controller.kube.timing import Backoff, Clock, wait_until_idle, wall_clock

V = TypeVar("V")
_MAX_REMEMBERED = 10_000
_MAX_ATTEMPTS = 3

#: Time for which the events of a namespace are dropped after it has accepted none: it may be terminating.
_REFUSED_SECONDS = 30.0

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
_MessagesByKey = OrderedDict[tuple[str, str], EventMessage]


class _MessagesByNamespace:
    """Messages of equal importance, those of each namespace in order."""

    def __init__(self) -> None:
        self.size = 0
        self._by_namespace: dict[str, _MessagesByKey] = {}
        self._by_count: dict[int, dict[str, None]] = {}
        """Namespaces by their number of messages."""
        self._largest = 0
        """The largest number of messages of a namespace."""

    def __contains__(self, message: EventMessage) -> bool:
        return message.key in self._by_namespace.get(message.namespace, ())

    def count(self, namespace: str) -> int:
        """Return the number of messages of *namespace*."""
        return len(self._by_namespace.get(namespace, ()))

    def has_most(self, namespace: str) -> bool:
        """Return whether no other namespace has more messages than *namespace*."""
        return self.count(namespace) >= self._largest

    def put(self, message: EventMessage) -> None:
        """Add *message*, or let it replace the one with its key."""
        messages = self._by_namespace.setdefault(message.namespace, OrderedDict())
        before = len(messages)
        messages[message.key] = message
        self._count_changed(message.namespace, before, len(messages))

    def discard(self, namespace: str, key: tuple[str, str]) -> None:
        """Remove the message of *namespace* with that key, if there is one."""
        messages = self._by_namespace.get(namespace)
        if messages is not None and key in messages:
            del messages[key]
            self._count_changed(namespace, len(messages) + 1, len(messages))

    def pop(self, namespace: str) -> EventMessage | None:
        """Remove and return the oldest message of *namespace*, ``None`` if it has none."""
        messages = self._by_namespace.get(namespace)
        if messages is None:
            return None
        _, message = messages.popitem(last=False)
        self._count_changed(namespace, len(messages) + 1, len(messages))
        return message

    def drop(self) -> EventMessage | None:
        """Remove and return the oldest message of a namespace with most messages, ``None`` if there are none."""
        return self.pop(next(iter(self._by_count[self._largest]))) if self._largest else None

    def _count_changed(self, namespace: str, before: int, after: int) -> None:
        if before == after:
            return
        self.size += after - before
        if before:
            del self._by_count[before][namespace]
        if after:
            self._by_count.setdefault(after, {})[namespace] = None
        else:
            del self._by_namespace[namespace]
        if before and not self._by_count[before]:
            del self._by_count[before]
        self._largest = max(self._largest, after)
        if self._largest not in self._by_count:
            self._largest = after


class EventQueue:
    """Holds at most *capacity* messages; if it is full, a namespace with most messages loses one."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clear()

    def __len__(self) -> int:
        return self._urgent.size + self._normal.size

    def would_drop(self, namespace: str) -> bool:
        """Return whether a further pending message of *namespace* would be dropped."""
        return len(self) >= self.capacity and self._normal.has_most(namespace)

    def put(self, message: EventMessage) -> EventMessage | None:
        """Add *message*; return the message that was dropped for lack of capacity, if any.

        An admission removes the pending message of its workload.
        """
        if message.topic == "admitted":
            self._normal.discard(message.namespace, (message.uid, "waits"))
        is_urgent = message.topic in {"evicted", "warned"}
        messages = self._urgent if is_urgent else self._normal
        dropped = None
        if message not in messages and len(self) >= self.capacity:
            if message.topic == "waits" and self.would_drop(message.namespace):
                return message
            dropped = self._normal.drop()
            if dropped is None and is_urgent and not self._urgent.has_most(message.namespace):
                dropped = self._urgent.drop()
            if dropped is None:
                return message
        messages.put(message)
        self._turns.setdefault(message.namespace)
        if dropped is not None and not self._has_messages(dropped.namespace):
            # Nothing is written, and so no turn ends, while the API server does not answer.
            del self._turns[dropped.namespace]
        return dropped

    def _has_messages(self, namespace: str) -> bool:
        return bool(self._urgent.count(namespace) or self._normal.count(namespace))

    def contains(self, message: EventMessage) -> bool:
        """Return whether a message with the same key is queued."""
        return message in self._urgent or message in self._normal

    def pop(self) -> EventMessage | None:
        """Remove and return the next message, ``None`` if the queue is empty."""
        while self._turns:
            namespace, _ = self._turns.popitem(last=False)
            message = self._urgent.pop(namespace) or self._normal.pop(namespace)
            if message is not None:
                if self._has_messages(namespace):
                    self._turns[namespace] = None
                return message
        return None

    def clear(self) -> None:
        """Drop all messages, after losing leadership."""
        self._urgent = _MessagesByNamespace()
        self._normal = _MessagesByNamespace()
        self._turns: OrderedDict[str, None] = OrderedDict()
        """Namespaces in the order of their turns; each with messages is one of them."""


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """Rate and queue of the event recorder."""

    instance: str = "volcano-global-controller"
    per_second: float = 20
    """Events per second; 0 disables events."""
    backlog: int = 2_000
    """Maximum number of queued messages."""
    min_repeat_seconds: float = 10
    """Minimum interval between two pending events of one workload; the latest reason is written."""
    max_delay_seconds: float = 5
    """Longest time for which events wait until decisions are written."""


class Metrics(Protocol):
    """Counts events."""

    def count_event(self, outcome: str) -> None:
        """Count an event as written, refused, failed or dropped."""


class EventRecorder:
    """Queues event messages and writes them while ``run`` is running."""

    def __init__(
        self,
        api: Api,
        *,
        metrics: Metrics,
        is_busy: Callable[[], bool] = lambda: False,
        options: RecorderOptions | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self._api = api
        self._is_busy = is_busy
        """Returns whether decisions wait to be written; they have priority."""
        self._metrics = metrics
        self._options = options or RecorderOptions()
        self._clock = clock
        self._queue = EventQueue(self._options.backlog)
        self._counts: OrderedDict[str, int] = OrderedDict()
        """How often each event that was written has happened, by path."""
        self._published_at: OrderedDict[str, float] = OrderedDict()
        """When the last pending event was written, by uid."""
        self._deferred: dict[str, EventMessage] = {}
        """The latest pending message within the minimum interval, by uid."""
        self._refused_at: OrderedDict[str, float] = OrderedDict()
        """When a namespace last accepted no events, by its name."""
        self._backoff = Backoff(initial=0.5, maximum=30)
        self._slot_at = 0.0
        self._wake = asyncio.Event()

    def would_drop(self, namespace: str) -> bool:
        """Return whether a further pending message of *namespace* would be dropped."""
        return self._queue.would_drop(namespace)

    def record(self, message: EventMessage) -> None:
        """Queue *message*, or drop and count one message if the queue is full."""
        if not self._options.per_second:
            return
        if self._queue.put(message) is not None:
            self.count_dropped()
        self._wake.set()

    def count_dropped(self) -> None:
        """Count a message that was not queued, because the queue was full."""
        self._metrics.count_event("dropped")

    def clear(self) -> None:
        """Drop queued messages after losing leadership."""
        self._queue.clear()
        self._deferred.clear()

    # -- writing ------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Write events until cancelled."""
        while True:
            await self._yield_to_decisions()
            message = self._queue.pop()
            if message is None:
                self._wake.clear()
                await self._wake.wait()
            elif not self._is_deferred(message):
                for event in build_events(message, self._options.instance, self._clock()):
                    if self._is_refused(event.namespace):
                        self._metrics.count_event("refused")
                        continue
                    await self._wait_for_slot()
                    await self._publish(event)

    async def _yield_to_decisions(self) -> None:
        """Wait for a limited time while decisions are written; an event costs the API server as much as one of them."""
        await wait_until_idle(lambda: len(self._queue) > 0 and self._is_busy(), seconds=self._options.max_delay_seconds)

    def _is_deferred(self, message: EventMessage) -> bool:
        """Return whether the workload's last pending event is too recent; then the message is queued again later."""
        if message.topic != "waits":
            return False
        now = time.monotonic()
        calm_at = self._published_at.get(message.uid, float("-inf")) + self._options.min_repeat_seconds
        if calm_at <= now:
            _remember(self._published_at, message.uid, now)
            return False
        if message.uid not in self._deferred:
            asyncio.get_running_loop().call_later(calm_at - now, self._requeue, message.uid)
        self._deferred[message.uid] = message
        return True

    def _requeue(self, uid: str) -> None:
        """Queue a deferred message again if it still holds."""
        message = self._deferred.pop(uid, None)
        if message is not None and message.is_current() and not self._queue.contains(message):
            self.record(message)

    async def _wait_for_slot(self) -> None:
        """Wait until the rate allows one more event; unused slots of the last second may be used at once."""
        now = time.monotonic()
        self._slot_at = max(self._slot_at, now - 1) + 1 / self._options.per_second
        if self._slot_at > now:
            await asyncio.sleep(self._slot_at - now)

    def _is_refused(self, namespace: str) -> bool:
        """Return whether *namespace* accepted no events a short time ago."""
        return time.monotonic() < self._refused_at.get(namespace, float("-inf")) + _REFUSED_SECONDS

    async def _publish(self, event: Event) -> None:
        for _ in range(_MAX_ATTEMPTS):
            try:
                await self._write(event)
            except (TooManyRequests, ServerError, Unreachable) as error:
                await asyncio.sleep(self._backoff.next_delay(at_least=error.retry_after))
            except Unauthorized as error:
                self._count_rejected(event, error)
                await asyncio.sleep(self._backoff.next_delay())
                return
            except (ApiError, msgspec.MsgspecError) as error:
                # No permission, a terminating namespace, or a tenant has created an event of this name, to which ours
                # cannot be added: the events of others must not wait for it.
                if not isinstance(error, Invalid):
                    _remember(self._refused_at, event.namespace, time.monotonic())
                self._count_rejected(event, error)
                return
            else:
                self._backoff.reset()
                self._metrics.count_event("written")
                return
        self._metrics.count_event("failed")

    def _count_rejected(self, event: Event, error: Exception) -> None:
        self._metrics.count_event("refused")
        log.warning("event rejected", namespace=event.namespace, name=event.name, error=str(error))

    async def _write(self, event: Event) -> None:
        """Create the event, or update the series of an existing one."""
        count = self._counts.get(event.path)
        if count is None:
            try:
                await self._api.create(event.folder, msgspec.json.encode(event.manifest))
            except Conflict:
                count = observed_count(await self._api.get(event.path))
            else:
                _remember(self._counts, event.path, 1)
                return
        body = msgspec.json.encode(series_patch(count + 1, self._clock()))
        try:
            await self._api.patch(event.path, body, kind="merge")
        except NotFound:
            # The API server deletes events after an hour.
            await self._api.create(event.folder, msgspec.json.encode(event.manifest))
            count = 0
        _remember(self._counts, event.path, count + 1)


def _remember(memory: OrderedDict[str, V], key: str, value: V) -> None:
    """Store *value* and drop the oldest entries."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _MAX_REMEMBERED:
        memory.popitem(last=False)
