"""Validates a queue by Volcano's rules, alone and within the hierarchy: parent, depth and sums of amounts.

The given tree contains the validated queue as it would be stored.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from controller.api.quantity import format_quantity
from webhook.queue_cache import (
    HIERARCHY,
    HIERARCHY_WEIGHTS,
    MAX_DEPTH,
    ROOT,
    Amounts,
    QueueEntry,
    QueueName,
    ReviewedQueue,
    ancestors,
)
from webhook.validation.pod import amount_violation

#: States that users may write; only Volcano sets Closing and Unknown.
STATES = ("Open", "Closed")
_MAX_WEIGHT = 65535

Tree = Mapping[QueueName, QueueEntry]
_ALWAYS_LISTED = ("cpu", "memory")
#: Queues that cannot be deleted: the default queue of jobs, and the root of the hierarchy.
UNDELETABLE = (QueueName("default"), ROOT)


def queue_violations(queue: ReviewedQueue, cached: QueueEntry) -> Iterator[str]:
    """Yield why *queue* is invalid; *cached* is what would be cached of it."""
    invalid_quantities = list(_quantity_violations(queue))
    yield from invalid_quantities
    if not invalid_quantities:
        yield from _amount_violations(cached)
    if queue.spec and not 0 <= queue.spec.weight <= _MAX_WEIGHT:
        yield f"spec.weight must be between 1 and {_MAX_WEIGHT}"
    yield from _annotation_violations(queue)


def capability_warnings(queue: QueueEntry) -> Iterator[str]:
    """Yield a warning for each limit of 0 that Volcano reads as no limit of the queue's own."""
    for resource in _ALWAYS_LISTED:
        if queue.amounts["capability"].get(resource) == 0:
            yield (
                f"capability{format_amount(resource, 0)} lets queue {queue.name!r} use none of it, but Volcano reads"
                " 0 as no limit: remove it to set no limit"
            )


def state_violation(queue: ReviewedQueue, old: ReviewedQueue | None) -> str | None:
    """Return why a user may not write this state; an unchanged state is allowed."""
    if queue.state in ("", *STATES) or (old and old.state == queue.state):
        return None
    return f"queue state must be in [{' '.join(STATES)}], not {queue.state[:60]!r}"


def format_amount(resource: str, amount: int) -> str:
    """Return an amount as messages show it, such as ``[cpu]=2``."""
    return f"[{resource[:63]}]={format_quantity(resource, amount)}"


def _quantity_violations(queue: ReviewedQueue) -> Iterator[str]:
    for field, quantities in queue.quantities.items():
        for resource, value in quantities.items():
            if violation := amount_violation(resource, value):
                yield f"spec.{field}[{resource[:63]}]: {violation}"


def _amount_violations(queue: QueueEntry) -> Iterator[str]:
    amounts = queue.amounts
    yield from _guarantee_violations(amounts["guarantee"], amounts["deserved"])
    for resource, amount in amounts["deserved"].items():
        limit = amounts["capability"].get(resource)
        if limit is not None and amount > limit:
            yield f"deserved{format_amount(resource, amount)} must be <= capability{format_amount(resource, limit)}"


def _guarantee_violations(guarantee: Amounts, deserved: Amounts) -> Iterator[str]:
    for resource, amount in guarantee.items():
        minimum = f"guarantee{format_amount(resource, amount)}"
        if resource not in deserved:
            yield f"deserved[{resource[:63]}] must be >= {minimum}: set it"
        elif amount > deserved[resource]:
            yield f"deserved{format_amount(resource, deserved[resource])} must be >= {minimum}: raise it"


def _annotation_violations(queue: ReviewedQueue) -> Iterator[str]:
    path, weights = queue.annotation(HIERARCHY), queue.annotation(HIERARCHY_WEIGHTS)
    if not path and not weights:
        return
    if path.count("/") != weights.count("/"):
        yield f"annotation {HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}"
    for weight in weights.split("/"):
        if not _is_positive(weight):
            yield f"annotation {HIERARCHY_WEIGHTS}: {weight[:60]!r} must be a number larger than 0"
            return


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def parent_violations(tree: Tree, queue: QueueEntry) -> Iterator[str]:
    """Yield why *queue* cannot have its parent."""
    parent = queue.parent
    if parent == queue.name:
        yield f"queue {queue.name!r} cannot use itself as parent"
        return
    if ROOT in (queue.name, parent):
        return
    if parent not in tree:
        yield f"parent queue {parent[:253]!r} of queue {queue.name!r} does not exist: create it first"
        return
    ancestor_names = [ancestor.name for ancestor in ancestors(tree, queue) if ancestor.name != ROOT]
    if len(ancestor_names) + 1 + _height(tree, queue) > MAX_DEPTH:
        yield f"queue {queue.name!r} exceeds the maximum allowed depth of {MAX_DEPTH}: choose a higher parent"
    pods = tree[parent].pods
    if pods and not any(other.parent == parent and other.name != queue.name for other in tree.values()):
        yield (
            f"queue {parent!r} cannot be the parent queue of queue {queue.name!r} because it has allocated Pods:"
            f" {pods // 1000}: wait until they finish"
        )


