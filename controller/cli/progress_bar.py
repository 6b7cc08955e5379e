"""Shows a progress bar on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ProgressCallback = Callable[[int, int], None]


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
