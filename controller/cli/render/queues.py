"""The reports of queues and their tables, which are readable at 80 columns."""

from collections.abc import Iterable, Sequence

import msgspec

from controller.api.quantity import is_bytes
from controller.cli.render.amounts import Amounts, in_unit, resource_title
from controller.cli.render.output import Cell, Column, Listing, OutputStyle, Row, table

_MAIN_RESOURCES = ("cpu", "memory")
_MAX_RESOURCES = 3
_LEGEND = "Resource columns: used / fair share / limit."
_NO_LIMIT = "none"


class QueueShareReport(msgspec.Struct, rename="camel", frozen=True):
    """Fair share, usage and limit of one queue."""

    name: str
    fair_share: Amounts
    allocated: Amounts
    """Usage, also of workloads that are being evicted."""
    limit: Amounts
    limited: tuple[str, ...]
    """Resources of which it may use less than all clusters have, or for which it or an ancestor has a capability."""
    share: float | None
    """Usage divided by fair share; null if there is no fair share, or if the ratio is infinite."""


class NextCycle(msgspec.Struct, frozen=True):
    """What the next scheduling cycle would change in a queue and the queues below it."""

    admitted: int
    evicted: int
    pending: int
    """Pending workloads after the cycle."""
    allocated: Amounts
    """Usage after the cycle; victims hold their charges until they have stopped."""
    share: float | None
    """Usage divided by fair share; null if there is no fair share, or if the ratio is infinite."""


class QueueReport(msgspec.Struct, rename="camel", frozen=True):
    """One queue of the hierarchy with its current usage."""

    name: str
    parent: str
    path: tuple[str, ...]
    """Queue names from the root; empty if the queue is not connected to the root."""
    weight: int
    priority: int
    state: str
    """``Broken`` where the queue is not connected to the root, so that it takes no workloads."""
    pending: int
    """Pending workloads, of descendants too."""
    admitted: int
    """Admitted workloads, of descendants too."""
    fair_share: Amounts
    allocated: Amounts
    """Usage, also of workloads that are being evicted."""
    limit: Amounts
    limited: tuple[str, ...]
    """Resources of which it may use less than all clusters have, or for which it or an ancestor has a capability."""
    share: float | None
    """Usage divided by fair share; null if there is no fair share, or if the ratio is infinite."""
    reachable: Amounts | None
    """Capacity of the clusters that its pending workloads can use; null if that is all of it."""
    next_cycle: NextCycle | None
    """Set with ``--next-cycle``."""


class Queues(msgspec.Struct, frozen=True, omit_defaults=True):
    """The queues, each after its parent."""

    queues: tuple[QueueReport, ...]
    notes: tuple[str, ...] = ()
    """Results that may be unexpected but are intended."""


QueueShares = QueueShareReport | QueueReport


def share_table(queues: Sequence[QueueShareReport], style: OutputStyle) -> str:
    """Return a table of the queues after the decisions."""
    resources = main_resources(queue.allocated for queue in queues)[:_MAX_RESOURCES]
    columns = [Column("QUEUE"), Column("SHARE", right=True), *(Column(resource_title(name)) for name in resources)]
    rows = (
        (
            queue.name,
            "" if queue.share is None else f"{queue.share:g}",
            *(_share_cell(name, queue) for name in resources),
        )
        for queue in queues
    )
    return f"{table(columns, rows, style)}\n\n{_LEGEND}"


def queues_listing(report: Queues) -> Listing:
    """Return the table of the queues with usage, fair share and limit."""
    resources = main_resources((*(queue.allocated for queue in report.queues),))
    has_next = any(queue.next_cycle for queue in report.queues)
    columns = [
        Column("QUEUE"),
        Column("STATE"),
        Column("PENDING", right=True),
        Column("ADMITTED", right=True),
        *resource_columns(resources, parts=("USED", "FAIR SHARE", "LIMIT")),
        *(
            [Column("NEXT CYCLE"), *(Column(f"NEXT {resource_title(name)}", right=True) for name in resources)]
            * has_next
        ),
        Column("WEIGHT", right=True, is_wide=True),
        Column("PRIORITY", right=True, is_wide=True),
        Column("SHARE", right=True, is_wide=True),
    ]
    is_tree = all(queue.path for queue in report.queues) and _is_tree_order(report.queues)
    rows = [_queue_row(queue, resources, is_tree=is_tree) for queue in report.queues]
    names = [f"queue.scheduling.volcano.sh/{queue.name}" for queue in report.queues]
    notes = (*([_LEGEND] if rows else []), *(f"Note: {note}." for note in report.notes))
    return Listing(columns, rows, names, "No queue is selected.", notes)


def _is_tree_order(queues: Sequence[QueueReport]) -> bool:
    """Return whether each queue comes after its parent."""
    before: set[str] = {""}
    for queue in queues:
        if queue.parent not in before:
            return False
        before.add(queue.name)
    return True


def _queue_row(queue: QueueReport, resources: Sequence[str], *, is_tree: bool) -> Row:
    depth = max(len(queue.path) - 1, 0) if is_tree else 0
    after = queue.next_cycle
    return (
        f"{'  ' * depth}{queue.name}",
        Cell(queue.state, "" if queue.state == "Open" else "red"),
        str(queue.pending),
        str(queue.admitted),
        *(_share_cell(name, queue) for name in resources),
        *((_next_cycle(after), *(in_unit(name, after.allocated) for name in resources)) if after else ()),
        str(queue.weight),
        str(queue.priority),
        "" if queue.share is None else f"{queue.share:g}",
    )


def _next_cycle(after: NextCycle) -> str:
    evicted = f", {after.evicted} evicted" if after.evicted else ""
    return f"{after.admitted} admitted{evicted}"


def resource_columns(resources: Iterable[str], *, right: bool = False, parts: tuple[str, ...] = ()) -> list[Column]:
    """Return the columns of *resources*; those beyond the maximum are wide."""
    titled = ((number, resource_title(name)) for number, name in enumerate(resources))
    return [
        Column(title, right=right, is_wide=number >= _MAX_RESOURCES, parts=tuple(f"{title} {part}" for part in parts))
        for number, title in titled
    ]


def main_resources(amounts: Iterable[Amounts]) -> list[str]:
    """Return cpu and memory, then the other resources by name; the columns do not depend on usage."""
    resources = {name for by_resource in amounts for name in by_resource} - {"pods"}
    return [*_MAIN_RESOURCES, *sorted(resources - set(_MAIN_RESOURCES), key=lambda name: (is_bytes(name), name))]


def _share_cell(resource: str, queue: QueueShares) -> str:
    used, share, limit = (in_unit(resource, amounts) for amounts in (queue.allocated, queue.fair_share, queue.limit))
    is_limited = resource in queue.limited or limit == "-"
    return f"{used}/{share}/{limit if is_limited else _NO_LIMIT}"
