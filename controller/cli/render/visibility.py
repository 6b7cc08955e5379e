"""Texts of the workloads that the visibility endpoint shows to a tenant."""

from collections.abc import Iterator

import msgspec

from controller.api.visibility import VisibleWorkload, VisibleWorkloads
from controller.cli.render.amounts import in_unit, resource_title
from controller.cli.render.output import Cell, Column, Listing, OutputStyle, paragraph
from controller.cli.render.plan import object_name

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


def pending_listing(report: VisibleWorkloads) -> Listing:
    """Return the table of the pending workloads; *of* counts the workloads of other namespaces too."""
    pending = [item for item in report.items if item.position is not None]
    shown = "1 more workload is" if report.remaining == 1 else f"{report.remaining} more workloads are"
    more = [f"{shown} not shown."] if report.remaining else []
    return Listing(
        _COLUMNS,
        [
            (item.queue, f"{item.position} of {item.of}", item.kind, item.name, item.since or "", item.reason)
            for item in pending
        ],
        [object_name(item.kind, item.group, report.namespace, item.name) for item in pending],
        f"Nothing is pending in namespace {report.namespace}.",
        more,
        [_queue_listing(report)] if pending else (),
    )


def workload_text(report: VisibleWorkloads, style: OutputStyle) -> str:
    """Format one workload with its reason."""
    lines = [line for item in report.items for line in _lines(report.namespace, item, style)]
    queues = _queue_listing(report)
    return "\n\n".join(["\n".join(lines), *([queues.text(style)] if queues.rows else [])])


def _queue_listing(report: VisibleWorkloads) -> Listing:
    """Return a table of the queues: what the namespace uses of them, what all others use together, and their limits."""
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
    return Listing(_QUEUE_COLUMNS, rows)


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
