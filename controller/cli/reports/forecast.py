"""Reports when pending workloads start, where run times are known."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_minute, format_time
from controller.cli.render.output import progress_bar
from controller.cli.render.plan import StartReport
from controller.engine.engine import Engine
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid
from controller.forecast.futures import ForecastOptions, StartForecast, StartForecaster
from controller.forecast.profiles import profile_of
from controller.forecast.run_times import JobProfile
from controller.forecast.sampling import RepeatedArrivals, RunTimeSampler, repeated_uid

#: Futures of a forecast: the interval of nine is from the first to the last of them, that of nineteen varies less.
_FUTURES = 19
_FUTURES_OF_LARGE_STATES = 9
_LARGE = 1_000

#: Scheduling cycles of one future; with 100,000 pending workloads in 1,000 queues one takes about 5 ms. A start that
#: needs more is shown as later than could be simulated.
_MAX_CYCLES = 5_000
_MAX_CYCLES_OF_LARGE_STATES = 500

#: `pending` forecasts so many workloads of each queue, the first ones.
FORECAST_PER_QUEUE = 10


def forecast_starts(snapshot: Snapshot, targets: Iterable[Workload]) -> Mapping[WorkloadUid, StartReport]:
    """Return the reports of those *targets* that are pending and start; none where no run time is known."""
    forecasts = start_forecasts(snapshot, targets)
    return {uid: report for uid, forecast in forecasts.items() if (report := _report(forecast)) is not None}


def start_forecasts(snapshot: Snapshot, targets: Iterable[Workload]) -> Mapping[WorkloadUid, StartForecast]:
    """Return the forecasts of those *targets* that are pending; none where no run time is known."""
    uids = [workload.uid for workload in targets if _may_start(snapshot.engine, workload)]
    if not uids or snapshot.run_times is None:
        return {}
    workloads = list(snapshot.engine.workloads.values())
    sampler = RunTimeSampler(snapshot.run_times, partial(_profile_of, snapshot))
    is_large = sum(workload.state is WorkloadState.PENDING for workload in workloads) > _LARGE
    count = _FUTURES_OF_LARGE_STATES if is_large else _FUTURES
    options = ForecastOptions(max_cycles=_MAX_CYCLES_OF_LARGE_STATES if is_large else _MAX_CYCLES)
    forecaster = StartForecaster(snapshot.engine, snapshot.now, options)
    source = RepeatedArrivals(workloads, snapshot.now)
    latest: Mapping[WorkloadUid, StartForecast] = {}
    with progress_bar("forecasting") as on_progress:
        for number, forecasts in enumerate(forecaster.forecasts(uids, sampler.futures(count, source)), start=1):
            latest = forecasts
            # The first answer, refined with each future.
            on_progress(number, count, _first_start(snapshot, forecasts))
    return latest


def _profile_of(snapshot: Snapshot, workload: Workload) -> JobProfile:
    """Return the profile of *workload*, for an arrival that of the workload that it repeats."""
    known = snapshot.engine.workloads
    return profile_of(snapshot.store, workload if workload.uid in known else known[repeated_uid(workload)])


def _may_start(engine: Engine, workload: Workload) -> bool:
    """Return whether a workload is pending and could start without a change of queues and clusters."""
    if engine.refusal(workload.uid) is None:
        return False
    # Parts of a HyperJob may be refused for others that are still missing.
    is_refused = workload.gang is None and workload.uid in engine.pending
    return not is_refused or engine.pending.class_of(workload.uid).inadmissible is None


def _first_start(snapshot: Snapshot, forecasts: Mapping[WorkloadUid, StartForecast]) -> str:
    """Return the earliest start of *forecasts* as a text for the progress bar; empty while none is known."""
    starts = (
        (forecast.p50, forecast.p90, snapshot.engine.workloads[uid].path)
        for uid, forecast in forecasts.items()
        if forecast.p50
    )
    p50, p90, path = min(starts, key=lambda start: (start[0], start[2]), default=(None, None, ""))
    if p50 is None:
        return ""
    later = f", with 90 % probability by {format_minute(format_time(p90))}" if p90 is not None else ""
    return f"{path} probably starts by {format_minute(format_time(p50))}{later} UTC"


def first_of_queues(workloads: Iterable[Workload]) -> Iterator[Workload]:
    """Yield the first ones of each queue among pending *workloads*, which are in the order of their queues."""
    counts = Counter[QueueName]()
    for workload in workloads:
        counts[workload.queue] += 1
        if counts[workload.queue] <= FORECAST_PER_QUEUE:
            yield workload


def _report(forecast: StartForecast) -> StartReport | None:
    """Return the forecast with times as texts; ``None`` if the workload started in too few futures."""
    if forecast.p10 is None:
        return None
    return StartReport(
        p10=format_time(forecast.p10),
        p50=format_time(forecast.p50),
        p90=format_time(forecast.p90),
        after=tuple(blocker.describe(is_visible=True) for blocker in forecast.after),
        complete=not forecast.is_cut,
    )
