"""The reports of a scheduling cycle, and their tables, which are readable at 80 columns."""

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType

import msgspec

from controller.cli.render.amounts import Amounts, format_minute, in_unit, is_bytes, resource_title
from controller.cli.render.output import Cell, Column, Listing, OutputStyle, Row, paragraph, table

_ACTIONS = MappingProxyType({"Admit": "green", "Wait": "yellow", "Evict": "red"})


_MAIN_RESOURCES = ("cpu", "memory")


_MAX_RESOURCES = 3


_LEGEND = "Resource columns: used / fair share / limit."


_NO_LIMIT = "none"

START_COLUMN = Column("START (UTC)")


class ClusterTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster of an admission, with replicas if they are divided."""

    name: str
    replicas: int | None = None


class DecisionReport(msgspec.Struct, frozen=True):
    """One decision, or one workload that remains pending."""

    kind: str
    namespace: str
    name: str
    queue: str
    action: str
    clusters: tuple[ClusterTarget, ...]
    reason: str | None
    message: str


class QueueShareReport(msgspec.Struct, rename="camel", frozen=True):
    """Fair share, usage and limit of one queue.

    ``share`` is usage divided by fair share; null if there is no fair share or if the ratio is infinite.
    """

    name: str
    fair_share: Amounts
    allocated: Amounts
    limit: Amounts
    limited: tuple[str, ...]
    """Resources for which the queue or an ancestor has a capability; others are limited by the capacity only."""
    share: float | None


class DecisionDifference(msgspec.Struct, frozen=True):
    """The decisions that changes bring and those that they replace."""

    added: tuple[DecisionReport, ...]
    removed: tuple[DecisionReport, ...]


class WhatIfReport(msgspec.Struct, frozen=True):
    """What changes of objects change in the plan."""

    changes: tuple[str, ...]
    decisions: DecisionDifference


class AdvanceReservationReport(msgspec.Struct, frozen=True, rename="camel"):
    """Capacity that is kept free for some time (O11); without queue and workload for maintenance."""

    name: str
    clusters: tuple[str, ...]
    since: str | None = msgspec.field(name="from")
    until: str | None
    queue: str | None
    workload: str | None
    """``namespace/name``."""
    amounts: Amounts | None
    """What is kept free on each of the clusters; null for whole clusters."""
    evict: bool
    in_force: bool
    overlapping: int
    """Running workloads that it keeps off and that are not known to end before it begins."""
    missing: Amounts
    """What of the amounts is not expected to be free or in use by its own workloads when it begins, on all clusters."""


class PlanReport(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The decisions of one cycle in order, then pending workloads; and the queues after the cycle."""

    decisions: tuple[DecisionReport, ...]
    queues: tuple[QueueShareReport, ...]
    notes: tuple[str, ...] = ()
    """Results that may be unexpected but are intended."""
    reserved_in_advance: tuple[AdvanceReservationReport, ...] = ()
    """The advance reservations that have not ended, by begin."""
    what_if: WhatIfReport | None = None
    """The difference to the plan without the changes of ``--what-if``."""


class StartReport(msgspec.Struct, frozen=True):
    """When a pending workload starts, with 10, 50 and 90 percent probability; null where that is after 24 hours.

    *after* are workloads whose end lets it start, the most frequent first.
    """

    p10: str | None
    p50: str | None
    p90: str | None
    after: tuple[str, ...]


class PendingReport(msgspec.Struct, rename="camel", frozen=True):
    """One pending workload; ``since`` is null if unknown."""

    queue: str
    position: int
    kind: str
    namespace: str
    name: str
    priority: int
    priority_class: str
    since: str | None
    age: str
    """Time since then, for people: ``3m20s``."""
    reason: str
    message: str
    remedy: str
    raised_priority: int | msgspec.UnsetType = msgspec.UNSET
    """The priority as raised by waiting (O10); left out where it is not raised."""
    start: StartReport | None = None
    """Forecast of its start; null where no run time is known, and for all but the first ones of each queue."""


class Pending(msgspec.Struct, rename="camel", frozen=True):
    """The pending workloads after the plan, by queue and position."""

    pending: tuple[PendingReport, ...]
    admitted_next: int
    """Number of workloads that wait now and that the next cycle admits; they are not listed."""


