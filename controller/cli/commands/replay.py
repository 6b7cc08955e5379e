"""The `replay` command: replays decision logs and compares the decisions."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from controller.cli.input.manifests import STDIN, InputError
from controller.cli.render.output import Format, format_time, output_style, print_text, serialize
from controller.cli.render.replay import (
    DifferenceReport,
    FileReport,
    RecordedDecisionReport,
    ReplayReport,
    replay_table,
)
from controller.reporting.decision_log.records import Fields
from controller.reporting.decision_log.replay import DecisionLogError, Difference, RecordedDecision, replay

# A line with only a backspace prevents the lines after it from being rewrapped.
HELP = """
Replay a decision log: pass its inputs to a new engine, and compare each decision with the recorded one.

The controller writes the decision log to the file of its flag --decision-log; rotated files are FILE.1, FILE.2 and
so on. Each file begins with a checkpoint, so each is replayed separately. An incomplete last line, for example after a
crash, is ignored and reported.

\b
Examples:
  volcano-global replay decisions.jsonl
  volcano-global replay decisions.jsonl.* decisions.jsonl -o json
  volcano-global replay decisions.jsonl --workload ml/train   also print the decisions about a workload
  kubectl -n karmada-system exec deployment/volcano-global-controller -- cat /var/lib/volcano-global/decisions.jsonl \\
    | volcano-global replay -

\b
Exit codes:
  0  all decisions are the same
  1  some decisions differ, or the file was altered; both decisions are printed
  2  bad input: the file is missing or a line is invalid; the message names the line
"""


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


def file_report(
    file: str, lines: Iterable[bytes], wanted: str | None
) -> tuple[FileReport, list[RecordedDecisionReport]]:
    """Replay one file; return its report and the decisions about the workload *wanted* (``namespace/name``)."""
    result, decisions = replay(lines, _is_workload(wanted))
    begun = result.begun
    report = FileReport(
        file=file,
        same=result.is_identical,
        version=begun.version if begun else "",
        identity=begun.identity if begun else "",
        since=format_time(begun.at) if begun else None,
        until=format_time(result.until),
        plans=result.plans,
        decisions=result.decisions,
        different=result.different,
        altered_before=result.first_tampered_line,
        warnings=tuple(result.notes),
        differences=tuple(map(_difference, result.differences)),
    )
    return report, [_recorded_decision_report(file, decision) for decision in decisions]


def _is_workload(wanted: str | None) -> Callable[[Fields], bool]:
    return lambda fields: wanted is not None and workload_path(fields) == wanted


def workload_path(fields: Fields) -> str:
    """Return ``namespace/name`` of the workload of a decision; the name alone if it is cluster-scoped."""
    namespace, name = fields.get("namespace"), fields.get("name")
    return f"{namespace}/{name}" if namespace else str(name)


def _difference(difference: Difference) -> DifferenceReport:
    fields = difference.recorded or difference.replayed or {}
    workload = f"{fields.get('kind')} {workload_path(fields)}"
    return DifferenceReport(
        difference.line, difference.plan, format_time(difference.at), workload, difference.recorded, difference.replayed
    )


def _recorded_decision_report(file: str, decision: RecordedDecision) -> RecordedDecisionReport:
    return RecordedDecisionReport(format_time(decision.at), file, decision.line, decision.plan, decision.fields)
