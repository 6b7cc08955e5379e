"""Prints the demo for 80 columns: progress, tables of queues, jobs and HyperJobs, and the summary at the end.

On a terminal the output is coloured and a live table stays below it; elsewhere each entry is one plain line.
"""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from math import floor, inf
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from controller.reporting.state_collector import NAMESPACE
from localup.demo.progress import (
    HyperJobProgress,
    JobProgress,
    JobStage,
    TimelineEntry,
)

_STYLES: Final[Mapping[JobStage, str]] = {
    JobStage.SUSPENDED: "dim",
    JobStage.PENDING: "yellow",
    JobStage.EVICTED: "magenta",
    JobStage.ADMITTED: "cyan",
    JobStage.RUNNING: "blue",
    JobStage.FINISHED: "green",
}

_PLAIN_COLUMNS: Final = 80


class DemoConsole:
    """Console output of the demo."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = _PLAIN_COLUMNS
        self._live: Live | None = None

    def print(self, text: str = "", *, style: str = "") -> None:
        """Print a line, wrapped on terminals only."""
        self._console.print(Text(text, style), soft_wrap=not self._console.is_terminal)

    def print_step(self, at: float, text: str, *, style: str = "") -> None:
        """Print a step with its time."""
        self._print(Text(self._wrapped(f"{at:6.1f}  {text}", indent=8), style))

    def print_entries(self, lines: Iterable[TimelineEntry]) -> None:
        """Print timeline entries, one line each."""
        for line in lines:
            head = f"{line.at:6.1f}  {line.job:<17} "
            text = Text(self._wrapped(f"{head}{line.stage:<9} {line.text}", indent=len(head) + 10))
            text.stylize(_STYLES.get(line.stage, ""), len(head), len(head) + len(line.stage))
            self._print(text)

    def print_tables(self, *tables: RenderableType) -> None:
        """Print tables separated by blank lines."""
        for table in tables:
            self._console.print()
            self._console.print(table)
        self._console.print()

    @contextmanager
    def live_table(self) -> Iterator[None]:
        """Show a live table at the bottom of a terminal while the block runs."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    @property
    def table_height(self) -> int | None:
        """Return the number of lines available for the live table, ``None`` without one."""
        return self._console.height - 1 if self._live else None

    def update_table(self, board: RenderableType) -> None:
        """Redraw the live table."""
        if self._live:
            self._live.update(board, refresh=True)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)

    def _wrapped(self, text: str, *, indent: int) -> str:
        """Return *text* wrapped to the terminal's width; other outputs get one line, so that grep finds it."""
        if not self._console.is_terminal:
            return text
        columns = max(self._console.width, indent + 20)
        return textwrap.fill(text, columns, subsequent_indent=" " * indent, break_long_words=False)


Amounts = Mapping[str, float]
"""Amounts by resource."""


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """Usage of a queue at one time."""

    queue: str
    used: Amounts = field(default_factory=dict)
    fair_share: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    admitted: int = 0
    pending: int = 0


def parse_queue_usage(metrics: str, queues: Sequence[str]) -> list[QueueUsage]:
    """Return the usage of *queues* in the controller's metrics, in the same order; nothing while it does not lead."""
    amounts: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    counts: Counter[tuple[str, str]] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            key = family.name.removeprefix(f"{NAMESPACE}_"), sample.labels.get("queue", "")
            if "resource" in sample.labels:
                amounts[key][sample.labels["resource"]] = sample.value
            else:
                counts[key] += int(sample.value)
    return [
        QueueUsage(
            queue,
            amounts["queue_resource_usage", queue],
            amounts["queue_resource_fair_share", queue],
            amounts["queue_resource_limit", queue],
            counts["admitted_active_workloads", queue],
            counts["pending_workloads", queue],
        )
        for queue in (queues if amounts else ())
    ]


@dataclass(slots=True)
class UsageHistory:
    """Usage of all queues over time."""

    moments: list[tuple[float, Sequence[QueueUsage]]] = field(default_factory=list)

    def peak(self, queue: str, resource: str) -> tuple[float, float]:
        """Return the first peak of *resource* in *queue*, and the queue's fair share at that time."""
        rows = [row for _, rows in self.moments for row in rows if row.queue == queue and row.used.get(resource)]
        first = max(rows, key=lambda row: row.used[resource], default=None)
        return (first.used[resource], first.fair_share.get(resource, 0)) if first else (0, 0)

    def contention(
        self, first: str, second: str, resource: str, *, before: float = inf
    ) -> tuple[float, float, float] | None:
        """Return how long both queues had pending jobs and used *resource* until *before*, and their average usage."""
        lasted, used = 0.0, [0.0, 0.0]
        moments = [moment for moment in self.moments if moment[0] < before]
        for (at, rows), (until, _) in pairwise(moments):
            pair = [row for name in (first, second) for row in rows if row.queue == name]
            amounts = [row.used.get(resource, 0) for row in pair]
            if len(pair) == len(used) and all(row.pending for row in pair) and any(amounts):
                lasted += until - at
                used = [sum_ + amount * (until - at) for sum_, amount in zip(used, amounts, strict=True)]
        return (lasted, used[0] / lasted, used[1] / lasted) if lasted else None


