"""The report of a replay and its text: a table of files, the differences, and the history of a workload."""

import json
from collections.abc import Iterator

import msgspec

from controller.cli.render.output import Cell, Column, OutputStyle, paragraph, table
from controller.reporting.decision_log.records import Fields, update_message

_MAX_DIFFERENCES = 10
_FILES = ("FILE", "FROM (UTC)", "UNTIL (UTC)", "PLANS", "DECISIONS", "RESULT")
_HISTORY = ("TIME (UTC)", "ACTION", "QUEUE", "POS", "RULE", "CLUSTERS", "MESSAGE")


class DifferenceReport(msgspec.Struct, rename="camel", frozen=True):
    """One decision that differs."""

    line: int
    plan: int
    time: str | None
    workload: str
    recorded: Fields | None
    """Null where there is no such decision in the file."""
    replayed: Fields | None
    """Null where there is none in the replay."""


class FileReport(msgspec.Struct, rename="camel", frozen=True):
    """One file."""

    file: str
    same: bool
    version: str
    identity: str
    """The process that wrote it."""
    since: str | None
    until: str | None
    plans: int
    decisions: int
    different: int
    """Decisions that differ."""
    altered_before: int | None
    """The first line with a digest that shows that a line before it was changed; null if there is none."""
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
    """All files."""

    same: bool
    """Whether all decisions of all files are the same, and no file was altered."""
    files: tuple[FileReport, ...]
    history: tuple[RecordedDecisionReport, ...] | None
    """The decisions about the workload of ``--workload``, by time; null without it."""


class DecisionHistory(msgspec.Struct, frozen=True):
    """The recorded decisions about one workload, sorted by time."""

    decisions: tuple[RecordedDecisionReport, ...]
    notes: tuple[str, ...]
    """Problems of the files, such as lines that were altered."""


def replay_table(report: ReplayReport, style: OutputStyle) -> str:
    """Format *report* with a table of files, then differences in sentences."""
    columns = [Column(title, right=title in {"PLANS", "DECISIONS"}) for title in _FILES]
    parts = [table(columns, map(_file_row, report.files), style)]
    parts += ["\n".join(lines) for file in report.files if (lines := list(_problem_lines(file, style)))]
    if report.history is not None:
        parts.append(_history(report.history, style))
    return "\n\n".join(parts)


def _file_row(file: FileReport) -> tuple[Cell | str, ...]:
    result = Cell("same", "green") if file.same else Cell("DIFFERENT" if file.different else "ALTERED", "red")
    return file.file, _format_time(file.since), _format_time(file.until), str(file.plans), str(file.decisions), result


def _format_time(at: str | None) -> str:
    return at[:19].replace("T", " ") if at else ""


def _problem_lines(file: FileReport, style: OutputStyle) -> Iterator[str]:
    """Yield warnings and differences of one file."""
    for warning in file.warnings:
        yield paragraph(f"{file.file}: {warning}", style)
    if file.altered_before is not None:
        alteration = f"{file.file}: the file was altered before line {file.altered_before}"
        yield paragraph(Cell(alteration, "red"), style)
    for difference in file.differences[:_MAX_DIFFERENCES]:
        yield from _difference_lines(file.file, difference, style)
    omitted = file.different - min(len(file.differences), _MAX_DIFFERENCES)
    if omitted > 0:
        more = "1 more decision differs; it" if omitted == 1 else f"{omitted} more decisions differ; they"
        yield paragraph(f"{file.file}: {more} may follow from these", style)


def _difference_lines(file: str, difference: DifferenceReport, style: OutputStyle) -> Iterator[str]:
    plan = f"plan {difference.plan} at {_format_time(difference.time)}"
    head = f"{file}: line {difference.line}: {difference.workload}, {plan}"
    yield paragraph(Cell(head, "bold"), style)
    if difference.recorded is None or difference.replayed is None:
        yield paragraph(f"recorded: {_describe_decision(difference.recorded)}", style, indent=2)
        yield paragraph(f"replayed: {_describe_decision(difference.replayed)}", style, indent=2)
        return
    for name in sorted({*difference.recorded, *difference.replayed}):
        before, after = difference.recorded.get(name), difference.replayed.get(name)
        if before != after:
            yield paragraph(f"{name}: recorded {_value(before)}, replayed {_value(after)}", style, indent=2)


def _describe_decision(fields: Fields | None) -> str:
    if fields is None:
        return "nothing"
    clusters = "".join(f" on {name}" for name in _clusters(fields))
    reason = "".join(f" ({fields[name]})" for name in ("reason",) if fields.get(name))
    return f"{fields.get('action')}{clusters}{reason}, rule {fields.get('rule')}"


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _clusters(fields: Fields) -> list[str]:
    clusters = fields.get("clusters")
    return (
        [str(cluster.get("name")) for cluster in clusters if isinstance(cluster, dict)]
        if isinstance(clusters, list)
        else []
    )


def history_text(report: DecisionHistory, style: OutputStyle) -> str:
    """Format the decisions about one workload as a table."""
    return "\n\n".join(
        [_history(report.decisions, style), *(paragraph(f"Note: {note}.", style) for note in report.notes)]
    )


def _history(history: tuple[RecordedDecisionReport, ...], style: OutputStyle) -> str:
    if not history:
        return "The log has no decision about that workload; write it as NAMESPACE/NAME."
    columns = [Column(title, right=title == "POS", is_text=title == "MESSAGE") for title in _HISTORY]
    return table(columns, map(_history_row, history), style)


def _history_row(decision: RecordedDecisionReport) -> tuple[str, ...]:
    fields = decision.decision
    position = fields.get("position")
    return (
        _format_time(decision.time),
        str(fields.get("action")),
        str(fields.get("queue")),
        "" if position is None else str(position),
        str(fields.get("rule")),
        ",".join(_clusters(fields)),
        _message(fields),
    )


def _message(fields: Fields) -> str:
    if fields.get("action") == "Keep":
        return update_message(
            str(fields.get("rule")),
            nominated_cluster=fields.get("nominatedCluster", ""),
            reserved_since=fields.get("reservedSince"),
            reserved_cluster=fields.get("reservedCluster", ""),
        )
    return ": ".join(str(fields[name]) for name in ("reason", "message") if fields.get(name))
