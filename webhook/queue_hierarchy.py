"""Volcano's rules for a queue among the others: its parent, its depth, and whose amounts fit into whose.

Reads and writes nothing. The queue that is judged is part of the tree that is given, as it would be stored.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from webhook.queue_cache import MAX_DEPTH, ancestors
from webhook.queue_types import ROOT, CachedQueue, QueueName
from webhook.queue_validation import format_amount

Tree = Mapping[QueueName, CachedQueue]

_ALWAYS_LISTED = ("cpu", "memory")

#: Neither may be deleted: without a queue, jobs go to the one, and all queues hang from the other.
UNDELETABLE = (QueueName("default"), ROOT)


def parent_violations(tree: Tree, queue: CachedQueue) -> Iterator[str]:
    """Yield why *queue* cannot lie below its parent."""
    parent = queue.parent
    if parent == queue.name:
        yield f"queue {queue.name!r} cannot use itself as parent"
        return
    if ROOT in (queue.name, parent):
        return
    if parent not in tree:
        yield f"parent queue {parent[:253]!r} of queue {queue.name!r} does not exist: create it first"
        return
    above = [each.name for each in ancestors(tree, queue) if each.name != ROOT]
    if len(above) + 1 + _height(tree, queue) > MAX_DEPTH:
        yield f"queue {queue.name!r} exceeds the maximum allowed depth of {MAX_DEPTH}: choose a higher parent"
    pods = tree[parent].pods
    if pods and not any(other.parent == parent and other.name != queue.name for other in tree.values()):
        yield (
            f"queue {parent!r} cannot be the parent queue of queue {queue.name!r} because it has allocated Pods:"
            f" {pods // 1000}: wait until they are done"
        )


def quota_violations(tree: Tree, queue: CachedQueue) -> Iterator[str]:
    """Yield whose amounts do not fit into whose, *queue* being one of them."""
    yield from _capability_violations(tree, queue)
    parent = tree.get(queue.parent)
    if parent and parent.name != ROOT:
        yield from _children_sum_violations(tree, parent, f"parent queue {parent.name!r} validation failed: ")
    yield from _children_sum_violations(tree, queue, f"queue {queue.name!r} validation failed: ")
    yield from _descendant_violations(tree, queue)


def path_violations(tree: Tree, queue: CachedQueue) -> Iterator[str]:
    """Yield which queue's annotated path would lie below this one's, or above it."""
    if not queue.hierarchy:
        return
    for other in sorted(tree.values(), key=lambda each: each.name):
        if other.hierarchy and other.name != queue.name and _is_nested(queue.hierarchy, other.hierarchy):
            yield (
                f"{queue.hierarchy[:120]} is not allowed to be in the sub path of {other.hierarchy[:120]}"
                f" of queue {other.name!r}"
            )
            return


def delete_violation(tree: Tree, name: QueueName) -> str | None:
    """Return why the queue *name* must stay, or ``None``."""
    if name in UNDELETABLE:
        return f"`{name}` queue can not be deleted"
    children = sorted(queue.name for queue in tree.values() if queue.parent == name)
    if not children:
        return None
    return (
        f"queue {name!r} can not be deleted because it has {len(children)} child queues:"
        f" {', '.join(children[:5])}: delete them first"
    )


def _height(tree: Tree, queue: CachedQueue) -> int:
    """Return how many levels lie below *queue*."""
    children = defaultdict(list)
    for other in tree.values():
        children[other.parent].append(other.name)
    level, height = children[queue.name], 0
    while level and height <= MAX_DEPTH:
        level, height = [below for name in level for below in children[name]], height + 1
    return height


def _capability_violations(tree: Tree, queue: CachedQueue) -> Iterator[str]:
    bounds = [above for above in ancestors(tree, queue) if above.name != ROOT]
    for resource, amount in queue.amounts["capability"].items():
        nearest = next((above for above in bounds if resource in above.amounts["capability"]), None)
        if nearest and amount > nearest.amounts["capability"][resource]:
            most = format_amount(resource, nearest.amounts["capability"][resource])
            yield (
                f"queue {queue.name!r} capability{format_amount(resource, amount)} exceeds its ancestor's"
                f" capability: {nearest.name!r} has {most}"
            )


def _children_sum_violations(tree: Tree, parent: CachedQueue, prefix: str) -> Iterator[str]:
    children = [queue for queue in tree.values() if queue.parent == parent.name]
    for field in ("guarantee", "deserved"):
        for resource, total in sorted(_sum(child.amounts[field] for child in children).items()):
            # As Volcano counts: what the parent does not list it has none of, and of a device not even that.
            most = parent.amounts[field].get(resource, 0 if resource in _ALWAYS_LISTED else -1)
            if total > most:
                limit = f"the {field} limit ({format_amount(resource, max(most, 0))})"
                asked = f"sum of children's {field} ({format_amount(resource, total)})"
                yield f"{prefix}{asked} exceeds {limit} of {parent.name!r}"


def _descendant_violations(tree: Tree, queue: CachedQueue) -> Iterator[str]:
    greatest: dict[str, int] = {}
    for other in tree.values():
        if any(above.name == queue.name for above in ancestors(tree, other)):
            for resource, amount in other.amounts["capability"].items():
                greatest[resource] = max(greatest.get(resource, 0), amount)
    for resource, amount in queue.amounts["capability"].items():
        most = greatest.get(resource, 0)
        if amount < most:
            yield (
                f"queue {queue.name!r} capability{format_amount(resource, amount)} is smaller than its descendants'"
                f" max capability{format_amount(resource, most)}"
            )


def _sum(amounts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: dict[str, int] = defaultdict(int)
    for each in amounts:
        for resource, amount in each.items():
            total[resource] += amount
    return total


def _is_nested(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
