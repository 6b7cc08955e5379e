"""The command that judges a decision journal again."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from controller.cli.manifests import STDIN, InputError
from controller.cli.output import Format, output_style, print_text, serialize
from controller.cli.replay_table import replay_table
from controller.cli.report.replay import FileReport, RecordedDecisionReport, ReplayReport, file_report
from controller.decision_log.replay import DecisionLogError


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
    history: list[RecordedDecisionReport] = []
    for file in files:
        report, passages = _read(file, workload)
        reports.append(report)
        history += passages
    history.sort(key=lambda each: each.time or "")
    is_same = all(each.same for each in reports)
    answer = ReplayReport(is_same, tuple(reports), tuple(history) if workload is not None else None)
    print_text(serialize(answer, output) or replay_table(answer, output_style(sys.stdout)))
    if not is_same:
        raise typer.Exit(1)


def _read(file: str, workload: str | None) -> tuple[FileReport, list[RecordedDecisionReport]]:
    try:
        with _open_file(file) as lines:
            return file_report(file, lines, workload)
    except (DecisionLogError, OSError) as error:
        raise InputError(f"{file}: {error}" if isinstance(error, DecisionLogError) else str(error)) from error


@contextmanager
def _open_file(file: str) -> Iterator[BinaryIO]:
    if file == STDIN:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as lines:
        yield lines
