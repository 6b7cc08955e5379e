"""What is charged to the queues, and whether one more charge is within their ceilings.

The *reservation* of a leaf is the larger of what it holds and its guarantee;
of a parent, the larger of its guarantee and the sum of its children's
reservations and its direct charges. That sum must stay within its ceiling (Q2).
"""

from collections.abc import Mapping

from controller.engine.queues import QueueName
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import Resources
from controller.engine.tree import Limit, Node, Tree


class Quota:
    """The charges on a tree of queues with its limits."""

    def __init__(
        self, tree: Tree, limits: Mapping[QueueName, Limit], charged: Mapping[QueueName, Resources], *, epoch: int = 0
    ) -> None:
        self.epoch = epoch
        """Which one it is: what was found out with another one's ceilings does not hold."""
        self.tree = tree
        self.limits = limits
        self.allocated: dict[QueueName, dict[str, int]] = {name: {} for name in tree.nodes}
        """Charges of each queue and all below it; those outside the tree count at the root."""
        self.direct: dict[QueueName, dict[str, int]] = {name: {} for name in tree.nodes}
        """Charges booked on a queue itself; those outside the tree on the root."""
        self.freed: dict[QueueName, int] = dict.fromkeys(tree.nodes, 0)
        """How often something below each queue was freed: whoever was refused there may try again."""
        self._sums: dict[QueueName, dict[str, int]] = {name: {} for name in tree.nodes}
        self._reserve_guarantees()
        for name, amounts in charged.items():
            self.book(tree.nodes.get(name, tree.root), amounts)

    def _reserve_guarantees(self) -> None:
        for node in self.tree.bottom_up():
            if node.parent is not None:
                sums = self._sums[node.parent.name]
                for resource in {*self.limits[node.name].guarantee, *self._sums[node.name]}:
                    sums[resource] = sums.get(resource, 0) + self._reservation(node, resource)

    def _reservation(self, node: Node, resource: str) -> int:
        return max(self._sums[node.name].get(resource, 0), self.limits[node.name].guarantee.get(resource, 0))

    def book(self, node: Node, charge: Resources) -> None:
        """Charge *node* and all above it; negative amounts free."""
        if any(amount < 0 for amount in charge.values()):
            for above in node.path():
                self.freed[above.name] += 1
        self.carry(node, charge)

    def carry(self, node: Node, charge: Resources) -> None:
        """Charge for a trial, or take such a charge back: it wakes nobody."""
        own = self.direct[node.name]
        for resource, amount in charge.items():
            own[resource] = own.get(resource, 0) + amount
            raised = amount
            for above in node.path():
                held = self.allocated[above.name]
                held[resource] = held.get(resource, 0) + amount
                before = self._reservation(above, resource)
                sums = self._sums[above.name]
                sums[resource] = sums.get(resource, 0) + raised
                raised = self._reservation(above, resource) - before

    def refusal(self, node: Node, charge: Resources) -> Refusal | None:
        """Return why *charge* is not within the ceilings of *node* and all above it, or ``None``.

        A ceiling that the charges themselves would exceed comes before one
        that only the guarantees of others make too small.
        """
        reserved: Refusal | None = None
        for resource in sorted(charge):
            asked = charge[resource]
            raised = asked
            for above in node.path() if asked > 0 else ():
                ceiling = self.limits[above.name].ceiling.get(resource, 0)
                free = ceiling - self.allocated[above.name].get(resource, 0)
                unreserved = ceiling - self._sums[above.name].get(resource, 0)
                if above.compares(resource):
                    if asked > free:
                        return Refusal(Reason.QUEUE_OVER_CEILING, resource, asked, free, queue=above.name)
                    if raised > 0 and raised > unreserved and reserved is None:
                        reserved = Refusal(Reason.RESERVED_FOR_GUARANTEE, resource, asked, unreserved, queue=above.name)
                raised = max(
                    self._sums[above.name].get(resource, 0) + raised, self.limits[above.name].guarantee.get(resource, 0)
                ) - self._reservation(above, resource)
        return reserved

    def exceeds(self, node: Node, demand: Resources) -> Refusal | None:
        """Return the ceiling that is smaller than *demand* even while nothing is charged, or ``None`` (C5)."""
        for resource in sorted(demand):
            for above in node.path() if demand[resource] > 0 else ():
                ceiling = self.limits[above.name].ceiling.get(resource, 0)
                if above.compares(resource) and demand[resource] > ceiling:
                    return Refusal(Reason.EXCEEDS_QUEUE, resource, demand[resource], ceiling, queue=above.name)
        return None

    def amount(self, name: QueueName, resource: str) -> int:
        """Return the charges of a queue and all below it on one resource."""
        return self.allocated[name].get(resource, 0)

    def booked_on(self, name: QueueName, resource: str) -> int:
        """Return the charges on the queue itself; at the root, those outside the tree."""
        return self.direct[name].get(resource, 0)

    def has_free(self, node: Node, charge: Resources) -> bool:
        """Say whether *charge* alone would keep *node*, looked at without those above and below, within its ceiling."""
        ceiling, held = self.limits[node.name].ceiling, self.allocated[node.name]
        return all(
            amount <= 0 or amount <= ceiling.get(name, 0) - held.get(name, 0) or not node.compares(name)
            for name, amount in charge.items()
        )

    def has_unreserved(self, node: Node, charge: Resources) -> bool:
        """Say whether *charge* would leave at *node* what is reserved, if nothing of it were reserved already."""
        ceiling, sums = self.limits[node.name].ceiling, self._sums[node.name]
        return all(
            amount <= 0 or amount <= ceiling.get(name, 0) - sums.get(name, 0) or not node.compares(name)
            for name, amount in charge.items()
        )
