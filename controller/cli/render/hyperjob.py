"""Formats the parts of a HyperJob: where each runs or would run, and why it is pending."""

import msgspec

from controller.cli.render.amounts import Amounts
from controller.cli.render.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.render.plan import START_COLUMN, StartReport, format_start

_PART_COLUMNS = (
    Column("PART"),
    Column("CLUSTER"),
    Column("PODS", right=True),
    Column("STATE"),
    Column("PLACEMENT", is_text=True),
    Column("PENDING REASON", is_text=True),
)


class HyperJobPart(msgspec.Struct, rename="camel", frozen=True):
    """One part."""

    name: str
    replicated_job: str
    cluster: str
    """The cluster that the split has chosen; empty if any is possible."""
    pods: int
    requests: Amounts
    why: str
    """Why it has this cluster and size."""
    state: str
    clusters: tuple[str, ...]
    """Where it is admitted."""
    reason: str
    """The code of its pending reason; empty if it is not pending."""
    message: str
    retries: int
    """How often it was started again after a failure."""
    start: StartReport | None = None


class HyperJobReport(msgspec.Struct, rename="camel", frozen=True):
    """One HyperJob."""

    namespace: str
    name: str
    phase: str
    reason: str
    message: str
    decided: bool
    """Whether the controller has split it; otherwise this is a preview."""
    min_available: int
    """How many parts must be admitted together."""
    parts: tuple[HyperJobPart, ...]


def hyperjob_text(report: HyperJobReport, style: OutputStyle) -> str:
    """Format *report* as text."""
    sections = [paragraph(Cell(f"HyperJob {report.namespace}/{report.name} {_hyperjob_state(report)}.", "bold"), style)]
    if report.message:
        code = f"{report.reason}: " if report.reason else ""
        sections.append(paragraph(f"{code}{report.message}.", style))
    if report.parts:
        with_start = any(part.start for part in report.parts)
        columns = (*_PART_COLUMNS, *((START_COLUMN,) if with_start else ()))
        rows = ([*_part_row(part), *([format_start(part.start)] if with_start else [])] for part in report.parts)
        sections.append(table(columns, rows, style))
    return "\n\n".join(sections)


def _hyperjob_state(report: HyperJobReport) -> str:
    count = len(report.parts)
    done = sum(part.state in {"Completed", "Succeeded"} for part in report.parts)
    parts = f"{count} {'part' if count == 1 else 'parts'}"
    if not report.decided:
        return f"would have {parts} if it were split now"
    if done == count:
        return f"is {report.phase}: {'its part has' if count == 1 else f'all of its {parts} have'} completed"
    return f"is {report.phase}: it has {parts}, of which {report.min_available} must be admitted together"


def _part_row(part: HyperJobPart) -> list[str]:
    cluster = ", ".join(part.clusters) or part.cluster or "any"
    pending = f"{part.reason}: {part.message}" if part.reason else ""
    return [part.name, cluster, str(part.pods), part.state, part.why, pending]
