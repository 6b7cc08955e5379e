"""Acquires and renews the leader lease.

Leadership ends by itself when the lease was not renewed in time, even if all requests hang. A lease does not exclude a
second writer by itself; the proportions of its timings do, and are validated here. A candidate measures time with its
own clock from the moment when it saw the lease change; timestamps inside the lease are informational.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import msgspec
import structlog

from controller.api.keys import LEASES
from controller.kube.client import Api
from controller.kube.errors import ApiError, Conflict, Invalid, NotFound, Unreachable
from controller.kube.timing import Uptime, uptime

_SEPARATOR: Final = "_"
#: A longer lease than so many times the own duration counts as that long: it was edited by hand, and could block all.
_MAX_FACTOR: Final = 10

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """Durations of leader election, in seconds."""

    lease: float = 30
    """A candidate may acquire the lease after it has not changed for so long."""
    renew: float = 12
    """A leader stops this long after the start of its last successful renewal."""
    retry: float = 2
    """Interval between attempts to acquire or renew the lease."""
    connect: float = 5
    """A request reaches the server within this time or never."""
    write: float = 10
    """The server gives up a write after this time."""

    @property
    def violation(self) -> str | None:
        """Return why these timings allow two concurrent leaders, or ``None`` if they do not."""
        if self.lease <= self.renew + self.connect + self.write:
            return "lease-seconds must be above renew + connect + write seconds, or two leaders may write at once"
        if self.renew <= 2 * self.retry:
            return "renew-seconds must be more than twice retry-seconds, or one failed renewal ends leadership"
        return None


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a lease."""

    version: str
    holder: str = ""
    """Empty after a release."""
    seconds: float = 0
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that takes part in leader election; *name* survives a restart, *run* does not."""

    name: str
    run: str

    @property
    def holder(self) -> str:
        """Return the holder identity of the lease while this candidate leads."""
        return f"{self.name}{_SEPARATOR}{self.run}"

    def holds(self, lease: Lease) -> bool:
        """Return whether this process holds *lease*."""
        return lease.holder == self.holder

    def held_before(self, lease: Lease) -> bool:
        """Return whether an earlier process of the same name held *lease*."""
        return lease.holder.rpartition(_SEPARATOR)[0] == self.name and not self.holds(lease)


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A lease (``None`` if there is none) and the time since which it is unchanged, on the candidate's clock."""

    lease: Lease | None
    since: float
    is_first: bool = False
    """Whether it is the first observation after the candidate started."""


def observe_lease(lease: Lease | None, before: ObservedLease | None, now: float) -> ObservedLease:
    """Return the observation that follows *before*; an unchanged lease keeps its time.

    A lease that was deleted counts as last seen, because its holder may still write.
    """
    if before is None:
        return ObservedLease(lease, now, is_first=True)
    if lease is None or (before.lease is not None and before.lease.version == lease.version):
        return before
    return ObservedLease(lease, now)


def can_acquire(candidate: Candidate, observed: ObservedLease, timings: LeaseTimings, now: float) -> bool:
    """Return whether *candidate* may acquire the lease."""
    lease = observed.lease
    if lease is None or not lease.holder or candidate.holds(lease):
        return True
    if observed.is_first and candidate.held_before(lease):
        return True
    return now >= observed.since + max(min(lease.seconds, _MAX_FACTOR * timings.lease), timings.lease)


