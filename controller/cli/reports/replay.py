"""The report of a replay of decision logs."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from controller.cli.errors import InputError
from controller.cli.input.manifests import STDIN, display_name
from controller.cli.render.amounts import format_time
from controller.cli.render.replay import (
    DecisionHistory,
    DifferenceReport,
    FileReport,
    RecordedDecisionReport,
    ReplayReport,
)
from controller.reporting.decision_log.records import Fields
from controller.reporting.decision_log.replay import (
    DecisionLogError,
    Difference,
    RecordedDecision,
    recorded_decisions,
    replay,
)

_InFile = tuple[str, RecordedDecision]
"""A recorded decision, after the name of its file."""


def replay_files(files: Sequence[str], workload: str | None) -> ReplayReport:
    """Replay *files*, each separately, with the history of *workload* (``namespace/name``); raise `InputError`."""
    reports: list[FileReport] = []
    history: list[_InFile] = []
    for file in files:
        report, decisions = _read(file, workload)
        reports.append(report)
        history += [(display_name(file), decision) for decision in decisions]
    is_same = all(report.same for report in reports)
    return ReplayReport(is_same, tuple(reports), _by_time(history) if workload is not None else None)


def history_files(files: Sequence[str], workloads: Collection[str]) -> DecisionHistory:
    """Return the recorded decisions about *workloads* (see `workload_path`) in *files*, the first first.

    Raises `InputError`.
    """
    decisions: list[_InFile] = []
    notes: list[str] = []
    for file in files:
        with _reading(file) as lines:
            result, recorded = recorded_decisions(lines, _is_one_of(workloads))
        name = display_name(file)
        decisions += [(name, decision) for decision in recorded]
        notes += [f"{name}: {note}" for note in result.notes]
        if result.first_tampered_line is not None:
            notes.append(f"{name}: the file was altered before line {result.first_tampered_line}")
    return DecisionHistory(_by_time(decisions), tuple(notes))


def _by_time(decisions: Iterable[_InFile]) -> tuple[RecordedDecisionReport, ...]:
    """Return the reports of *decisions*, the first first, by milliseconds: a file may begin within a second."""
    ordered = sorted(decisions, key=lambda pair: (pair[1].at, pair[1].plan))
    return tuple(_recorded_decision_report(file, decision) for file, decision in ordered)


def _read(file: str, workload: str | None) -> tuple[FileReport, list[RecordedDecision]]:
    with _reading(file) as lines:
        return file_report(display_name(file), lines, workload)


@contextmanager
def _reading(file: str) -> Iterator[BinaryIO]:
    """Open *file*; errors inside the context become `InputError`."""
    try:
        with _open_file(file) as lines:
            yield lines
    except DecisionLogError as error:
        raise InputError(f"{display_name(file)}: {error}") from error
    except OSError as error:
        raise InputError(f"{display_name(file)}: {(error.strerror or 'it cannot be read').lower()}") from error


@contextmanager
def _open_file(file: str) -> Iterator[BinaryIO]:
    if file == STDIN:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as lines:
        yield lines


def file_report(file: str, lines: Iterable[bytes], wanted: str | None) -> tuple[FileReport, list[RecordedDecision]]:
    """Replay one file; return its report and the decisions about the workload *wanted* (``namespace/name``)."""
    result, decisions = replay(lines, _is_one_of([wanted] if wanted is not None else []))
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
    return report, decisions


def _is_one_of(wanted: Collection[str]) -> Callable[[Fields], bool]:
    return lambda fields: workload_path(fields) in wanted


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