_SHOWN: Final[Mapping[str, str]] = {"cpu": "CPUs", "nvidia.com/gpu": "GPUs"}

#: Lines of the live view other than queue and job rows.
_OTHER_LINES: Final = 8

#: Order of rows in the live view: active jobs, then pending ones, then finished ones.
_ROW_ORDER: Final[Mapping[JobStage, int]] = {JobStage.PENDING: 1, JobStage.FINISHED: 2}


def queue_table(at: float, rows: Iterable[QueueUsage]) -> Table:
    """Return the usage of queues at time *at*."""
    headers = [header for name in _SHOWN.values() for header in (f"{name}\nused", "\nfair share", "\nlimit")]
    table = _table(f"queues at {at:.1f} s", "queue", right=(*headers, "\nadmitted", "\npending"))
    for row in rows:
        kinds = (row.used, row.fair_share, row.limit)
        shown = [format_amount(kind.get(resource)) for resource in _SHOWN for kind in kinds]
        table.add_row(row.queue, *shown, *(str(count) if count else "-" for count in (row.admitted, row.pending)))
    return table


def live_view(
    queues: Table, jobs: Iterable[JobProgress], hyperjobs: Iterable[HyperJobProgress], *, lines: int
) -> Group:
    """Return the queue table and, below it, the jobs and HyperJobs that fit into *lines*, finished ones last."""
    table = _table("", "job")
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
    is_waiting = progress.stage in {JobStage.SUSPENDED, JobStage.PENDING}
    where = str(progress.pending_reason or "") if is_waiting else progress.cluster
    state = outcome(progress).partition(":")[0]
    return _ROW_ORDER.get(progress.stage, 0), progress.spec.name, progress.spec.queue, state, where


def _hyperjob_row(hyperjob: HyperJobProgress) -> tuple[int, str, str, str, str]:
    is_waiting = hyperjob.stage is JobStage.PENDING
    where = f"{hyperjob.reasons[-1]}: {hyperjob.message}" if is_waiting else ", ".join(hyperjob.split)
    return _ROW_ORDER.get(hyperjob.stage, 0), hyperjob.name, "", str(hyperjob.outcome or hyperjob.stage), where


def peak_table(usage: UsageHistory, queues: Sequence[str]) -> Table:
    """Return each queue's peak usage with its fair share at that time."""
    headers = [header for name in _SHOWN.values() for header in (f"peak {name}", "fair share")]
    table = _table("queues", "queue", right=headers)
    for queue in queues:
        peaks = [usage.peak(queue, resource) for resource in _SHOWN]
        table.add_row(queue, *(format_amount(amount) for peak in peaks for amount in peak))
    return table


def job_table(jobs: Iterable[JobProgress]) -> Table:
    """Return queue, times, cluster and outcome of each job."""
    table = _table("jobs", "job", left=("queue",), right=("waited", "ran"))
    table.add_column("cluster")
    table.add_column("outcome")
    for progress in jobs:
        cells = [progress.spec.name, progress.spec.queue, *_times(progress)]
        table.add_row(*cells, progress.cluster or "-", outcome(progress))
    return table


def hyperjob_table(hyperjobs: Iterable[HyperJobProgress]) -> Table:
    """Return times, parts and outcome of each HyperJob."""
    table = _table("HyperJobs", "HyperJob", right=("waited", "ran"))
    table.add_column("pods per part")
    table.add_column("outcome")
    for hyperjob in hyperjobs:
        parts = ", ".join(hyperjob.split) or "-"
        table.add_row(hyperjob.name, *_times(hyperjob), parts, hyperjob.outcome or str(hyperjob.stage))
    return table


def _times(progress: JobProgress | HyperJobProgress) -> list[str]:
    return ["-" if time is None else f"{time:.1f} s" for time in (progress.waited, progress.ran)]


def outcome(progress: JobProgress) -> str:
    """Return the outcome of a finished job, or its stage and pending reason."""
    if progress.stage is JobStage.FINISHED:
        return progress.outcome
    if progress.stage is JobStage.PENDING and progress.pending_reason:
        return f"pending: {progress.pending_reason.reason}"
    return str(progress.stage)


def format_amount(amount: float | None) -> str:
    """Return an amount rounded down to tenths; zero as a dash."""
    return f"{floor(round(amount * 10, 6)) / 10:g}" if amount else "-"


def _table(title: str, first: str, *, left: Iterable[str] = (), right: Iterable[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for header in left:
        table.add_column(header)
    for header in right:
        table.add_column(header, justify="right")
    return table
