"""Takes and keeps the lease that says who writes; all others stand by.

It asks the API server for nothing but the lease. Being leader ends by itself
when the lease could not be renewed in time, whatever else hangs.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec
import structlog

from controller.api.keys import LEASES
from controller.clock import Uptime, uptime
from controller.kube import Api, ApiError, NotFound, Unreachable
from controller.lease import Candidate, Lease, LeaseTimings, ObservedLease, can_acquire, observe_lease, write_delay

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


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
    """One candidate's view of the lease; ``run`` must be running."""

    on_change: Callable[[], None]
    """Called whenever ``leads`` or ``may_write`` has become another."""

    def __init__(
        self, api: Api, namespace: str, *, candidate: Candidate, timings: LeaseTimings, clock: Uptime = uptime
    ) -> None:
        self.on_change = lambda: None
        self._api = api
        self._folder = LEASES.item_path(namespace, "").rstrip("/")
        self._path = LEASES.item_path(namespace, "volcano-global-controller")
        self._candidate = candidate
        self._timings = timings
        self._clock = clock
        self._observed: ObservedLease | None = None
        self._leads_until = float("-inf")
        self._write_delay = 0.0
        """For how long we are to write nothing once the lease that we try to take is ours."""
        self._writes_from = float("inf")
        self._notified = (False, False)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def leads(self) -> bool:
        """Say whether nobody else can hold the lease now."""
        return self._clock() < self._leads_until

    @property
    def may_write(self) -> bool:
        """Say whether a write that begins now can meet nobody else's."""
        return self._writes_from <= self._clock() < self._leads_until

    async def run(self) -> NoReturn:
        """Look after the lease until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._timings.renew / 2):
                    await self._tick()
            except (ApiError, TimeoutError) as error:
                log.warning("lease not reached", error=str(error) or "no answer in time", leading=self.leads)
            self._notify()
            await asyncio.sleep(self._timings.retry)

    async def release(self) -> None:
        """Say good-bye, so that the next one need not wait; only when no write of ours is on its way any more.

        ``run`` must have ended. What it sent last may still arrive, and change the lease under our hands.
        """
        self._step_down()
        self._notify()
        why = "no answer in time"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timings.renew):
                while why := await self._try_release():  # noqa: ASYNC110 -- it is tried again, not waited for
                    await asyncio.sleep(self._timings.retry / 4)
        if why:
            log.warning("lease not released", error=why)

    async def _try_release(self) -> str:
        """Release the lease if it is ours; return why that failed."""
        try:
            async with asyncio.timeout(self._timings.renew / 2):
                lease = await self._read()
                if lease is not None and self._candidate.holds(lease):
                    await self._write(lease, holder="")
        except (ApiError, TimeoutError) as error:
            return str(error) or "no answer in time"
        return ""

    async def _tick(self) -> None:
        """Renew the lease, take it, or see that somebody else has it."""
        held = self._held_lease()
        if held is not None:
            try:
                await self._acquire(held)
            except (Unreachable, asyncio.CancelledError):
                # Perhaps it is renewed: only a look will tell its version.
                self._observed = ObservedLease(Lease("", held.holder, held.seconds), self._clock())
                raise
            except ApiError as error:
                log.warning("lease changed by somebody else", error=str(error))
            else:
                return
        lease = await self._read()
        self._observed = observe_lease(lease, self._observed, self._clock())
        if lease is None or not self._candidate.holds(lease):
            self._step_down()
        if can_acquire(self._candidate, self._observed, self._timings, self._clock()):
            await self._acquire(lease)

    def _held_lease(self) -> Lease | None:
        """Return the lease as we have written it last, where nobody is known to have changed it."""
        lease = self._observed.lease if self._observed else None
        return lease if lease and lease.version and self._candidate.holds(lease) else None

    async def _acquire(self, lease: Lease | None) -> None:
        """Write ourselves into the lease; it fails when somebody was faster."""
        begun = self._clock()
        before = self._observed or ObservedLease(None, begun)
        if not (before.lease and self._candidate.holds(before.lease)):
            # The answer may be lost, and only the next look tell that the lease is ours: this is due all the same.
            self._write_delay, self._writes_from = write_delay(self._candidate, before, self._timings), float("inf")
        written = await self._write(lease, holder=self._candidate.holder)
        if math.isinf(self._writes_from):
            self._writes_from = self._clock() + self._write_delay
        self._observed = ObservedLease(written, self._clock())
        if not self.leads:
            # It had run out, whether or not the timer was in time to say so: who has looked meanwhile must look again.
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
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
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
            found = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise Unreachable(self._path, f"the answer is no lease: {error}") from error
        spec = found.spec
        return Lease(
            found.metadata.resource_version,
            spec.holder_identity or "",
            spec.lease_duration_seconds or 0,
            spec.lease_transitions or 0,
        )

    def _notify(self) -> None:
        """Say what has changed, and come back when the clock will change it."""
        now, stands = self._clock(), (self.leads, self.may_write)
        if stands[0] != self._notified[0]:
            log.info("leading" if self.leads else "standing by", candidate=self._candidate.holder)
        if self._timer is not None:
            self._timer.cancel()
        turn = self._leads_until if stands[1] else min(self._leads_until, self._writes_from)
        if stands[0]:
            self._timer = asyncio.get_running_loop().call_later(max(turn - now, 0), self._notify)
        if stands != self._notified:
            self._notified = stands
            self.on_change()


def _compare_and_set(lease: Lease, spec: dict[str, Any]) -> bytes:
    """Return the patch that replaces *lease* as it was seen, and no other."""
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": lease.version}
    sets = [{"op": "add", "path": f"/spec/{name}", "value": value} for name, value in spec.items()]
    return msgspec.json.encode([test, *sets])
