"""Measures the capacity that reservations leave idle, and bounds that of head reservations (O8).

The idle part of a reservation is measured after each cycle: the free capacity that it sets aside, as a fraction of
the cluster, on the dominant resource. A reservation expires when the integral over time exceeds its budget.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from controller.engine.policy import AdvanceReservation, HeadReservationPolicy
from controller.engine.reservations.backfill import Window
from controller.engine.state.cluster_state import ClusterState, earliest
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.pending import owner_of
from controller.engine.state.resources import EMPTY, PODS, Resources, add, elementwise_min, positive, subtract, total
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import Workload

#: A whole cluster, in the unit in which idle capacity is measured.
_WHOLE = 1_000_000
ReservationKind = Literal["advance", "head"]


class IdleTime(NamedTuple):
    """What one reservation has left idle, in millionths of a cluster."""

    area: int
    """The integral over time until *at*, in millionths of a cluster times milliseconds."""
    rate: int
    """The idle part since *at*."""
    at: int


class IdleReservations:
    """Measures the capacity that each reservation leaves idle, for a HyperJob that of all parts together."""

    def __init__(self, workloads: WorkloadIndex, cluster_usage: ClusterUsage) -> None:
        self.by_owner: dict[str, IdleTime] = {}
        self._workloads = workloads
        self._cluster_usage = cluster_usage

    def add_elapsed(self, now: int) -> None:
        """Add what was idle since the last measurement."""
        self.by_owner = {
            owner: IdleTime(idle.area + idle.rate * max(now - idle.at, 0), idle.rate, now)
            for owner, idle in self.by_owner.items()
        }

    def measure(self, windows: Mapping[str, Window], now: int) -> None:
        """Measure what the present reservations leave idle from *now* on; nothing where a shadow time is to come (O9).

        Where it has come, the workload could start as far as forecast, and something else holds it up.
        """
        charges: dict[str, dict[ClusterName, Resources]] = {}
        for workload in self._workloads.with_reservation.values():
            by_cluster = charges.setdefault(owner_of(workload), {})
            for charge in workload.reservation.cluster_charges if workload.reservation is not None else ():
                by_cluster[charge.cluster] = add(by_cluster.get(charge.cluster, EMPTY), charge.charge)
        before = self.by_owner
        self.by_owner = {
            owner: IdleTime(
                before[owner].area if owner in before else 0,
                0 if owner in windows and windows[owner].shadow_time > now else self._idle_part(by_cluster),
                now,
            )
            for owner, by_cluster in charges.items()
        }

    def _idle_part(self, charges: dict[ClusterName, Resources]) -> int:
        """Return the largest part of a cluster that is idle for *charges*."""
        cluster_state = self._cluster_usage.cluster_state
        return max((_idle_part(cluster_state(name), charge) for name, charge in charges.items()), default=0)

    def is_exhausted(self, workload: Workload, policy: HeadReservationPolicy) -> bool:
        """Return whether the reservation of *workload* has left idle what it may."""
        idle = self.by_owner.get(owner_of(workload))
        return idle is not None and idle.rate > 0 and idle.area >= _budget(policy)

    def next_expiry(self, policy: HeadReservationPolicy) -> int | None:
        """Return when the first reservation will have left idle what it may, if nothing changes."""
        return earliest(self._expiries(policy))

    def _expiries(self, policy: HeadReservationPolicy) -> Iterator[int]:
        for idle in self.by_owner.values():
            if idle.rate > 0:
                yield idle.at + max(-((idle.area - _budget(policy)) // idle.rate), 0)


def _budget(policy: HeadReservationPolicy) -> int:
    return policy.max_idle_permille * (_WHOLE // 1000) * policy.max_ms


def _idle_part(cluster_state: ClusterState, charge: Resources) -> int:
    """Return which part of a cluster is free and set aside by *charge*, on the dominant resource of *charge*."""
    allocatable, headroom = cluster_state.allocatable, cluster_state.headroom
    parts = (
        (amount * _WHOLE // allocatable[name], min(amount, max(headroom.get(name, 0), 0)) * _WHOLE // allocatable[name])
        for name, amount in sorted(charge.items())
        if amount > 0 and name != PODS and allocatable.get(name, 0) > 0
    )
    return max(parts, key=lambda part: part[0], default=(0, 0))[1]


def idle_by_kind(
    cluster_usage: ClusterUsage, heads: Mapping[ClusterName, Resources], in_advance: Iterable[AdvanceReservation]
) -> dict[ReservationKind, Resources]:
    """Return the free capacity that reservations set aside; what both kinds set aside counts as reserved in advance."""
    by_cluster: dict[ClusterName, list[AdvanceReservation]] = {}
    for reservation in in_advance:
        for name in reservation.clusters:
            by_cluster.setdefault(name, []).append(reservation)
    idle: dict[ReservationKind, list[Resources]] = {"advance": [], "head": []}
    for name in sorted({*by_cluster, *heads}):
        if name not in cluster_usage:
            continue
        state, reservations = cluster_usage.cluster_state(name), by_cluster.get(name, [])
        free = positive({resource: amount for resource, amount in state.headroom.items() if resource != PODS})
        held = free
        if all(reservation.amounts for reservation in reservations):
            names = tuple(sorted(reservation.name for reservation in reservations))
            held = elementwise_min(free, state.in_advance.set_aside(names) if state.in_advance is not None else EMPTY)
        idle["advance"].append(held)
        idle["head"].append(elementwise_min(subtract(free, held), heads.get(name, EMPTY)))
    return {kind: positive(total(amounts)) for kind, amounts in idle.items()}
