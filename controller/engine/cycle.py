"""Runs one scheduling cycle: turns the state into a ``Plan`` in numbered steps.

Its work is proportional to what has changed: of the pending workloads, only
classes for which something was freed are tried.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from controller.engine.admission import AdmissionPass
from controller.engine.context import Context
from controller.engine.fairness.shares import QueueShares
from controller.engine.lifecycle.gangs import incomplete_refusal, never_fits_refusal
from controller.engine.lifecycle.resize import ResizeTracker
from controller.engine.lifecycle.startup import StartupChecks, StartupTracker
from controller.engine.pending_reasons import PendingReasons, PendingReasonUpdater
from controller.engine.plan import Assume, Evict, Plan, RecordUpdate
from controller.engine.preemption_pass import admit_with_preemption
from controller.engine.reasons import EvictionReason, Refusal
from controller.engine.reservations.advance import AdvanceReservations
from controller.engine.reservations.head import HeadReservations, StarvationTimers
from controller.engine.reservations.nominations import Nominations
from controller.engine.reservations.placement import ReservationPlanner
from controller.engine.state.cluster_state import earliest
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.pending import WorkloadClass, order_key
from controller.engine.state.quota import Quota
from controller.engine.state.workloads import HyperJobGang, Workload
from controller.engine.steps import Steps


class Cycle:
    """The scheduling cycle over one state; *assume* applies each decision to it."""

    def __init__(self, context: Context, assume: Assume) -> None:
        self.startup = StartupTracker()
        """Admitted workloads that do not run yet (R1)."""
        self.resize = ResizeTracker(context.workloads, context.queue_usage, context.cluster_usage)
        self.starvation_timers = StarvationTimers(context.workloads, context.order)
        self.reasons = PendingReasons(context)
        self.reason_updates = PendingReasonUpdater(context, self.reasons)
        self._context = context
        self._assume = assume
        self._nominations = Nominations(context.workloads, context.usage_tracker, context.feasibility_cache)
        planner = ReservationPlanner(context.order, context.queue_usage, context.feasibility_cache)
        self._reservations = HeadReservations(
            context.workloads, self.starvation_timers, planner, context.windows, assume
        )
        self.idle_reservations = self._reservations.idle
        self._advance_reservations = AdvanceReservations(
            context.workloads, context.queue_usage, context.advance_reservation_tracker, assume
        )

    def steps(self, now: int, *, most: int | None = None) -> Steps[Plan]:
        """Decide at *now*, assume the decisions, and return them; stop early after *most* decisions.

        No event may be applied between the parts.
        """
        context, pending = self._context, self._context.pending
        reasons_depended_on_shares = self.reasons.depend_on_shares
        context.planned_at = now
        # Results cached for queries since the last cycle may be outdated by changes of queues and clusters.
        context.invalidate()
        context.advance_reservation_tracker.refresh(context.policy.advance_reservations, now)
        context.fitting_index.renumber()
        stale: dict[WorkloadClass, None] = {}
        changed: set[QueueName] = set()
        # 1. Evict what may not stay; update external usage.
        evicted, requeues = yield from self._evict(now)
        # 2. Classify pending workloads by whether capacity could admit them; expire nominations and reservations.
        context.queue_usage.update_limit_inputs()
        with_other_usage = {*context.queue_usage.changed}
        yield from self._classify(stale)
        lapsed = self._expire(now)
        context.queue_usage.update_limit_inputs()
        # 3. Order queues by waiting time. Compute fair shares again where requests have changed; what reservations set
        #    aside depends on them.
        changed |= self._update_order()
        shares = yield from self._update_shares(stale, changed)
        admission = AdmissionPass(context, shares, now, self._assume, most=most)
        context.update_reservations(admission.quota, now)
        # 4. Admit nominated workloads that fit; then try one head after the other, with preemption for blocked ones.
        admission.admit_nominated(self._nominations)
        preemptions = yield from admit_with_preemption(admission, partial(self._update_shares, stale, changed))
        nominated = self._admit_nominated_at_once(admission, preemptions.record_updates)
        # 5. Reserve quota and capacity for heads that have been blocked for long.
        self.starvation_timers.update(self._queues_to_check(changed, stale), now)
        reserved = self._reservations.grant(admission.shares, context.policy, now)
        windows = context.windows.by_owner
        context.update_reservations(admission.quota, now)
        # Others may use what a reservation with another window no longer needs, or fit only now: run another at once.
        has_more = bool(admission.decisions) and (
            context.windows.have_changed_since(windows) or context.fitting_index.may_fit_after_admissions()
        )
        # Workloads that would have fitted after evictions in progress may need victims next to a new reservation.
        has_more |= bool(reserved) and (context.policy.reclaim.enabled or context.policy.preemption.enabled)
        self.idle_reservations.measure(context.windows.by_owner, now)
        if pending.unevaluated:
            yield from self._classify(stale)
        # 6. Publish changed reasons, and determine when the next cycle is due without an event.
        self.reasons.begin_publication()
        reservations_changed = bool(lapsed or reserved)
        self._mark_stale_reasons(stale, admission, changed, with_other_usage, reservations_changed=reservations_changed)
        if reasons_depended_on_shares or self.reasons.depend_on_shares:
            self.reason_updates.mark_stale(pending.classes())
        waits = yield from self.reason_updates.flush()
        context.ageing.end_cycle(changed | pending.changed)
        context.end_cycle(admission.admitted if admission.is_at_limit else ())
        return Plan(
            decisions=(*evicted, *admission.decisions),
            waits=waits,
            record_updates=(*lapsed, *nominated, *reserved),
            reschedules=tuple(requeues),
            wake_at=now if has_more else self._wake_at(now, preemptions.retry_at),
            queries=context.estimate_tracker.pop_queries(),
            is_cut=admission.is_at_limit,
        )

    def _evict(self, now: int) -> Steps[tuple[list[Evict], list[Workload]]]:
        """Evict aborted workloads, and those moved where they do not fit, with a rejected resize, or started too late.

        Also returns the workloads that Karmada's scheduler is to retry.
        """
        context, policy = self._context, self._context.policy
        evicted = [*self._evict_aborted(now), *self._evict_without_data(now)]
        context.cluster_usage.refresh(now, policy.settle_ms)
        context.usage_tracker.end_orphans()
        context.queue_usage.update_limit_inputs()
        context.estimate_tracker.expire(now)
        checks = self._startup_checks()
        evicted += checks.evict_moved(now)
        evicted += self.resize.evict_rejected(policy.resize, now, self._assume)
        evicted += self._reservations.evict_overrun(policy, now)
        evicted += yield from self._advance_reservations.evict(policy, now)
        late, requeues = checks.check_timeouts(now)
        return [*evicted, *late], requeues

    def _expire(self, now: int) -> list[RecordUpdate]:
        """End nominations that are useless, and reservations that have expired or are complete."""
        policy = self._context.policy
        return [
            *self._nominations.expire(policy, now, self._assume),
            *self._reservations.expire(policy.head_reservation, now),
            *self._reservations.complete(now),
        ]

    def _mark_stale_reasons(
        self,
        stale: dict[WorkloadClass, None],
        admission: AdmissionPass,
        changed: AbstractSet[QueueName],
        with_other_usage: AbstractSet[QueueName],
        *,
        reservations_changed: bool,
    ) -> None:
        """Mark the classes in *stale*, and those whose reason other usage or this cycle may have changed."""
        pending, known = self._context.pending, self._context.queue_usage.fifo
        filter_changes = self._requirements_with_changed_filters(admission.quota)
        stale |= dict.fromkeys([*admission.refused, *pending.unpublished])
        self.reason_updates.mark_stale(stale)
        for key in filter_changes:
            self.reason_updates.mark_requirements_stale(key)
        near_reservations = pending.classes() if reservations_changed else self.reasons.changed_near_reservations()
        stale = dict.fromkeys([*stale, *near_reservations])
        fifo = {*changed, *(workload_class.queue for workload_class in stale)} & known
        if known:
            classes = (workload_class for key in filter_changes for workload_class in pending.by_requirements[key])
            fifo |= {workload_class.queue for workload_class in classes} & known
        fuller = {decision.workload.queue for decision in admission.decisions}
        queues = fifo | fuller | _queues_below_limits(admission.quota, with_other_usage | fuller)
        of_queues = (workload_class for name in sorted(queues) for workload_class in pending.queues.get(name, ()))
        self.reason_updates.mark_stale([*stale, *of_queues])

    def _startup_checks(self) -> StartupChecks:
        context = self._context
        timeout_ms = context.policy.startup_timeout_ms
        return StartupChecks(self.startup, context.workloads, context.cluster_usage, timeout_ms, self._assume)

    def _evict_aborted(self, now: int) -> Iterator[Evict]:
        """Evict every admitted workload that was aborted, where it ran or by a Command (D8)."""
        workloads = self._context.workloads
        for workload in sorted((workloads[uid] for uid in workloads.aborted), key=order_key):
            if workload.eviction_retry_at <= now:
                self._assume(workload.evicted(EvictionReason.ABORTED), now)
                yield Evict(workload, EvictionReason.ABORTED)

    def _evict_without_data(self, now: int) -> Iterator[Evict]:
        """Evict every admitted workload that follows its data, with the parts that cannot run without it (C6)."""
        workloads = self._context.workloads
        for workload in sorted((workloads[uid] for uid in workloads.without_data), key=order_key):
            if workload.uid in workloads.without_data and workload.eviction_retry_at <= now:
                for part in (workload, *workloads.gangs.dependents(workload, workloads.by_uid)):
                    self._assume(part.evicted(EvictionReason.DATA_MOVED), now)
                    yield Evict(part, EvictionReason.DATA_MOVED)

    def _update_order(self) -> set[QueueName]:
        """Raise job priorities by waiting (O10); return the queues in which that may have changed the order."""
        context = self._context
        by_uid = context.workloads.by_uid
        admitted_so_far = (by_uid[uid] for uid in context.admitted_so_far if uid in by_uid)
        return context.ageing.update(context.pending.changed, context.planned_at, admitted_so_far)

    def _update_shares(self, stale: dict[WorkloadClass, None], changed: set[QueueName]) -> Steps[QueueShares]:
        """Classify pending workloads, and compute fair shares again where requests have changed since.

        Adds the classes evaluated to *stale*, and the queues with other pending workloads to *changed*.
        """
        yield from self._classify(stale)
        changed |= self._context.pending.changed
        self._context.ageing.order(self._context.pending.changed)
        shares = yield from self._context.shares.update()
        self._context.invalidate()
        return shares

    def _classify(self, stale: dict[WorkloadClass, None]) -> Steps[None]:
        """Find the classes that are pending for another reason than capacity; add the classes evaluated to *stale*.

        All are evaluated again when queues or clusters have changed, otherwise only new classes and those of changed
        gangs.
        """
        context, pending = self._context, self._context.pending
        classes = dict.fromkeys([*pending.unevaluated, *self._classes_of_changed_gangs()])
        tree = context.queue_usage.tree()
        potential, is_new = context.queue_usage.potential_quota()
        if is_new:
            classes |= dict.fromkeys(pending.classes())
        groups: list[tuple[HyperJobGang | None, list[WorkloadClass]]] = [
            (None, [workload_class]) for workload_class in classes if workload_class.gang is None
        ]
        # Whether a part can be admitted depends on the others.
        gangs = dict.fromkeys(workload_class.gang for workload_class in classes)
        groups += [(gang, self._classes_of_gangs([gang])) for gang in gangs if gang is not None]
        queues = {workload_class.queue for _, group in groups for workload_class in group}
        refusals = {name: tree.refusal(name) for name in queues}
        for gang, group in groups:
            before = [(workload_class.charge, workload_class.inadmissible is None) for workload_class in group]
            for workload_class in group:
                workload_class.charge = context.feasibility_cache.get(workload_class.requirements).charge
                closed = refusals[workload_class.queue]
                workload_class.inadmissible = closed or self._inadmissible(potential, workload_class)
            together = self._gang_inadmissible(potential, gang) if gang is not None else None
            for workload_class, known in zip(group, before, strict=True):
                workload_class.inadmissible = workload_class.inadmissible or together
                if known != (workload_class.charge, workload_class.inadmissible is None):
                    workload_class.retry_hint = None
                    context.queue_usage.changed.add(workload_class.queue)
                    pending.changed_classes[workload_class] = None
            stale |= dict.fromkeys(group)
            yield len(group)
        pending.unevaluated.clear()

    def _classes_of_changed_gangs(self) -> list[WorkloadClass]:
        """Return the classes of the gangs in ``gangs.changed``, and empty that set."""
        gangs = self._context.workloads.gangs
        changed, gangs.changed = gangs.changed, set()
        return self._classes_of_gangs(sorted(changed, key=lambda gang: gang.key))

    def _classes_of_gangs(self, gangs: Iterable[HyperJobGang]) -> list[WorkloadClass]:
        """Return the classes of the pending parts of *gangs*."""
        workloads = self._context.workloads
        uids = (uid for gang in gangs for uid in workloads.gangs.parts(gang))
        return list(dict.fromkeys(workloads.pending.class_of(uid) for uid in uids if uid in workloads.pending))

    def _gang_inadmissible(self, potential: Quota, gang: HyperJobGang) -> Refusal | None:
        """Return why no capacity would ever admit the parts of *gang* together, or ``None`` (C5, G1)."""
        incomplete = incomplete_refusal(self._context.workloads, gang)
        if incomplete is not None or self._context.cluster_usage.is_unknown:
            return incomplete
        return never_fits_refusal(self._context.workloads, gang, potential, self._context.feasibility_cache)

    def _inadmissible(self, potential: Quota, workload_class: WorkloadClass) -> Refusal | None:
        """Return why no capacity would ever admit *workload_class*, or ``None`` (C5).

        While no cluster has a resource summary, limits that follow from capacity are not reported.
        """
        exceeded = potential.exceeded_limit(potential.tree.nodes[workload_class.queue], workload_class.charge)
        if exceeded is not None and self._context.cluster_usage.is_unknown:
            exceeded = None
        return exceeded or self._context.feasibility_cache.get(workload_class.requirements).candidates.refusal

    def _admit_nominated_at_once(self, admission: AdmissionPass, updates: Sequence[RecordUpdate]) -> list[RecordUpdate]:
        """Admit preemptors that fit although their victims still run; return the *updates* of the others."""
        if updates:
            admission.admit_nominated(self._nominations)
        return [update for update in updates if update.workload.uid not in admission.admitted]

    def _queues_to_check(self, changed: Iterable[QueueName], evaluated: Iterable[WorkloadClass]) -> set[QueueName]:
        """Return the queues whose first blocked workload may have changed."""
        pending = self._context.pending
        if self._context.policy.is_by_tenant:
            return {*pending.queues, *self.starvation_timers.queues()}
        return {*changed, *pending.changed, *(workload_class.queue for workload_class in evaluated)}

    def _requirements_with_changed_filters(self, quota: Quota) -> list[int]:
        """Return the requirements that pass more or fewer filters than in the last cycle."""
        context, by_requirements = self._context, self._context.pending.by_requirements
        changed = context.fitting_index.with_changed_filters(quota)
        context.feasibility_cache.prune(by_requirements, len(by_requirements))
        return changed

    def _wake_at(self, now: int, retry_at: int | None) -> int | None:
        """Return when decisions may change without an event: usage settles, a hold ends, an eviction is due."""
        context, policy = self._context, self._context.policy
        workloads = context.workloads
        wake_at = earliest(
            (
                workloads.next_expiry(),
                context.cluster_usage.settles_at(policy.settle_ms),
                context.estimate_tracker.next_expiry(),
                self._nominations.next_expiry(policy, now),
                self._reservations.next_expiry(policy.head_reservation),
                self._reservations.next_overrun_eviction(now) if policy.backfill.evicts_overrun else None,
                self._advance_reservations.next_eviction(policy, now),
                self.starvation_timers.next_expiry(policy.head_reservation, now),
                context.windows.next_change(now),
                context.ageing.next_raise(),
                retry_at,
                earliest(workloads[uid].eviction_retry_at for uid in (*workloads.aborted, *workloads.without_data)),
                self.resize.next_eviction_at(policy.resize),
                self._startup_checks().next_check_at(),
            )
        )
        return None if wake_at is None else max(wake_at, now + 1)


def _queues_below_limits(quota: Quota, queues: Iterable[QueueName]) -> set[QueueName]:
    """Return the leaves below each limit, other than the root's, that usage of one of *queues* counts against."""
    nodes = filter(None, map(quota.tree.nodes.get, queues))
    limits = {above.name: above for node in nodes for above in quota.limiting(node) if above.parent is not None}
    return {leaf.name for node in limits.values() for leaf in node.leaves()}
