"""Names queues that borrow before a queue of lower priority has its entitlement: intended with PriorityFirst (O4)."""

from collections.abc import Iterator

from controller.cli.snapshot import Snapshot
from controller.engine.resources import PODS
from controller.engine.tree import Node


def borrowing_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return a sentence for each queue that borrows while a workload of lower queue priority is due its share."""
    policy = snapshot.state.policy
    if policy.queue_order != "PriorityFirst" or policy.reclaim.enabled:
        return ()
    leaves = [node for node in snapshot.standing.quota.tree.leaves() if node.parent is not None]
    lacking = [(leaf, resources) for leaf in leaves if (resources := _requests_within_fair_share(snapshot, leaf))]
    return tuple(_notes(snapshot, leaves, lacking))


def _notes(snapshot: Snapshot, leaves: list[Node], lacking: list[tuple[Node, frozenset[str]]]) -> Iterator[str]:
    for leaf in leaves:
        over = _borrowed_resources(snapshot, leaf)
        behind = [other for other, asked in lacking if other.queue.priority < leaf.queue.priority and over & asked]
        if behind:
            first, other = leaf.queue, behind[0].queue
            yield (
                f"queue '{first.name}' (priority {first.priority}) holds more {', '.join(sorted(over))} than its "
                f"entitlement, and queue '{other.name}' (priority {other.priority}) waits within its own: "
                "queueOrder PriorityFirst serves queues of higher priority first"
            )


def _borrowed_resources(snapshot: Snapshot, leaf: Node) -> frozenset[str]:
    """Return the resources of which a queue holds more than its entitlement."""
    due, held = snapshot.standing.fair_shares[leaf.name], snapshot.standing.quota.allocated[leaf.name]
    return frozenset(name for name, amount in held.items() if name != PODS and amount > due.get(name, 0))


def _requests_within_fair_share(snapshot: Snapshot, leaf: Node) -> frozenset[str]:
    """Return what the workloads of a queue ask for that wait for room and would stay within its entitlement."""
    lanes = snapshot.state.pending.queues.get(leaf.name, ())
    waiting = [lane for lane in lanes if lane.inadmissible is None and lane.is_waiting]
    entitled = [lane for lane in waiting if not snapshot.standing.borrows(leaf, lane.charge)]
    return frozenset(name for lane in entitled for name, amount in lane.charge.items() if amount > 0 and name != PODS)
