"""The commands `plan`, `queues`, `pending` and `clusters`: each reports one part of a scheduling cycle.

The JSON forms of the reports are a stable interface for programs.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Annotated

import typer

from controller.cli.commands.options import CommonOptions, with_common_options
from controller.cli.input.snapshot import NotFoundError, Snapshot
from controller.cli.render.output import format_time, quantities
from controller.cli.render.plan import (
    ClusterReport,
    Clusters,
    ClusterTarget,
    DecisionReport,
    Pending,
    PendingReport,
    PlanReport,
    QueueReport,
    Queues,
    QueueShareReport,
    clusters_table,
    pending_table,
    plan_table,
    queues_table,
)
from controller.engine.placement.feasibility_cache import why_unusable
from controller.engine.plan import Admit, Decision
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.cluster_usage import ClusterState
from controller.engine.state.hierarchy import ROOT, Node, Queue, QueueName
from controller.engine.state.resources import PODS, Resources
from controller.engine.state.workloads import Workload
from controller.reporting.messages import EVICTION_MESSAGES, pending_message, remedy_message

# A line with only a backspace prevents the lines after it from being rewrapped.
PLAN_HELP = """
Plan one scheduling cycle and print it: admissions and their clusters, pending workloads and their reasons, and the
usage of the queues afterwards.

Files may contain Queues, Clusters, PriorityClasses, Jobs and other templates, propagation policies, bindings, HyperJobs
and a VolcanoGlobalConfiguration, as YAML or JSON, also as lists printed by kubectl. A HyperJob is planned as its Jobs.
A job without a binding is pending with the placement of the policy that matches it; without a policy, it may be placed
on any one cluster.

\b
Examples:
  volcano-global plan -f objects.yaml
  volcano-global plan -f queues/ -f jobs.yaml -o json
  kubectl get queues,clusters,jobs.batch.volcano.sh,resourcebindings -A -o yaml \\
    | volcano-global plan -f -
  volcano-global plan --kubeconfig karmada.config
"""

QUEUES_HELP = """
Print the queue hierarchy: weight, priority, state, pending workloads, usage, fair share and limit.

\b
Examples:
  volcano-global queues
  volcano-global queues -f objects.yaml -o json
"""

PENDING_HELP = """
Print the pending workloads after the next scheduling cycle: position, priority, pending time and reason.

\b
Examples:
  volcano-global pending
  volcano-global pending --queue research -o json
  volcano-global pending | grep InsufficientCapacity
"""

CLUSTERS_HELP = """
Print the member clusters: allocatable resources, external usage, our usage and free capacity.

\b
Examples:
  volcano-global clusters
  volcano-global clusters -f objects.yaml -o json
"""


@with_common_options
def plan(options: CommonOptions) -> None:
    """Print the plan of one scheduling cycle."""
    options.print_report(plan_report(options.snapshot()), plan_table)


@with_common_options
def queues(options: CommonOptions) -> None:
    """Print the queue hierarchy."""
    options.print_report(queue_reports(options.snapshot()), queues_table)


@with_common_options
def pending(
    options: CommonOptions,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Only the workloads of this queue.")] = None,
) -> None:
    """Print pending workloads."""
    snapshot = options.snapshot()
    if queue is not None:
        _require_queue(snapshot, QueueName(queue))
    options.print_report(pending_reports(snapshot, QueueName(queue) if queue else None), pending_table)


@with_common_options
def clusters(options: CommonOptions) -> None:
    """Print the member clusters."""
    options.print_report(cluster_reports(options.snapshot()), clusters_table)


def _require_queue(snapshot: Snapshot, queue: QueueName) -> None:
    """Raise `NotFoundError` for a queue that does not exist and that no pending workload names."""
    known = {*snapshot.state.queues, *snapshot.state.queues_with_pending()}
    if queue not in known and queue != "root":
        near = get_close_matches(queue, sorted(known), n=3) or sorted(known)[:5]
        raise NotFoundError(f"queue {queue} does not exist" + (f"; there is {', '.join(near)}" if near else ""))


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


def borrowing_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return a note for each queue that borrows while a lower-priority queue has workloads within its fair share."""
    policy = snapshot.state.policy
    if policy.queue_order != "PriorityFirst" or policy.reclaim.enabled:
        return ()
    leaves = [node for node in snapshot.shares.quota.tree.leaves() if node.parent is not None]
    lacking = [(leaf, resources) for leaf in leaves if (resources := _requests_within_fair_share(snapshot, leaf))]
    return tuple(_notes(snapshot, leaves, lacking))


def _notes(snapshot: Snapshot, leaves: list[Node], lacking: list[tuple[Node, frozenset[str]]]) -> Iterator[str]:
    for leaf in leaves:
        over = _borrowed_resources(snapshot, leaf)
        lower = [
            other for other, requested in lacking if other.queue.priority < leaf.queue.priority and over & requested
        ]
        if lower:
            first, other = leaf.queue, lower[0].queue
            yield (
                f"queue '{first.name}' (priority {first.priority}) uses more {', '.join(sorted(over))} than its "
                f"fair share, and queue '{other.name}' (priority {other.priority}) has workloads pending within its "
                "own: queueOrder PriorityFirst admits from queues of higher priority first"
            )


