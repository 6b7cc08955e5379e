"""A HyperJob's split in words: one sentence about the whole, a row for each part."""

from controller.cli.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.report.hyperjobs import HyperJobPart, HyperJobReport

_COLUMNS = (
    Column("PART"),
    Column("CLUSTER"),
    Column("PODS", right=True),
    Column("STATE"),
    Column("WHY THERE"),
    Column("WHY IT WAITS"),
)


def hyperjob_text(report: HyperJobReport, screen: OutputStyle) -> str:
    """Return *report* as text."""
    sections = [paragraph(Cell(f"HyperJob {report.namespace}/{report.name} {_state(report)}.", "bold"), screen)]
    if report.message:
        code = f"{report.reason}: " if report.reason else ""
        sections.append(paragraph(f"{code}{report.message}.", screen))
    if report.parts:
        sections.append(table(_COLUMNS, (_row(part) for part in report.parts), screen))
    return "\n\n".join(sections)


def _state(report: HyperJobReport) -> str:
    count = len(report.parts)
    parts = f"{count} {'part' if count == 1 else 'parts'}"
    if not report.decided:
        return f"would have {parts} if it were split now"
    return f"is {report.phase}: it has {parts}, of which {report.min_available} must run together"


def _row(part: HyperJobPart) -> list[str]:
    where = ", ".join(part.clusters) or part.cluster or "any"
    waits = f"{part.reason}: {part.message}" if part.reason else ""
    return [part.name, where, str(part.pods), part.state, part.why, waits]