def write_delay(candidate: Candidate, observed: ObservedLease, timings: LeaseTimings) -> float:
    """Return how long a new leader must wait before its first write, in seconds.

    Writes of the previous leader may still be in flight, unless it released the lease.
    """
    lease = observed.lease
    if lease is None or not lease.holder or candidate.holds(lease):
        return 0
    return timings.write


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _LeaseObject(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder = msgspec.json.Decoder(_LeaseObject)


class LeaderElection:
    """Leader election for one candidate, while ``run`` is running."""

    on_change: list[Callable[[], None]]
    """Called whenever ``leads`` or ``may_write`` changes."""

    def __init__(
        self, api: Api, namespace: str, *, candidate: Candidate, timings: LeaseTimings, clock: Uptime = uptime
    ) -> None:
        self.on_change = []
        self._api = api
        self._folder = LEASES.path_in(namespace)
        self._path = LEASES.item_path(namespace, "volcano-global-controller")
        self._candidate = candidate
        self._timings = timings
        self._clock = clock
        self._observed: ObservedLease | None = None
        self._leads_until = float("-inf")
        self._write_delay = 0.0
        """Delay before the first write after the lease is acquired, in seconds."""
        self._writes_from = float("inf")
        self._notified = (False, False)
        """``leads`` and ``may_write`` at the last call of the handlers."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def leads(self) -> bool:
        """Return whether no other candidate can hold the lease now."""
        return self._clock() < self._leads_until

    @property
    def may_write(self) -> bool:
        """Return whether this process leads and no write of a previous leader can be in flight."""
        return self._writes_from <= self._clock() < self._leads_until

    async def run(self) -> NoReturn:
        """Acquire and renew the lease until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._timings.renew / 2):
                    await self._tick()
            except (ApiError, TimeoutError) as error:
                log.warning("lease request failed", error=str(error) or "no response in time", leading=self.leads)
            self._notify()
            await asyncio.sleep(self._timings.retry)

    async def release(self) -> None:
        """Release the lease, so that the next leader need not wait for its expiry; no write may be in flight.

        ``run`` must have ended. Its last request may still change the lease, so the release is retried.
        """
        self._step_down()
        self._notify()
        why = "no response in time"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timings.renew):
                while why := await self._try_release():  # noqa: ASYNC110 -- this retries a request, it does not poll a flag
                    await asyncio.sleep(self._timings.retry / 4)
        if why:
            log.warning("lease not released", error=why)

    async def _try_release(self) -> str:
        """Release the lease if this candidate holds it; return the error, if any."""
        try:
            async with asyncio.timeout(self._timings.renew / 2):
                lease = await self._read()
                if lease is not None and self._candidate.holds(lease):
                    await self._write(lease, holder="")
        except (ApiError, TimeoutError) as error:
            return str(error) or "no response in time"
        return ""

    async def _tick(self) -> None:
        """Renew or acquire the lease, or observe that another candidate holds it."""
        held = self._held_lease()
        if held is not None:
            try:
                await self._acquire(held)
            except (Unreachable, asyncio.CancelledError):
                # The renewal may have succeeded; the lease must be read again to know its version.
                self._observed = ObservedLease(Lease("", held.holder, held.seconds), self._clock())
                raise
            except (Conflict, Invalid) as error:
                log.warning("lease changed by another candidate", error=str(error))
            except ApiError as error:
                log.warning("lease not renewed", error=str(error))
            else:
                return
        lease = await self._read()
        self._observed = observe_lease(lease, self._observed, self._clock())
        if lease is None or not self._candidate.holds(lease):
            self._step_down()
        if can_acquire(self._candidate, self._observed, self._timings, self._clock()):
            await self._acquire(lease)

    def _held_lease(self) -> Lease | None:
        """Return the lease as this candidate wrote it last, unless another change is known."""
        lease = self._observed.lease if self._observed else None
        return lease if lease and lease.version and self._candidate.holds(lease) else None

    async def _acquire(self, lease: Lease | None) -> None:
        """Write this candidate as holder of the lease; raises `Conflict` if another candidate was faster."""
        begun = self._clock()
        before = self._observed or ObservedLease(None, begun)
        if not (before.lease and self._candidate.holds(before.lease)):
            # Set before the request: its response may be lost, and then the next read finds the lease acquired.
            self._write_delay, self._writes_from = write_delay(self._candidate, before, self._timings), float("inf")
        written = await self._write(lease, holder=self._candidate.holder)
        if math.isinf(self._writes_from):
            self._writes_from = self._clock() + self._write_delay
        self._observed = ObservedLease(written, self._clock())
        if not self.leads:
            # Leadership had expired, even if the timer has not fired yet: callers must see the change.
            self._notify()
        self._leads_until = begun + self._timings.renew

    def _step_down(self) -> None:
        self._leads_until = float("-inf")

    async def _read(self) -> Lease | None:
        try:
            return self._decode(await self._api.get(self._path))
        except NotFound:
            return None

    async def _write(self, lease: Lease | None, *, holder: str) -> Lease:
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": math.ceil(self._timings.lease), "renewTime": now}
        if lease is None or lease.holder != holder:
            spec |= {"acquireTime": now, "leaseTransitions": lease.transitions + 1 if lease else 0}
        if lease is None:
            head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
            named = {**head, "metadata": {"name": self._path.rpartition("/")[2]}, "spec": spec}
            return self._decode(await self._api.create(self._folder, msgspec.json.encode(named)))
        return self._decode(await self._api.patch(self._path, _compare_and_set(lease, spec)))

    def _decode(self, body: bytes) -> Lease:
        try:
            decoded = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise Unreachable(self._path, f"the response is not a lease: {error}") from error
        spec = decoded.spec
        return Lease(
            decoded.metadata.resource_version,
            spec.holder_identity or "",
            spec.lease_duration_seconds or 0,
            spec.lease_transitions or 0,
        )

    def _notify(self) -> None:
        """Call ``on_change`` after a change, and schedule the next check for when the clock will change it."""
        now, current = self._clock(), (self.leads, self.may_write)
        if current[0] != self._notified[0]:
            log.info("leadership acquired" if self.leads else "leadership lost", candidate=self._candidate.holder)
        if self._timer is not None:
            self._timer.cancel()
        changes_at = self._leads_until if current[1] else min(self._leads_until, self._writes_from)
        if current[0]:
            self._timer = asyncio.get_running_loop().call_later(max(changes_at - now, 0), self._notify)
        if current != self._notified:
            self._notified = current
            for handler in self.on_change:
                handler()


def _compare_and_set(lease: Lease, spec: dict[str, Any]) -> bytes:
    """Return the patch that updates *lease* if its resourceVersion is unchanged."""
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": lease.version}
    sets = [{"op": "add", "path": f"/spec/{name}", "value": value} for name, value in spec.items()]
    return msgspec.json.encode([test, *sets])
