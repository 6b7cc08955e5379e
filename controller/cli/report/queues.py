"""Reports usage, fair share and limit of the queues after the plan."""

from collections.abc import Iterable, Iterator

import msgspec

from controller.cli.input.snapshot import Snapshot
from controller.cli.report.amounts import Amounts, quantities
from controller.cli.report.borrowing import borrowing_notes
from controller.engine.state.hierarchy import ROOT, Node, Queue, QueueName
from controller.engine.state.resources import PODS, Resources


class QueueShareReport(msgspec.Struct, rename="camel", frozen=True):
    """Fair share, usage and limit of one queue.

    ``share`` is usage divided by fair share; null if there is no fair share or if the ratio is infinite.
    """

    name: str
    fair_share: Amounts
    allocated: Amounts
    limit: Amounts
    share: float | None


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


def queue_share_reports(snapshot: Snapshot) -> tuple[QueueShareReport, ...]:
    """Return the shares of all queues, including parents and the root, sorted by name."""
    tree = snapshot.shares.quota.tree
    names = sorted({*tree.nodes, *snapshot.state.queues})
    return tuple(queue_share_report(snapshot, name) for name in names)


def queue_share_report(snapshot: Snapshot, name: QueueName) -> QueueShareReport:
    """Return the share of one queue; a queue outside the hierarchy has usage only."""
    shares, state = snapshot.shares, snapshot.state
    resources = relevant_resources(snapshot, name)
    is_known = name in shares.quota.tree.nodes
    usage: Resources = (
        state.current_quota.allocated[name] if is_known and state.current_quota else state.current_usage.get(name, {})
    )
    limit = shares.quota.limits[name].limit if is_known else {}
    return QueueShareReport(
        name=name,
        fair_share=quantities(
            shares.fair_shares.get(name, {}), [resource for resource in resources if resource != PODS]
        ),
        allocated=quantities(usage, resources),
        limit=quantities({resource: max(amount, 0) for resource, amount in limit.items()}, resources),
        share=_share(snapshot, name, usage) if is_known else None,
    )


def relevant_resources(snapshot: Snapshot, name: QueueName) -> list[str]:
    """Return the resources that any queue uses, requests or limits, or else those of the clusters.

    ``pods`` is included only if this queue names it.
    """
    state = snapshot.state
    resources = set(snapshot.shares.fair_shares[ROOT])
    for queue in state.queues.values():
        resources.update(queue.capability, queue.deserved, queue.guarantee)
    resources = resources or set(state.cluster_usage.root_limit())
    queue = state.queues.get(name, Queue(name))
    return sorted(resources - {PODS} | ({PODS} if queue.names(PODS) else set()))


def _share(snapshot: Snapshot, name: QueueName, usage: Resources) -> float | None:
    """Return usage divided by fair share, rounded; the engine uses exact fractions instead."""
    if not any(amount > 0 for amount in snapshot.shares.fair_shares[name].values()):
        return None
    is_infinite, share = snapshot.shares.usage_ratio_with(name, usage)
    return None if is_infinite else float(round(share, 3))


def queue_reports(snapshot: Snapshot) -> Queues:
    """Return all queues of the hierarchy."""
    reports = tuple(_queue_report(snapshot, standing) for standing in queue_share_reports(snapshot))
    return Queues(reports, borrowing_notes(snapshot))


def in_tree_order(queues: Queues) -> Iterator[tuple[int, QueueReport]]:
    """Yield depth and queue, each queue after its parent; queues that are not connected to the root come last."""
    for queue in sorted(queues.queues, key=lambda report: (not report.path, report.path, report.name)):
        yield max(len(queue.path) - 1, 0), queue


def queue_path(snapshot: Snapshot, name: QueueName) -> tuple[QueueName, ...]:
    """Return the queue and its ancestors, the root first; empty if it is not connected to the root."""
    node = snapshot.shares.quota.tree.nodes.get(name)
    return tuple(ancestor.name for ancestor in node.path())[::-1] if node else ()


def _queue_report(snapshot: Snapshot, standing: QueueShareReport) -> QueueReport:
    name = QueueName(standing.name)
    tree = snapshot.shares.quota.tree
    node = tree.nodes.get(name)
    queue = node.queue if node else snapshot.state.queues[name]
    return QueueReport(
        name=name,
        parent="" if name == ROOT else queue.parent,
        path=queue_path(snapshot, name),
        weight=queue.weight,
        priority=queue.priority,
        state=queue.state if node else "Broken",
        pending=sum(len(snapshot.state.pending_workloads(each)) for each in (_subtree(node) if node else (name,))),
        fair_share=standing.fair_share,
        allocated=standing.allocated,
        limit=standing.limit,
        share=standing.share,
    )


def _subtree(node: Node) -> Iterable[QueueName]:
    yield node.name
    for child in node.children:
        yield from _subtree(child)
