"""Integrates idle capacity by resource and cause over virtual time.

Areas are amounts in base units times milliseconds. Idle capacity is counted once, under
the first cause that applies.
"""

from collections.abc import Mapping
from enum import StrEnum

from controller.engine.engine import Engine
from controller.engine.state.hierarchy import ROOT, QueueName
from controller.engine.state.resources import EMPTY, PODS, Resources, subtract, total


class IdleCause(StrEnum):
    """Causes of idle capacity, in the order in which they are checked."""

    NOMINATED = "nominated"
    """Nominated to workloads whose victims are being evicted (P5)."""
    RESERVED = "reserved"
    """Reserved for workloads that are blocked for long (O6)."""
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

    def read(self, state: Engine, now: int) -> None:
        """Use *state* from *now* on."""
        self.close(now)
        if state.queue_shares is None:
            return
        self._update_queues(state)
        quota, current_quota = state.queue_shares.quota, state.current_quota or state.queue_shares.quota
        nominated = total(
            workload.nomination.requests for workload in state.nominated.values() if workload.nomination is not None
        )
        reserved = total(
            workload.reservation.requests or EMPTY
            for workload in state.with_reservation.values()
            if workload.reservation is not None
        )
        root, usage = quota.tree.root, quota.allocated[ROOT]
        for name, amount in quota.limits[ROOT].limit.items():
            if name == PODS:
                continue
            idle = max(amount - current_quota.usage(ROOT, name), 0)
            rest, counted = idle, list[int]()
            for wanted in (
                nominated.get(name, 0),
                reserved.get(name, 0),
                quota.reservation(root, name) - usage.get(name, 0),
            ):
                part = min(max(wanted, 0), rest)
                rest -= part
                counted.append(part)
            # The rest is not requested, or beyond the limits of the requesting queues, or fragmented.
            requested = min(max(self._unmet.get(name, 0), 0), rest)
            allowed = min(max(self._allowed.get(name, 0), 0), requested)
            self._amounts[name] = (*counted, rest - requested, requested - allowed, allowed)

    def _update_queues(self, state: Engine) -> None:
        """Update the requests of pending workloads in queues that changed."""
        if state.queue_shares is None:
            return
        quota, wanted, settled = state.queue_shares.quota, state.requested, state.queue_usage.settled
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


def _remaining(limit: Resources, usage: Resources, resource: str) -> int:
    return max(limit.get(resource, 0) - usage.get(resource, 0), 0)


def _change(sums: dict[str, int], before: Mapping[str, int], after: Mapping[str, int]) -> None:
    for name in {*before, *after}:
        sums[name] = sums.get(name, 0) + after.get(name, 0) - before.get(name, 0)
