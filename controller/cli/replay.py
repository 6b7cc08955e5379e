"""The command that judges a decision journal again."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from controller.cli.manifests import STDIN, InputError
from controller.cli.replaysheet import replay_sheet
from controller.cli.report.replay import FileReport, PassageReport, ReplayReport, file_report
from controller.cli.screen import Format, screen_of, show, written
from controller.decision_log.replay import JournalError


def replay(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Journals to replay, each by itself; - for standard input."),
    ],
    workload: Annotated[
        str | None,
        typer.Option("--workload", "-w", metavar="NS/NAME", help="Also tell all that was decided about this one."),
    ] = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="How to answer.")] = Format.TABLE,
) -> None:
    """Judge journals again."""
    reports: list[FileReport] = []
    history: list[PassageReport] = []
    for file in files:
        report, passages = _read(file, workload)
        reports.append(report)
        history += passages
    history.sort(key=lambda each: each.time or "")
    is_same = all(each.same for each in reports)
    answer = ReplayReport(is_same, tuple(reports), tuple(history) if workload is not None else None)
    show(written(answer, output) or replay_sheet(answer, screen_of(sys.stdout)))
    if not is_same:
        raise typer.Exit(1)


def _read(file: str, workload: str | None) -> tuple[FileReport, list[PassageReport]]:
    try:
        with _opened(file) as lines:
            return file_report(file, lines, workload)
    except (JournalError, OSError) as error:
        raise InputError(f"{file}: {error}" if isinstance(error, JournalError) else str(error)) from error


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STDIN:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as lines:
        yield lines
