"""Starts and stops the decision log with the controller."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.kube.timing import wall_clock
from controller.reporting.decision_log.log import DecisionLog, DecisionLogOptions, DecisionRecorder
from controller.reporting.metrics import Metrics
from controller.scheduling.loop import AdmissionLoop
from controller.settings import Settings

_STOP_SECONDS = 5


@asynccontextmanager
async def decision_logging(settings: Settings, loop: AdmissionLoop, metrics: Metrics) -> AsyncIterator[None]:
    """Record the decisions of *loop* in files, if a path is configured, until the context ends."""
    if settings.decision_log is None:
        yield
        return
    options = DecisionLogOptions(settings.decision_log, settings.decision_log_mib << 20, settings.decision_log_files)
    decision_log = DecisionLog(options, settings.identity, on_lost=metrics.count_decision_log_loss)
    loop.decision_recorder = DecisionRecorder(decision_log)
    decision_log.start()
    loop.decision_recorder.start_file(loop.state, wall_clock())
    try:
        yield
    finally:
        await asyncio.to_thread(decision_log.stop, _STOP_SECONDS)
