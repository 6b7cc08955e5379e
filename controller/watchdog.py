"""Notices when the event loop is blocked: nothing is then renewed, answered or decided.

It only tells; a process that hangs for good is ended by its liveness probe.
"""

import asyncio
import time
from typing import NoReturn

import structlog

from controller.metrics import Metrics

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Watchdog:
    """Comes round every *period* seconds and sees how late it is."""

    def __init__(self, metrics: Metrics, *, period: float = 1, threshold: float = 1) -> None:
        self._metrics = metrics
        self._period = period
        self._threshold = threshold

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        while True:
            due = time.monotonic() + self._period
            await asyncio.sleep(self._period)
            late = max(time.monotonic() - due, 0)
            self._metrics.count_lag(late)
            if late > self._threshold:
                log.warning("event loop was blocked", seconds=round(late, 2))
