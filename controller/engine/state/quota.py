"""Tracks usage in the tree of queues, and checks charges against the queue limits.

The *reserved quota* of a leaf is the larger of its usage and its guarantee; of
a parent, the larger of its guarantee and the sum of its children's reserved
quota and its direct charges. That sum must stay within its limit (Q2).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from controller.engine.reasons import Reason, Refusal
from controller.engine.state.hierarchy import ROOT, Node, QueueLimits, QueueName, Tree
from controller.engine.state.request_index import ExceedingRequests, RequestIndex, Slots, free_amounts
from controller.engine.state.resources import PODS, Resources, add_to

_Amounts = dict[QueueName, dict[str, int]]


class Quota:
    """Usage in a tree of queues with limits."""

    def __init__(
        self,
        tree: Tree,
        limits: Mapping[QueueName, QueueLimits],
        charged: Mapping[QueueName, Resources],
        *,
        generation: int = 0,
        capacity: Resources | None = None,
    ) -> None:
        self.generation = generation
        """Identifies the limits: a refusal by another generation proves nothing here."""
        self.capacity = capacity
        """What the clusters have; ``None`` where the root's limit contains no more than that."""
        self.tree = tree
        self.limits = limits
        self.allocated: _Amounts = {name: {} for name in tree.nodes}
        """Usage of each queue with all queues below it; charges outside the tree count at the root."""
        self.direct: _Amounts = {name: {} for name in tree.nodes}
        """Charges on a queue itself; at the root, also those outside the tree."""
        self.version = 0
        """Changes whenever any charge does."""
        self.free_counts: dict[QueueName, int] = dict.fromkeys(tree.nodes, 0)
        """How often usage below each queue was freed, for queueing hints."""
        self._reserved_below: _Amounts = {name: {} for name in tree.nodes}
        """The reserved quota below each queue and its direct charges; of queues without guarantees the same objects as
        in *allocated*, which has the same amounts then."""
        self._smallest_limits: _Amounts = {}
        """The smallest limit on the path of each queue, by resource; only of queues that were asked for."""
        self._limiting: dict[QueueName, tuple[Node, ...]] = {}
        """Results of ``limiting``."""
        self._reserve_guarantees()
        self.guaranteed = frozenset(
            name
            for name in tree.nodes
            if any(limits[name].guarantee.values()) or any(self._reserved_below[name].values())
        )
        """The queues that have a guarantee or are an ancestor of one that has."""
        self._reserved_below |= {name: usage for name, usage in self.allocated.items() if name not in self.guaranteed}
        for name, amounts in charged.items():
            self.add_usage(tree.nodes.get(name, tree.root), amounts)

    def _reserve_guarantees(self) -> None:
        for node in self.tree.bottom_up():
            if node.parent is not None:
                sums = self._reserved_below[node.parent.name]
                for resource in {*self.limits[node.name].guarantee, *self._reserved_below[node.name]}:
                    sums[resource] = sums.get(resource, 0) + self.reserved_quota(node, resource)

    def reserved_quota(self, node: Node, resource: str) -> int:
        """Return the reserved quota of *node* at its parent: the larger of its guarantee and the sum below it."""
        return max(self._reserved_below[node.name].get(resource, 0), self.limits[node.name].guarantee.get(resource, 0))

    def add_usage(self, node: Node, charge: Resources) -> None:
        """Charge *node* and all its ancestors; negative amounts free."""
        if min(charge.values(), default=0) < 0:
            for above in node.path():
                self.free_counts[above.name] += 1
        self.add_assumed(node, charge)

    def add_assumed(self, node: Node, charge: Resources) -> None:
        """Charge for a trial, or undo such a charge, without counting as freed."""
        self.version += 1
        add_to(self.direct[node.name], charge)
        raised = charge
        for above in node.path():
            add_to(self.allocated[above.name], charge)
            if above.name in self.guaranteed:
                raised = self._reserve(above, raised)

    def _reserve(self, node: Node, raised: Resources) -> Resources:
        """Add *raised* to the reserved quota below *node*; return by how much its own increases."""
        sums, guarantee = self._reserved_below[node.name], self.limits[node.name].guarantee
        before = {resource: max(sums.get(resource, 0), guarantee.get(resource, 0)) for resource in raised}
        add_to(sums, raised)
        return {resource: max(sums[resource], guarantee.get(resource, 0)) - before[resource] for resource in raised}

    def refusal(self, node: Node, charge: Resources) -> Refusal | None:
        """Return why *charge* exceeds the limits of *node* or its ancestors, or ``None``.

        A limit that usage alone would exceed comes before one that only the guarantees
        of others make too small.
        """
        reserved: Refusal | None = None
        # Most resources are free, and this check takes a fifth of the time of their violations.
        for resource in sorted(self._possibly_exceeded(node, charge)):
            for fault in self._violations_of(node, resource, charge[resource]):
                if fault.reason is not Reason.BLOCKED_BY_GUARANTEE:
                    return fault
                reserved = reserved or fault
        return reserved

    def _possibly_exceeded(self, node: Node, charge: Resources) -> set[str]:
        """Return the resources of which *charge* exceeds a limit if none of it were reserved already.

        Reserved quota is at least the usage, so that usage need not be checked.
        """
        exceeded: set[str] = set()
        for above in self.limiting(node):
            limit, sums = self.limits[above.name].limit, self._reserved_below[above.name]
            for resource, asked in charge.items():
                if asked > limit.get(resource, 0) - sums.get(resource, 0) and above.limits_resource(resource):
                    exceeded.add(resource)
        return exceeded

    def limiting(self, node: Node) -> tuple[Node, ...]:
        """Return the queues on the path of *node* that may be full before their parents are, and the root as the last.

        The others have at least their parent's limit and at most its usage, so that a charge that exceeds their limit
        exceeds their parent's, too.
        """
        known = self._limiting.get(node.name)
        if known is None:
            if node.parent is None:
                known = (node,)
            else:
                limit, above = self.limits[node.name].limit, self.limits[node.parent.name].limit
                is_smaller = node.limits_pods or any(limit.get(name, 0) < amount for name, amount in above.items())
                known = (node, *self.limiting(node.parent)) if is_smaller else self.limiting(node.parent)
            self._limiting[node.name] = known
        return known

    def violations(self, node: Node, charge: Resources) -> Iterator[Refusal]:
        """Yield every limit of *node* and its ancestors that *charge* exceeds, by resource and from below.

        An exceeded limit that a queue inherits unchanged is yielded for the ancestor that sets it, at last the root.
        """
        for resource in sorted(charge):
            yield from self._violations_of(node, resource, charge[resource])

    def _violations_of(self, node: Node, resource: str, asked: int) -> Iterator[Refusal]:
        for above, raised in self.reserved_quota_increases(node, resource, asked) if asked > 0 else ():
            if not above.limits_resource(resource):
                continue
            free = self.limits[above.name].limit.get(resource, 0) - self.usage(above.name, resource)
            if asked > free and self._inherits_limit(above, resource):
                continue
            if asked > free:
                reason = Reason.QUEUE_LIMIT_REACHED if above.parent else Reason.INSUFFICIENT_CAPACITY
                yield Refusal(reason, resource, asked, free, queue=above.name)
            elif raised > 0 and raised > (unreserved := self.unreserved(above, resource)):
                # What the guarantees on its own path cover is reserved for it.
                available = unreserved + asked - raised
                yield Refusal(Reason.BLOCKED_BY_GUARANTEE, resource, asked, available, queue=above.name)

    def _inherits_limit(self, node: Node, resource: str) -> bool:
        """Return whether the limit of *node* is its parent's: no capability and no guarantee of a sibling sets it."""
        if node.parent is None or not node.parent.limits_resource(resource):
            return False
        inherited = self.limits[node.parent.name].limit.get(resource, 0)
        capability = node.queue.capability.get(resource)
        return (capability is None or capability > inherited) and (
            self.limits[node.name].limit.get(resource, 0) == inherited
        )

    def reserved_quota_increases(self, node: Node, resource: str, asked: int) -> Iterator[tuple[Node, int]]:
        """Yield by how much *asked* would increase the reserved quota of *node* and each ancestor."""
        raised = asked
        for above in node.path():
            yield above, raised
            guarantee = self.limits[above.name].guarantee.get(resource, 0)
            if guarantee:
                before = self._reserved_below[above.name].get(resource, 0)
                raised = max(before + raised, guarantee) - max(before, guarantee)

    def idle_guarantee(self, node: Node, resource: str) -> int:
        """Return the part of the guarantee of *node* that nothing below it uses or reserves."""
        return self.reserved_quota(node, resource) - self._reserved_below[node.name].get(resource, 0)

    def unreserved(self, node: Node, resource: str) -> int:
        """Return the part of the limit of *node* that is not reserved."""
        return self.limits[node.name].limit.get(resource, 0) - self._reserved_below[node.name].get(resource, 0)

    def divisible(self, resource: str) -> int:
        """Return the part of the root's limit that exists, which its queues divide (Q4)."""
        limit = self.limits[ROOT].limit.get(resource, 0)
        return limit if self.capacity is None else min(limit, self.capacity.get(resource, 0))

    def fits_root(self, node: Node, charge: Resources, capacity: Resources) -> bool:
        """Return whether *charge* leaves the reserved quota below the root within *capacity* and the root's limit."""
        for resource, amount in charge.items():
            *_, (root, raised) = self.reserved_quota_increases(node, resource, amount)
            limit = min(self.limits[root.name].limit.get(resource, 0), capacity.get(resource, 0))
            free = limit - self._reserved_below[root.name].get(resource, 0)
            if amount > 0 and raised > free and root.limits_resource(resource):
                return False
        return True

    def exceeded_limit(self, node: Node, requests: Resources) -> Refusal | None:
        """Return the limit that *requests* exceed even without any usage, or ``None`` (C5).

        A queue without a limit of its own inherits its parent's; the refusal names the queue that sets the limit.
        """
        if self._is_within_limits(node, requests):
            return None
        for resource in sorted(requests):
            limits = [
                (self.limits[above.name].limit.get(resource, 0), above.name)
                for above in node.path()
                if above.limits_resource(resource)
            ]
            smallest = min((limit for limit, _ in limits), default=0)
            if limits and requests[resource] > max(smallest, 0):
                setter = next(name for limit, name in reversed(limits) if limit == smallest)
                reason = Reason.EXCEEDS_TOTAL_CAPACITY if setter == ROOT else Reason.EXCEEDS_QUEUE_LIMIT
                return Refusal(reason, resource, requests[resource], smallest, queue=setter)
        return None

    def _is_within_limits(self, node: Node, requests: Resources) -> bool:
        smallest = self._smallest_limits.get(node.name)
        if smallest is None:
            smallest = self._smallest_limits[node.name] = {
                resource: max(min(limits), 0)
                for resource in self.limits[ROOT].limit
                if (
                    limits := [
                        self.limits[above.name].limit.get(resource, 0)
                        for above in node.path()
                        if above.limits_resource(resource)
                    ]
                )
            }
        for resource, amount in requests.items():
            if amount > smallest.get(resource, 0) and (resource != PODS or PODS in smallest):
                return False
        return True

    def usage(self, name: QueueName, resource: str) -> int:
        """Return the usage of one resource by a queue and all queues below it."""
        return self.allocated[name].get(resource, 0)

    def direct_usage(self, name: QueueName, resource: str) -> int:
        """Return the charges on the queue itself; at the root, also those outside the tree."""
        return self.direct[name].get(resource, 0)

    def has_free(self, node: Node, charge: Resources) -> bool:
        """Return whether *charge* fits the limit of *node* alone, without its ancestors and descendants."""
        return _fits_free_amount(node, charge, self.limits[node.name].limit, self.allocated[node.name])

    def has_unreserved(self, node: Node, charge: Resources) -> bool:
        """Return whether *charge* fits the unreserved quota of *node*, if none of it were reserved already."""
        return _fits_free_amount(node, charge, self.limits[node.name].limit, self._reserved_below[node.name])

    def free_amounts(self, node: Node, resources: Iterable[str]) -> Resources:
        """Return what ``has_free`` compares charges with, of those of *resources* that *node* limits."""
        return free_amounts(
            self.limits[node.name].limit, self.allocated[node.name], resources, has_pods=node.limits_pods
        )

    def exceeding(self, node: Node, requests: RequestIndex, known: ExceedingRequests) -> Slots:
        """Return those of *requests* that ``has_free`` refuses for *node*; *known* has the result of the last call."""
        return known.of(requests, self.limits[node.name].limit, self.allocated[node.name], has_pods=node.limits_pods)

    def exceeding_unreserved(self, node: Node, requests: RequestIndex, known: ExceedingRequests) -> Slots:
        """Return those of *requests* that ``has_unreserved`` refuses for *node*; *known* as in ``exceeding``."""
        return known.of(
            requests, self.limits[node.name].limit, self._reserved_below[node.name], has_pods=node.limits_pods
        )

    def unreserved_amounts(self, node: Node, resources: Iterable[str]) -> Resources:
        """Return what ``has_unreserved`` compares charges with, of those of *resources* that *node* limits."""
        return free_amounts(
            self.limits[node.name].limit, self._reserved_below[node.name], resources, has_pods=node.limits_pods
        )

    def overlay(self) -> "Quota":
        """Return a copy-on-write overlay of this quota, to try charges."""
        return _QuotaOverlay(self)


