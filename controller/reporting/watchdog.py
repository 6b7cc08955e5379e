"""Detects a blocked event loop, during which nothing is renewed, answered or decided.

It only reports; the liveness probe ends a process that hangs.
"""

import asyncio
import time
from typing import NoReturn

import structlog

from controller.reporting.metrics import Metrics

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Watchdog:
    """Measures every *period* seconds how late the event loop runs."""

    def __init__(self, metrics: Metrics, *, period: float = 1, threshold: float = 1) -> None:
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
