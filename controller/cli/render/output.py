"""Formats amounts, times, tables, JSON and YAML, and writes them to standard output.

Tables are fitted to the width of a terminal and coloured there. Elsewhere
they are plain text with one line for each row.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from io import StringIO
from shutil import get_terminal_size
from typing import TextIO

import msgspec
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.api.quantity import format_quantity
from controller.cache.translate.units import to_datetime
from controller.engine.state.resources import MILLI, PODS, Resources, base_units

_UNLIMITED_WIDTH = 100_000
_GAP = 2
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BYTES = ("memory", "storage", "ephemeral-storage", "hugepages-")
_KIBI = 1024
_HUNDREDTHS = 100

Amounts = dict[str, str]
ProgressCallback = Callable[[int, int], None]


class Format(StrEnum):
    """Values of ``-o``."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class OutputStyle:
    """Line width and use of colour; *width* is ``None`` where lines may have any length."""

    width: int | None = None
    colored: bool = False


PLAIN = OutputStyle()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a `rich` style, applied on a terminal only."""

    text: str
    style: str = ""


def output_style(stream: TextIO) -> OutputStyle:
    """Return the style for *stream*; colours are off where NO_COLOR is set."""
    if not stream.isatty():
        return PLAIN
    coloured = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return OutputStyle(width=get_terminal_size().columns, colored=coloured)


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell | str]], style: OutputStyle = PLAIN) -> str:
    """Return *rows* under the titles of *columns*; an empty cell is shown as a dash."""
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in columns:
        drawn.add_column(Text(column.title), justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(_text(cell) for cell in row))
    return _render(drawn, style)


def paragraph(text: Cell | str, style: OutputStyle = PLAIN, *, indent: int = 0) -> str:
    """Return *text* wrapped to the width of *style* and indented."""
    width = None if style.width is None else max(style.width - indent, 20)
    written = _render(_text(text), OutputStyle(width, style.colored))
    return "\n".join(f"{' ' * indent}{line}" for line in written.splitlines())


def escape(text: str) -> str:
    """Return *text* with control characters escaped, so that a terminal does not interpret them."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def serialize(report: msgspec.Struct, output: Format) -> str | None:
    """Return *report* as indented JSON or as YAML, or ``None`` if a table is requested."""
    if output is Format.TABLE:
        return None
    values = msgspec.to_builtins(report)
    if output is Format.JSON:
        return json.dumps(values, indent=2, ensure_ascii=False)
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return text.rstrip()


def print_text(text: str) -> None:
    """Write *text* to standard output; a reader that closes the pipe early, such as ``head``, is not an error."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output again at exit and would print this error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(cell: Cell | str) -> Text:
    text, style = (cell.text, cell.style) if isinstance(cell, Cell) else (cell, "")
    return Text(escape(text) or "-", style=style)


def _render(drawn: Table | Text, style: OutputStyle) -> str:
    page = StringIO()
    console = Console(
        file=page,
        width=style.width or _UNLIMITED_WIDTH,
        force_terminal=style.colored,
        color_system="standard" if style.colored else None,
        legacy_windows=False,
    )
    console.print(drawn, soft_wrap=False)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def quantities(amounts: Mapping[str, int | Fraction], resources: Iterable[str]) -> Amounts:
    """Return the amounts of *resources* as quantities, rounded down; a missing amount is zero."""
    return {name: format_quantity(name, amounts.get(name, 0)) for name in resources}


def positive_quantities(amounts: Resources) -> Amounts:
    """Return the positive amounts as quantities, sorted by resource name."""
    return quantities(amounts, sorted(name for name, amount in amounts.items() if amount > 0))


def format_short(resource: str, amount: int | Fraction) -> str:
    """Format an amount with at most two decimals, rounded towards zero."""
    if amount < 0:
        return f"-{format_short(resource, -amount)}"
    value, prefix = Fraction(amount) / base_units(resource), 0
    if not resource.startswith(_BYTES):
        return _format_decimal(value)
    while value >= _KIBI and prefix < len(_BINARY) - 1:
        value /= _KIBI
        prefix += 1
    return f"{_format_decimal(value)}{_BINARY[prefix]}"


def describe_requests(amounts: Resources) -> str:
    """Format requests as text: ``2 cpu, 4Gi memory in 2 pods``."""
    parts = [
        f"{format_short(name, amounts[name])} {name}" for name in sorted(amounts) if name != PODS and amounts[name] > 0
    ]
    pods = amounts.get(PODS, 0)
    inside = f" in {format_short(PODS, pods)} pod{'' if pods == MILLI else 's'}" if pods > 0 else ""
    return (", ".join(parts) or "nothing") + inside


def format_time(at: int | None) -> str | None:
    """Format a time as Kubernetes does; return ``None`` for an unknown time."""
    written = to_datetime(at or None)
    return written.strftime("%Y-%m-%dT%H:%M:%SZ") if written else None


def format_minute(at: str | None) -> str:
    """Format a Kubernetes time in UTC to the minute."""
    return at[:16].replace("T", " ") if at else "-"


def _format_decimal(amount: Fraction) -> str:
    whole, hundredths = divmod(int(amount * _HUNDREDTHS), _HUNDREDTHS)
    return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".")


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressCallback]:
    """Yield a function that updates the bar with the completed and the total count; remove the bar at the end.

    The function does nothing where stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    # Imported here, because the import is slow and only a terminal needs it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
