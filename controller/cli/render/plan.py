"""The reports of a scheduling cycle, and their tables, which are readable at 80 columns."""

from collections.abc import Iterator, Sequence
from types import MappingProxyType

import msgspec

from controller.api.quantity import is_bytes
from controller.cli.render.amounts import Amounts, format_minute, in_unit
from controller.cli.render.output import Cell, Column, Listing, OutputStyle, Row, paragraph, table
from controller.cli.render.queues import QueueShareReport, main_resources, resource_columns, share_table

_ACTIONS = MappingProxyType({"Admit": "green", "Wait": "yellow", "Evict": "red"})
START_COLUMN = Column("START (UTC)")


class ClusterTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster of an admission."""

    name: str
    replicas: int | None = None
    """Replicas there, where Karmada divides the workload; left out otherwise."""


class DecisionReport(msgspec.Struct, frozen=True):
    """One decision, or one workload that remains pending."""

    kind: str
    namespace: str
    name: str
    queue: str
    action: str
    """``Admit``, ``Wait`` or ``Evict``."""
    clusters: tuple[ClusterTarget, ...]
    """Where it is admitted, or the nominated cluster of a ``Wait``."""
    reason: str | None
    """The pending or eviction reason; null for an ``Admit``."""
    message: str


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
    """When a pending workload starts."""

    p10: str | None
    """It starts by then with 10 % probability."""
    p50: str | None
    """It starts by then with 50 % probability; null, like *p90*, if that is later than was simulated."""
    p90: str | None
    """It starts by then with 90 % probability."""
    after: tuple[str, ...]
    """Workloads whose end lets it start, the most frequent first."""
    complete: bool = True
    """Whether all 24 hours were simulated; if not, a time that is null may be earlier than in 24 hours."""


class PendingReport(msgspec.Struct, rename="camel", frozen=True):
    """One pending workload."""

    queue: str
    position: int
    """Position in its queue, from 1."""
    kind: str
    group: str
    """API group of the kind."""
    namespace: str
    name: str
    priority: int
    priority_class: str
    since: str | None
    """Creation of the template, which is its age in the queue; null if unknown."""
    age: str
    """Time since then, for people: ``3m20s``."""
    reason: str
    """The code of the reason."""
    message: str
    remedy: str
    """What would admit it."""
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
    """One admitted workload and what it is charged with."""

    kind: str
    group: str
    """API group of the kind."""
    namespace: str
    name: str
    queue: str
    priority: int
    clusters: tuple[str, ...]
    charge: Amounts
    since: str | None
    """When it was admitted; null if unknown."""
    age: str
    """Time since then, for people: ``3m20s``."""


class WorkloadUsages(msgspec.Struct, frozen=True):
    """The admitted workloads, the largest share of the total capacity first."""

    workloads: tuple[UsageReport, ...]


class ClusterUsageReport(msgspec.Struct, frozen=True):
    """Our usage and the free capacity of a cluster after the next scheduling cycle."""

    usage: Amounts
    free: Amounts


class ClusterReport(msgspec.Struct, rename="camel", frozen=True):
    """One cluster."""

    name: str
    ready: bool
    problem: str
    """Why it admits no workloads; empty if it does."""
    admitted: int
    """Number of admitted workloads on it."""
    allocatable: Amounts
    external_usage: Amounts
    """What others use."""
    usage: Amounts
    """What admitted workloads are charged with."""
    free: Amounts
    """Headroom; negative where more is used than there is."""
    next_cycle: ClusterUsageReport | None
    """Set with ``--next-cycle``."""


class Clusters(msgspec.Struct, frozen=True):
    """The clusters with their current usage, sorted by name."""

    clusters: tuple[ClusterReport, ...]


def plan_table(report: PlanReport, style: OutputStyle) -> str:
    """Format the decisions in order with their clusters and reasons, then the queues."""
    reservations = _advance_reservations(report.reserved_in_advance, style)
    rest = f"{share_table(report.queues, style)}{reservations}{_notes(report.notes, style)}"
    difference = "" if report.what_if is None else f"{_difference(report.what_if, style)}\n\n"
    decisions = "No workload is pending."
    if report.decisions:
        decisions = table([Column(title) for title in _DECISION_TITLES], map(_decision_row, report.decisions), style)
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
            reservation.name,
            f"queue {reservation.queue}" if reservation.queue else reservation.workload or "maintenance",
            ",".join(reservation.clusters),
            "all" if reservation.amounts is None else _listed(reservation.amounts),
            format_minute(reservation.since),
            format_minute(reservation.until),
            str(reservation.overlapping),
            _listed(reservation.missing) or "-",
        )
        for reservation in reservations
    ]
    return f"\n\n{table(columns, rows, style)}"


def _listed(amounts: Amounts) -> str:
    return ",".join(f"{name}={amount}" for name, amount in amounts.items())


_DECISION_TITLES = ("ACTION", "KIND", "NAME", "QUEUE", "CLUSTERS", "REASON")


def _difference(report: WhatIfReport, style: OutputStyle) -> str:
    """Return the decisions that the changes bring, marked with +, and those that they replace, with -."""
    title = paragraph(f"With {'; '.join(report.changes)}:", style)
    marked = [("-", decision) for decision in report.decisions.removed] + [
        ("+", decision) for decision in report.decisions.added
    ]
    if not marked:
        return f"{title}\nno decision changes."
    rows = ((mark, *_decision_row(decision)) for mark, decision in marked)
    return f"{title}\n{table([Column(''), *map(Column, _DECISION_TITLES)], rows, style)}"


def _notes(notes: Sequence[str], style: OutputStyle) -> str:
    return "".join(f"\n\n{paragraph(f'Note: {note}.', style)}" for note in notes)


def _decision_row(step: DecisionReport) -> Sequence[Cell | str]:
    clusters = (
        f"{cluster.name}{'' if cluster.replicas is None else f'={cluster.replicas}'}" for cluster in step.clusters
    )
    return (
        Cell(step.action, _ACTIONS.get(step.action, "")),
        step.kind,
        object_path(step.namespace, step.name),
        step.queue,
        ",".join(clusters),
        step.reason or "",
    )


def pending_listing(report: Pending, *, is_narrowed: bool = False) -> Listing:
    """Return the table of the pending workloads, by queue and position; all of them or the selected ones."""
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
        [object_name(workload.kind, workload.group, workload.namespace, workload.name) for workload in report.pending],
        "No selected workload is pending." if is_narrowed else "No workload is pending.",
        (note,) if count else (),
    )


def format_start(start: StartReport | None) -> str:
    """Format the median of a forecast for a table."""
    if start is None:
        return "-"
    if start.p50:
        return format_minute(start.p50)
    return "> 24 h" if start.complete else "later"


def _priority(workload: PendingReport) -> str:
    raised = workload.raised_priority
    return str(workload.priority) if raised is msgspec.UNSET else f"{raised} ({workload.priority})"


def _pending_row(workload: PendingReport, *, with_start: bool) -> Row:
    return (
        workload.queue,
        str(workload.position),
        object_path(workload.namespace, workload.name),
        _priority(workload),
        workload.age,
        Cell(workload.reason, "yellow"),
        *((format_start(workload.start) if workload.start else "",) if with_start else ()),
        workload.kind,
        workload.priority_class,
        format_minute(workload.since) if workload.since else "",
        workload.message,
    )


def top_listing(report: WorkloadUsages, *, is_narrowed: bool = False) -> Listing:
    """Return the table of the admitted workloads, all of them or the selected ones."""
    resources = main_resources(workload.charge for workload in report.workloads)
    columns = [
        Column("NAME"),
        Column("QUEUE"),
        Column("CLUSTERS"),
        *resource_columns(resources, right=True),
        Column("AGE", right=True),
        Column("KIND", is_wide=True),
        Column("PRIORITY", right=True, is_wide=True),
        Column("SINCE (UTC)", is_wide=True),
    ]
    rows = [
        (
            object_path(workload.namespace, workload.name),
            workload.queue,
            ",".join(workload.clusters),
            *(in_unit(name, workload.charge) for name in resources),
            workload.age,
            workload.kind,
            str(workload.priority),
            format_minute(workload.since) if workload.since else "",
        )
        for workload in report.workloads
    ]
    names = [
        object_name(workload.kind, workload.group, workload.namespace, workload.name) for workload in report.workloads
    ]
    empty = "No selected workload is admitted." if is_narrowed else "No workload is admitted."
    return Listing(columns, rows, names, empty)


def clusters_listing(report: Clusters, *, is_narrowed: bool = False) -> Listing:
    """Return a table with one row for each resource of each cluster, all of them or the selected ones."""
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
    return Listing(columns, rows, names, "No cluster is selected." if is_narrowed else "There is no cluster.", notes)


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


def object_name(kind: str, group: str, namespace: str, name: str) -> str:
    """Return the name of an object as ``kubectl get -o name`` prints it, after its namespace."""
    return f"{'.'.join(part for part in (kind.lower(), group) if part)}/{object_path(namespace, name)}"


def object_path(namespace: str, name: str) -> str:
    """Return the name of an object after its namespace, if it has one."""
    return f"{namespace}/{name}" if namespace else name
