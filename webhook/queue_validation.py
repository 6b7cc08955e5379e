"""Volcano's rules for one queue by itself: its amounts, its state, its annotations; reads and writes nothing."""

from collections.abc import Iterator

from controller.api.quantity import format_quantity
from webhook.pod_validation import amount_violation
from webhook.queue_types import HIERARCHY, HIERARCHY_WEIGHTS, Amounts, CachedQueue, Queue

#: What a user may write; Closing and Unknown are Volcano's own words.
STATES = ("Open", "Closed")
_MAX_WEIGHT = 65535


def queue_violations(queue: Queue, known: CachedQueue) -> Iterator[str]:
    """Yield what is wrong with *queue*, of which *known* is what would be remembered."""
    unreadable = list(_quantity_violations(queue))
    yield from unreadable
    if not unreadable:
        yield from _amount_violations(known)
    if queue.spec and not 0 <= queue.spec.weight <= _MAX_WEIGHT:
        yield f"spec.weight must be between 1 and {_MAX_WEIGHT}"
    yield from _annotation_violations(queue)


def state_violation(queue: Queue, before: Queue | None) -> str | None:
    """Return what is wrong with a state that a user has written; one that was there before is not his."""
    if queue.state in ("", *STATES) or (before and before.state == queue.state):
        return None
    return f"queue state must be in [{' '.join(STATES)}], not {queue.state[:60]!r}"


def format_amount(resource: str, amount: int) -> str:
    """Return ``[cpu]=2`` as messages name an amount."""
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
        most = amounts["capability"].get(resource)
        if most is not None and amount > most:
            yield f"deserved{format_amount(resource, amount)} must be <= capability{format_amount(resource, most)}"


def _guarantee_violations(guarantee: Amounts, deserved: Amounts) -> Iterator[str]:
    for resource, amount in guarantee.items():
        least = f"guarantee{format_amount(resource, amount)}"
        if resource not in deserved:
            yield f"deserved[{resource[:63]}] must be >= {least}: set it"
        elif amount > deserved[resource]:
            yield f"deserved{format_amount(resource, deserved[resource])} must be >= {least}: raise it"


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
