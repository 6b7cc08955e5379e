"""Integrates usage, fair shares and idle capacity over virtual time.

Areas are integers: amounts in base units times milliseconds. Fair shares are rounded down
to a base unit. Idle capacity is counted once, under the first cause that applies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from controller.engine.engine import Engine
from controller.engine.fairness.shares import QueueShares
from controller.engine.reasons import Reason
from controller.engine.reservations.advance import blocking_reservations, idle_for
from controller.engine.state.hierarchy import ROOT, QueueName
from controller.engine.state.resources import EMPTY, PODS, Resources, subtract, total

if TYPE_CHECKING:
    from controller.engine.policy import AdvanceReservation


class IdleCause(StrEnum):
    """Causes of idle capacity, in the order in which they are checked."""

    NOMINATED = "nominated"
    """Nominated to workloads whose victims are being evicted (P5)."""
    RESERVED = "reserved"
    """Reserved for workloads that are blocked for long, and requested by others that only this blocks (O6)."""
    GUARANTEED = "guaranteed"
    """Guaranteed to queues that do not use it (Q3)."""
    NOTHING_PENDING = "nothingPending"
    """Not requested by any pending workload that could ever run."""
    LIMITED = "limited"
    """The limits of the queues with pending workloads are reached."""
    FRAGMENTED = "fragmented"
    """Requested and within the limits, but no cluster has enough of all resources."""


class IdleCapacity:
    """Integrates the idle capacity by cause."""

    def __init__(self) -> None:
        self._areas: dict[str, list[int]] = {}
        """The integrals of each resource, in the order of the causes."""
        self._amounts: dict[str, tuple[int, ...]] = {}
        """Idle amounts since the last call of `read`, in the order of the causes."""
        self._read_at = 0
        self._known: dict[QueueName, tuple[Resources, Resources, Resources]] = {}
        """Requests, usage and limit of each queue at the last call of `read`."""
        self._parts: dict[QueueName, tuple[Resources, Resources]] = {}
        """Requests of the pending workloads of each queue, and the part of them within its limit."""
        self._unmet: dict[str, int] = {}
        self._allowed: dict[str, int] = {}

    @property
    def areas(self) -> dict[IdleCause, dict[str, int]]:
        """Return the integrals by cause and resource, without those that are zero."""
        return {
            cause: {name: areas[number] for name, areas in self._areas.items() if areas[number]}
            for number, cause in enumerate(IdleCause)
        }

    def read(self, engine: Engine, now: int) -> None:
        """Use *engine* from *now* on."""
        self.close(now)
        if engine.queue_shares is None:
            return
        self._update_queues(engine)
        quota, current_quota = engine.queue_shares.quota, engine.current_quota or engine.queue_shares.quota
        nominated = total(
            workload.nomination.requests for workload in engine.nominated.values() if workload.nomination is not None
        )
        reserved, blocked = total(engine.quota_set_aside), total(_blocked_by_reservations(engine))
        root, usage = quota.tree.root, quota.allocated[ROOT]
        for name, amount in quota.limits[ROOT].limit.items():
            if name == PODS:
                continue
            idle = max(amount - current_quota.usage(ROOT, name), 0)
            rest, counted = idle, list[int]()
            for wanted in (
                nominated.get(name, 0),
                min(reserved.get(name, 0), blocked.get(name, 0)),
                quota.reserved_quota(root, name) - usage.get(name, 0),
            ):
                part = min(max(wanted, 0), rest)
                rest -= part
                counted.append(part)
            # The rest is not requested, or beyond the limits of the requesting queues, or fragmented.
            requested = min(max(self._unmet.get(name, 0), 0), rest)
            allowed = min(max(self._allowed.get(name, 0), 0), requested)
            self._amounts[name] = (*counted, rest - requested, requested - allowed, allowed)

    def _update_queues(self, engine: Engine) -> None:
        """Update the requests of pending workloads in queues that changed."""
        if engine.queue_shares is None:
            return
        quota, wanted, settled = engine.queue_shares.quota, engine.requested, engine.queue_usage.settled
        for node in quota.tree.leaves():
            name = node.name
            now = wanted.get(name, EMPTY), settled.get(name, EMPTY), quota.limits[name].limit
            known = self._known.get(name)
            if known is not None and known[0] is now[0] and known[1] is now[1] and known[2] is now[2]:
                continue
            self._known[name] = now
            unmet = {resource: amount for resource, amount in subtract(now[0], now[1]).items() if amount > 0}
            allowed = {
                resource: min(amount, _remaining(now[2], now[1], resource)) for resource, amount in unmet.items()
            }
            before = self._parts.get(name, (EMPTY, EMPTY))
            self._parts[name] = unmet, allowed
            _change(self._unmet, before[0], unmet)
            _change(self._allowed, before[1], allowed)

    def close(self, now: int) -> None:
        """Add the time up to *now*."""
        elapsed, self._read_at = now - self._read_at, now
        if not elapsed:
            return
        for name, amounts in self._amounts.items():
            areas = self._areas.setdefault(name, [0] * len(IdleCause))
            for number, amount in enumerate(amounts):
                if amount:
                    areas[number] += amount * elapsed


class AdvanceReservationCosts:
    """Integrates what is idle on the clusters of each advance reservation because of it (O11).

    That is their headroom, or what of it is kept free of amounts, while the reservation is in force, and before while
    it keeps pending workloads off.
    """

    def __init__(self, start: int) -> None:
        self.areas: dict[str, dict[str, int]] = {}
        """The integrals by reservation and resource."""
        self._start = start
        self._idle: list[tuple[AdvanceReservation, Resources, bool]] = []
        """Each reservation with what it keeps free, and whether it keeps workloads off, since *_read_at*."""
        self._read_at = 0

    def read(self, engine: Engine, now: int) -> None:
        """Use *engine* from *now* on."""
        self.close(now)
        reservations = engine.policy.advance_reservations
        blocking = blocking_reservations(engine.pending) if reservations else frozenset()
        self._idle = [
            (reservation, idle_for(reservation, engine.cluster_usage), reservation.name in blocking)
            for reservation in reservations
        ]

    def close(self, now: int) -> None:
        """Add the time up to *now*."""
        begin, self._read_at = self._start + self._read_at, now
        for reservation, idle, is_blocking in self._idle:
            since = begin if is_blocking else max(begin, reservation.since)
            elapsed = min(self._start + now, reservation.until) - since
            areas = self.areas.setdefault(reservation.name, {})
            for name, amount in idle.items() if elapsed > 0 else ():
                areas[name] = areas.get(name, 0) + amount * elapsed


def _blocked_by_reservations(engine: Engine) -> Iterator[Resources]:
    """Yield the requests of the pending workloads that only a head reservation blocks."""
    for uid, reason in engine.last_reasons.items():
        if reason is Reason.BLOCKED_BY_RESERVATION:
            yield engine.pending.class_of(uid).charge


def _remaining(limit: Resources, usage: Resources, resource: str) -> int:
    return max(limit.get(resource, 0) - usage.get(resource, 0), 0)


def _change(sums: dict[str, int], before: Mapping[str, int], after: Mapping[str, int]) -> None:
    for name in {*before, *after}:
        sums[name] = sums.get(name, 0) + after.get(name, 0) - before.get(name, 0)


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

    def __init__(self) -> None:
        self.queues: dict[QueueName, QueueIntegrals] = {}
        self.capacity_area: Areas = {}
        """Integral of the root's limit, which is the total capacity."""
        self.capacity: Resources = EMPTY
        """The total capacity now."""
        self._read_at = 0

    def read(self, shares: QueueShares, now: int) -> None:
        """Use *shares* from *now* on."""
        self._add_capacity(now)
        limit = shares.quota.limits[ROOT].limit
        capacity = {name: max(amount, 0) for name, amount in limit.items() if name != PODS}
        has_changed = capacity != self.capacity
        if has_changed:
            self.close(now)
            self.capacity = capacity
        for name in shares.quota.tree.nodes:
            usage, fair_share = shares.quota.allocated[name], shares.fair_shares[name]
            queue = self.queues.get(name) or self.queues.setdefault(name, QueueIntegrals())
            if has_changed or queue.usage != usage or queue.fair_share != fair_share:
                queue.accumulate(now, self.capacity)
                # Copied, because the engine updates these mappings in place.
                queue.usage, queue.fair_share = dict(usage), dict(fair_share)

    def close(self, now: int) -> None:
        """Add the time up to *now* for every queue."""
        self._add_capacity(now)
        for queue in self.queues.values():
            queue.accumulate(now, self.capacity)

    def _add_capacity(self, now: int) -> None:
        elapsed, self._read_at = now - self._read_at, now
        for name, amount in self.capacity.items():
            self.capacity_area[name] = self.capacity_area.get(name, 0) + amount * elapsed
