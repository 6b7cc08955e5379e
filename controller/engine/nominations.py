"""Those for whom others leave: let in as soon as they fit, before anybody else, the oldest first (P5).

What is held lapses after a while, and when it has become useless. How it came
about is ``exchanges``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from controller.engine.admission import AdmissionPass
from controller.engine.cluster_usage import ClusterState, earliest
from controller.engine.clusters import ClusterName
from controller.engine.fit import FreeCapacity, choose_clusters, free_after_evictions
from controller.engine.plan import RecordUpdate
from controller.engine.quota import Quota
from controller.engine.resources import EMPTY, Resources, add, positive, subtract
from controller.engine.workloads import Choice, ClusterCharge, Nomination, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.state import State

NominatedParts = Sequence[tuple[Workload, Nomination]]
"""Those who start together, each with what is held for it; one alone but for the parts of a group (G1)."""


def in_order(state: "State") -> list[tuple[Workload, Nomination]]:
    """Return those for whom something is held, the oldest first, and within a plan in the order of the exchanges."""
    found = [(each, each.held) for each in state.holders.values() if each.held is not None]
    return sorted(found, key=lambda pair: (pair[1].since, pair[1].rank, pair[0].namespace, pair[0].name, pair[0].uid))


def expire(state: "State", now: int) -> list[RecordUpdate]:
    """Hold nothing any more for those for whom it is too late or of no use, the youngest first; of a group none."""
    notes = []
    for workload, _ in reversed(in_order(state)):
        if workload.uid not in state.holders:
            continue
        together = _nominated_parts(state, workload)
        if any(_has_expired(state, each, held, now) for each, held in together) or _is_infeasible(state, together, now):
            for each, _ in reversed(together):
                notes.append(RecordUpdate(each, None))
                state.hold(each, None, now)
    return notes


def _nominated_parts(state: "State", workload: Workload) -> list[tuple[Workload, Nomination]]:
    """Return all for whom something is held and who start together with *workload*, in order."""
    group = workload.group
    if group is None or state.gangs.missing(group) <= 1:
        return [(workload, workload.held)] if workload.held is not None else []
    return [(each, held) for each, held in in_order(state) if each.group == group]


def _lacks_nominated_parts(state: "State", together: NominatedParts) -> bool:
    """Say whether others of the group are needed for whom nothing is held."""
    group = together[0][0].group
    return group is not None and len(together) < state.gangs.missing(group)


def next_expiry(state: "State", now: int) -> int | None:
    """Return when the next hold lapses by itself, or is found to be in vain."""
    holds = [held for _, held in in_order(state)]
    quiet = (at for at in (_settled_at(state, held) for held in holds) if at > now)
    return earliest((*(held.since + state.policy.reservation.max_ms for held in holds), *quiet))


def admit_nominated(service: AdmissionPass) -> None:
    """Let those in who fit now; what is free on a cluster is kept for older ones that do not fit yet."""
    state, kept = service.state, dict[ClusterName, Resources]()
    seen: set[WorkloadUid] = set()
    for workload, _ in in_order(state):
        if workload.uid in seen:
            continue
        together = _nominated_parts(state, workload)
        seen.update(each.uid for each, _ in together)
        choices = _choose_all(service, together, kept)
        parts = [each for each, _ in together]
        if choices is None or not service.are_settled(list(zip(parts, choices, strict=True))):
            for _, held in together:
                kept[held.cluster] = add(kept.get(held.cluster, EMPTY), held.demand)
            continue
        group = workload.group if len(together) > 1 else None
        for (each, _), choice in zip(together, choices, strict=True):
            service.admit(each, choice, plan=f"{group.key}@{service.now}" if group is not None else "")


def _choose_all(
    service: AdmissionPass, together: NominatedParts, kept: Mapping[ClusterName, Resources]
) -> list[Choice] | None:
    """Return where those who start *together* go, ``None`` as long as one of them does not fit."""
    state, choices = service.state, list[Choice]()
    # They are judged beside what is held for others only.
    for each, _ in together:
        state.accounts.close(each, service.now)
    quotas = [quota.trial() for quota in (service.quota, state.books.present()) if quota is not None]
    for each, held in together:
        choice = _choose_one(state, each, held, kept, quotas)
        if choice is None:
            break
        state.begin_trial(each, choice)
        for quota in quotas:
            quota.carry(quota.tree.nodes[each.queue], held.demand)
        choices.append(choice)
    for (each, _), choice in zip(together, choices, strict=False):
        state.end_trial(each, choice)
    for each, _ in together:
        state.accounts.open(each, service.now)
    return choices if len(choices) == len(together) else None


def _choose_one(
    state: "State", workload: Workload, held: Nomination, kept: Mapping[ClusterName, Resources], quotas: Sequence[Quota]
) -> Choice | None:
    """Return where a workload goes for which others leave: to the cluster held for it, else to any that takes it."""
    prospect = state.books.feasibility_cache.get(workload.shape)
    if any(quota.refusal(quota.tree.nodes[workload.queue], held.demand) is not None for quota in quotas):
        return None
    rooms = [
        _free_capacity_for_nominated(state.ledger.site(name), kept.get(name, EMPTY))
        for name in prospect.candidates.names
    ]
    for candidates in ([room for room in rooms if room.name == held.cluster], rooms):
        choice = choose_clusters(workload.shape, candidates, prospect.candidates.copies)
        if isinstance(choice, Choice):
            return choice
    return None


def _free_capacity_for_nominated(site: ClusterState, kept: Resources) -> FreeCapacity:
    """Return what is left now without what is *kept*, and once the evictions under way are done."""
    now, then = subtract(site.headroom, kept), site.settled
    headroom = {name: min(now.get(name, 0), then.get(name, 0)) for name in {**now, **then}}
    return FreeCapacity(site, headroom, site.allocatable, then if site.held else None, site.freed, site.estimates)


def _is_infeasible(state: "State", together: NominatedParts, now: int) -> bool:
    """Say whether they would not fit even when all who leave are gone: somebody has stayed after all.

    That is asked when their clusters have been quiet for a while; until then
    their summaries may show pods of those who have gone.
    """
    if _lacks_nominated_parts(state, together):
        return True
    if any(_settled_at(state, held) > now for _, held in together):
        return False
    for each, _ in together:
        state.accounts.close(each, now)
    fits = _would_fit_after_evictions(state, together)
    for each, _ in together:
        state.accounts.open(each, now)
    return not fits


def _would_fit_after_evictions(state: "State", together: NominatedParts) -> bool:
    """Say whether they would fit beside one another once all who leave are gone."""
    quota, lent = state.books.quota().trial(), list[ClusterCharge]()
    for workload, held in together:
        node, names = (
            quota.tree.nodes[workload.queue],
            state.books.feasibility_cache.get(workload.shape).candidates.names,
        )
        sites = [state.ledger.site(name) for name in sorted(names, key=lambda name: name != held.cluster)]
        taking = next((site for site in sites if free_after_evictions(site).fits(workload.shape)), None)
        if taking is None or quota.refusal(node, held.demand) is not None:
            break
        quota.carry(node, held.demand)
        lent.append(ClusterCharge(taking.name, workload.shape.demand))
        state.ledger.lend(lent[-1:])
    state.ledger.take_back(lent)
    return len(lent) == len(together)


def _settled_at(state: "State", held: Nomination) -> int:
    changed_at = state.ledger.site(held.cluster).changed_at
    return max(held.since, changed_at or 0) + state.policy.settle_ms


def _has_expired(state: "State", workload: Workload, held: Nomination, now: int) -> bool:
    if workload.uid not in state.backlog or state.backlog.lane(workload.uid).hopeless is not None:
        return True
    prospect = state.books.feasibility_cache.get(workload.shape)
    return (
        held.since + state.policy.reservation.max_ms <= now
        or positive(prospect.charge) != positive(held.demand)
        or held.cluster not in prospect.cluster_names
    )
