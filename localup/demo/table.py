"""Tables for 80 columns: queues and jobs. Pure: they are printed elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Final

from rich.console import Group
from rich.table import Table

from controller.engine.resources import MILLI
from localup.demo.hyperjobs import HyperJobProgress
from localup.demo.timeline import JobProgress, JobStage
from localup.demo.usage import QueueUsage, UsageHistory

CPU: Final = "cpu"
GPU: Final = "nvidia.com/gpu"

#: The lines that the board needs besides those of queues and jobs.
_OTHER_LINES: Final = 8
#: Where a job stands on the board: those that wait for ever last but those that are over.
_ROW_ORDER: Final[Mapping[JobStage, int]] = {JobStage.WAITING: 1, JobStage.FINISHED: 2}
_SHOWN: Final[Mapping[str, str]] = {CPU: "CPUs", GPU: "GPUs"}


def queue_table(at: float, rows: Iterable[QueueUsage]) -> Table:
    """Return how the queues stand at *at*."""
    table = _table(f"queues at {at:.1f} s")
    for name in _SHOWN.values():
        for header in (f"{name}\nused", "\nfair share", "\nlimit"):
            table.add_column(header, justify="right")
    table.add_column("\nadmitted", justify="right")
    table.add_column("\nwaiting", justify="right")
    for row in rows:
        kinds = (row.used, row.entitled, row.limit)
        amounts = [format_amount(each.get(resource)) for resource in _SHOWN for each in kinds]
        table.add_row(row.queue, *amounts, _format_count(row.admitted), _format_count(row.waiting))
    return table


def live_view(queues: Table, ways: Iterable[JobProgress], families: Iterable[HyperJobProgress], *, lines: int) -> Group:
    """Return *queues* and below it how far jobs and HyperJobs are, those that are over last, in so many *lines*."""
    table = _table("")
    table.columns[0].header = "job"
    for header in ("queue", "state"):
        table.add_column(header, no_wrap=True)
    table.expand = True  # what is left of the line is the last column's
    table.add_column("where, or why not", no_wrap=True, overflow="ellipsis", ratio=1)
    rows = [*map(_hyperjob_row, families), *map(_job_row, ways)]
    rows.sort(key=lambda row: row[0])
    shown = rows[: max(lines - queues.row_count - _OTHER_LINES, 1)]
    for _, *cells in shown:
        table.add_row(*cells)
    return Group(queues, table, f"and {len(rows) - len(shown)} more" if len(rows) > len(shown) else "")


def _job_row(way: JobProgress) -> tuple[int, str, str, str, str]:
    why = f"{way.complaint.reason}: {way.complaint.message}" if way.complaint else ""
    where = why if way.stage in {JobStage.PAUSED, JobStage.WAITING} else way.cluster
    return _ROW_ORDER.get(way.stage, 0), way.role.name, way.role.queue, outcome(way).partition(":")[0], where


def _hyperjob_row(family: HyperJobProgress) -> tuple[int, str, str, str, str]:
    where = f"{family.reasons[-1]}: {family.message}" if family.stage is JobStage.WAITING else ", ".join(family.split)
    return _ROW_ORDER.get(family.stage, 0), family.name, "", str(family.outcome or family.stage), where


def peak_table(usage: UsageHistory, queues: Sequence[str]) -> Table:
    """Return the most that each queue held, beside what it was entitled to at that moment."""
    table = _table("queues")
    for name in _SHOWN.values():
        table.add_column(f"most {name}", justify="right")
        table.add_column("entitled then", justify="right")
    for queue in queues:
        found = [(resource, usage.peak(queue, resource)) for resource in _SHOWN]
        amounts = [format_amount(held) for _, peak in found for held in (peak.used, peak.entitled)]
        table.add_row(queue, *amounts)
    return table


def job_table(ways: Iterable[JobProgress]) -> Table:
    """Return what became of each job."""
    table = _table("jobs")
    table.columns[0].header = "job"
    table.add_column("queue")
    table.add_column("waited", justify="right")
    table.add_column("ran", justify="right")
    table.add_column("cluster")
    table.add_column("outcome")
    for way in ways:
        times = ["-" if time is None else f"{time:.1f} s" for time in (way.waited, way.ran)]
        table.add_row(way.role.name, way.role.queue, *times, way.cluster or "-", outcome(way))
    return table


def hyperjob_table(families: Iterable[HyperJobProgress]) -> Table:
    """Return what became of each HyperJob."""
    table = _table("HyperJobs")
    table.columns[0].header = "HyperJob"
    table.add_column("waited", justify="right")
    table.add_column("ran", justify="right")
    table.add_column("parts, by pods")
    table.add_column("outcome")
    for family in families:
        times = ["-" if time is None else f"{time:.1f} s" for time in (family.waited, family.ran)]
        table.add_row(family.name, *times, ", ".join(family.split) or "-", family.outcome or str(family.stage))
    return table


def outcome(way: JobProgress) -> str:
    """Return how far a job has come, in a word or two."""
    if way.stage is JobStage.FINISHED:
        return way.outcome
    if way.stage is JobStage.WAITING and way.complaint:
        return f"waits: {way.complaint.reason}"
    return str(way.stage)


def format_amount(held: int | Fraction | None) -> str:
    """Return thousandths as units, rounded down to tenths; nothing as a dash."""
    return f"{floor(held * 10 / MILLI) / 10:g}" if held else "-"


def _format_count(number: int) -> str:
    return str(number) if number else "-"


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("queue", no_wrap=True)
    return table
