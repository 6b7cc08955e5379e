"""Fair shares and usage ratios of the queues, updated after each change."""

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import floor, lcm
from typing import NamedTuple

from controller.engine.fairness.fair_share import FairShareDivision, FairShares
from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.pending import PendingWorkloads
from controller.engine.state.queue_usage import QueueUsage
from controller.engine.state.quota import Quota
from controller.engine.state.request_index import RequestIndex, Slots
from controller.engine.state.resources import EMPTY, PODS, Resources, add, nonzero
from controller.engine.steps import Steps

UsageRatio = tuple[int, Fraction]
"""Ordered: ``(0, ratio)``, or ``(1, 0)`` for an infinite ratio."""

ZERO = Fraction(0)
INFINITE: UsageRatio = (1, ZERO)


class ExactRatio:
    """A usage ratio that is only compared, because a fraction in lowest terms takes four times as long to create."""

    __slots__ = ("_denominator", "_numerator")

    def __init__(self, numerator: int, denominator: int) -> None:
        self._numerator = numerator
        self._denominator = denominator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactRatio) and (
            self._numerator * other._denominator == other._numerator * self._denominator
        )

    def __lt__(self, other: "ExactRatio") -> bool:
        return self._numerator * other._denominator < other._numerator * self._denominator

    __hash__ = None  # type: ignore[assignment]


RatioKey = tuple[int, int, ExactRatio]
"""A usage ratio with a coarse integer before the exact one, which is quicker to compare."""

_INFINITE: RatioKey = (1, 0, ExactRatio(0, 1))


class _Weights(NamedTuple):
    """The fair share of a queue as the usage ratio of one base unit of each resource."""

    weights: Mapping[str, int]
    """The ratio of one base unit; missing where the fair share is zero."""
    unit: int
    """By how much *weights* are multiplied, so that they are integers."""

    def dominant(self, usage: Resources) -> int | None:
        """Return the largest ratio of *usage*, times the unit; ``None`` for infinite."""
        largest = 0
        for name, amount in usage.items():
            weight = self.weights.get(name)
            if weight is not None:
                if (ratio := amount * weight) > largest:
                    largest = ratio
            elif amount > 0 and name != PODS:
                return None
        return largest

    def ratio(self, usage: Resources) -> UsageRatio:
        """Return the usage ratio with *usage*."""
        largest = self.dominant(usage)
        return INFINITE if largest is None else (0, Fraction(largest, self.unit))


