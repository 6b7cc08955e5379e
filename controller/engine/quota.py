"""What is charged to the queues, and whether one more charge is within their ceilings.

The *reservation* of a leaf is the larger of what it holds and its guarantee;
of a parent, the larger of its guarantee and the sum of its children's
reservations and its direct charges. That sum must stay within its ceiling (Q2).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from controller.engine.queues import ROOT, QueueName
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import Resources
from controller.engine.tree import Node, QueueLimits, Tree

_Amounts = dict[QueueName, dict[str, int]]


class Quota:
    """The charges on a tree of queues with its limits."""

    def __init__(
        self,
        tree: Tree,
        limits: Mapping[QueueName, QueueLimits],
        charged: Mapping[QueueName, Resources],
        *,
        epoch: int = 0,
    ) -> None:
        self.generation = epoch
        """Which one it is: what was found out with another one's ceilings does not hold."""
        self.tree = tree
        self.limits = limits
        self.allocated: _Amounts = {name: {} for name in tree.nodes}
        """Charges of each queue and all below it; those outside the tree count at the root."""
        self.direct: _Amounts = {name: {} for name in tree.nodes}
        """Charges booked on a queue itself; those outside the tree on the root."""
        self.version = 0
        """Changes whenever any charge does."""
        self.free_counts: dict[QueueName, int] = dict.fromkeys(tree.nodes, 0)
        """How often something below each queue was freed: whoever was refused there may try again."""
        self._sums: _Amounts = {name: {} for name in tree.nodes}
        self._reserve_guarantees()
        self.guaranteed = frozenset(
            name for name in tree.nodes if any(limits[name].guarantee.values()) or any(self._sums[name].values())
        )
        """The queues that are guaranteed something, and those above them."""
        for name, amounts in charged.items():
            self.add_usage(tree.nodes.get(name, tree.root), amounts)

    def _reserve_guarantees(self) -> None:
        for node in self.tree.bottom_up():
            if node.parent is not None:
                sums = self._sums[node.parent.name]
                for resource in {*self.limits[node.name].guarantee, *self._sums[node.name]}:
                    sums[resource] = sums.get(resource, 0) + self.reservation(node, resource)

    def reservation(self, node: Node, resource: str) -> int:
        """Return what is reserved for *node* at its parent: the larger of its guarantee and what lies below."""
        return max(self._sums[node.name].get(resource, 0), self.limits[node.name].guarantee.get(resource, 0))

    def add_usage(self, node: Node, charge: Resources) -> None:
        """Charge *node* and all above it; negative amounts free."""
        if any(amount < 0 for amount in charge.values()):
            for above in node.path():
                self.free_counts[above.name] += 1
        self.add_assumed(node, charge)

    def add_assumed(self, node: Node, charge: Resources) -> None:
        """Charge for a trial, or take such a charge back: it wakes nobody."""
        self.version += 1
        own = self.direct[node.name]
        for resource, amount in charge.items():
            own[resource] = own.get(resource, 0) + amount
            raised = amount
            for above in node.path():
                held = self.allocated[above.name]
                held[resource] = held.get(resource, 0) + amount
                before = self.reservation(above, resource)
                sums = self._sums[above.name]
                sums[resource] = sums.get(resource, 0) + raised
                raised = self.reservation(above, resource) - before

    def refusal(self, node: Node, charge: Resources) -> Refusal | None:
        """Return why *charge* is not within the ceilings of *node* and all above it, or ``None``.

        A ceiling that the charges themselves would exceed comes before one
        that only the guarantees of others make too small.
        """
        if self._is_within(node, charge):
            return None
        reserved: Refusal | None = None
        for fault in self.violations(node, charge):
            if fault.reason is not Reason.BLOCKED_BY_GUARANTEE:
                return fault
            reserved = reserved or fault
        return reserved

    def _is_within(self, node: Node, charge: Resources) -> bool:
        """Say whether *charge* is within every ceiling even if nothing of it were reserved already."""
        above: Node | None = node
        while above is not None:
            if not self.has_free(above, charge) or (self.guaranteed and not self.has_unreserved(above, charge)):
                return False
            above = above.parent
        return True

    def violations(self, node: Node, charge: Resources) -> Iterator[Refusal]:
        """Yield every ceiling of *node* and all above it that *charge* is not within, by resource and from below."""
        for resource in sorted(charge):
            asked = charge[resource]
            for above, raised in self.reservation_increases(node, resource, asked) if asked > 0 else ():
                if not above.limits_resource(resource):
                    continue
                free = self.limits[above.name].limit.get(resource, 0) - self.usage(above.name, resource)
                if asked > free:
                    reason = Reason.QUEUE_LIMIT_REACHED if above.parent else Reason.INSUFFICIENT_CAPACITY
                    yield Refusal(reason, resource, asked, free, queue=above.name)
                elif raised > 0 and raised > (unreserved := self.unreserved(above, resource)):
                    yield Refusal(Reason.BLOCKED_BY_GUARANTEE, resource, asked, unreserved, queue=above.name)

    def reservation_increases(self, node: Node, resource: str, asked: int) -> Iterator[tuple[Node, int]]:
        """Yield by how much *asked* would raise what is reserved at *node* and at all above it."""
        raised = asked
        for above in node.path():
            yield above, raised
            reserved = self._sums[above.name].get(resource, 0) + raised
            raised = max(reserved, self.limits[above.name].guarantee.get(resource, 0))
            raised -= self.reservation(above, resource)

    def unreserved(self, node: Node, resource: str) -> int:
        """Return what of the ceiling of *node* is reserved for nobody."""
        return self.limits[node.name].limit.get(resource, 0) - self._sums[node.name].get(resource, 0)

    def exceeded_limit(self, node: Node, demand: Resources) -> Refusal | None:
        """Return the ceiling that is smaller than *demand* even while nothing is charged, or ``None`` (C5).

        A queue without a limit of its own has its parent's: then the one is named that sets it.
        """
        for resource in sorted(demand):
            ceilings = [
                (self.limits[above.name].limit.get(resource, 0), above.name)
                for above in node.path()
                if above.limits_resource(resource)
            ]
            smallest = min((ceiling for ceiling, _ in ceilings), default=0)
            if ceilings and demand[resource] > max(smallest, 0):
                setter = next(name for ceiling, name in reversed(ceilings) if ceiling == smallest)
                reason = Reason.EXCEEDS_TOTAL_CAPACITY if setter == ROOT else Reason.EXCEEDS_QUEUE_LIMIT
                return Refusal(reason, resource, demand[resource], smallest, queue=setter)
        return None

    def usage(self, name: QueueName, resource: str) -> int:
        """Return the charges of a queue and all below it on one resource."""
        return self.allocated[name].get(resource, 0)

    def direct_usage(self, name: QueueName, resource: str) -> int:
        """Return the charges on the queue itself; at the root, those outside the tree."""
        return self.direct[name].get(resource, 0)

    def has_free(self, node: Node, charge: Resources) -> bool:
        """Say whether *charge* alone would keep *node*, looked at without those above and below, within its ceiling."""
        return _is_left(node, charge, self.limits[node.name].limit, self.allocated[node.name])

    def has_unreserved(self, node: Node, charge: Resources) -> bool:
        """Say whether *charge* would leave at *node* what is reserved, if nothing of it were reserved already."""
        return _is_left(node, charge, self.limits[node.name].limit, self._sums[node.name])

    def overlay(self) -> "Quota":
        """Return a quota that begins as this one, to find out what bookings would lead to."""
        return _QuotaOverlay(self)


def _is_left(node: Node, charge: Resources, ceiling: Resources, taken: Resources) -> bool:
    """Say whether *charge* is left of *ceiling* beside what is *taken*; asked more often than anything else."""
    for name, amount in charge.items():
        if amount > 0 and amount > ceiling.get(name, 0) - taken.get(name, 0) and node.limits_resource(name):
            return False
    return True


class _QuotaOverlay(Quota):
    """A quota on top of another one, which stays as it is; queues are copied when they are first touched."""

    def __init__(self, quota: Quota) -> None:
        self.generation = quota.generation
        self.version = 0
        self.tree = quota.tree
        self.limits = quota.limits
        self.allocated = _CopyOnWrite(quota.allocated)
        self.direct = _CopyOnWrite(quota.direct)
        self.guaranteed = quota.guaranteed
        self.free_counts = defaultdict(int)
        self._sums = _CopyOnWrite(quota._sums)  # noqa: SLF001 - it is one itself


class _CopyOnWrite(_Amounts):
    def __init__(self, amounts: _Amounts) -> None:
        super().__init__()
        self._amounts = amounts

    def __missing__(self, name: QueueName) -> dict[str, int]:
        self[name] = copied = dict(self._amounts[name])
        return copied
