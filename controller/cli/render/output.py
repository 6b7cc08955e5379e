"""Formats tables, text, JSON, YAML and CSV, and writes them to standard output.

Text is wrapped and coloured on a terminal. Elsewhere tables have one line for each row. No value of a table is split.
"""

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from io import StringIO
from shutil import get_terminal_size
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import east_asian_width

if TYPE_CHECKING:
    import msgspec

API_VERSION = "cli.volcano-global.io/v1alpha1"

_GAP = "  "
_MIN_WRAPPED = 20
#: Begins of formulas, in Asian locales also of full width; amounts may have a sign.
_FORMULA = re.compile(r"[=@\uff1d\uff0b\uff0d\uff20]|[+-](?!$|[\d.]+[A-Za-z]*$)", re.ASCII)
_CODES = MappingProxyType({"bold": "1", "green": "32", "yellow": "33", "red": "31"})

#: Takes the completed and the total count, and optionally a text about what is known so far.
ProgressCallback = Callable[..., None]


class Format(StrEnum):
    """Values of ``-o``."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    CSV = "csv"
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
    """One column of a table.

    *is_text* allows wrapping between words where the table is wider than the terminal.
    """

    title: str
    right: bool = False
    is_wide: bool = False
    """Whether it is shown with ``-o wide`` and ``-o csv`` only."""
    is_text: bool = False
    parts: tuple[str, ...] = ()
    """Titles of the values between slashes in each cell, which CSV has in columns of their own."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a style, applied on a terminal only."""

    text: str
    style: str = ""


Row = Sequence[Cell | str]


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of objects, with text before and after it that CSV omits."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    names: Sequence[str] = ()
    """The name of the object of each row, for ``-o name``: ``queue.scheduling.volcano.sh/a``."""
    empty: str = ""
    """The text in place of a table without rows."""
    notes: Sequence[str] = field(default=())
    """Paragraphs below the table."""
    details: Sequence["Listing"] = field(default=())
    """Further tables, below the notes of the text only."""

    def text(self, style: OutputStyle = PLAIN, *, is_wide: bool = False) -> str:
        """Return the table and the notes."""
        body = table(*self._shown(is_wide=is_wide), style) if self.rows else self.empty
        notes = (paragraph(note, style) for note in self.notes)
        return "\n\n".join(
            [body, *notes, *(detail.text(style, is_wide=is_wide) for detail in self.details if detail.rows)]
        )

    def csv(self) -> str:
        """Return all columns as comma-separated values."""
        page = StringIO()
        writer = csv.writer(page, lineterminator="\n")
        writer.writerow([title for column in self.columns for title in column.parts or (column.title,)])
        writer.writerows(
            [
                _without_formula(part)
                for column, cell in zip(self.columns, row, strict=True)
                for part in (_plain(cell).split("/") if column.parts else [_plain(cell).strip()])
            ]
            for row in self.rows
        )
        return page.getvalue().rstrip("\n")

    def format(self, output: Format, style: OutputStyle = PLAIN) -> str:
        """Return the table, the names or the values, as *output* says."""
        if output is Format.NAME:
            return "\n".join(self.names)
        return self.csv() if output is Format.CSV else self.text(style, is_wide=output is Format.WIDE)

    def _shown(self, *, is_wide: bool) -> tuple[list[Column], list[Row]]:
        shown = [index for index, column in enumerate(self.columns) if is_wide or not column.is_wide]
        return [self.columns[index] for index in shown], [[row[index] for index in shown] for row in self.rows]


def output_style(stream: TextIO) -> OutputStyle:
    """Return the style for *stream*; colours are off where NO_COLOR is set."""
    if not stream.isatty():
        return PLAIN
    coloured = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return OutputStyle(width=get_terminal_size().columns, colored=coloured)


def table(columns: Sequence[Column], rows: Iterable[Row], style: OutputStyle = PLAIN) -> str:
    """Return *rows* under the titles of *columns*; an empty cell is shown as a dash."""
    rows = list(rows)
    texts = [[_plain(cell) or "-" for cell in row] for row in rows]
    widths = _widths(columns, texts, style)
    lines = [_line(columns, widths, [column.title for column in columns], ["bold"] * len(columns), style)]
    for row, cells in zip(rows, texts, strict=True):
        styles = [cell.style if isinstance(cell, Cell) else "" for cell in row]
        if all(_width(cell) <= width for cell, width in zip(cells, widths, strict=True)):
            lines.append(_line(columns, widths, cells, styles, style))
            continue
        parts = [
            _wrapped(cell, width) if column.is_text else [cell]
            for column, cell, width in zip(columns, cells, widths, strict=True)
        ]
        for number in range(max(map(len, parts))):
            line = [part[number] if number < len(part) else "" for part in parts]
            lines.append(_line(columns, widths, line, styles, style))
    return "\n".join(lines)


