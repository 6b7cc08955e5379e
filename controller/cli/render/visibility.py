"""Texts of the workloads that the visibility endpoint shows to a tenant."""

from collections.abc import Iterator

import msgspec

from controller.api.visibility import VisibleWorkload, VisibleWorkloads
from controller.cli.render.amounts import in_unit, resource_title
from controller.cli.render.output import Cell, Column, OutputStyle, paragraph, table

_COLUMNS = (
    Column("QUEUE"),
    Column("POSITION", right=True),
    Column("KIND"),
    Column("NAME"),
    Column("SINCE"),
    Column("REASON"),
)

_QUEUE_COLUMNS = (
    Column("QUEUE"),
    Column("RESOURCE"),
    Column("YOURS", right=True),
    Column("OTHERS", right=True),
    Column("FAIR SHARE", right=True),
    Column("LIMIT", right=True),
)


def pending_text(report: VisibleWorkloads, style: OutputStyle) -> str:
    """Format the pending workloads as a table; *of* counts the workloads of other namespaces too."""
    pending = [item for item in report.items if item.position is not None]
    more = f"{report.remaining} more workloads are not shown." if report.remaining else ""
    if not pending:
        return paragraph(f"Nothing is pending in namespace {report.namespace}. {more}".strip(), style)
    rows = [
        (item.queue, f"{item.position} of {item.of}", item.kind, item.name, item.since or "", item.reason)
        for item in pending
    ]
    queues = _queue_table(report, style)
    return "\n\n".join([table(_COLUMNS, rows, style), *([paragraph(more, style)] if more else []), *queues])


def workload_text(report: VisibleWorkloads, style: OutputStyle) -> str:
    """Format one workload with its reason."""
    lines = [line for item in report.items for line in _lines(report.namespace, item, style)]
    return "\n\n".join(["\n".join(lines), *_queue_table(report, style)])


def _queue_table(report: VisibleWorkloads, style: OutputStyle) -> Iterator[str]:
    """Yield a table of the queues: what the namespace uses of them, what all others use together, and their limits."""
    rows = [
        (
            queue.name,
            resource_title(resource),
            *(
                in_unit(resource, amounts)
                for amounts in (queue.allocated, queue.others_allocated, queue.fair_share, queue.limit)
            ),
        )
        for queue in report.queues
        for resource in queue.allocated
    ]
    if rows:
        yield table(_QUEUE_COLUMNS, rows, style)


def _lines(namespace: str, item: VisibleWorkload, style: OutputStyle) -> Iterator[str]:
    path = f"{item.kind} {namespace}/{item.name}"
    if item.position is None:
        where = f" on {', '.join(item.clusters)}" if item.clusters else ""
        yield paragraph(Cell(f"{path} is {item.state}{where}.", "bold"), style)
        return
    head = f"{path} is pending in queue '{item.queue}' at position {item.position} of {item.of}."
    yield paragraph(Cell(head, "bold"), style)
    yield ""
    yield paragraph(f"{item.reason}: {item.message}.", style)
    yield paragraph(f"{item.remedy[:1].upper()}{item.remedy[1:]}.", style)
    if item.since:
        raised = "" if item.raised_priority is msgspec.UNSET else f", raised to {item.raised_priority} by waiting"
        yield paragraph(f"Queued since {item.since}, with priority {item.priority}{raised}.", style)
