"""Reports differences between recorded and replayed decisions, and the recorded decisions about one workload."""

from collections.abc import Callable, Iterable

import msgspec

from controller.cli.report.amounts import format_time
from controller.reporting.decision_log.records import Fields
from controller.reporting.decision_log.replay import Difference, RecordedDecision, replay


class DifferenceReport(msgspec.Struct, rename="camel", frozen=True):
    """One decision that differs; null where only one side has a decision."""

    line: int
    plan: int
    time: str | None
    workload: str
    recorded: Fields | None
    replayed: Fields | None


class FileReport(msgspec.Struct, rename="camel", frozen=True):
    """One file; ``alteredBefore`` is the first line whose checksum shows that a line before it was changed."""

    file: str
    same: bool
    version: str
    identity: str
    since: str | None
    until: str | None
    plans: int
    decisions: int
    different: int
    altered_before: int | None
    warnings: tuple[str, ...]
    differences: tuple[DifferenceReport, ...]


class RecordedDecisionReport(msgspec.Struct, rename="camel", frozen=True):
    """One recorded decision about the requested workload."""

    time: str | None
    file: str
    line: int
    plan: int
    decision: Fields


class ReplayReport(msgspec.Struct, frozen=True):
    """All files; *history* is set if a workload was requested, sorted by time."""

    same: bool
    files: tuple[FileReport, ...]
    history: tuple[RecordedDecisionReport, ...] | None


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
