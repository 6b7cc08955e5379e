"""Serves probes and metrics, and detects a blocked event loop.

A blocked event loop is only reported; the liveness probe ends a process that hangs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import structlog
from aiohttp import web

from controller.kube.informer import Informer
from controller.kube.limited_server import LimitedServer
from controller.reporting.metrics import CONTENT_TYPE, ControllerMetrics

_MAX_CONNECTIONS = 64
#: Time for a whole connection: each answer closes its connection.
_CONNECTION_SECONDS = 30
#: Age up to which the text of the metrics is sent again, compared with the time that it takes to produce.
_MAX_AGE_FACTOR = 10

_CLOSE = {"Connection": "close"}


@dataclass(slots=True)
class Readiness:
    """Whether decisions are based on complete and fresh caches."""

    informers: Mapping[str, Informer[Any]]
    fresh_seconds: float
    problem: Callable[[], str | None] = lambda: None
    """Another reason against readiness, if any."""

    def reason_not_ready(self) -> str | None:
        """Return why the controller is not ready, or ``None`` if it is."""
        for name, informer in self.informers.items():
            if not informer.is_synced:
                return f"{name} not listed yet"
            if informer.seconds_since_response > self.fresh_seconds:
                return f"no event for {name} since {informer.seconds_since_response:.0f} s"
        return self.problem()


@asynccontextmanager
async def serve_probes(
    reason_not_ready: Callable[[], str | None],
    *,
    host: str,
    port: int,
    exposition: Callable[[], bytes] | None = None,
) -> AsyncIterator[int]:
    """Serve probes and, with *exposition*, metrics; yield the port, which differs from *port* if that is 0."""
    metrics = SharedPage(exposition) if exposition is not None else None

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, headers=_CLOSE)
        if request.path == "/healthz":
            return web.Response(text="ok", headers=_CLOSE)
        if request.path == "/readyz":
            reason = reason_not_ready()
            return web.Response(text=reason or "ok", status=503 if reason else 200, headers=_CLOSE)
        if request.path == "/metrics" and metrics is not None:
            return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE, **_CLOSE})
        return web.Response(text="not found", status=404, headers=_CLOSE)

    runner = web.ServerRunner(
        LimitedServer(answer, max_connections=_MAX_CONNECTIONS, lifetime_seconds=_CONNECTION_SECONDS),
        shutdown_timeout=1,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class SharedPage:
    """The text of all metrics; requests in a short time share one, so that they use a tenth of the CPU at most."""

    def __init__(self, exposition: Callable[[], bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._exposition = exposition
        self._clock = clock
        self._text = b""
        self._until = float("-inf")

    def text(self) -> bytes:
        """Return the text, at most ten times as old as it takes to produce."""
        began = self._clock()
        if began >= self._until:
            self._text = self._exposition()
            ended = self._clock()
            self._until = ended + _MAX_AGE_FACTOR * (ended - began)
        return self._text


log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Watchdog:
    """Measures every *period* seconds how late the event loop runs."""

    def __init__(self, metrics: ControllerMetrics, *, period: float = 1, threshold: float = 1) -> None:
        self._metrics = metrics
        self._period = period
        self._threshold = threshold

    async def run(self) -> NoReturn:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + self._period
            await asyncio.sleep(self._period)
            late = max(time.monotonic() - due, 0)
            self._metrics.count_lag(late)
            if late > self._threshold:
                log.warning("event loop blocked", seconds=round(late, 2))
