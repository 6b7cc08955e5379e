"""Formats the explanation of a HyperJob as text, with a table of its parts."""

from controller.cli.render.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.report.hyperjobs import HyperJobPart, HyperJobReport

_PART_COLUMNS = (
    Column("PART"),
    Column("CLUSTER"),
    Column("PODS", right=True),
    Column("STATE"),
    Column("PLACEMENT"),
    Column("PENDING REASON"),
)


def hyperjob_text(report: HyperJobReport, style: OutputStyle) -> str:
    """Format *report* as text."""
    sections = [paragraph(Cell(f"HyperJob {report.namespace}/{report.name} {_hyperjob_state(report)}.", "bold"), style)]
    if report.message:
        code = f"{report.reason}: " if report.reason else ""
        sections.append(paragraph(f"{code}{report.message}.", style))
    if report.parts:
        sections.append(table(_PART_COLUMNS, (_part_row(part) for part in report.parts), style))
    return "\n\n".join(sections)


def _hyperjob_state(report: HyperJobReport) -> str:
    count = len(report.parts)
    parts = f"{count} {'part' if count == 1 else 'parts'}"
    if not report.decided:
        return f"would have {parts} if it were split now"
    return f"is {report.phase}: it has {parts}, of which {report.min_available} must be admitted together"


def _part_row(part: HyperJobPart) -> list[str]:
    cluster = ", ".join(part.clusters) or part.cluster or "any"
    pending = f"{part.reason}: {part.message}" if part.reason else ""
    return [part.name, cluster, str(part.pods), part.state, part.why, pending]
