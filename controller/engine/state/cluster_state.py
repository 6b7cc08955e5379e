"""One cluster with its capacity, the charges of workloads and its external usage.

Headroom is allocatable less external usage less charges (C2). External usage is derived from a summary that is
late and has no timestamp, so it rises at once and falls only after a settle period without changes of charges.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from controller.engine.state.amounts_in_advance import AmountsInAdvance
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import ClusterEstimates
from controller.engine.state.orphans import NO_ORPHANS, Orphans
from controller.engine.state.resources import (
    EMPTY,
    Resources,
    add,
    clamp_non_negative,
    elementwise_min,
    nonzero,
    positive,
    subtract,
    total,
)


class RecentlyFreed:
    """Charges that were freed recently and that a cluster's summary may still include."""

    __slots__ = ("charges", "total")

    def __init__(self) -> None:
        self.charges: list[tuple[int, Resources]] = []
        """The time of each and the charge, the earliest first."""
        self.total: Resources = EMPTY
        """What the nodes may have gained since the summary (C3)."""

    def __bool__(self) -> bool:
        return bool(self.charges)

    @property
    def earliest(self) -> int:
        """Return when the earliest charge was freed."""
        return self.charges[0][0]

    def add(self, charge: Resources, now: int) -> None:
        """Add a charge that was freed at *now*."""
        insort(self.charges, (now, charge), key=itemgetter(0))
        self.total = add(self.total, charge)

    def forget(self, until: int) -> None:
        """Drop what was freed at *until* or before."""
        past = bisect_right(self.charges, until, key=itemgetter(0))
        if past:
            self.total = nonzero(subtract(self.total, total(charge for _, charge in self.charges[:past])))
            del self.charges[:past]