def _weights(fair_share: Mapping[str, Fraction]) -> _Weights:
    shares = {name: share for name, share in fair_share.items() if share}
    unit = lcm(*(share.numerator for share in shares.values()))
    return _Weights({name: share.denominator * (unit // share.numerator) for name, share in shares.items()}, unit)


class QueueShares:
    """Fair shares of the queues, and their usage ratios: usage divided by fair share.

    Ratios are cached until ``invalidate`` is called for a queue with another usage or fair share.
    """

    def __init__(
        self, quota: Quota, fair_shares: FairShares, by_namespace: Mapping[tuple[QueueName, str], Resources]
    ) -> None:
        self.quota = quota
        self.fair_shares = fair_shares
        self.by_namespace = by_namespace
        """Usage of each namespace in each queue."""
        self.changes = 0
        """How often fair shares have changed."""
        self._ratio_keys: dict[QueueName, RatioKey] = {}
        self._whole_shares: dict[QueueName, dict[str, int]] = {}
        self._weights: dict[QueueName, _Weights] = {}

    def invalidate(self, queues: Iterable[QueueName]) -> None:
        """Compute the ratios of *queues* again when they are needed."""
        for name in queues:
            self._ratio_keys.pop(name, None)

    def fair_shares_changed(self, queues: Collection[QueueName]) -> None:
        """Compute all that follows from the fair shares of *queues* again when it is needed."""
        self.changes += bool(queues)
        self.invalidate(queues)
        for name in queues:
            self._whole_shares.pop(name, None)
            self._weights.pop(name, None)

    def usage_ratio_with(self, queue: QueueName, usage: Resources) -> UsageRatio:
        """Return the usage ratio that *queue* would have with *usage*; not cached."""
        return self._weights_of(queue).ratio(usage)

    def ratio_key(self, queue: QueueName, resources: frozenset[str]) -> RatioKey:
        """Return a key that orders queues as their usage ratios do and is quicker to compare."""
        key = self._ratio_keys.get(queue)
        if key is None:
            weights = self._weights_of(queue)
            largest = weights.dominant(self.quota.allocated[queue])
            key = _INFINITE if largest is None else _ratio_key(largest, weights.unit)
            self._ratio_keys[queue] = key
        return key if not resources or resources <= self._weights_of(queue).weights.keys() else _INFINITE

    def _weights_of(self, queue: QueueName) -> _Weights:
        known = self._weights.get(queue)
        if known is None:
            known = self._weights[queue] = _weights(self.fair_shares[queue])
        return known

    def lacking_fair_share(self, queue: QueueName, charges: RequestIndex) -> Slots:
        """Return those of *charges* with a resource of which *queue* has no fair share; its ratio is infinite then."""
        shared = self._weights_of(queue).weights
        return charges.exceeding({name: 0 for name in charges.resources if name not in shared and name != PODS})

    def namespace_ratio(self, queue: QueueName, namespace: str) -> UsageRatio:
        """Return the namespace's usage divided by the queue's fair share, dominant over resources (O2)."""
        return self._weights_of(queue).ratio(self.by_namespace.get((queue, namespace), {}))

    def first_above_fair_share(self, node: Node, charge: Resources, quota: Quota | None = None) -> str | None:
        """Return the first resource of which *charge* would raise *node* above its fair share, by usage in *quota*."""
        due, usage = self._whole_share(node.name), (quota or self.quota).allocated[node.name]
        first: str | None = None
        for name, amount in charge.items():
            if amount > 0 and usage.get(name, 0) + amount > due.get(name, 0) and name != PODS:
                first = name if first is None else min(first, name)
        return first

    def above_fair_share(self, node: Node, charges: RequestIndex) -> Slots:
        """Return those of *charges* for which ``first_above_fair_share`` returns a resource."""
        due, usage = self._whole_share(node.name), self.quota.allocated[node.name]
        return charges.exceeding(
            {name: due.get(name, 0) - usage.get(name, 0) for name in charges.resources if name != PODS}
        )

    def borrows(self, leaf: Node, charge: Resources, quota: Quota | None = None) -> bool:
        """Return whether *charge* would raise the queue or an ancestor below the root above its fair share.

        Usage is that in *quota*, by default settled usage.
        """
        return any(
            node.parent is not None and self.first_above_fair_share(node, charge, quota) is not None
            for node in leaf.path()
        )

    def _whole_share(self, queue: QueueName) -> Mapping[str, int]:
        """Return the fair share rounded down, which is exceeded by the same whole amounts as the exact one."""
        known = self._whole_shares.get(queue)
        if known is None:
            known = self._whole_shares[queue] = {name: floor(due) for name, due in self.fair_shares[queue].items()}
        return known


@lru_cache(maxsize=4096)
def _ratio_key(numerator: int, denominator: int) -> RatioKey:
    """Return the key of a finite ratio: first in 2**-40ths, rounded down, which suffices to compare most ratios.

    Equal queues with equal usage share a key, because the same object is compared without a call.
    """
    return 0, (numerator << 40) // denominator, ExactRatio(numerator, denominator)


class FairShareTracker:
    """Divides quota again where requests have changed."""

    def __init__(self, queue_usage: QueueUsage, pending: PendingWorkloads) -> None:
        self._queue_usage = queue_usage
        self._pending = pending
        self._requested: dict[QueueName, Resources] = {}
        self._pending_requests: dict[QueueName, Resources] = {}
        """The requests of competing workloads, by queue."""
        self._shares: QueueShares | None = None
        self._division: FairShareDivision | None = None
        queue_usage.on_usage_change.append(self._invalidate)

    @property
    def requested(self) -> Mapping[QueueName, Resources]:
        """Return the requests of each queue: its charges and those of competing workloads, as of ``update``."""
        return self._requested

    @property
    def current(self) -> QueueShares | None:
        """Return fair shares and usage ratios; without any fair share where the quota is newer than ``update``."""
        quota = self._queue_usage.latest_quota
        if quota is not None and (self._shares is None or self._shares.quota is not quota):
            nothing = FairShareDivision(quota).shares
            self._shares, self._division = QueueShares(quota, nothing, self._queue_usage.by_namespace), None
        return self._shares

    def update(self) -> Steps[QueueShares]:
        """Return fair shares and usage ratios after all changes (Q4)."""
        before, quota = self._queue_usage.latest_quota, self._queue_usage.quota()
        if quota is not before:
            yield len(quota.tree.nodes)
        self._queue_usage.drop_stale_current_quota()
        changed = self._queue_usage.changed | self._pending.changed
        self._update_pending_requests()
        stale = {name for name in changed if self._update_requested(name, quota.tree.nodes.get(name))}
        shares = self.current
        if shares is None or self._division is None:
            division = FairShareDivision(quota)
            yield from division.divide(self._requested)
            self._division = division
            shares = self._shares = QueueShares(quota, division.shares, self._queue_usage.by_namespace)
        else:
            others = {ROOT} if any(name not in quota.tree.nodes for name in stale) else set()
            shares.fair_shares_changed(self._division.update(self._requested, stale | others))
        self._queue_usage.changed = set()
        self._pending.changed = set()
        return shares

    def _update_requested(self, name: QueueName, node: Node | None) -> bool:
        """Update the requests of a queue; return whether fair shares may change.

        An admission leaves the requests of a leaf the same; the charges on other queues count themselves.
        """
        before = self._requested.get(name)
        requested = add(self._queue_usage.settled.get(name, EMPTY), self._pending_requests.get(name, EMPTY))
        if node is None and not any(requested.values()):
            # Tenants may name any number of queues that do not exist.
            self._requested.pop(name, None)
        else:
            self._requested[name] = requested
        return requested != before or node is None or bool(node.children)

    def _invalidate(self, node: Node) -> None:
        if self._shares is not None:
            self._shares.invalidate(above.name for above in node.path())

    def _update_pending_requests(self) -> None:
        """Update the sums of the classes that only capacity holds back."""
        sums: dict[QueueName, dict[str, int]] = {}
        for workload_class in self._pending.changed_classes:
            queue, before = workload_class.queue, (workload_class.counted_charge, -workload_class.counted)
            is_counted = workload_class.inadmissible is None and workload_class.key.nominated_cluster is None
            after = (workload_class.charge, len(workload_class.workloads)) if is_counted else (EMPTY, 0)
            workload_class.counted_charge, workload_class.counted = after
            if queue not in sums:
                sums[queue] = dict(self._pending_requests.get(queue, EMPTY))
            for charge, count in (before, after):
                for name, amount in charge.items():
                    sums[queue][name] = sums[queue].get(name, 0) + count * amount
        for queue, amounts in sums.items():
            if pending := nonzero(amounts):
                self._pending_requests[queue] = pending
            else:
                self._pending_requests.pop(queue, None)
        self._pending.changed_classes = {}
