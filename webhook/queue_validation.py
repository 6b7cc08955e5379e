"""Validates a single queue by Volcano's rules: amounts, state and annotations."""

from collections.abc import Iterator

from controller.api.quantity import format_quantity
from webhook.pod_validation import amount_violation
from webhook.queue_types import HIERARCHY, HIERARCHY_WEIGHTS, Amounts, CachedQueue, Queue

#: States that users may write; only Volcano sets Closing and Unknown.
STATES = ("Open", "Closed")
_MAX_WEIGHT = 65535


def queue_violations(queue: Queue, cached: CachedQueue) -> Iterator[str]:
    """Yield why *queue* is invalid; *cached* is what would be cached of it."""
    invalid_quantities = list(_quantity_violations(queue))
    yield from invalid_quantities
    if not invalid_quantities:
        yield from _amount_violations(cached)
    if queue.spec and not 0 <= queue.spec.weight <= _MAX_WEIGHT:
        yield f"spec.weight must be between 1 and {_MAX_WEIGHT}"
    yield from _annotation_violations(queue)


def state_violation(queue: Queue, old: Queue | None) -> str | None:
    """Return why a user may not write this state; an unchanged state is allowed."""
    if queue.state in ("", *STATES) or (old and old.state == queue.state):
        return None
    return f"queue state must be in [{' '.join(STATES)}], not {queue.state[:60]!r}"


def format_amount(resource: str, amount: int) -> str:
    """Return an amount as messages show it, such as ``[cpu]=2``."""
    return f"[{resource[:63]}]={format_quantity(resource, amount)}"


def _quantity_violations(queue: Queue) -> Iterator[str]:
    for field, quantities in queue.quantities().items():
        for resource, value in quantities.items():
            if violation := amount_violation(resource, value):
                yield f"spec.{field}[{resource[:63]}]: {violation}"


def _amount_violations(queue: CachedQueue) -> Iterator[str]:
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


def _annotation_violations(queue: Queue) -> Iterator[str]:
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