class UsageReport(msgspec.Struct, rename="camel", frozen=True):
    """One admitted workload and what it is charged with; ``since`` is null if unknown."""

    kind: str
    namespace: str
    name: str
    queue: str
    priority: int
    clusters: tuple[str, ...]
    charge: Amounts
    since: str | None
    age: str
    """Time since then, for people: ``3m20s``."""


class WorkloadUsages(msgspec.Struct, frozen=True):
    """The admitted workloads, the largest share of the total capacity first."""

    workloads: tuple[UsageReport, ...]


class NextCycle(msgspec.Struct, frozen=True):
    """What the next scheduling cycle would change in a queue and the queues below it."""

    admitted: int
    evicted: int
    pending: int
    """Pending workloads after the cycle."""
    allocated: Amounts
    """Usage after the cycle; victims hold their charges until they have stopped."""
    share: float | None


class QueueReport(msgspec.Struct, rename="camel", frozen=True):
    """One queue of the hierarchy with its current usage; the numbers of workloads include its descendants."""

    name: str
    parent: str
    path: tuple[str, ...]
    """Queue names from the root; empty if the queue is not connected to the root."""
    weight: int
    priority: int
    state: str
    pending: int
    admitted: int
    fair_share: Amounts
    allocated: Amounts
    limit: Amounts
    limited: tuple[str, ...]
    """Resources for which the queue or an ancestor has a capability; others are limited by the capacity only."""
    share: float | None
    reachable: Amounts | None
    """Capacity of the clusters that its pending workloads can use; null if that is all of it."""
    next_cycle: NextCycle | None
    """Set with ``--next-cycle``."""


class Queues(msgspec.Struct, frozen=True, omit_defaults=True):
    """The queues, each after its parent."""

    queues: tuple[QueueReport, ...]
    notes: tuple[str, ...] = ()
    """Results that may be unexpected but are intended."""


class ClusterUsageReport(msgspec.Struct, frozen=True):
    """Our usage and the free capacity of a cluster after the next scheduling cycle."""

    usage: Amounts
    free: Amounts


class ClusterReport(msgspec.Struct, rename="camel", frozen=True):
    """One cluster; ``problem`` is why it admits no workloads."""

    name: str
    ready: bool
    problem: str
    admitted: int
    """Number of admitted workloads on it."""
    allocatable: Amounts
    external_usage: Amounts
    usage: Amounts
    free: Amounts
    next_cycle: ClusterUsageReport | None
    """Set with ``--next-cycle``."""


class Clusters(msgspec.Struct, frozen=True):
    """The clusters with their current usage, sorted by name."""

    clusters: tuple[ClusterReport, ...]


QueueShares = QueueShareReport | QueueReport


def plan_table(report: PlanReport, style: OutputStyle) -> str:
    """Format the decisions in order with their clusters and reasons, then the queues."""
    reservations = _advance_reservations(report.reserved_in_advance, style)
    rest = f"{_share_table(report.queues, style)}{reservations}{_notes(report.notes, style)}"
    if not report.decisions:
        return f"No workload is pending.\n\n{rest}"
    decisions = table([Column(title) for title in _DECISION_TITLES], map(_decision_row, report.decisions), style)
    difference = "" if report.what_if is None else f"{_difference(report.what_if, style)}\n\n"
    return f"{difference}{decisions}\n\n{rest}"


def _advance_reservations(reservations: Sequence[AdvanceReservationReport], style: OutputStyle) -> str:
    """Return a table of the advance reservations, nothing without any."""
    if not reservations:
        return ""
    columns = [
        *map(Column, ("RESERVATION", "FOR", "CLUSTERS", "AMOUNTS", "FROM (UTC)", "UNTIL (UTC)")),
        Column("OVERLAPPING", right=True),
        Column("MISSING"),
    ]
    rows = [
        (
            each.name,
            f"queue {each.queue}" if each.queue else each.workload or "maintenance",
            ",".join(each.clusters),
            "all" if each.amounts is None else _listed(each.amounts),
            format_minute(each.since),
            format_minute(each.until),
            str(each.overlapping),
            _listed(each.missing) or "-",
        )
        for each in reservations
    ]
    return f"\n\n{table(columns, rows, style)}"


