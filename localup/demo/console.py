"""Prints progress: coloured with a live table on a terminal, plain lines elsewhere."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from localup.demo.progress import JobStage, TimelineEntry

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
