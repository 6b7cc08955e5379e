"""How reports reach whoever asked: columns for people, JSON and YAML for programs.

On a terminal columns are fitted to its width and coloured; anywhere else they
are plain text, one row a line.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from shutil import get_terminal_size
from typing import TextIO

import msgspec
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNLIMITED_WIDTH = 100_000
_GAP = 2


class Format(StrEnum):
    """What ``-o`` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class OutputStyle:
    """What is written to: *width* is ``None`` where lines may have any length."""

    width: int | None = None
    coloured: bool = False


PLAIN = OutputStyle()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a style, which shows on a terminal only."""

    text: str
    style: str = ""


def output_style(stream: TextIO) -> OutputStyle:
    """Return what *stream* can show; colours are off where NO_COLOR is set."""
    if not stream.isatty():
        return PLAIN
    coloured = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return OutputStyle(width=get_terminal_size().columns, coloured=coloured)


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell | str]], screen: OutputStyle = PLAIN) -> str:
    """Return *rows* under *columns*, without a line more than that; an empty cell is a dash."""
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in columns:
        drawn.add_column(Text(column.title), justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(_text(cell) for cell in row))
    return _render(drawn, screen)


def paragraph(text: Cell | str, screen: OutputStyle = PLAIN, *, indent: int = 0) -> str:
    """Return *text* in lines that fit the screen."""
    width = None if screen.width is None else max(screen.width - indent, 20)
    written = _render(_text(text), OutputStyle(width, screen.coloured))
    return "\n".join(f"{' ' * indent}{line}" for line in written.splitlines())


def escape(text: str) -> str:
    """Return *text* with nothing in it that a terminal would obey."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def as_json(report: msgspec.Struct) -> str:
    """Return *report* as JSON for programs."""
    return json.dumps(msgspec.to_builtins(report), indent=2, ensure_ascii=False)


def as_yaml(report: msgspec.Struct) -> str:
    """Return *report* as YAML."""
    text: str = yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False, allow_unicode=True)
    return text.rstrip()


def serialize(report: msgspec.Struct, output: Format) -> str | None:
    """Return *report* in a format for programs, ``None`` where it is for people."""
    match output:
        case Format.JSON:
            return as_json(report)
        case Format.YAML:
            return as_yaml(report)
        case Format.TABLE:
            return None


def print_text(text: str) -> None:
    """Write *text* as a whole to standard output; who reads only its beginning does no harm."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter would flush again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(cell: Cell | str) -> Text:
    text, style = (cell.text, cell.style) if isinstance(cell, Cell) else (cell, "")
    return Text(escape(text) or "-", style=style)


def _render(drawn: Table | Text, screen: OutputStyle) -> str:
    page = StringIO()
    console = Console(
        file=page,
        width=screen.width or _UNLIMITED_WIDTH,
        force_terminal=screen.coloured,
        color_system="standard" if screen.coloured else None,
        legacy_windows=False,
    )
    console.print(drawn, soft_wrap=False)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())
