"""Admits nominated workloads, whose victims are being evicted, before all others, oldest nomination first (P5).

A nomination expires after a while, and when it has become infeasible. ``preemption_pass`` makes nominations.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from controller.engine.admission import AdmissionPass
from controller.engine.placement.fit import FreeCapacity, choose_clusters, free_after_evictions
from controller.engine.plan import RecordUpdate
from controller.engine.state.cluster_usage import ClusterState, earliest
from controller.engine.state.clusters import ClusterName
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, positive, subtract
from controller.engine.state.workloads import Choice, ClusterCharge, Nomination, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.engine import Engine

NominatedParts = Sequence[tuple[Workload, Nomination]]
"""Nominated workloads that start together: the parts of a HyperJob (G1), else a single workload."""


def in_order(state: "Engine") -> list[tuple[Workload, Nomination]]:
    """Return nominated workloads, oldest nomination first, and within a plan in the order of their preemptions."""
    nominations = [(part, part.nomination) for part in state.nominated.values() if part.nomination is not None]
    return sorted(
        nominations, key=lambda pair: (pair[1].since, pair[1].rank, pair[0].namespace, pair[0].name, pair[0].uid)
    )


def expire(state: "Engine", now: int) -> list[RecordUpdate]:
    """Withdraw expired and infeasible nominations, newest first; for a gang, of all parts."""
    updates = []
    for workload, _ in reversed(in_order(state)):
        if workload.uid not in state.nominated:
            continue
        parts = _nominated_parts(state, workload)
        if any(_has_expired(state, part, nomination, now) for part, nomination in parts) or _is_infeasible(
            state, parts, now
        ):
            for part, _ in reversed(parts):
                updates.append(RecordUpdate(part, None))
                state.nominate(part, None, now)
    return updates


def _nominated_parts(state: "Engine", workload: Workload) -> list[tuple[Workload, Nomination]]:
    """Return the nominated workloads that start together with *workload*, in order."""
    gang = workload.gang
    if gang is None or state.gangs.missing(gang) <= 1:
        return [(workload, workload.nomination)] if workload.nomination is not None else []
    return [(part, nomination) for part, nomination in in_order(state) if part.gang == gang]


def _lacks_nominated_parts(state: "Engine", parts: NominatedParts) -> bool:
    """Say whether the gang needs more parts than are nominated."""
    gang = parts[0][0].gang
    return gang is not None and len(parts) < state.gangs.missing(gang)


def next_expiry(state: "Engine", now: int) -> int | None:
    """Return when the next nomination expires, or can be found infeasible."""
    nominations = [nomination for _, nomination in in_order(state)]
    quiet = (at for at in (_settled_at(state, nomination) for nomination in nominations) if at > now)
    return earliest((*(nomination.since + state.policy.head_reservation.max_ms for nomination in nominations), *quiet))


def admit_nominated(admission: AdmissionPass) -> None:
    """Admit nominated workloads that fit now; retain free capacity for older ones that do not fit yet."""
    state, retained = admission.state, dict[ClusterName, Resources]()
    seen: set[WorkloadUid] = set()
    for workload, _ in in_order(state):
        if workload.uid in seen:
            continue
        parts = _nominated_parts(state, workload)
        seen.update(part.uid for part, _ in parts)
        choices = _choose_all(admission, parts, retained)
        workloads = [part for part, _ in parts]
        if choices is None or not admission.are_estimates_settled(list(zip(workloads, choices, strict=True))):
            for _, nomination in parts:
                retained[nomination.cluster] = add(retained.get(nomination.cluster, EMPTY), nomination.requests)
            continue
        gang = workload.gang if len(parts) > 1 else None
        for (part, _), choice in zip(parts, choices, strict=True):
            admission.admit(part, choice, plan=f"{gang.key}@{admission.now}" if gang is not None else "")


def _choose_all(
    admission: AdmissionPass, parts: NominatedParts, retained: Mapping[ClusterName, Resources]
) -> list[Choice] | None:
    """Return the choices for *parts* that start together; ``None`` while one of them does not fit."""
    state, choices = admission.state, list[Choice]()
    # The nominations of these parts must not count against themselves.
    for part, _ in parts:
        state.usage_tracker.remove(part, admission.now)
    quotas = [quota.overlay() for quota in (admission.quota, state.queue_usage.current_quota()) if quota is not None]
    for part, nomination in parts:
        choice = _choose_one(state, part, nomination, retained, quotas)
        if choice is None:
            break
        state.begin_trial(part, choice)
        for quota in quotas:
            quota.add_assumed(quota.tree.nodes[part.queue], nomination.requests)
        choices.append(choice)
    for (part, _), choice in zip(parts, choices, strict=False):
        state.end_trial(part, choice)
    for part, _ in parts:
        state.usage_tracker.add(part, admission.now)
    return choices if len(choices) == len(parts) else None


def _choose_one(
    state: "Engine",
    workload: Workload,
    nomination: Nomination,
    retained: Mapping[ClusterName, Resources],
    quotas: Sequence[Quota],
) -> Choice | None:
    """Return where a nominated workload fits: on its nominated cluster, else on any candidate."""
    feasibility = state.queue_usage.feasibility_cache.get(workload.requirements)
    if any(quota.refusal(quota.tree.nodes[workload.queue], nomination.requests) is not None for quota in quotas):
        return None
    capacities = [
        _free_capacity_for_nominated(state.cluster_usage.cluster_state(name), retained.get(name, EMPTY))
        for name in feasibility.candidates.names
    ]
    for candidates in ([capacity for capacity in capacities if capacity.name == nomination.cluster], capacities):
        choice = choose_clusters(workload.requirements, candidates, feasibility.candidates.copies)
        if isinstance(choice, Choice):
            return choice
    return None


def _free_capacity_for_nominated(cluster_state: ClusterState, retained: Resources) -> FreeCapacity:
    """Return what is free both now, less what is *retained*, and once evictions in progress have finished."""
    free, settled = subtract(cluster_state.headroom, retained), cluster_state.headroom_after_evictions
    headroom = {name: min(free.get(name, 0), settled.get(name, 0)) for name in {**free, **settled}}
    return FreeCapacity(
        cluster_state,
        headroom,
        cluster_state.allocatable,
        settled if cluster_state.nominated else None,
        cluster_state.recently_freed_total,
        cluster_state.estimates,
    )


def _is_infeasible(state: "Engine", parts: NominatedParts, now: int) -> bool:
    """Say whether the parts would not fit even after all evictions, for example because a victim was not evicted.

    This is decided once the clusters have not changed for a while; until then their summaries may include pods of
    evicted workloads.
    """
    if _lacks_nominated_parts(state, parts):
        return True
    if any(_settled_at(state, nomination) > now for _, nomination in parts):
        return False
    for part, _ in parts:
        state.usage_tracker.remove(part, now)
    fits = _would_fit_after_evictions(state, parts)
    for part, _ in parts:
        state.usage_tracker.add(part, now)
    return not fits


def _would_fit_after_evictions(state: "Engine", parts: NominatedParts) -> bool:
    """Say whether the parts would fit together once all evictions have finished."""
    quota, assumed = state.queue_usage.quota().overlay(), list[ClusterCharge]()
    for workload, nomination in parts:
        node, names = (
            quota.tree.nodes[workload.queue],
            state.queue_usage.feasibility_cache.get(workload.requirements).candidates.names,
        )
        cluster_states = [
            state.cluster_usage.cluster_state(name)
            for name in sorted(names, key=lambda name: name != nomination.cluster)
        ]
        fitting = next(
            (
                cluster_state
                for cluster_state in cluster_states
                if free_after_evictions(cluster_state).fits(workload.requirements)
            ),
            None,
        )
        if fitting is None or quota.refusal(node, nomination.requests) is not None:
            break
        quota.add_assumed(node, nomination.requests)
        assumed.append(ClusterCharge(fitting.name, workload.requirements.requests))
        state.cluster_usage.assume(assumed[-1:])
    state.cluster_usage.unassume(assumed)
    return len(assumed) == len(parts)


def _settled_at(state: "Engine", nomination: Nomination) -> int:
    changed_at = state.cluster_usage.cluster_state(nomination.cluster).changed_at
    return max(nomination.since, changed_at or 0) + state.policy.settle_ms


def _has_expired(state: "Engine", workload: Workload, nomination: Nomination, now: int) -> bool:
    if workload.uid not in state.pending or state.pending.class_of(workload.uid).inadmissible is not None:
        return True
    feasibility = state.queue_usage.feasibility_cache.get(workload.requirements)
    return (
        nomination.since + state.policy.head_reservation.max_ms <= now
        or positive(feasibility.charge) != positive(nomination.requests)
        or nomination.cluster not in feasibility.cluster_names
    )
