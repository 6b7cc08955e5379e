"""The reports of a scheduling cycle, and their tables, which are readable at 80 columns."""

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType

import msgspec

from controller.api.quantity import parse_quantity
from controller.cli.render.output import (
    Amounts,
    Cell,
    Column,
    OutputStyle,
    format_minute,
    format_short,
    paragraph,
    table,
)

_ACTIONS = MappingProxyType({"Admit": "green", "Wait": "yellow", "Evict": "red"})


_MAIN_RESOURCES = ("cpu", "memory")


_MAX_RESOURCES = 3


_LEGEND = "Resource columns: used / fair share / limit."


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
    share: float | None


class PlanReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decisions of one cycle in order, then pending workloads; and the queues after the cycle."""

    decisions: tuple[DecisionReport, ...]
    queues: tuple[QueueShareReport, ...]
    notes: tuple[str, ...] = ()
    """Results that may be unexpected but are intended."""


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
    reason: str
    message: str
    remedy: str


class Pending(msgspec.Struct, frozen=True):
    """The pending workloads after the plan, by queue and position."""

    pending: tuple[PendingReport, ...]


class QueueReport(msgspec.Struct, rename="camel", frozen=True):
    """One queue of the hierarchy; ``pending`` counts the pending workloads of the queue and its descendants."""

    name: str
    parent: str
    path: tuple[str, ...]
    """Queue names from the root; empty if the queue is not connected to the root."""
    weight: int
    priority: int
    state: str
    pending: int
    fair_share: Amounts
    allocated: Amounts
    limit: Amounts
    share: float | None


class Queues(msgspec.Struct, frozen=True, omit_defaults=True):
    """All queues, sorted by name."""

    queues: tuple[QueueReport, ...]
    notes: tuple[str, ...] = ()
    """Results that may be unexpected but are intended."""


class ClusterReport(msgspec.Struct, rename="camel", frozen=True):
    """One cluster; ``problem`` is why it admits no workloads."""

    name: str
    ready: bool
    problem: str
    allocatable: Amounts
    external_usage: Amounts
    usage: Amounts
    free: Amounts


class Clusters(msgspec.Struct, frozen=True):
    """All clusters after the plan, sorted by name."""

    clusters: tuple[ClusterReport, ...]


QueueShares = QueueShareReport | QueueReport


def in_tree_order(queues: Queues) -> Iterator[tuple[int, QueueReport]]:
    """Yield depth and queue, each queue after its parent; queues that are not connected to the root come last."""
    for queue in sorted(queues.queues, key=lambda report: (not report.path, report.path, report.name)):
        yield max(len(queue.path) - 1, 0), queue


def plan_table(report: PlanReport, style: OutputStyle) -> str:
    """Format the decisions in order with their clusters and reasons, then the queues."""
    if not report.decisions:
        return f"No workload is pending.\n\n{_share_table(report.queues, style)}{_notes(report.notes, style)}"
    titles = ("ACTION", "KIND", "NAME", "QUEUE", "CLUSTERS", "REASON")
    decisions = table([Column(title) for title in titles], map(_decision_row, report.decisions), style)
    return f"{decisions}\n\n{_share_table(report.queues, style)}{_notes(report.notes, style)}"


def _notes(notes: Sequence[str], style: OutputStyle) -> str:
    return "".join(f"\n\n{paragraph(f'Note: {note}.', style)}" for note in notes)


def _share_table(queues: Sequence[QueueShareReport], style: OutputStyle) -> str:
    """Return a table of the queues after the decisions."""
    resources = _main_resources(queues)
    columns = [Column("QUEUE"), Column("SHARE", right=True), *(Column(_title(name)) for name in resources)]
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


def pending_table(report: Pending, style: OutputStyle) -> str:
    """Format the pending workloads, by queue and position."""
    columns = [
        Column("QUEUE"),
        Column("POS", right=True),
        Column("NAME"),
        Column("PRIORITY", right=True),
        Column("SINCE (UTC)"),
        Column("REASON"),
    ]
    rows = [_pending_row(workload) for workload in report.pending]
    return table(columns, rows, style) if rows else "No workload is pending."


def _pending_row(workload: PendingReport) -> Sequence[Cell | str]:
    return (
        workload.queue,
        str(workload.position),
        _path(workload.namespace, workload.name),
        str(workload.priority),
        format_minute(workload.since),
        Cell(workload.reason, "yellow"),
    )


def queues_table(report: Queues, style: OutputStyle) -> str:
    """Format the queue hierarchy with usage, fair share and limit."""
    resources = _main_resources(report.queues)
    columns = [
        Column("QUEUE"),
        Column("WEIGHT", right=True),
        Column("PRIO", right=True),
        Column("STATE"),
        Column("PENDING", right=True),
        *(Column(_title(name)) for name in resources),
    ]
    rows = (_queue_row(depth, queue, resources) for depth, queue in in_tree_order(report))
    return f"{table(columns, rows, style)}\n\n{_LEGEND}{_notes(report.notes, style)}"


def _main_resources(queues: Sequence[QueueShares]) -> list[str]:
    """Return the resources that get a column: cpu and memory, then others by name, up to the maximum."""
    resources = {name for queue in queues for name in queue.allocated}
    return [*(name for name in _MAIN_RESOURCES if name in resources), *sorted(resources - set(_MAIN_RESOURCES))][
        :_MAX_RESOURCES
    ]


def _queue_row(depth: int, queue: QueueReport, resources: Iterable[str]) -> Sequence[Cell | str]:
    return (
        f"{'  ' * depth}{queue.name}",
        str(queue.weight),
        str(queue.priority),
        Cell(queue.state, "" if queue.state == "Open" else "red"),
        str(queue.pending),
        *(_share_cell(name, queue) for name in resources),
    )


def _title(resource: str) -> str:
    return resource.rpartition("/")[2].upper()


def _share_cell(resource: str, queue: QueueShares) -> str:
    amounts = (queue.allocated, queue.fair_share, queue.limit)
    return "/".join(format_amount(resource, amount) for amount in amounts)


def clusters_table(report: Clusters, style: OutputStyle) -> str:
    """Format one row for each resource of each cluster."""
    columns = [
        Column("CLUSTER"),
        Column("READY"),
        Column("RESOURCE"),
        Column("ALLOCATABLE", right=True),
        Column("EXTERNAL", right=True),
        Column("OURS", right=True),
        Column("FREE", right=True),
    ]
    rows = [row for cluster in report.clusters for row in _cluster_rows(cluster)]
    return table(columns, rows, style) if rows else "There is no cluster."


def _cluster_rows(cluster: ClusterReport) -> Iterator[Sequence[Cell | str]]:
    ready = Cell("yes", "green") if cluster.ready else Cell(f"no: {cluster.problem}", "red")
    if not cluster.allocatable:
        yield cluster.name, ready, "", "", "", "", ""
    for name in cluster.allocatable:
        amounts = (cluster.allocatable, cluster.external_usage, cluster.usage, cluster.free)
        yield cluster.name, ready, name, *(format_amount(name, column) for column in amounts)


def format_amount(resource: str, amounts: Amounts) -> str:
    """Format the amount of *resource* with at most two decimals; a missing amount is a dash."""
    return format_short(resource, parse_quantity(resource, amounts[resource])) if resource in amounts else "-"


def _path(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