def _borrowed_resources(snapshot: Snapshot, leaf: Node) -> frozenset[str]:
    """Return the resources with usage above the queue's fair share."""
    fair_share, used = snapshot.shares.fair_shares[leaf.name], snapshot.shares.quota.allocated[leaf.name]
    return frozenset(name for name, amount in used.items() if name != PODS and amount > fair_share.get(name, 0))


def _requests_within_fair_share(snapshot: Snapshot, leaf: Node) -> frozenset[str]:
    """Return the resources that a queue's pending workloads request and that would stay within its fair share."""
    workload_classes = snapshot.state.pending.queues.get(leaf.name, ())
    waiting = [
        workload_class
        for workload_class in workload_classes
        if workload_class.inadmissible is None and workload_class.is_waiting
    ]
    within_share = [
        workload_class for workload_class in waiting if not snapshot.shares.borrows(leaf, workload_class.charge)
    ]
    charges = [workload_class.charge for workload_class in within_share]
    return frozenset(name for charge in charges for name, amount in charge.items() if amount > 0 and name != PODS)


def plan_report(snapshot: Snapshot) -> PlanReport:
    """Return the decisions in order, then the pending workloads without a decision, by queue and position."""
    decided = (_decided_report(decision) for decision in snapshot.plan.decisions)
    evicted = {decision.workload.uid for decision in snapshot.plan.decisions}
    waiting = (
        _wait_report(workload, refusal)
        for _, workload, refusal in pending_workloads(snapshot)
        if workload.uid not in evicted
    )
    return PlanReport((*decided, *waiting), queue_share_reports(snapshot), borrowing_notes(snapshot))


def pending_workloads(snapshot: Snapshot) -> Iterator[tuple[int, Workload, Refusal]]:
    """Yield position, workload and reason of each pending workload, by queue and position."""
    for queue in snapshot.state.queues_with_pending():
        for position, workload in enumerate(snapshot.state.pending_workloads(queue), start=1):
            refusal = snapshot.state.refusal(workload.uid)
            if refusal is not None:
                yield position, workload, refusal


def _decided_report(decision: Decision) -> DecisionReport:
    if isinstance(decision, Admit):
        clusters = tuple(ClusterTarget(assignment.name, assignment.replicas) for assignment in decision.clusters)
        return _decision_report(decision.workload, "Admit", clusters=clusters)
    message = EVICTION_MESSAGES[decision.reason] if decision.back_off is None else decision.back_off.message
    return _decision_report(decision.workload, "Evict", reason=decision.reason, message=message)


def _wait_report(workload: Workload, refusal: Refusal) -> DecisionReport:
    is_nominated = refusal.reason is Reason.PREEMPTION_IN_PROGRESS and refusal.cluster is not None
    clusters = (ClusterTarget(refusal.cluster),) if is_nominated and refusal.cluster else ()
    return _decision_report(
        workload, "Wait", clusters=clusters, reason=refusal.reason, message=pending_message(refusal)
    )


def _decision_report(
    workload: Workload,
    action: str,
    *,
    clusters: tuple[ClusterTarget, ...] = (),
    reason: str | None = None,
    message: str = "",
) -> DecisionReport:
    return DecisionReport(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        action=action,
        clusters=clusters,
        reason=reason,
        message=message,
    )


def pending_reports(snapshot: Snapshot, queue: QueueName | None = None) -> Pending:
    """Return the pending workloads of *queue* or of all queues."""
    return Pending(
        tuple(
            _pending_report(position, workload, refusal)
            for position, workload, refusal in pending_workloads(snapshot)
            if queue in {None, workload.queue}
        )
    )


def _pending_report(position: int, workload: Workload, refusal: Refusal) -> PendingReport:
    return PendingReport(
        queue=workload.queue,
        position=position,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        priority=workload.priority,
        priority_class=workload.priority_class,
        since=format_time(workload.created_at),
        reason=refusal.reason,
        message=pending_message(refusal),
        remedy=remedy_message(refusal),
    )


def cluster_reports(snapshot: Snapshot) -> Clusters:
    """Return all clusters, including unknown clusters with charges."""
    return Clusters(tuple(_cluster_report(cluster) for cluster in snapshot.state.cluster_usage))


def unusable_reason(cluster: ClusterState) -> str:
    """Return why a cluster admits no workloads, or an empty text."""
    return "is unknown" if cluster.cluster is None else why_unusable(cluster.cluster) or ""


def _cluster_report(cluster: ClusterState) -> ClusterReport:
    charged = {name for name, amount in cluster.charged.items() if amount}
    resources = sorted({*cluster.allocatable, *cluster.external_usage, *charged})
    return ClusterReport(
        name=cluster.name,
        ready=cluster.is_usable,
        problem=unusable_reason(cluster),
        allocatable=quantities(cluster.allocatable, resources),
        external_usage=quantities(cluster.external_usage, resources),
        usage=quantities(cluster.charged, resources),
        free=quantities(cluster.headroom, resources),
    )
