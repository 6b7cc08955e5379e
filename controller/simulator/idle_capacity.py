"""Why capacity stays idle, by resource, measured over virtual time.

Everything is an area: an amount in base units times milliseconds. What is idle
is counted once, under the first cause of the list that explains it.
"""

from collections.abc import Mapping
from enum import StrEnum

from controller.engine.queues import ROOT, QueueName
from controller.engine.resources import EMPTY, PODS, Resources, subtract, total
from controller.engine.state import State


class IdleCause(StrEnum):
    """The causes, in the order in which they are looked for."""

    HELD = "held"
    """For workloads whose victims are leaving (P5)."""
    RESERVED = "reserved"
    """For workloads that have been blocked for long (O6)."""
    GUARANTEED = "guaranteed"
    """To queues that do not use it (Q3)."""
    NOTHING_PENDING = "nothingPending"
    """No pending workload that could ever run asks for so much of it."""
    LIMITED = "limited"
    """The limits of the queues that ask for it are reached."""
    FRAGMENTED = "fragmented"
    """It is asked for and allowed, and fits in no cluster, or not together with another resource that is used up."""


class IdleCapacity:
    """Reads why capacity is idle whenever that may have changed."""

    def __init__(self) -> None:
        self.areas: dict[IdleCause, dict[str, int]] = {cause: {} for cause in IdleCause}
        self._amounts: dict[IdleCause, dict[str, int]] = {cause: {} for cause in IdleCause}
        """Since the last reading."""
        self._read_at = 0
        self._known: dict[QueueName, tuple[Resources, Resources, Resources]] = {}
        """Of each queue its demand, its charges and its limit when they were last looked at."""
        self._parts: dict[QueueName, tuple[Resources, Resources]] = {}
        """What its pending workloads ask for, and what of that its limit leaves."""
        self._unmet: dict[str, int] = {}
        self._allowed: dict[str, int] = {}

    def read(self, state: State, now: int) -> None:
        """Take *world* as it is from *now* on."""
        self.close(now)
        if state.queue_shares is None:
            return
        self._look(state)
        quota, present = state.queue_shares.quota, state.current_quota or state.queue_shares.quota
        held = total(each.nomination.requests for each in state.nominated.values() if each.nomination is not None)
        reserved = total(
            each.reservation.requests or EMPTY
            for each in state.with_reservation.values()
            if each.reservation is not None
        )
        root = quota.tree.root
        for name, amount in quota.limits[ROOT].limit.items():
            if name == PODS:
                continue
            rest = max(amount - present.usage(ROOT, name), 0)
            guaranteed = quota.reservation(root, name) - quota.usage(ROOT, name)
            rest = self._count(IdleCause.HELD, name, held.get(name, 0), rest=rest)
            rest = self._count(IdleCause.RESERVED, name, reserved.get(name, 0), rest=rest)
            rest = self._count(IdleCause.GUARANTEED, name, guaranteed, rest=rest)
            rest = self._count(IdleCause.NOTHING_PENDING, name, rest - self._unmet.get(name, 0), rest=rest)
            rest = self._count(IdleCause.LIMITED, name, rest - self._allowed.get(name, 0), rest=rest)
            self._count(IdleCause.FRAGMENTED, name, rest, rest=rest)

    def _count(self, cause: IdleCause, resource: str, amount: int, *, rest: int) -> int:
        """Count *amount*, of the *rest* at most, under *cause*; return what is left."""
        found = min(max(amount, 0), rest)
        self._amounts[cause][resource] = found
        return rest - found

    def _look(self, state: State) -> None:
        """Bring up to date what pending workloads ask for, of the queues in which something changed."""
        if state.queue_shares is None:
            return
        quota, wanted, settled = state.queue_shares.quota, state.queue_usage.requested, state.queue_usage.settled
        for node in quota.tree.leaves():
            name = node.name
            now = wanted.get(name, EMPTY), settled.get(name, EMPTY), quota.limits[name].limit
            known = self._known.get(name)
            if known is not None and known[0] is now[0] and known[1] is now[1] and known[2] is now[2]:
                continue
            self._known[name] = now
            unmet = {each: amount for each, amount in subtract(now[0], now[1]).items() if amount > 0}
            allowed = {each: min(amount, _left(now[2], now[1], each)) for each, amount in unmet.items()}
            before = self._parts.get(name, (EMPTY, EMPTY))
            self._parts[name] = unmet, allowed
            _change(self._unmet, before[0], unmet)
            _change(self._allowed, before[1], allowed)

    def close(self, now: int) -> None:
        """Count the time up to *now*."""
        elapsed, self._read_at = now - self._read_at, now
        if not elapsed:
            return
        for cause, amounts in self._amounts.items():
            areas = self.areas[cause]
            for name, amount in amounts.items():
                if amount:
                    areas[name] = areas.get(name, 0) + amount * elapsed


def _left(ceiling: Resources, held: Resources, resource: str) -> int:
    return max(ceiling.get(resource, 0) - held.get(resource, 0), 0)


def _change(sums: dict[str, int], before: Mapping[str, int], after: Mapping[str, int]) -> None:
    for name in {*before, *after}:
        sums[name] = sums.get(name, 0) + after.get(name, 0) - before.get(name, 0)
