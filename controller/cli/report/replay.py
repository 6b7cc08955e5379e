"""Whether a journal's decisions were the same when they were judged again, and what it says of one workload."""

from collections.abc import Callable, Iterable

import msgspec

from controller.cli.report.amounts import format_time
from controller.decision_log.records import Fields
from controller.decision_log.replay import Difference, RecordedDecision, replay


class DifferenceReport(msgspec.Struct, rename="camel", frozen=True):
    """One decision that was recorded otherwise than it is taken now; null where there is none."""

    line: int
    plan: int
    time: str | None
    workload: str
    recorded: Fields | None
    replayed: Fields | None


class FileReport(msgspec.Struct, rename="camel", frozen=True):
    """One file; ``alteredBefore`` is the first line that tells that something before it was changed."""

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
    remarks: tuple[str, ...]
    differences: tuple[DifferenceReport, ...]


class RecordedDecisionReport(msgspec.Struct, rename="camel", frozen=True):
    """One decision about the workload that was asked for."""

    time: str | None
    file: str
    line: int
    plan: int
    decision: Fields


class ReplayReport(msgspec.Struct, frozen=True):
    """All files; *history* only where a workload was asked for, by time."""

    same: bool
    files: tuple[FileReport, ...]
    history: tuple[RecordedDecisionReport, ...] | None


def file_report(
    file: str, lines: Iterable[bytes], wanted: str | None
) -> tuple[FileReport, list[RecordedDecisionReport]]:
    """Return what came of one file, and what it says of the workload that is *wanted*, as ``namespace/name``."""
    findings, passages = replay(lines, _is_workload(wanted))
    begun = findings.begun
    report = FileReport(
        file=file,
        same=findings.is_same,
        version=begun.version if begun else "",
        identity=begun.identity if begun else "",
        since=format_time(begun.at) if begun else None,
        until=format_time(findings.until),
        plans=findings.plans,
        decisions=findings.decisions,
        different=findings.different,
        altered_before=findings.altered_before,
        remarks=tuple(findings.remarks),
        differences=tuple(map(_difference, findings.differences)),
    )
    return report, [_recorded_decision_report(file, each) for each in passages]


def _is_workload(wanted: str | None) -> Callable[[Fields], bool]:
    return lambda fields: wanted is not None and workload_path(fields) == wanted


def workload_path(fields: Fields) -> str:
    """Return ``namespace/name`` of whom a decision is about; of a cluster-wide one the name."""
    namespace, name = fields.get("namespace"), fields.get("name")
    return f"{namespace}/{name}" if namespace else str(name)


def _difference(found: Difference) -> DifferenceReport:
    fields = found.recorded or found.replayed or {}
    whose = f"{fields.get('kind')} {workload_path(fields)}"
    return DifferenceReport(found.line, found.plan, format_time(found.at), whose, found.recorded, found.replayed)


def _recorded_decision_report(file: str, passage: RecordedDecision) -> RecordedDecisionReport:
    return RecordedDecisionReport(format_time(passage.at), file, passage.line, passage.plan, passage.fields)
