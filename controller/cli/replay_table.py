"""What came of a replay, for people: a row for each file, then the differences, then a workload's history."""

import json
from collections.abc import Iterator

from controller.cli.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.report.replay import DifferenceReport, FileReport, RecordedDecisionReport, ReplayReport
from controller.decision_log.records import Fields

_MAX_DIFFERENCES = 10
_FILES = ("FILE", "FROM (UTC)", "UNTIL (UTC)", "PLANS", "DECISIONS", "RESULT")
_HISTORY = ("TIME (UTC)", "ACTION", "QUEUE", "POS", "RULE", "CLUSTERS", "WHY")


def replay_table(report: ReplayReport, screen: OutputStyle) -> str:
    """Return all of it, in words where something is different."""
    columns = [Column(title, right=title in {"PLANS", "DECISIONS"}) for title in _FILES]
    parts = [table(columns, map(_file_row, report.files), screen)]
    parts += ["\n".join(found) for each in report.files if (found := list(_problem_lines(each, screen)))]
    if report.history is not None:
        parts.append(_history(report.history, screen))
    return "\n\n".join(parts)


def _file_row(each: FileReport) -> tuple[Cell | str, ...]:
    result = Cell("same", "green") if each.same else Cell("DIFFERENT" if each.different else "ALTERED", "red")
    return each.file, _format_time(each.since), _format_time(each.until), str(each.plans), str(each.decisions), result


def _format_time(at: str | None) -> str:
    return at[:19].replace("T", " ") if at else ""


def _problem_lines(each: FileReport, screen: OutputStyle) -> Iterator[str]:
    """Yield what is to be said of one file."""
    for remark in each.remarks:
        yield paragraph(f"{each.file}: {remark}", screen)
    if each.altered_before is not None:
        told = f"{each.file}: something before line {each.altered_before} is not as it was written"
        yield paragraph(Cell(told, "red"), screen)
    for difference in each.differences[:_MAX_DIFFERENCES]:
        yield from _difference_lines(each.file, difference, screen)
    left = each.different - min(len(each.differences), _MAX_DIFFERENCES)
    if left > 0:
        yield paragraph(f"{each.file}: {left} more decisions differ; they may follow from these", screen)


def _difference_lines(file: str, found: DifferenceReport, screen: OutputStyle) -> Iterator[str]:
    head = f"{file}: line {found.line}: {found.workload}, plan {found.plan} at {_format_time(found.time)}"
    yield paragraph(Cell(head, "bold"), screen)
    if found.recorded is None or found.replayed is None:
        yield paragraph(f"recorded: {_describe_decision(found.recorded)}", screen, indent=2)
        yield paragraph(f"replayed: {_describe_decision(found.replayed)}", screen, indent=2)
        return
    for name in sorted({*found.recorded, *found.replayed}):
        before, after = found.recorded.get(name), found.replayed.get(name)
        if before != after:
            yield paragraph(f"{name}: recorded {_value(before)}, replayed {_value(after)}", screen, indent=2)


def _describe_decision(fields: Fields | None) -> str:
    if fields is None:
        return "nothing"
    where = "".join(f" on {name}" for name in _clusters(fields))
    why = "".join(f" ({fields[name]})" for name in ("reason",) if fields.get(name))
    return f"{fields.get('action')}{where}{why}, rule {fields.get('rule')}"


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _clusters(fields: Fields) -> list[str]:
    found = fields.get("clusters")
    return [str(each.get("name")) for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _history(history: tuple[RecordedDecisionReport, ...], screen: OutputStyle) -> str:
    if not history:
        return "Nothing was decided about that workload."
    columns = [Column(title, right=title == "POS") for title in _HISTORY]
    return table(columns, map(_history_row, history), screen)


def _history_row(each: RecordedDecisionReport) -> tuple[str, ...]:
    fields = each.decision
    position = fields.get("position")
    return (
        _format_time(each.time),
        str(fields.get("action")),
        str(fields.get("queue")),
        "" if position is None else str(position),
        str(fields.get("rule")),
        ",".join(_clusters(fields)),
        ": ".join(str(fields[name]) for name in ("reason", "message") if fields.get(name)),
    )
