"""The `replay` command: replays decision logs and compares the decisions."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from controller.cli.input.manifests import STDIN, InputError
from controller.cli.render.output import Format, output_style, print_text, serialize
from controller.cli.render.replay import replay_table
from controller.cli.report.replay import FileReport, RecordedDecisionReport, ReplayReport, file_report
from controller.reporting.decision_log.replay import DecisionLogError


def replay_command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Decision logs to replay_command, each separately; - for standard input."),
    ],
    workload: Annotated[
        str | None,
        typer.Option("--workload", "-w", metavar="NS/NAME", help="Also print all decisions about this workload."),
    ] = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.TABLE,
) -> None:
    """Replay decision logs."""
    reports: list[FileReport] = []
    history: list[RecordedDecisionReport] = []
    for file in files:
        report, decisions = _read(file, workload)
        reports.append(report)
        history += decisions
    history.sort(key=lambda decision: decision.time or "")
    is_same = all(report.same for report in reports)
    summary = ReplayReport(is_same, tuple(reports), tuple(history) if workload is not None else None)
    print_text(serialize(summary, output) or replay_table(summary, output_style(sys.stdout)))
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
