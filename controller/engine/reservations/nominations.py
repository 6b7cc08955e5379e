"""Tracks nominated workloads, whose victims are being evicted, and finds where they fit, oldest nomination first (P5).

A nomination expires after a while, and when it has become infeasible. ``preemption_pass`` makes nominations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.engine.placement.feasibility_cache import FeasibilityCache
from controller.engine.placement.fit import FreeCapacity, choose_clusters, free_after_evictions
from controller.engine.plan import Assume, RecordUpdate
from controller.engine.policy import Policy
from controller.engine.state.cluster_state import ClusterState, earliest
from controller.engine.state.clusters import ClusterName
from controller.engine.state.queue_usage import UsageTracker
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, elementwise_min, nonzero, positive, subtract
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import (
    Choice,
    ClusterCharge,
    HyperJobGang,
    Nomination,
    Workload,
    WorkloadUid,
)

NominatedParts = Sequence[tuple[Workload, Nomination]]
"""Nominated workloads that start together: the parts of a HyperJob (G1), else a single workload."""


class Nominations:
    """The nominations of all workloads."""

    def __init__(self, workloads: WorkloadIndex, usage: UsageTracker, feasibility_cache: FeasibilityCache) -> None:
        self._workloads = workloads
        self._usage = usage
        self._feasibility_cache = feasibility_cache
        self._cluster_usage = feasibility_cache.cluster_usage

    def in_order(self) -> list[tuple[Workload, Nomination]]:
        """Return nominated workloads, oldest nomination first, and within a plan in the order of their preemptions."""
        nominated = self._workloads.nominated.values()
        return sorted(
            ((part, part.nomination) for part in nominated if part.nomination is not None),
            key=lambda pair: (pair[1].since, pair[1].rank, pair[0].namespace, pair[0].name, pair[0].uid),
        )

    def units(self) -> list[NominatedParts]:
        """Return the nominated workloads by what starts together, in order."""
        gangs, units = self._workloads.gangs, dict[HyperJobGang | WorkloadUid, list[tuple[Workload, Nomination]]]()
        for workload, nomination in self.in_order():
            gang = workload.gang
            unit = gang if gangs.is_all_or_nothing(gang) else workload.uid
            units.setdefault(unit, []).append((workload, nomination))
        return list(units.values())

    def expire(self, policy: Policy, now: int, assume: Assume) -> list[RecordUpdate]:
        """Withdraw expired and infeasible nominations, newest first; for a gang, of all parts."""
        updates, younger = [], dict[ClusterName, Resources]()
        for parts in reversed(self.units()):
            has_expired = any(self._has_expired(part, nomination, policy, now) for part, nomination in parts)
            if has_expired or self._is_infeasible(parts, younger, policy, now):
                for part, _ in reversed(parts):
                    updates.append(RecordUpdate(part, None))
                    assume(part.nominated_as(None), now)
            else:
                set_aside(younger, parts)
        return updates

    def next_expiry(self, policy: Policy, now: int) -> int | None:
        """Return when the next nomination expires, or can be found infeasible."""
        nominations = [nomination for _, nomination in self.in_order()]
        quiet = (at for at in (self._settled_at(nomination, policy) for nomination in nominations) if at > now)
        return earliest((*(nomination.since + policy.head_reservation.max_ms for nomination in nominations), *quiet))

    def choose_all(
        self,
        parts: NominatedParts,
        retained: Mapping[ClusterName, Resources],
        younger: Mapping[ClusterName, Resources],
        settled: Quota,
        now: int,
    ) -> list[Choice] | None:
        """Return the choices for *parts* that start together; ``None`` while one of them does not fit.

        Capacity *retained* for older nominations is not free; what *younger* ones set aside is, on the same cluster.
        """
        choices = list[Choice]()
        # The nominations of these parts must not count against themselves.
        for part, _ in parts:
            self._usage.remove(part, now)
        current = self._usage.queue_usage.current_quota()
        quotas = [quota.overlay() for quota in (settled, current) if quota is not None]
        for part, nomination in parts:
            choice = self._choose_one(part, nomination, retained, younger, quotas)
            if choice is None:
                break
            self._cluster_usage.begin_trial(part, choice)
            for quota in quotas:
                quota.add_assumed(quota.tree.nodes[part.queue], nomination.requests)
            choices.append(choice)
        for (part, _), choice in zip(parts, choices, strict=False):
            self._cluster_usage.end_trial(part, choice)
        for part, _ in parts:
            self._usage.add(part, now)
        return choices if len(choices) == len(parts) else None

    def _choose_one(
        self,
        workload: Workload,
        nomination: Nomination,
        retained: Mapping[ClusterName, Resources],
        younger: Mapping[ClusterName, Resources],
        quotas: Sequence[Quota],
    ) -> Choice | None:
        """Return where a nominated workload fits: on its nominated cluster, else on any candidate.

        Nominations *younger* than its own were made in addition to it, so they do not bind it on its cluster (P5).
        Elsewhere head reservations do.
        """
        feasibility = self._feasibility_cache.get(workload.requirements)
        if any(quota.refusal(quota.tree.nodes[workload.queue], nomination.requests) is not None for quota in quotas):
            return None
        own = younger.get(nomination.cluster, EMPTY)
        capacities = [
            _free_capacity_for_nominated(
                self._cluster_usage.cluster_state(name),
                retained.get(name, EMPTY),
                own if name == nomination.cluster else EMPTY,
            )
            for name in feasibility.candidates.names
        ]
        nominated = [capacity for capacity in capacities if capacity.name == nomination.cluster]
        choice = choose_clusters(workload.requirements, nominated, feasibility.candidates.copies)
        if not isinstance(choice, Choice):
            reserved = self._reserved_elsewhere(workload, nomination)
            capacities = [_without_reserved(capacity, reserved) for capacity in capacities]
            choice = choose_clusters(workload.requirements, capacities, feasibility.candidates.copies)
        return choice if isinstance(choice, Choice) else None

    def _reserved_elsewhere(self, workload: Workload, nomination: Nomination) -> Mapping[ClusterName, Resources]:
        """Return what head reservations of others set aside on clusters other than the nominated one."""
        reserved = dict[ClusterName, Resources]()
        for other in self._workloads.with_reservation.values():
            if other.reservation is None or (other.gang is not None and other.gang == workload.gang):
                continue
            for cluster_charge in other.reservation.cluster_charges:
                name = cluster_charge.cluster
                if name != nomination.cluster:
                    reserved[name] = add(reserved.get(name, EMPTY), cluster_charge.charge)
        return reserved

    def _is_infeasible(
        self, parts: NominatedParts, younger: Mapping[ClusterName, Resources], policy: Policy, now: int
    ) -> bool:
        """Return whether the parts would not fit even after all evictions, for example as a victim was not evicted.

        This is decided once the clusters have not changed for a while; until then their summaries may include pods of
        evicted workloads.
        """
        gang = parts[0][0].gang
        if gang is not None and len(parts) < self._workloads.gangs.missing(gang):
            return True
        if any(self._settled_at(nomination, policy) > now for _, nomination in parts):
            return False
        for part, _ in parts:
            self._usage.remove(part, now)
        fits = self._would_fit_after_evictions(parts, younger)
        for part, _ in parts:
            self._usage.add(part, now)
        return not fits

    def _would_fit_after_evictions(self, parts: NominatedParts, younger: Mapping[ClusterName, Resources]) -> bool:
        """Return whether the parts would fit together once all evictions have finished."""
        quota, assumed = self._usage.queue_usage.quota().overlay(), list[ClusterCharge]()
        for workload, nomination in parts:
            node = quota.tree.nodes[workload.queue]
            names = self._feasibility_cache.get(workload.requirements).candidates.names
            own, reserved = younger.get(nomination.cluster, EMPTY), self._reserved_elsewhere(workload, nomination)
            after_evictions = (
                _free_after_evictions_for_nominated(
                    self._cluster_usage.cluster_state(name), own if name == nomination.cluster else EMPTY
                )
                for name in sorted(names, key=lambda name: name != nomination.cluster)
            )
            capacities = (_without_reserved(capacity, reserved) for capacity in after_evictions)
            fitting = next((capacity.name for capacity in capacities if capacity.fits(workload.requirements)), None)
            if fitting is None or quota.refusal(node, nomination.requests) is not None:
                break
            quota.add_assumed(node, nomination.requests)
            assumed.append(ClusterCharge(fitting, workload.requirements.requests))
            self._cluster_usage.assume(assumed[-1:])
        self._cluster_usage.unassume(assumed)
        return len(assumed) == len(parts)

    def _settled_at(self, nomination: Nomination, policy: Policy) -> int:
        changed_at = self._cluster_usage.cluster_state(nomination.cluster).changed_at
        return max(nomination.since, changed_at or 0) + policy.settle_ms

    def _has_expired(self, workload: Workload, nomination: Nomination, policy: Policy, now: int) -> bool:
        pending = self._workloads.pending
        if workload.uid not in pending or pending.class_of(workload.uid).inadmissible is not None:
            return True
        feasibility = self._feasibility_cache.get(workload.requirements)
        return (
            nomination.since + policy.head_reservation.max_ms <= now
            or positive(feasibility.charge) != positive(nomination.requests)
            or nomination.cluster not in feasibility.cluster_names
        )


def set_aside(amounts: dict[ClusterName, Resources], parts: NominatedParts) -> None:
    """Add to *amounts* what the nominations of *parts* set aside on their clusters."""
    for _, nomination in parts:
        amounts[nomination.cluster] = add(amounts.get(nomination.cluster, EMPTY), nomination.requests)


def _without_reserved(capacity: FreeCapacity, reserved: Mapping[ClusterName, Resources]) -> FreeCapacity:
    return capacity.without(reserved[capacity.name]) if capacity.name in reserved else capacity


def _free_capacity_for_nominated(cluster_state: ClusterState, retained: Resources, younger: Resources) -> FreeCapacity:
    """Return what is free both now, less what is *retained*, and once evictions in progress have finished.

    What *younger* nominations set aside counts as free.
    """
    free, settled = subtract(cluster_state.headroom, retained), add(cluster_state.headroom_after_evictions, younger)
    return FreeCapacity(
        cluster_state,
        elementwise_min(free, settled),
        cluster_state.allocatable,
        settled if nonzero(subtract(cluster_state.nominated, younger)) else None,
        cluster_state.recently_freed.total,
        cluster_state.estimates,
        cluster_state.in_advance,
        settled if cluster_state.being_evicted else None,
    )


def _free_after_evictions_for_nominated(cluster_state: ClusterState, younger: Resources) -> FreeCapacity:
    """Return what is free once evictions in progress have finished, with what *younger* nominations set aside."""
    capacity = free_after_evictions(cluster_state)
    if not younger:
        return capacity
    settled = add(capacity.headroom, younger)
    is_reserved = nonzero(subtract(cluster_state.nominated, younger))
    return replace(capacity, headroom=settled, headroom_for_all_pods=settled if is_reserved else None)