@dataclass(slots=True)
class ClusterState:
    """One cluster with its usage; *cluster* is ``None`` while only charges refer to it."""

    name: ClusterName
    cluster: Cluster | None = None
    charged: Resources = EMPTY
    reported: Resources = EMPTY
    """The part of *charged* whose pods the summary is known to include."""
    still_running: Resources = EMPTY
    """The part of *charged* of workloads that are leaving and whose pods the first summary includes."""
    external_usage: Resources = EMPTY
    being_evicted: Resources = EMPTY
    """The part of *charged* whose workloads are being evicted (P5)."""
    nominated: Resources = EMPTY
    """What nominations set aside on the cluster (P5)."""
    recently_freed: RecentlyFreed = field(default_factory=RecentlyFreed)
    orphans: Orphans = NO_ORPHANS
    """The part of *external_usage* that queues are still charged for: pods left running by deleted workloads."""
    changed_at: int | None = None
    """When charges on the cluster last changed."""
    estimates: ClusterEstimates | None = None
    """Answers of its scheduler estimator; ``None`` where estimators are not used."""
    in_advance: AmountsInAdvance | None = None
    """What advance reservations of amounts keep free; ``None`` without any (O11)."""
    _headroom_inputs: tuple[Cluster | None, Resources, Resources] = (None, EMPTY, EMPTY)
    """The cluster, external usage and charges that *_headroom* was computed from."""
    _headroom: Resources = EMPTY

    @property
    def is_usable(self) -> bool:
        """Return whether the cluster accepts new admissions (C1)."""
        return self.cluster is not None and self.cluster.is_usable

    @property
    def is_unknown(self) -> bool:
        """Return whether the cluster's allocatable resources are unknown."""
        return self.cluster is None or self.cluster.allocatable is None

    @property
    def allocatable(self) -> Resources:
        """Return the allocatable resources, empty while they are unknown."""
        return (self.cluster.allocatable if self.cluster else None) or EMPTY

    @property
    def capacity(self) -> Resources:
        """Return allocatable less external usage."""
        return clamp_non_negative(subtract(self.allocatable, self.external_usage))

    @property
    def headroom(self) -> Resources:
        """Return allocatable less external usage less charges; negative where charges exceed capacity.

        Cached, because reads are far more frequent than changes; the inputs are replaced and never modified.
        """
        cluster, external_usage, charged = self._headroom_inputs
        if cluster is not self.cluster or external_usage is not self.external_usage or charged is not self.charged:
            self._headroom_inputs = self.cluster, self.external_usage, self.charged
            self._headroom = subtract(subtract(self.allocatable, self.external_usage), self.charged)
        return self._headroom

    def fitting_part(self, charge: Resources, uncertain: Resources) -> Resources:
        """Return the part of *charge*, which is charged here, that fits next to the other charges; all where unknown.

        Of the other charges the *uncertain* ones do not count: a resize is charged whether it fits or not (D7), and
        what does not fit does not run.
        """
        if self.is_unknown or all(amount >= 0 for amount in self.headroom.values()):
            return charge
        free = total((self.headroom, self.being_evicted, uncertain))
        return {name: min(amount, max(free.get(name, 0) + amount, 0)) for name, amount in charge.items()}

    @property
    def headroom_after_evictions(self) -> Resources:
        """Return the headroom after evictions in progress, less what nominations set aside."""
        if not self.being_evicted and not self.nominated:
            return self.headroom
        return subtract(add(self.headroom, self.being_evicted), self.nominated)

    @property
    def available(self) -> Resources:
        """Return the free capacity for one more workload: the smaller of headroom now and after evictions (P5)."""
        if not self.being_evicted and not self.nominated:
            return self.headroom
        return elementwise_min(self.headroom, self.headroom_after_evictions)

    @property
    def is_headroom_available(self) -> bool:
        """Return whether all headroom is available to any workload.

        Not so with nominations, resource models, estimates, or advance reservations of amounts.
        """
        is_for_some = self.estimates is not None or self.in_advance is not None
        return not (self.has_grades or self.being_evicted or self.nominated or is_for_some)

    @property
    def has_grades(self) -> bool:
        """Return whether resource models limit its pods, together with what was freed recently (C3)."""
        return self.cluster is not None and bool(self.cluster.grades)

    def refresh_external_usage(self, now: int, settle_ms: int) -> None:
        """Update external usage from the summary."""
        self.recently_freed.forget(now - settle_ms)
        if self.is_unknown or self.cluster is None:
            return
        explained = add(self.charged, self.recently_freed.total)
        unexplained = clamp_non_negative(subtract(self.cluster.used, explained))
        self.external_usage = {
            name: max(unexplained.get(name, 0), self.external_usage.get(name, 0))
            for name in {*unexplained, *self.external_usage}
        }
        if self.changed_at is None or self.changed_at + settle_ms <= now:
            most = self.max_external_usage()
            self.external_usage = {name: min(amount, most.get(name, 0)) for name, amount in self.external_usage.items()}
        self.external_usage = positive(self.external_usage)

    def max_external_usage(self) -> Resources:
        """Return the usage in the summary that reported pods do not explain."""
        return clamp_non_negative(subtract(self.cluster.used if self.cluster else EMPTY, self.reported))

    def settles_at(self, settle_ms: int) -> int | None:
        """Return when external usage may change without an event; ``None`` without a summary, or where it cannot."""
        if self.is_unknown:
            return None
        falls_at = self.changed_at + settle_ms if self.changed_at is not None and self.may_external_usage_fall else None
        freed = self.recently_freed
        rises_at = freed.earliest + settle_ms if freed and self._may_external_usage_rise else None
        return earliest((falls_at, rises_at))

    @property
    def _may_external_usage_rise(self) -> bool:
        """Return whether only recently freed charges explain the usage in the summary."""
        used = self.cluster.used if self.cluster else EMPTY
        return any(
            amount - self.charged.get(name, 0) > self.external_usage.get(name, 0)
            for name, amount in used.items()
            if amount
        )

    @property
    def may_external_usage_fall(self) -> bool:
        """Return whether external usage is above what the summary shows, and falls after the settle period."""
        most = self.max_external_usage()
        return any(amount > most.get(name, 0) for name, amount in self.external_usage.items())


def earliest(times: Iterable[int | None]) -> int | None:
    """Return the smallest of the times that are set, or ``None``."""
    known = [time for time in times if time is not None]
    return min(known) if known else None
