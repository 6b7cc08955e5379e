"""Notes about queues that borrow before a queue of lower priority has its fair share, as PriorityFirst intends (O4)."""

from collections.abc import Iterator

from controller.cli.input.snapshot import Snapshot
from controller.engine.state.hierarchy import Node
from controller.engine.state.resources import PODS


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