def _widths(columns: Sequence[Column], texts: Sequence[Sequence[str]], style: OutputStyle) -> list[int]:
    """Return the width of each column; columns of text share what the others leave of the line."""
    widths = [
        max([_width(column.title), *(_width(row[index]) for row in texts)]) for index, column in enumerate(columns)
    ]
    excess = 0 if style.width is None else sum(widths) + len(_GAP) * (len(widths) - 1) - style.width
    flexible = [index for index, column in enumerate(columns) if column.is_text]
    if excess > 0 and flexible:
        free, remaining = sum(widths[index] for index in flexible) - excess, len(flexible)
        for index in sorted(flexible, key=widths.__getitem__):
            widths[index] = min(widths[index], max(free // remaining, _MIN_WRAPPED))
            free, remaining = free - widths[index], remaining - 1
    return widths


def _line(
    columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str], styles: Sequence[str], style: OutputStyle
) -> str:
    parts = []
    for column, width, cell, name in zip(columns, widths, cells, styles, strict=True):
        blank = " " * (width - _width(cell))
        shown = _styled(cell, name, style)
        parts.append(blank + shown if column.right else shown + blank)
    return _GAP.join(parts).rstrip()


def paragraph(text: Cell | str, style: OutputStyle = PLAIN, *, indent: int = 0) -> str:
    """Return *text* wrapped to the width of *style* and indented."""
    content = _plain(text) or "-"
    lines = [content] if style.width is None else _wrapped(content, max(style.width - indent, _MIN_WRAPPED))
    name = text.style if isinstance(text, Cell) else ""
    return "\n".join(f"{' ' * indent}{_styled(line, name, style)}" for line in lines)


def _wrapped(text: str, width: int) -> list[str]:
    """Return *text* in lines of at most *width* columns; words longer than a line are not split."""
    if _width(text) <= width:
        return [text]
    if text.isascii():
        return wrap(text, width, break_long_words=False, break_on_hyphens=False) or [text]
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        lines = [*lines[:-1], longer] if _width(longer) <= width or not lines[-1] else [*lines, word]
    return lines


def _width(text: str) -> int:
    """Return the columns that *text* takes on a terminal."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _plain(cell: Cell | str) -> str:
    return escape(cell.text if isinstance(cell, Cell) else cell)


def _styled(text: str, name: str, style: OutputStyle) -> str:
    return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if style.colored and name and text else text


def _without_formula(value: str) -> str:
    """Return *value* with an apostrophe where a spreadsheet would evaluate it; tenants write names of queues."""
    return f"'{value}" if _FORMULA.match(value) else value


def escape(text: str) -> str:
    """Return *text* with control characters escaped, so that a terminal does not interpret them."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def serialize(report: "msgspec.Struct", output: Format, head: Mapping[str, Any] = MappingProxyType({})) -> str | None:
    """Return *report* as indented JSON or as YAML after `apiVersion` and *head*, ``None`` for other formats."""
    if output not in {Format.JSON, Format.YAML}:
        return None
    import msgspec  # noqa: PLC0415 -- `--help` needs none of this

    values = {"apiVersion": API_VERSION, **head, **msgspec.to_builtins(report)}
    text = _dump(values, output)
    # As in tables, no character may change what a terminal shows or in which order.
    return text if text.replace("\n", "").isprintable() else _dump(values, output, ascii_only=True)


def _dump(values: Mapping[str, Any], output: Format, *, ascii_only: bool = False) -> str:
    if output is Format.JSON:
        return json.dumps(values, indent=2, ensure_ascii=ascii_only)
    import yaml  # noqa: PLC0415 -- `--help` needs none of this

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(values, Dumper=dumper, sort_keys=False, allow_unicode=not ascii_only)
    return text.rstrip()


def print_text(text: str) -> bool:
    """Write *text* to standard output, and return whether its reader is still there.

    A reader that closes the pipe early, such as ``head``, is not an error.
    """
    try:
        # No line for a list of no names, which programs count.
        sys.stdout.write(f"{text}\n" if text else "")
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output again at exit and would print this error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressCallback]:
    """Yield a function that updates the bar with the completed and the total count; remove the bar at the end.

    The function does nothing where stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    # Imported here, because the import is slow and only a terminal needs it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    text = TextColumn("{task.fields[text]}", markup=False)
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), text
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, text="")
        yield lambda done, total, text="": bar.update(task, completed=done, total=total, text=text)
