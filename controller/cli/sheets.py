"""Reports as tables for people, readable at 80 columns."""

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType

from controller.api.quantity import parse_quantity
from controller.cli.report.amounts import Amounts, minute, short
from controller.cli.report.clusters import ClusterReport, Clusters
from controller.cli.report.pending import Pending, PendingReport
from controller.cli.report.plan import PlanReport, Step
from controller.cli.report.queues import QueueReport, Queues, QueueStanding, in_tree_order
from controller.cli.screen import Cell, Column, Screen, paragraph, table

_ACTIONS = MappingProxyType({"Admit": "green", "Wait": "yellow", "Evict": "red"})
_MAIN = ("cpu", "memory")
_MOST_RESOURCES = 3


def plan_sheet(report: PlanReport, screen: Screen) -> str:
    """Return the decisions in order, and where or why."""
    if not report.decisions:
        return f"Nothing waits.\n\n{_standings(report.queues, screen)}{_notes(report.notes, screen)}"
    titles = ("ACTION", "KIND", "NAME", "QUEUE", "CLUSTERS", "REASON")
    decisions = table([Column(title) for title in titles], map(_step, report.decisions), screen)
    return f"{decisions}\n\n{_standings(report.queues, screen)}{_notes(report.notes, screen)}"


def _notes(notes: Sequence[str], screen: Screen) -> str:
    return "".join(f"\n\n{paragraph(f'Note: {note}.', screen)}" for note in notes)


def _standings(queues: Sequence[QueueStanding], screen: Screen) -> str:
    """Return how the queues stand after the decisions."""
    resources = _main_resources(queues)
    columns = [Column("QUEUE"), Column("SHARE", right=True), *(Column(_title(name)) for name in resources)]
    rows = (
        (each.name, "" if each.share is None else f"{each.share:g}", *(_held(name, each) for name in resources))
        for each in queues
    )
    return f"{table(columns, rows, screen)}\n\n{_LEGEND}"


def _step(step: Step) -> Sequence[Cell | str]:
    clusters = (f"{each.name}{'' if each.replicas is None else f'={each.replicas}'}" for each in step.clusters)
    return (
        Cell(step.action, _ACTIONS.get(step.action, "")),
        step.kind,
        _path(step.namespace, step.name),
        step.queue,
        ",".join(clusters),
        step.reason or "",
    )


def pending_sheet(report: Pending, screen: Screen) -> str:
    """Return those who wait, by queue and position."""
    columns = [
        Column("QUEUE"),
        Column("POS", right=True),
        Column("NAME"),
        Column("PRIORITY", right=True),
        Column("SINCE (UTC)"),
        Column("REASON"),
    ]
    rows = [_pending(each) for each in report.pending]
    return table(columns, rows, screen) if rows else "Nothing waits."


def _pending(each: PendingReport) -> Sequence[Cell | str]:
    return (
        each.queue,
        str(each.position),
        _path(each.namespace, each.name),
        str(each.priority),
        minute(each.since),
        Cell(each.reason, "yellow"),
    )


def queues_sheet(report: Queues, screen: Screen) -> str:
    """Return the tree of queues with what they hold, are entitled to and may have at most."""
    resources = _main_resources(report.queues)
    columns = [
        Column("QUEUE"),
        Column("WEIGHT", right=True),
        Column("PRIO", right=True),
        Column("STATE"),
        Column("PENDING", right=True),
        *(Column(_title(name)) for name in resources),
    ]
    rows = (_queue(depth, queue, resources) for depth, queue in in_tree_order(report))
    return f"{table(columns, rows, screen)}\n\n{_LEGEND}{_notes(report.notes, screen)}"


_LEGEND = "Of each resource: allocated / entitlement / ceiling."


Standing = QueueStanding | QueueReport


def _main_resources(queues: Sequence[Standing]) -> list[str]:
    """Return the resources there is room for: cpu and memory, then the others by name."""
    found = {name for queue in queues for name in queue.allocated}
    return [*(name for name in _MAIN if name in found), *sorted(found - set(_MAIN))][:_MOST_RESOURCES]


def _queue(depth: int, queue: QueueReport, resources: Iterable[str]) -> Sequence[Cell | str]:
    return (
        f"{'  ' * depth}{queue.name}",
        str(queue.weight),
        str(queue.priority),
        Cell(queue.state, "" if queue.state == "Open" else "red"),
        str(queue.pending),
        *(_held(name, queue) for name in resources),
    )


def _title(resource: str) -> str:
    return resource.rpartition("/")[2].upper()


def _held(resource: str, queue: Standing) -> str:
    amounts = (queue.allocated, queue.entitlement, queue.ceiling)
    return "/".join(brief(resource, each) for each in amounts)


def clusters_sheet(report: Clusters, screen: Screen) -> str:
    """Return a row for each resource of each cluster."""
    columns = [
        Column("CLUSTER"),
        Column("READY"),
        Column("RESOURCE"),
        Column("ALLOCATABLE", right=True),
        Column("FOREIGN", right=True),
        Column("OURS", right=True),
        Column("FREE", right=True),
    ]
    rows = [row for cluster in report.clusters for row in _cluster(cluster)]
    return table(columns, rows, screen) if rows else "There is no cluster."


def _cluster(cluster: ClusterReport) -> Iterator[Sequence[Cell | str]]:
    ready = Cell("yes", "green") if cluster.ready else Cell(f"no: {cluster.trouble}", "red")
    if not cluster.allocatable:
        yield cluster.name, ready, "", "", "", "", ""
    for name in cluster.allocatable:
        amounts = (cluster.allocatable, cluster.foreign, cluster.ours, cluster.free)
        yield cluster.name, ready, name, *(brief(name, each) for each in amounts)


def brief(resource: str, amounts: Amounts) -> str:
    """Return one of the exact *amounts* for people; one that is not limited or not known is a dash."""
    return short(resource, parse_quantity(resource, amounts[resource])) if resource in amounts else "-"


def _path(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