def quota_violations(tree: Tree, queue: QueueEntry) -> Iterator[str]:
    """Yield where amounts of *queue* conflict with those of its ancestors, siblings and descendants."""
    yield from _capability_violations(tree, queue)
    parent = tree.get(queue.parent)
    if parent and parent.name != ROOT:
        yield from _children_sum_violations(tree, parent, f"parent queue {parent.name!r} validation failed: ")
    yield from _children_sum_violations(tree, queue, f"queue {queue.name!r} validation failed: ")
    yield from _descendant_violations(tree, queue)


def path_violations(tree: Tree, queue: QueueEntry) -> Iterator[str]:
    """Yield a queue whose hierarchy annotation extends that of *queue*; as in Volcano, the reverse is valid."""
    if not queue.hierarchy:
        return
    for other in sorted(tree.values(), key=lambda item: item.name):
        if other.name != queue.name and other.hierarchy.startswith(f"{queue.hierarchy}/"):
            yield (
                f"{queue.hierarchy[:120]} is not allowed to be in the sub path of {other.hierarchy[:120]}"
                f" of queue {other.name!r}"
            )
            return


def delete_violation(tree: Tree, name: QueueName) -> str | None:
    """Return why the queue *name* cannot be deleted, or ``None``."""
    if name in UNDELETABLE:
        return f"`{name}` queue can not be deleted"
    children = sorted(queue.name for queue in tree.values() if queue.parent == name)
    if not children:
        return None
    return (
        f"queue {name!r} can not be deleted because it has {len(children)} child queues:"
        f" {', '.join(children[:5])}: delete them first"
    )


def _height(tree: Tree, queue: QueueEntry) -> int:
    """Return the number of levels below *queue*."""
    children = defaultdict(list)
    for other in tree.values():
        children[other.parent].append(other.name)
    level, height = children[queue.name], 0
    while level and height <= MAX_DEPTH:
        level, height = [child for name in level for child in children[name]], height + 1
    return height


def _capability_violations(tree: Tree, queue: QueueEntry) -> Iterator[str]:
    limiting_ancestors = [ancestor for ancestor in ancestors(tree, queue) if ancestor.name != ROOT]
    for resource, amount in queue.amounts["capability"].items():
        nearest = next(
            (ancestor for ancestor in limiting_ancestors if resource in ancestor.amounts["capability"]), None
        )
        if nearest and amount > nearest.amounts["capability"][resource]:
            limit = format_amount(resource, nearest.amounts["capability"][resource])
            yield (
                f"queue {queue.name!r} capability{format_amount(resource, amount)} exceeds its ancestor's"
                f" capability: {nearest.name!r} has {limit}"
            )


def _children_sum_violations(tree: Tree, parent: QueueEntry, prefix: str) -> Iterator[str]:
    children = [queue for queue in tree.values() if queue.parent == parent.name]
    for field in ("guarantee", "deserved"):
        for resource, total in sorted(_sum(child.amounts[field] for child in children).items()):
            # As in Volcano: cpu and memory default to 0 in the parent, and other resources must be listed there.
            limit = parent.amounts[field].get(resource, 0 if resource in _ALWAYS_LISTED else -1)
            if total > limit:
                limit_text = f"the {field} limit ({format_amount(resource, max(limit, 0))})"
                sum_text = f"sum of children's {field} ({format_amount(resource, total)})"
                yield f"{prefix}{sum_text} exceeds {limit_text} of {parent.name!r}"


def _descendant_violations(tree: Tree, queue: QueueEntry) -> Iterator[str]:
    greatest: dict[str, int] = {}
    for other in tree.values():
        if any(ancestor.name == queue.name for ancestor in ancestors(tree, other)):
            for resource, amount in other.amounts["capability"].items():
                greatest[resource] = max(greatest.get(resource, 0), amount)
    for resource, amount in queue.amounts["capability"].items():
        limit = greatest.get(resource, 0)
        if amount < limit:
            yield (
                f"queue {queue.name!r} capability{format_amount(resource, amount)} is smaller than its descendants'"
                f" max capability{format_amount(resource, limit)}"
            )


def _sum(amounts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: dict[str, int] = defaultdict(int)
    for item in amounts:
        for resource, amount in item.items():
            total[resource] += amount
    return total
