"""Forecasts of starts as a reader may see them: the names of other workloads in them are removed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from console.reader import Reader
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_time
from controller.cli.render.plan import StartReport
from controller.cli.reports.forecast import start_forecasts
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.forecast.futures import StartForecast
from controller.reporting.redaction import ANOTHER_WORKLOAD


class Start(msgspec.Struct, frozen=True):
    """When a workload starts, in milliseconds, with 10, 50 and 90 percent probability."""

    p10: int | None
    p50: int | None
    p90: int | None
    after: tuple[tuple[str, str, str], ...] = ()
    """The workloads whose end lets it start: the namespace, the text for its readers, that for readers of queues."""
    complete: bool = True
    """Whether all 24 hours were simulated."""


@dataclass(frozen=True, slots=True)
class Forecasts:
    """The forecasts of the first pending workloads of each queue."""

    starts: Mapping[WorkloadUid, Start] = field(default_factory=dict)
    queues: Mapping[QueueName, WorkloadUid] = field(default_factory=dict)
    """The first workload of each queue with a forecast."""

    def first_of(self, queue: QueueName) -> Start | None:
        """Return the forecast of the first workload of *queue*."""
        uid = self.queues.get(queue)
        return self.starts.get(uid) if uid is not None else None


#: Workloads of each queue with a forecast, and of all queues together.
_PER_QUEUE, _MOST = 10, 2_000


def forecast_heads(snapshot: Snapshot) -> dict[str, Start]:
    """Return the forecasts of the first pending workloads of each queue; slow."""
    targets: list[Workload] = []
    for queue in snapshot.engine.queues_with_pending():
        targets += snapshot.engine.pending_workloads(queue)[:_PER_QUEUE]
        if len(targets) >= _MOST:
            break
    forecasts = start_forecasts(snapshot, targets)
    return {uid: start for uid, forecast in forecasts.items() if (start := start_of(forecast)) is not None}


def start_of(forecast: StartForecast) -> Start | None:
    """Return the forecast for the pages; ``None`` if the workload starts in too few futures."""
    if forecast.p10 is None:
        return None
    after = tuple(
        (blocker.workload.namespace, blocker.describe(is_visible=True), blocker.describe(is_visible=False))
        for blocker in forecast.after
    )
    return Start(forecast.p10, forecast.p50, forecast.p90, after, not forecast.is_cut)


def new_forecasts(snapshot: Snapshot, starts: Mapping[str, Start]) -> Forecasts:
    """Return *starts* with the first workload of each queue."""
    by_uid = {WorkloadUid(uid): start for uid, start in starts.items()}
    queues: dict[QueueName, WorkloadUid] = {}
    for uid, start in sorted(by_uid.items(), key=lambda item: (item[1].p50 or 2**62, item[0])):
        workload = snapshot.engine.workloads.get(uid)
        if workload is not None and start.p50 is not None:
            queues.setdefault(workload.queue, uid)
    return Forecasts(by_uid, queues)


def visible_start(start: Start | None, reader: Reader) -> StartReport | None:
    """Return *start* without the names of workloads that *reader* may not see."""
    if start is None:
        return None
    others = (hidden if reader.all_queues else ANOTHER_WORKLOAD for *_, hidden in start.after)
    after = dict.fromkeys(
        text if reader.may_read(namespace) else other
        for (namespace, text, _), other in zip(start.after, others, strict=True)
    )
    times = (format_time(start.p10), format_time(start.p50), format_time(start.p90))
    return StartReport(*times, tuple(after), start.complete)
