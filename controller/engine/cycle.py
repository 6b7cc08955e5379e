"""Runs one scheduling cycle: turns a ``State`` into a ``Plan`` in numbered steps.

Its work is proportional to what has changed: of the pending workloads, only
classes for which something was freed are tried.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from controller.engine.admission import AdmissionPass, filter_stage
from controller.engine.fairness.borrowing import BorrowingPolicy
from controller.engine.fairness.ordering import QueueShares
from controller.engine.lifecycle import gangs, resize, startup
from controller.engine.plan import Evict, Plan, RecordUpdate
from controller.engine.preemption_pass import admit_with_preemption
from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.reservations import nominations, starvation
from controller.engine.reservations.active import active_reservations
from controller.engine.state.cluster_usage import earliest
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.pending import WorkloadClass, order_key
from controller.engine.state.quota import Quota
from controller.engine.state.workloads import Choice
from controller.engine.steps import Steps, finish

if TYPE_CHECKING:
    from controller.engine.engine import Engine
    from controller.engine.placement.feasibility_cache import Stage


def run(state: "Engine", now: int, *, most: int | None = None) -> Plan:
    """Decide at *now*, assume the decisions in *state*, and return them; stop early after *most* decisions."""
    return finish(steps(state, now, most=most))


def steps(state: "Engine", now: int, *, most: int | None = None) -> Steps[Plan]:
    """Run the same cycle in parts, between which no event may be applied to *state*."""
    reasons_depend_on_shares = _do_reasons_depend_on_shares(state)
    state.planned_at = now
    # Results cached for queries since the last cycle may be outdated by changes of queues and clusters.
    state.borrowing = state.active_reservations = None
    # 1. Evict aborted workloads; update external usage; evict workloads that were moved where they do not fit,
    #    whose resize is rejected, or that exceed the startup timeout.
    evicted = list(_take_back(state, now))
    state.cluster_usage.refresh(now, state.policy.settle_ms)
    state.usage_tracker.end_orphans()
    state.estimate_tracker.expire(now)
    evicted += startup.evict_moved(state, now)
    evicted += resize.evict_rejected(state, now)
    late, requeues = startup.check_timeouts(state, now)
    evicted += late
    # 2. Classify pending workloads by whether capacity could admit them; expire useless nominations and reservations.
    held_back = partial(_gang_refusal, state)
    stale = dict.fromkeys((yield from state.queue_usage.classify(_classes_of_changed_gangs(state), held_back)))
    lapsed = [*nominations.expire(state, now), *starvation.expire(state, now), *starvation.complete(state, now)]
    stale |= dict.fromkeys((yield from state.queue_usage.classify(_classes_of_changed_gangs(state), held_back)))
    # 3. Compute fair shares again where requests have changed.
    changed = {*state.pending.changed}
    service = AdmissionPass(state, state.queue_usage.update_shares(), now, most=most)
    # What reservations set aside depends on the fair shares.
    state.active_reservations = None
    # 4. Admit nominated workloads that fit; then try one head after the other, with preemption for blocked ones.
    nominations.admit_nominated(service)
    exchanges = yield from admit_with_preemption(service)
    agreed = _admit_nominated_at_once(service, exchanges.notes)
    # 5. Reserve quota and capacity for heads that have been blocked for long.
    state.starvation_timers.update(state, _queues_to_check(state, changed, stale), now)
    reserved = starvation.grant(state, service.shares, now)
    if state.pending.unevaluated:
        stale |= dict.fromkeys((yield from state.queue_usage.classify(_classes_of_changed_gangs(state), held_back)))
    # 6. Publish changed reasons, and determine when the next cycle is due without an event.
    stale |= dict.fromkeys(
        [*service.refused, *state.pending.unpublished, *(yield from _classes_with_changed_stage(state, service.quota))]
    )
    stale |= dict.fromkeys(_classes_near_reservations(state, has_changed=bool(lapsed or reserved)))
    stale |= dict.fromkeys(
        _classes_of_fuller_queues(state, service, {*changed, *(workload_class.queue for workload_class in stale)})
    )
    if reasons_depend_on_shares or _do_reasons_depend_on_shares(state):
        stale |= dict.fromkeys(state.pending.classes())
    state.pending_reasons.mark_stale(stale)
    waits = yield from state.pending_reasons.flush()
    state.borrowing = None
    state.admitted_so_far = frozenset(service.admitted if service.is_at_limit else ())
    return Plan(
        decisions=(*evicted, *service.decisions),
        waits=waits,
        record_updates=(*lapsed, *agreed, *reserved),
        reschedules=tuple(requeues),
        wake_at=_wake_at(state, now, exchanges.retry_at),
        queries=state.estimate_tracker.pop_queries(),
        is_cut=service.is_at_limit,
    )


def _admit_nominated_at_once(service: AdmissionPass, updates: Sequence[RecordUpdate]) -> list[RecordUpdate]:
    """Admit preemptors that fit although their victims still run; return the *updates* of the others."""
    if updates:
        nominations.admit_nominated(service)
    return [note for note in updates if note.workload.uid not in service.admitted]


def _queues_to_check(state: "Engine", changed: Iterable[QueueName], judged: Iterable[WorkloadClass]) -> set[QueueName]:
    """Return the queues whose first blocked workload may have changed."""
    if state.policy.is_by_tenant:
        return {*state.pending.queues, *state.starvation_timers.heads}
    return {*changed, *state.pending.changed, *(workload_class.queue for workload_class in judged)}


def _classes_near_reservations(state: "Engine", *, has_changed: bool) -> list[WorkloadClass]:
    """Return the classes that would fit without reservations; all classes when reservations have changed."""
    if has_changed:
        return list(state.pending.classes())
    stages = state.queue_usage.feasibility_cache.stages if state.with_reservation else {}
    near = (
        workload_class
        for key, changed in stages.items()
        if all(changed)
        for workload_class in state.pending.by_requirements.get(key, ())
    )
    return [
        workload_class
        for workload_class in near
        if workload_class.last_reason is not Reason.BLOCKED_BY_RESERVATION
        or reason(state, workload_class) is not workload_class.last_reason
    ]


def _do_reasons_depend_on_shares(state: "Engine") -> bool:
    """Say whether reasons depend on more than ceilings and clusters: on fair shares, or on evictions in progress."""
    return state.policy.reclaim.enabled or state.queue_usage.has_transitions


def _take_back(state: "Engine", now: int) -> Iterator[Evict]:
    """Evict every admitted workload that was aborted where it ran (D8): nothing of it runs, and nothing will."""
    for workload in sorted((state.workloads[uid] for uid in state.aborted), key=order_key):
        if workload.eviction_retry_at <= now:
            state.evict(workload, now)
            yield Evict(workload, EvictionReason.ABORTED)


def refusal(state: "Engine", workload_class: WorkloadClass) -> Refusal | None:
    """Return why the head of *workload_class* cannot be admitted now; ``None`` where it can."""
    shares = state.queue_shares
    if workload_class.inadmissible is not None or shares is None:
        return workload_class.inadmissible
    if not workload_class.is_waiting:
        return Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=workload_class.nominated_cluster)
    if workload_class.gang is not None and gangs.is_all_or_nothing(state, workload_class):
        return gangs.try_gang(state, workload_class.gang, _borrowing_policy(state, shares)).refusal
    exceeded = shares.quota.refusal(shares.quota.tree.nodes[workload_class.queue], workload_class.charge)
    if exceeded is None and (present := state.queue_usage.current_quota()) is not None:
        exceeded = present.refusal(present.tree.nodes[workload_class.queue], workload_class.charge)
    exceeded = exceeded or state.queue_usage.feasibility_cache.refusal(
        state.queue_usage.feasibility_cache.get(workload_class.requirements)
    )
    return exceeded or _reservation_refusal(state, workload_class) or _borrowing_refusal(state, shares, workload_class)


def _reservation_refusal(state: "Engine", workload_class: WorkloadClass) -> Refusal | None:
    """Return the reservation that sets aside the capacity that the head of *workload_class* would fit (O6)."""
    reserved = active_reservations(state)
    if reserved is None:
        return None
    feasible = state.queue_usage.feasibility_cache.get(workload_class.requirements)
    choice = state.queue_usage.feasibility_cache.choose(feasible)
    verdict = reserved.resolve(workload_class.head, feasible, choice) if isinstance(choice, Choice) else None
    return verdict if isinstance(verdict, Refusal) else None


def _borrowing_refusal(state: "Engine", shares: QueueShares, workload_class: WorkloadClass) -> Refusal | None:
    borrowing = _borrowing_policy(state, shares)
    return borrowing.refusal(shares.quota.tree.nodes[workload_class.queue], workload_class) if borrowing else None


def _borrowing_policy(state: "Engine", shares: QueueShares) -> BorrowingPolicy | None:
    """Return the borrowing rules for the present state, ``None`` while reclaim is off."""
    if state.borrowing is None and state.policy.reclaim.enabled:
        state.borrowing = BorrowingPolicy(state, shares, state.planned_at)
    return state.borrowing


def _classes_of_changed_gangs(state: "Engine") -> list[WorkloadClass]:
    """Return the classes of gangs of which a part was added, removed or started."""
    changed, state.gangs.changed = state.gangs.changed, set()
    uids = (uid for group in sorted(changed, key=lambda group: group.key) for uid in state.gangs.parts(group))
    return [state.pending.class_of(uid) for uid in uids if uid in state.pending]


def _gang_refusal(state: "Engine", workload_class: WorkloadClass) -> Refusal | None:
    return gangs.incomplete_refusal(state, workload_class.gang) if workload_class.gang is not None else None


def reason(state: "Engine", workload_class: WorkloadClass) -> Reason | None:
    """Return only the code of ``refusal``, which is cheaper where only limits and clusters decide."""
    shares = state.queue_shares
    if (
        workload_class.inadmissible is not None
        or shares is None
        or _do_reasons_depend_on_shares(state)
        or gangs.is_all_or_nothing(state, workload_class)
    ):
        why = refusal(state, workload_class)
        return why.reason if why else None
    exceeded = shares.quota.refusal(shares.quota.tree.nodes[workload_class.queue], workload_class.charge)
    if exceeded is not None:
        return exceeded.reason
    feasibility_cache = state.queue_usage.feasibility_cache
    if not feasibility_cache.fits(feasibility_cache.get(workload_class.requirements)):
        return Reason.INSUFFICIENT_CAPACITY
    reserved = active_reservations(state)
    return Reason.BLOCKED_BY_RESERVATION if reserved is not None and reserved.blocks(workload_class) else None


def _classes_with_changed_stage(state: "Engine", quota: Quota) -> Steps[list[WorkloadClass]]:
    """Return the classes whose requirements pass more or fewer filters than in the last cycle."""
    feasibility_cache = state.queue_usage.feasibility_cache
    before, at = feasibility_cache.stages, (quota, quota.version, state.cluster_usage.version)
    is_as_before = feasibility_cache.staged_at == at
    after: dict[int, Stage] = {}
    changed: list[WorkloadClass] = []
    for key, classes in state.pending.by_requirements.items():
        if is_as_before and key in before:
            after[key] = before[key]
            continue
        after[key] = filter_stage(state, quota, feasibility_cache.get(classes[0].requirements))
        if before.get(key, after[key]) != after[key]:
            changed += classes
        yield 1
    feasibility_cache.stages, feasibility_cache.staged_at = after, at
    feasibility_cache.prune(after, len(after))
    return changed


def _classes_of_fuller_queues(
    state: "Engine", service: AdmissionPass, queues: Iterable[QueueName]
) -> list[WorkloadClass]:
    """Return the classes of queues with more usage now, and of fifo queues whose head may have changed."""
    fuller = {decision.workload.queue for decision in service.decisions}
    fifo = {name for name in queues if name in state.queues and state.queues[name].fifo}
    return [workload_class for name in sorted(fuller | fifo) for workload_class in state.pending.queues.get(name, ())]


def _wake_at(state: "Engine", now: int, retry_at: int | None) -> int | None:
    """Return when decisions may change without an event: external usage settles, a hold expires, an eviction is due."""
    settles_at = state.cluster_usage.settles_at(state.policy.settle_ms)
    lapses_at = earliest((nominations.next_expiry(state, now), starvation.next_expiry(state)))
    aborted_until = earliest(state.workloads[uid].eviction_retry_at for uid in state.aborted)
    starvation_ends_at = state.starvation_timers.next_expiry(state, now)
    evicts_at = earliest((retry_at, aborted_until, resize.next_eviction_at(state), startup.next_check_at(state)))
    own = settles_at, state.next_expiry(), state.estimate_tracker.next_expiry()
    wake_at = earliest((*own, lapses_at, starvation_ends_at, evicts_at))
    return None if wake_at is None else max(wake_at, now + 1)
