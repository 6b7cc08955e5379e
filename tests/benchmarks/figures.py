"""Benchmark figures with their baselines from the same run."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; *baseline* is the figure of the same run to compare it with."""

    name: str
    value: float
    unit: str
    goal: str | None = None
    baseline: float | None = None


def show(figures: Iterable[Figure]) -> None:
    """Print the figures as a table."""
    table = Table(box=None, pad_edge=False)
    for title in ("figure", "value", "unit", "baseline", "goal"):
        table.add_column(title, justify="right" if title in {"value", "baseline"} else "left")
    for figure in figures:
        table.add_row(figure.name, _number(figure.value), figure.unit, _number(figure.baseline), figure.goal or "")
    Console().print(table)


def write(figures: Iterable[Figure], path: Path) -> None:
    """Write the figures as a JSON list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")


def process_bytes(pid: int, field: str) -> int:
    """Return a field of a process's status in bytes, such as ``VmRSS`` for resident memory, ``VmHWM`` for its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
