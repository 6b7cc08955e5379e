"""A bar on a terminal while something takes its time; nothing anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ProgressCallback = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressCallback]:
    """Yield who is to be told how much is done, of how much; the bar is gone at the end."""
    if not sys.stderr.isatty():
        yield lambda _done, _whole: None
        return
    # Only a terminal needs it, and it takes a while to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)
