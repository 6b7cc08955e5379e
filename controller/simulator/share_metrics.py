"""Integrates usage and fair share of the queues over virtual time.

Areas are integers: amounts in base units times milliseconds. Fair shares are rounded down
to a base unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from controller.engine.fairness.ordering import QueueShares
from controller.engine.state.hierarchy import ROOT, QueueName
from controller.engine.state.resources import EMPTY, PODS, Resources
from controller.simulator.time_series import TimeSeries

Areas = dict[str, int]
_ZERO = Fraction(0)


@dataclass(slots=True)
class QueueIntegrals:
    """Integrals of one queue from the start to *accumulated_until*."""

    accumulated_until: int = 0
    usage: Resources = EMPTY
    """Usage of the queue and its descendants since *accumulated_until*, including ``pods``."""
    fair_share: Mapping[str, Fraction] = field(default_factory=dict)
    """Fair share since *accumulated_until*."""
    usage_area: Areas = field(default_factory=dict)
    fair_share_area: Areas = field(default_factory=dict)
    gap_area: Areas = field(default_factory=dict)
    """Integral of the absolute difference between usage and fair share."""
    max_gap: dict[str, Fraction] = field(default_factory=dict)
    """The maximum difference as a fraction of the total capacity."""

    def accumulate(self, now: int, capacity: Resources) -> None:
        """Add the time up to *now*, during which usage, fair share and the total *capacity* were constant."""
        elapsed, self.accumulated_until = now - self.accumulated_until, now
        if not elapsed:
            return
        for name in {*self.usage, *self.fair_share}:
            if name == PODS:
                continue
            usage, due = self.usage.get(name, 0), self.fair_share.get(name, _ZERO)
            fair_share = due.numerator // due.denominator
            gap = abs(usage - fair_share)
            self.usage_area[name] = self.usage_area.get(name, 0) + usage * elapsed
            self.fair_share_area[name] = self.fair_share_area.get(name, 0) + fair_share * elapsed
            self.gap_area[name] = self.gap_area.get(name, 0) + gap * elapsed
            whole, max_gap = capacity.get(name, 0), self.max_gap.get(name)
            if whole > 0 and (max_gap is None or gap * max_gap.denominator > max_gap.numerator * whole):
                self.max_gap[name] = Fraction(gap, whole)


class ShareMetrics:
    """Integrates the shares of all queues."""

    def __init__(self, series: TimeSeries | None = None) -> None:
        self.queues: dict[QueueName, QueueIntegrals] = {}
        self.capacity_area: Areas = {}
        """Integral of the root's limit, which is the total capacity."""
        self._capacity: Resources = EMPTY
        self._read_at = 0
        self._series = series

    def read(self, shares: QueueShares, now: int) -> None:
        """Use *shares* from *now* on."""
        self._add_capacity(now)
        limit = shares.quota.limits[ROOT].limit
        capacity = {name: max(amount, 0) for name, amount in limit.items() if name != PODS}
        has_changed = capacity != self._capacity
        if has_changed:
            self.close(now)
            self._capacity = capacity
        for name in shares.quota.tree.nodes:
            usage, fair_share = shares.quota.allocated[name], shares.fair_shares[name]
            queue = self.queues.get(name) or self.queues.setdefault(name, QueueIntegrals())
            if has_changed or queue.usage != usage or queue.fair_share != fair_share:
                queue.accumulate(now, self._capacity)
                # Copied, because the engine updates these mappings in place.
                queue.usage, queue.fair_share = dict(usage), dict(fair_share)
                if self._series is not None:
                    self._series.record_usage(name, now, usage=queue.usage, capacity=capacity)

    def close(self, now: int) -> None:
        """Add the time up to *now* for every queue."""
        self._add_capacity(now)
        for queue in self.queues.values():
            queue.accumulate(now, self._capacity)

    def _add_capacity(self, now: int) -> None:
        elapsed, self._read_at = now - self._read_at, now
        for name, amount in self._capacity.items():
            self.capacity_area[name] = self.capacity_area.get(name, 0) + amount * elapsed