def _listed(amounts: Amounts) -> str:
    return ",".join(f"{name}={amount}" for name, amount in amounts.items())


_DECISION_TITLES = ("ACTION", "KIND", "NAME", "QUEUE", "CLUSTERS", "REASON")


def _difference(report: WhatIfReport, style: OutputStyle) -> str:
    """Return the decisions that the changes bring, marked with +, and those that they replace, with -."""
    title = paragraph(f"With {'; '.join(report.changes)}:", style)
    marked = [("-", each) for each in report.decisions.removed] + [("+", each) for each in report.decisions.added]
    if not marked:
        return f"{title}\nno decision changes."
    rows = ((mark, *_decision_row(decision)) for mark, decision in marked)
    return f"{title}\n{table([Column(''), *map(Column, _DECISION_TITLES)], rows, style)}"


def _notes(notes: Sequence[str], style: OutputStyle) -> str:
    return "".join(f"\n\n{paragraph(f'Note: {note}.', style)}" for note in notes)


def _share_table(queues: Sequence[QueueShareReport], style: OutputStyle) -> str:
    """Return a table of the queues after the decisions."""
    resources = _main_resources(queue.allocated for queue in queues)[:_MAX_RESOURCES]
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


def _decision_row(step: DecisionReport) -> Sequence[Cell | str]:
    clusters = (
        f"{cluster.name}{'' if cluster.replicas is None else f'={cluster.replicas}'}" for cluster in step.clusters
    )
    return (
        Cell(step.action, _ACTIONS.get(step.action, "")),
        step.kind,
        _path(step.namespace, step.name),
        step.queue,
        ",".join(clusters),
        step.reason or "",
    )


def pending_listing(report: Pending) -> Listing:
    """Return the table of the pending workloads, by queue and position."""
    with_start = any(workload.start for workload in report.pending)
    columns = [
        Column("QUEUE"),
        Column("POS", right=True),
        Column("NAME"),
        Column("PRIORITY", right=True),
        Column("AGE", right=True),
        Column("REASON"),
        *((START_COLUMN,) if with_start else ()),
        Column("KIND", is_wide=True),
        Column("PRIORITY CLASS", is_wide=True),
        Column("SINCE (UTC)", is_wide=True),
        Column("MESSAGE", is_wide=True, is_text=True),
    ]
    count = report.admitted_next
    note = f"Not listed: {count} {'workload' if count == 1 else 'workloads'} admitted by the next cycle."
    return Listing(
        columns,
        [_pending_row(workload, with_start=with_start) for workload in report.pending],
        [_object_name(workload.kind, workload.namespace, workload.name) for workload in report.pending],
        "No workload is pending.",
        (note,) if count else (),
    )


def format_start(start: StartReport | None) -> str:
    """Format the median of a forecast for a table."""
    if start is None:
        return "-"
    return format_minute(start.p50) if start.p50 else "> 24 h"


def _priority(workload: PendingReport) -> str:
    raised = workload.raised_priority
    return str(workload.priority) if raised is msgspec.UNSET else f"{raised} ({workload.priority})"


def _pending_row(workload: PendingReport, *, with_start: bool) -> Row:
    return (
        workload.queue,
        str(workload.position),
        _path(workload.namespace, workload.name),
        _priority(workload),
        workload.age,
        Cell(workload.reason, "yellow"),
        *((format_start(workload.start),) if with_start else ()),
        workload.kind,
        workload.priority_class,
        format_minute(workload.since),
        workload.message,
    )


def top_listing(report: WorkloadUsages) -> Listing:
    """Return the table of the admitted workloads."""
    resources = _main_resources(workload.charge for workload in report.workloads)
    columns = [
        Column("NAME"),
        Column("QUEUE"),
        Column("CLUSTERS"),
        *_resource_columns(resources, right=True),
        Column("AGE", right=True),
        Column("KIND", is_wide=True),
        Column("PRIORITY", right=True, is_wide=True),
        Column("SINCE (UTC)", is_wide=True),
    ]
    rows = [
        (
            _path(workload.namespace, workload.name),
            workload.queue,
            ",".join(workload.clusters),
            *(in_unit(name, workload.charge) for name in resources),
            workload.age,
            workload.kind,
            str(workload.priority),
            format_minute(workload.since),
        )
        for workload in report.workloads
    ]
    names = [_object_name(workload.kind, workload.namespace, workload.name) for workload in report.workloads]
    return Listing(columns, rows, names, "No workload is admitted.")


