"""Tables of queues, jobs and HyperJobs for 80 columns."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Final

from rich.console import Group
from rich.table import Table

from controller.engine.state.resources import MILLI
from localup.demo.progress import HyperJobProgress, JobProgress, JobStage
from localup.demo.usage import QueueUsage, UsageHistory

CPU: Final = "cpu"
GPU: Final = "nvidia.com/gpu"

#: Lines of the live view other than queue and job rows.
_OTHER_LINES: Final = 8
#: Order of rows in the live view: active jobs, then pending ones, then finished ones.
_ROW_ORDER: Final[Mapping[JobStage, int]] = {JobStage.PENDING: 1, JobStage.FINISHED: 2}
_SHOWN: Final[Mapping[str, str]] = {CPU: "CPUs", GPU: "GPUs"}


def queue_table(at: float, rows: Iterable[QueueUsage]) -> Table:
    """Return the usage of queues at time *at*."""
    table = _table(f"queues at {at:.1f} s")
    for name in _SHOWN.values():
        for header in (f"{name}\nused", "\nfair share", "\nlimit"):
            table.add_column(header, justify="right")
    table.add_column("\nadmitted", justify="right")
    table.add_column("\npending", justify="right")
    for row in rows:
        kinds = (row.used, row.fair_share, row.limit)
        amounts = [format_amount(kind.get(resource)) for resource in _SHOWN for kind in kinds]
        table.add_row(row.queue, *amounts, _format_count(row.admitted), _format_count(row.pending))
    return table


def live_view(
    queues: Table, jobs: Iterable[JobProgress], hyperjobs: Iterable[HyperJobProgress], *, lines: int
) -> Group:
    """Return the queue table and, below it, the jobs and HyperJobs that fit into *lines*, finished ones last."""
    table = _table("")
    table.columns[0].header = "job"
    for header in ("queue", "state"):
        table.add_column(header, no_wrap=True)
    table.expand = True  # the last column takes the rest of the line
    table.add_column("cluster or pending reason", no_wrap=True, overflow="ellipsis", ratio=1)
    rows = [*map(_hyperjob_row, hyperjobs), *map(_job_row, jobs)]
    rows.sort(key=lambda row: row[0])
    shown = rows[: max(lines - queues.row_count - _OTHER_LINES, 1)]
    for _, *cells in shown:
        table.add_row(*cells)
    return Group(queues, table, f"and {len(rows) - len(shown)} more" if len(rows) > len(shown) else "")


def _job_row(progress: JobProgress) -> tuple[int, str, str, str, str]:
    why = f"{progress.pending_reason.reason}: {progress.pending_reason.message}" if progress.pending_reason else ""
    where = why if progress.stage in {JobStage.SUSPENDED, JobStage.PENDING} else progress.cluster
    return (
        _ROW_ORDER.get(progress.stage, 0),
        progress.spec.name,
        progress.spec.queue,
        outcome(progress).partition(":")[0],
        where,
    )


def _hyperjob_row(hyperjob: HyperJobProgress) -> tuple[int, str, str, str, str]:
    where = (
        f"{hyperjob.reasons[-1]}: {hyperjob.message}"
        if hyperjob.stage is JobStage.PENDING
        else ", ".join(hyperjob.split)
    )
    return _ROW_ORDER.get(hyperjob.stage, 0), hyperjob.name, "", str(hyperjob.outcome or hyperjob.stage), where


def peak_table(usage: UsageHistory, queues: Sequence[str]) -> Table:
    """Return each queue's peak usage with its fair share at that time."""
    table = _table("queues")
    for name in _SHOWN.values():
        table.add_column(f"peak {name}", justify="right")
        table.add_column("fair share", justify="right")
    for queue in queues:
        found = [(resource, usage.peak(queue, resource)) for resource in _SHOWN]
        amounts = [format_amount(held) for _, peak in found for held in (peak.used, peak.fair_share)]
        table.add_row(queue, *amounts)
    return table


def job_table(jobs: Iterable[JobProgress]) -> Table:
    """Return queue, times, cluster and outcome of each job."""
    table = _table("jobs")
    table.columns[0].header = "job"
    table.add_column("queue")
    table.add_column("waited", justify="right")
    table.add_column("ran", justify="right")
    table.add_column("cluster")
    table.add_column("outcome")
    for progress in jobs:
        times = ["-" if time is None else f"{time:.1f} s" for time in (progress.waited, progress.ran)]
        table.add_row(progress.spec.name, progress.spec.queue, *times, progress.cluster or "-", outcome(progress))
    return table


def hyperjob_table(hyperjobs: Iterable[HyperJobProgress]) -> Table:
    """Return times, parts and outcome of each HyperJob."""
    table = _table("HyperJobs")
    table.columns[0].header = "HyperJob"
    table.add_column("waited", justify="right")
    table.add_column("ran", justify="right")
    table.add_column("pods per part")
    table.add_column("outcome")
    for hyperjob in hyperjobs:
        times = ["-" if time is None else f"{time:.1f} s" for time in (hyperjob.waited, hyperjob.ran)]
        table.add_row(hyperjob.name, *times, ", ".join(hyperjob.split) or "-", hyperjob.outcome or str(hyperjob.stage))
    return table


def outcome(progress: JobProgress) -> str:
    """Return the outcome of a finished job, or its stage and pending reason."""
    if progress.stage is JobStage.FINISHED:
        return progress.outcome
    if progress.stage is JobStage.PENDING and progress.pending_reason:
        return f"pending: {progress.pending_reason.reason}"
    return str(progress.stage)


def format_amount(held: int | Fraction | None) -> str:
    """Return thousandths as units rounded down to tenths; zero as a dash."""
    return f"{floor(held * 10 / MILLI) / 10:g}" if held else "-"


def _format_count(number: int) -> str:
    return str(number) if number else "-"


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("queue", no_wrap=True)
    return table
