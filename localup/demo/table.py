"""Tables for 80 columns: queues and jobs. Pure: they are printed elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Final

from rich.table import Table

from controller.engine.resources import MILLI
from localup.demo.families import Family
from localup.demo.story import Stage, Way
from localup.demo.usage import Standing, Usage

CPU: Final = "cpu"
GPU: Final = "nvidia.com/gpu"

_SHOWN: Final[Mapping[str, str]] = {CPU: "CPUs", GPU: "GPUs"}


def standings(at: float, rows: Iterable[Standing]) -> Table:
    """Return how the queues stand at *at*."""
    table = _table(f"queues at {at:.1f} s")
    for name in _SHOWN.values():
        table.add_column(f"{name} used", justify="right")
        table.add_column("entitled", justify="right")
    table.add_column("admitted", justify="right")
    table.add_column("waiting", justify="right")
    for row in rows:
        pairs = [(row.used.get(resource), row.entitled.get(resource)) for resource in _SHOWN]
        amounts = [units(held) for pair in pairs for held in pair]
        table.add_row(row.queue, *amounts, _count(row.admitted), _count(row.waiting))
    return table


def peaks(usage: Usage, queues: Sequence[str]) -> Table:
    """Return the most that each queue held, beside what it was entitled to at that moment."""
    table = _table("queues")
    for name in _SHOWN.values():
        table.add_column(f"most {name}", justify="right")
        table.add_column("entitled then", justify="right")
    for queue in queues:
        found = [(resource, usage.peak(queue, resource)) for resource in _SHOWN]
        amounts = [units(held) for _, peak in found for held in (peak.used, peak.entitled)]
        table.add_row(queue, *amounts)
    return table


def jobs(ways: Iterable[Way]) -> Table:
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


def hyperjobs(families: Iterable[Family]) -> Table:
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


def outcome(way: Way) -> str:
    """Return how far a job has come, in a word or two."""
    if way.stage is Stage.FINISHED:
        return way.outcome
    if way.stage is Stage.WAITING and way.complaint:
        return f"waits: {way.complaint.reason}"
    return str(way.stage)


def units(held: int | Fraction | None) -> str:
    """Return thousandths as units, rounded down to tenths; nothing as a dash."""
    return f"{floor(held * 10 / MILLI) / 10:g}" if held else "-"


def _count(number: int) -> str:
    return str(number) if number else "-"


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("queue")
    return table
