"""What queues hold beside what they are entitled to, measured over virtual time.

Everything is an area: an amount in base units times milliseconds, in whole
numbers. Entitlements are rounded down to a base unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from controller.engine.ordering import QueueShares
from controller.engine.queues import ROOT, QueueName
from controller.engine.resources import EMPTY, PODS, Resources
from controller.simulator.time_series import TimeSeries

Areas = dict[str, int]


@dataclass(slots=True)
class QueueIntegrals:
    """One queue from the start to the time when it was last settled."""

    accumulated_until: int = 0
    held: Resources = EMPTY
    """What it and those below it are charged with since then, ``pods`` among it."""
    due: Mapping[str, Fraction] = field(default_factory=dict)
    """What it is entitled to since then."""
    usage_area: Areas = field(default_factory=dict)
    fair_share_area: Areas = field(default_factory=dict)
    gap_area: Areas = field(default_factory=dict)
    """Of the distance between the two, whichever is larger."""
    max_gap: dict[str, Fraction] = field(default_factory=dict)
    """The largest distance, as a part of all there was."""

    def accumulate(self, now: int, pool: Resources) -> None:
        """Count the time up to *now*, in which nothing changed and *pool* was there in all."""
        elapsed, self.accumulated_until = now - self.accumulated_until, now
        if not elapsed:
            return
        for name in {*self.held, *self.due} - {PODS}:
            held, due = self.held.get(name, 0), floor(self.due.get(name, 0))
            gap = abs(held - due)
            for area, amount in ((self.usage_area, held), (self.fair_share_area, due), (self.gap_area, gap)):
                area[name] = area.get(name, 0) + amount * elapsed
            if pool.get(name, 0) > 0:
                self.max_gap[name] = max(self.max_gap.get(name, Fraction(0)), Fraction(gap, pool[name]))


class ShareMetrics:
    """Reads how the queues stand whenever that may have changed."""

    def __init__(self, series: TimeSeries | None = None) -> None:
        self.queues: dict[QueueName, QueueIntegrals] = {}
        self.capacity_area: Areas = {}
        """Of the root's ceiling: all there was."""
        self._pool: Resources = EMPTY
        self._read_at = 0
        self._series = series

    def read(self, standing: QueueShares, now: int) -> None:
        """Take *standing* as it is from *now* on."""
        self._count_pool(now)
        ceiling = standing.quota.limits[ROOT].limit
        pool = {name: max(amount, 0) for name, amount in ceiling.items() if name != PODS}
        has_changed = pool != self._pool
        if has_changed:
            self.close(now)
            self._pool = pool
        for name in standing.quota.tree.nodes:
            held, due = standing.quota.allocated[name], standing.fair_shares[name]
            track = self.queues.get(name) or self.queues.setdefault(name, QueueIntegrals())
            if has_changed or track.held != held or track.due != due:
                track.accumulate(now, self._pool)
                # The engine changes its own in place.
                track.held, track.due = dict(held), dict(due)
                if self._series is not None:
                    self._series.record_usage(name, now, held=track.held, pool=pool)

    def close(self, now: int) -> None:
        """Count the time up to *now* for every queue."""
        self._count_pool(now)
        for track in self.queues.values():
            track.accumulate(now, self._pool)

    def _count_pool(self, now: int) -> None:
        elapsed, self._read_at = now - self._read_at, now
        for name, amount in self._pool.items():
            self.capacity_area[name] = self.capacity_area.get(name, 0) + amount * elapsed