def queues_listing(report: Queues) -> Listing:
    """Return the table of the queues with usage, fair share and limit."""
    resources = _main_resources((*(queue.allocated for queue in report.queues),))
    has_next = any(queue.next_cycle for queue in report.queues)
    columns = [
        Column("QUEUE"),
        Column("STATE"),
        Column("PENDING", right=True),
        Column("ADMITTED", right=True),
        *_resource_columns(resources, parts=("USED", "FAIR SHARE", "LIMIT")),
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


def _resource_columns(resources: Iterable[str], *, right: bool = False, parts: tuple[str, ...] = ()) -> list[Column]:
    """Return the columns of *resources*; those beyond the maximum are wide."""
    titled = ((number, resource_title(name)) for number, name in enumerate(resources))
    return [
        Column(title, right=right, is_wide=number >= _MAX_RESOURCES, parts=tuple(f"{title} {part}" for part in parts))
        for number, title in titled
    ]


def _main_resources(amounts: Iterable[Amounts]) -> list[str]:
    """Return cpu and memory, then the other resources by name; the columns do not depend on usage."""
    resources = {name for each in amounts for name in each} - {"pods"}
    return [*_MAIN_RESOURCES, *sorted(resources - set(_MAIN_RESOURCES), key=lambda name: (is_bytes(name), name))]


def _share_cell(resource: str, queue: QueueShares) -> str:
    used, share, limit = (in_unit(resource, amounts) for amounts in (queue.allocated, queue.fair_share, queue.limit))
    is_limited = resource in queue.limited or limit == "-"
    return f"{used}/{share}/{limit if is_limited else _NO_LIMIT}"


def clusters_listing(report: Clusters) -> Listing:
    """Return a table with one row for each resource of each cluster."""
    has_next = any(cluster.next_cycle for cluster in report.clusters)
    columns = [
        Column("CLUSTER"),
        Column("READY"),
        Column("ADMITTED", right=True),
        Column("RESOURCE"),
        Column("ALLOCATABLE", right=True),
        Column("EXTERNAL", right=True),
        Column("OURS", right=True),
        Column("FREE", right=True),
        *([Column("NEXT OURS", right=True), Column("NEXT FREE", right=True)] * has_next),
        Column("PROBLEM", is_wide=True),
    ]
    rows = [row for cluster in report.clusters for row in _cluster_rows(cluster)]
    names = [f"cluster.cluster.karmada.io/{cluster.name}" for cluster in report.clusters]
    notes = [f"Note: cluster '{cluster.name}' {cluster.problem}." for cluster in report.clusters if cluster.problem]
    return Listing(columns, rows, names, "There is no cluster.", notes)


def _cluster_rows(cluster: ClusterReport) -> Iterator[Row]:
    ready = Cell("yes", "green") if cluster.ready else Cell("no", "red")
    after = (cluster.next_cycle.usage, cluster.next_cycle.free) if cluster.next_cycle else ()
    columns = (cluster.allocatable, cluster.external_usage, cluster.usage, cluster.free, *after)
    head = cluster.name, ready, str(cluster.admitted)
    if not cluster.allocatable:
        yield *head, "", *("" for _ in columns), cluster.problem
    for name in cluster.allocatable:
        unit = f"{name} GiB" if is_bytes(name) else name
        yield *head, unit, *(in_unit(name, column) for column in columns), cluster.problem


_OBJECTS = MappingProxyType({"Job": "job.batch.volcano.sh", "Deployment": "deployment.apps"})


def _object_name(kind: str, namespace: str, name: str) -> str:
    """Return the name of a workload as ``kubectl get -o name`` prints it, after its namespace."""
    return f"{_OBJECTS.get(kind, kind.lower())}/{_path(namespace, name)}"


def _path(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
