"""What the controller shows of itself: log lines on standard error, and a plain port for probes and metrics."""

import contextlib
import io
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TextIO, cast

import msgspec
import structlog
from aiohttp import web

from controller.metrics import CONTENT_TYPE, Metrics
from controller.state_collector import InformerStats


def _to_json(event: Any, **_: Any) -> str:
    """Return *event* as JSON; an object of any other kind as its words."""
    return msgspec.json.encode(event, enc_hook=repr).decode()


class _SafeStderr(io.TextIOBase):
    """Standard error as long as it takes anything: who cannot be heard goes on working."""

    def write(self, text: str) -> int:
        """Write *text*, or lose it where there is no file, or no room in it."""
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.write(text)
                sys.stderr.flush()
        return len(text)


def configure_logging() -> None:
    """Write a line for a person on a terminal, one JSON object a line anywhere else."""
    voice = cast("TextIO", _SafeStderr())
    common: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    tail: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if sys.stderr is not None and sys.stderr.isatty()
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(_to_json)]
    )
    structlog.configure(
        processors=[*common, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(voice),
        cache_logger_on_first_use=True,
    )
    foreign = logging.StreamHandler(voice)
    foreign.setFormatter(structlog.stdlib.ProcessorFormatter(processors=tail, foreign_pre_chain=common))
    logging.basicConfig(handlers=[foreign], level=logging.WARNING)


@dataclass(slots=True)
class Readiness:
    """Whether decisions rest on caches that are complete and fresh."""

    informers: Mapping[str, InformerStats]
    fresh_seconds: float
    problem: Callable[[], str | None] = lambda: None
    """What else speaks against it."""

    def reason_not_ready(self) -> str | None:
        """Return why decisions made now could not be relied on, or ``None``."""
        for name, informer in self.informers.items():
            if not informer.is_synced:
                return f"{name} are not listed yet"
            if informer.silent_for > self.fresh_seconds:
                return f"nothing was heard of {name} for {informer.silent_for:.0f} s"
        return self.problem()


@asynccontextmanager
async def serve_probes(metrics: Metrics, readiness: Readiness, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve probes and metrics; yield the port, which is another one where 0 was asked for."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        reason = readiness.reason_not_ready()
        return web.Response(text=reason or "ok", status=503 if reason else 200)

    async def page(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", page)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
