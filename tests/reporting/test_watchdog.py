import asyncio
import time

from controller.reporting.metrics import ControllerMetrics
from controller.reporting.probes import Watchdog


async def test_blocked_event_loop_is_counted_and_logged(capsys):
    metrics = ControllerMetrics()
    task = asyncio.create_task(Watchdog(metrics, period=0.01, threshold=0.1).run())
    await asyncio.sleep(0.05)
    time.sleep(0.2)  # noqa: ASYNC251 -- this is the fault
    await asyncio.sleep(0.02)
    task.cancel()
    page = metrics.exposition().decode()
    late = next(
        line for line in page.splitlines() if line.startswith('volcano_global_event_loop_lag_seconds_bucket{le="0.1"}')
    )
    total = next(line for line in page.splitlines() if line.startswith("volcano_global_event_loop_lag_seconds_count"))
    assert float(total.split()[-1]) - float(late.split()[-1]) >= 1
    assert "event loop blocked" in capsys.readouterr().out