def _fits_free_amount(node: Node, charge: Resources, limit: Resources, taken: Resources) -> bool:
    """Return whether *charge* fits *limit* less *taken*; the most frequent check of all."""
    for name, amount in charge.items():
        if amount > 0 and amount > limit.get(name, 0) - taken.get(name, 0) and node.limits_resource(name):
            return False
    return True


class _QuotaOverlay(Quota):
    """A quota on top of an unchanged one; queues are copied when they are first modified."""

    def __init__(self, quota: Quota) -> None:
        self.generation = quota.generation
        self.capacity = quota.capacity
        self.version = 0
        self.tree = quota.tree
        self.limits = quota.limits
        self.allocated = _CopyOnWrite(quota.allocated)
        self.direct = _CopyOnWrite(quota.direct)
        self.guaranteed = quota.guaranteed
        self.free_counts = defaultdict(int)
        self._reserved_below = _ReservedCopies(quota._reserved_below, self.allocated, self.guaranteed)  # noqa: SLF001 - of the same class
        self._smallest_limits = quota._smallest_limits  # noqa: SLF001 - the limits are the same
        self._limiting = quota._limiting  # noqa: SLF001 - the same


class _CopyOnWrite(_Amounts):
    def __init__(self, amounts: _Amounts) -> None:
        super().__init__()
        self._amounts = amounts

    def __missing__(self, name: QueueName) -> dict[str, int]:
        self[name] = copied = dict(self._amounts[name])
        return copied


class _ReservedCopies(_CopyOnWrite):
    """Reserved quota on top of an unchanged one; of queues without guarantees the copies of their usage."""

    def __init__(self, sums: _Amounts, allocated: _Amounts, guaranteed: AbstractSet[QueueName]) -> None:
        super().__init__(sums)
        self._allocated = allocated
        self._guaranteed = guaranteed

    def __missing__(self, name: QueueName) -> dict[str, int]:
        if name in self._guaranteed:
            return super().__missing__(name)
        self[name] = usage = self._allocated[name]
        return usage
