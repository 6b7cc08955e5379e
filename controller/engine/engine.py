"""Holds queues, clusters and workloads, applies events to them and plans admissions.

Each event carries the complete present state of one object. Decisions of a plan
are assumed at once, as if their writes had succeeded; after a failed write the
caller sends the workload's previous state again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from controller.engine.context import Context
from controller.engine.cycle import Cycle
from controller.engine.fairness.shares import QueueShares
from controller.engine.pending_reasons import IDLE_PORTIONS, PAUSE_MS
from controller.engine.plan import Evict, Plan
from controller.engine.policy import Policy
from controller.engine.reasons import Reason, Refusal, precedence
from controller.engine.reservations.advance import (
    blocking_reservations,
    next_change,
    reserved_amounts,
    reserved_clusters,
)
from controller.engine.reservations.idle import ReservationKind, idle_by_kind
from controller.engine.state.cluster_state import earliest
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import Queue, QueueName, Tree
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.resources import Resources
from controller.engine.state.workload_changes import (
    is_noop_update,
    with_long_grace_period,
    with_placement_time,
    with_rerun,
    with_resize_before_eviction,
)
from controller.engine.state.workloads import (
    Workload,
    WorkloadState,
    WorkloadUid,
)
from controller.engine.steps import Steps, finish

#: ``forget_deleted`` does so after so many changes, in addition to one for each workload.
_MIN_CHANGES: Final = 1_024


class Engine:
    """Queues, clusters and workloads, and the cycle that plans over them; only the event methods change them."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.context = context = Context(policy or Policy())
        self.cycle = Cycle(context, self.workload_changed)
        self.cluster_usage = context.cluster_usage
        self.queue_usage = context.queue_usage
        self.feasibility_cache = context.feasibility_cache
        self.estimate_tracker = context.estimate_tracker
        self.estimate_tracker.set_enabled((), on=context.policy.node_estimates)
        self.index = context.workloads
        self.workloads = self.index.by_uid
        self.pending = self.index.pending
        self.pending.is_by_tenant = context.policy.is_by_tenant
        self.pending.is_by_run_time = context.policy.backfill.enabled
        self.pending.is_by_priority = context.policy.ageing.is_on
        self._planned_changes = -1
        """``context.changes`` at the end of the last plan; -1 where the next plan has more to decide."""
        self._idle = Plan()
        """The plan while nothing changes and no timer is due."""
        self._last_forgotten = 0
        """``context.changes`` when ``forget_deleted`` last did so."""

    # -- events --------------------------------------------------------

    def policy_changed(self, policy: Policy) -> None:
        """Use *policy* from the next plan on."""
        if policy.startup_timeout_ms != self.policy.startup_timeout_ms:
            self.cycle.startup.reschedule_all(self.workloads.values(), policy.startup_timeout_ms)
        self.index.gangs.mark_all_changed()
        if policy.node_estimates != self.policy.node_estimates:
            self.estimate_tracker.set_enabled(self.workloads.values(), on=policy.node_estimates)
            self._clusters_changed()
        if policy.advance_reservations != self.policy.advance_reservations:
            for uid in self.workloads:
                self.index.add_expiry(0, uid)
        self.context.policy = self.context.order.policy = policy
        if self.cluster_usage.replace_clusters(policy.with_node_shapes):
            self._clusters_changed()
        self.context.changes += 1
        waiting = [workload for workload in self.workloads.values() if workload.state is WorkloadState.PENDING]
        for workload in waiting:
            self._remove_pending(workload)
        self.pending.is_by_tenant = policy.is_by_tenant
        self.pending.is_by_run_time = policy.backfill.enabled
        self.context.ageing.policy_changed(policy.ageing)
        for workload in waiting:
            self._add_pending(workload)

    def queue_changed(self, queue: Queue) -> None:
        """Add or update a queue."""
        if self.queues.get(queue.name) != queue:
            self.queue_usage.upsert(queue)
            self._tree_changed()

    def queue_removed(self, name: QueueName) -> None:
        """Remove a queue; charges of its workloads count at the root from now on."""
        if name in self.queues:
            self.queue_usage.delete(name)
            self._tree_changed()

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        """Add or update a cluster, observed at *now*."""
        cluster = self.policy.with_node_shapes(cluster)
        cluster_state = self.cluster_usage.cluster_state(cluster.name)
        before, external_usage = cluster_state.cluster, cluster_state.external_usage
        self.cluster_usage.update(cluster, now, self.policy.settle_ms)
        self.context.usage_tracker.end_orphans()
        if before is None or replace(before, used=cluster.used, grades=cluster.grades) != cluster:
            self._clusters_changed()
            self.context.changes += 1
        elif cluster_state.external_usage != external_usage or before.grades != cluster.grades:
            self.context.changes += 1
        else:
            # The summary may show that external usage will fall once the cluster has settled.
            settles_at = cluster_state.settles_at(self.policy.settle_ms)
            self._idle = replace(self._idle, wake_at=earliest((self._idle.wake_at, settles_at)))
        if before != cluster:
            self.context.changes += self.estimate_tracker.invalidate(cluster.name, now)

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        """Store the answer of a cluster's estimator to a query of a plan; answers that come too late are ignored."""
        self.context.changes += self.estimate_tracker.answer_received(estimate, now)

    def cluster_removed(self, name: ClusterName) -> None:
        """Remove a cluster; its charges stay until the workloads change."""
        self.cluster_usage.remove(name)
        self.context.usage_tracker.end_orphans()
        self._clusters_changed()
        self.context.changes += 1

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Add or update a workload, observed at *now*."""
        before = self.workloads.get(workload.uid)
        workload = with_rerun(before, workload, is_accepted=self.has_accepted(workload.uid))
        workload = with_resize_before_eviction(before, workload)
        workload = with_long_grace_period(before, with_placement_time(before, workload, now))
        workload = self._with_reserved_clusters(workload, now)
        if before == workload:
            # Equal admissions may differ in whether they are assumed.
            self.workloads[workload.uid] = workload
            return
        if before is None or before.state is not WorkloadState.ADMITTED or not is_noop_update(before, workload):
            self.context.changes += 1
        class_before = self._class_of_part(workload)
        if before is not None and before.state is WorkloadState.PENDING:
            self._remove_pending(before)
        self.context.changes += self.context.usage_tracker.update(before, workload, now)
        self.workloads[workload.uid] = workload
        self._update_indexes(before, workload, now)
        if workload.state is WorkloadState.PENDING:
            self._add_pending(workload)
        else:
            self.cycle.reason_updates.forget(before or workload)
        if workload.gang is not None and self._class_of_part(workload) is not class_before:
            # For example, its new PriorityClass is allowed (Q7), or it requests as much as another part now.
            self.index.gangs.mark_changed(workload.gang)

    def _class_of_part(self, workload: Workload) -> WorkloadClass | None:
        """Return the class of a pending part of a HyperJob, ``None`` for any other workload."""
        is_pending = workload.gang is not None and workload.uid in self.pending
        return self.pending.class_of(workload.uid) if is_pending else None

    def workload_removed(self, uid: WorkloadUid, now: int, *, is_released: bool = False) -> None:
        """Remove a workload and free its charges; one that *is_released* may run on, without an admission."""
        before = self.workloads.pop(uid, None)
        if before is None:
            return
        self.context.changes += 1
        if before.state is WorkloadState.PENDING:
            self._remove_pending(before)
        if is_released:
            self.context.usage_tracker.release(before, now)
        else:
            self.context.usage_tracker.remove_or_orphan(before, None, now)
        self._update_indexes(before, None, now)
        self.cycle.reason_updates.forget(before)

    def forget_deleted(self) -> None:
        """Forget the changes of deleted objects in a standby, which makes no plan that would do so, perhaps for weeks.

        An engine that has planned needs them once more, to update the sums of its last plan.
        """
        changes = self.context.changes - self._last_forgotten
        if self.queue_shares is not None or changes < _MIN_CHANGES + len(self.workloads):
            return
        self._last_forgotten = self.context.changes
        for state in (self.pending, self.index.gangs, self.queue_usage, self.cluster_usage):
            state.forget_deleted()

    # -- queries -------------------------------------------------------

    def prepare(self, steps: int) -> bool:
        """Evaluate feasibility for the next plan in about *steps* steps; return whether all of it is evaluated.

        Decides nothing: a plan is the same with and without such calls before it.
        """
        requirements = (next(iter(classes)).requirements for classes in self.pending.by_requirements.values())
        return not self._has_changed or self.feasibility_cache.prepare(requirements, steps)

    def plan(self, now: int, *, most: int | None = None) -> Plan:
        """Decide at *now*, assume the decisions, and return them as a plan.

        Without events since the last plan and without a due timer no cycle runs.
        After *most* admissions the plan is cut, and the next plan continues it.
        """
        return self._idle if self._is_idle(now) else finish(self.plan_in_steps(now, most=most))

    def plan_in_steps(self, now: int, *, most: int | None = None) -> Steps[Plan]:
        """Make the same plan in parts of few steps each; no event may be applied before it is complete."""
        counted = self.feasibility_cache.total_steps
        work = self._plan(now, most)
        while True:
            try:
                part = next(work)
            except StopIteration as ended:
                plan: Plan = ended.value
                return plan
            before, counted = counted, self.feasibility_cache.total_steps
            yield part + counted - before

    def _plan(self, now: int, most: int | None) -> Steps[Plan]:
        if self._is_idle(now):
            return self._idle
        if not self.is_due(now):
            waits = yield from self.cycle.reason_updates.flush(portions=IDLE_PORTIONS)
            return self._with_follow_up(replace(self._idle, waits=waits), now)
        self._expire_holds(now)
        plan = yield from self.cycle.steps(now, most=most)
        # An evicted workload may request other amounts, a resized one may no longer fit, and without an admitted one
        # others may be first: run another cycle.
        is_settled = not any(self.index.resized or isinstance(decision, Evict) for decision in plan.decisions)
        is_settled = is_settled and not self.context.ageing.outdated
        self._planned_changes = self.context.changes if is_settled and not plan.is_cut else -1
        self._idle = Plan(wake_at=plan.wake_at)
        return self._with_follow_up(plan, now)

    @property
    def _has_changed(self) -> bool:
        """Return whether an event since the last plan may change a decision."""
        return self.context.changes != self._planned_changes

    def is_due(self, now: int) -> bool:
        """Return whether a plan at *now* runs a cycle; otherwise it only publishes pending reasons."""
        return self._has_changed or (self._idle.wake_at is not None and self._idle.wake_at <= now)

    def _is_idle(self, now: int) -> bool:
        return not (self.is_due(now) or self.cycle.reason_updates.is_behind)

    def _with_follow_up(self, plan: Plan, now: int) -> Plan:
        """Return *plan*, with an early wake-up while pending reasons remain to be published."""
        if not self.cycle.reason_updates.is_behind:
            return plan
        return replace(plan, wake_at=earliest((plan.wake_at, now + PAUSE_MS)))

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.context.policy

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        """Return all known queues by name."""
        return self.queue_usage.queues

    @property
    def nominated(self) -> Mapping[WorkloadUid, Workload]:
        """Return the workloads that wait for their victims to stop (P5)."""
        return self.index.nominated

    @property
    def with_reservation(self) -> Mapping[WorkloadUid, Workload]:
        """Return the workloads with a head reservation (O6)."""
        return self.index.with_reservation

    @property
    def quota_set_aside(self) -> list[Resources]:
        """Return what each head reservation sets aside, over all queues (O6, O9)."""
        active = self.context.active_reservations()
        return active.set_aside() if active is not None else []

    def idle_for_reservations(self, now: int) -> Mapping[ReservationKind, Resources]:
        """Return the free capacity of clusters that reservations set aside at *now*: its cost (O8, O11)."""
        active = self.context.active_reservations()
        heads = active.set_aside_on() if active is not None else {}
        reservations = self.policy.advance_reservations
        blocking = blocking_reservations(self.pending) if reservations else frozenset()
        in_force = [
            reservation
            for reservation in reservations
            if now < reservation.until and (reservation.since <= now or reservation.name in blocking)
        ]
        return idle_by_kind(self.cluster_usage, heads, in_force)

    @property
    def requested(self) -> Mapping[QueueName, Resources]:
        """Return the requests of each queue, as of the last cycle."""
        return self.context.shares.requested

    @property
    def last_reasons(self) -> Mapping[WorkloadUid, Reason]:
        """Return the reason published last for each pending workload."""
        return self.cycle.reason_updates.last_reasons()

    @property
    def current_usage(self) -> Mapping[QueueName, Resources]:
        """Return the usage by the queue that the workloads name, whether it exists or not."""
        return self.queue_usage.current_usage()

    @property
    def current_quota(self) -> Quota | None:
        """Return the quota with current usage, ``None`` before the first plan."""
        return self.queue_usage.current_quota() or self.queue_usage.latest_quota

    @property
    def queue_shares(self) -> QueueShares | None:
        """Return fair shares and usage ratios of the queues, ``None`` before the first plan."""
        return self.context.shares.current

    def tree(self) -> Tree:
        """Return the present tree of queues."""
        return self.queue_usage.tree()

    def pop_failures(self) -> list[Exception]:
        """Return, once each, the errors that left workloads pending with ``InternalError``."""
        return self.feasibility_cache.pop_failures()

    def has_accepted(self, uid: WorkloadUid) -> bool:
        """Return whether a moved or resized workload fits as it is, so that its record is to be updated."""
        return uid in self.index.accepted and uid not in self.cycle.resize.not_fitting_since

    def refusal(self, uid: WorkloadUid) -> Refusal | None:
        """Return why a workload is pending, ``None`` where it is not pending or not evaluated yet."""
        return self.cycle.reasons.of_workload(uid)

    def pending_workloads(self, queue: QueueName) -> list[Workload]:
        """Return all pending workloads of *queue*, those on hold included, in the order (O2) of the last cycle."""
        return self.context.order.pending_workloads(queue)

    def pending_count(self, queue: QueueName) -> int:
        """Return the number of pending workloads of *queue*, those on hold included."""
        return self.context.order.pending_count(queue)

    def position(self, workload: Workload) -> int:
        """Return the position of a pending workload in its queue, counted from 1."""
        return self.context.order.position(workload)

    def has_quick_positions(self, queue: QueueName) -> bool:
        """Return whether ``position`` takes little time in *queue*; elsewhere it may sort all its pending workloads."""
        return self.context.order.has_quick_positions(queue)

    def raised_priority(self, workload: Workload) -> int | None:
        """Return the job priority of a pending workload as raised by waiting, ``None`` where it is not raised (O10)."""
        raised = self.context.ageing.priority(workload)
        return raised if raised > workload.priority and workload.state is WorkloadState.PENDING else None

    def queues_with_pending(self) -> Iterator[QueueName]:
        """Yield the queues with pending workloads, by name."""
        return self.context.order.queues_with_pending()

    def _clusters_changed(self) -> None:
        """Discard what was computed for another set of clusters, or other properties of them."""
        self.feasibility_cache.clear()
        self.queue_usage.clusters_changed()

    def _tree_changed(self) -> None:
        self.context.changes += 1
        for held in self.index.on_hold.values():
            self.cycle.reason_updates.unpublished.update(held)

    def _with_reserved_clusters(self, workload: Workload, now: int) -> Workload:
        """Return a pending workload with the clusters that are kept free for advance reservations (O11)."""
        reservations = self.policy.advance_reservations
        is_reserved = workload.requirements.reserved_clusters or workload.requirements.amounts_reserved_by
        if workload.state is not WorkloadState.PENDING or not (reservations or is_reserved):
            return workload
        if (change_at := next_change(reservations, workload, now)) is not None:
            self.index.add_expiry(change_at, workload.uid)
        requirements, reserved = workload.requirements, reserved_clusters(reservations, workload, now)
        reserved_by = reserved_amounts(reservations, workload, now)
        if (reserved, reserved_by) == (requirements.reserved_clusters, requirements.amounts_reserved_by):
            return workload
        requirements = replace(requirements, reserved_clusters=reserved, amounts_reserved_by=reserved_by)
        return replace(workload, requirements=requirements)

    def _add_pending(self, workload: Workload) -> None:
        if workload.admission is not None and workload.admission.ends_at is not None:
            self.index.add_expiry(workload.admission.ends_at, workload.uid)
        forbidden = self.policy.refusal(
            workload.namespace, workload.queue, workload.priority_class, *workload.details.task_classes
        )
        # Its charges already show that its eviction is in progress.
        own = workload.without_eviction().hold if workload.is_being_evicted else workload.hold
        refusal = min(filter(None, (own, forbidden)), key=precedence, default=None)
        if refusal is None:
            may_borrow = self.policy.may_borrow(workload.evictions, preserved=workload.preserved)
            self.pending.add(workload, is_non_preemptible=not may_borrow)
            return
        self.index.hold(workload, refusal)
        self.cycle.reason_updates.unpublished.add(workload.uid)
        if refusal.until is not None:
            self.index.add_expiry(refusal.until, workload.uid)

    def _expire_holds(self, now: int) -> None:
        """Return workloads whose hold has expired by *now* to the competition, and free charges that have expired."""
        for uid in self.index.pop_expired(now):
            workload = self.workloads.get(uid)
            if workload is not None and workload.has_eviction_expired(now):
                workload = replace(workload.without_eviction(), admission=None)
                self.workload_changed(workload, now)
            elif workload is not None and workload.state is WorkloadState.PENDING:
                self.workload_changed(workload, now)
                workload = self.workloads[uid]
            if workload is None or uid not in self.index.on_hold.get(workload.queue, {}):
                continue
            until = self.index.on_hold[workload.queue][uid].until
            if until is not None and until <= now:
                self._remove_pending(workload)
                self.workloads[uid] = replace(workload, hold=None)
                self.index.gangs.update(workload, self.workloads[uid])
                self._add_pending(self.workloads[uid])

    def _remove_pending(self, workload: Workload) -> None:
        if workload.uid in self.pending:
            self.cycle.reason_updates.remember(workload.uid)
            self.pending.remove(workload)
            return
        self.cycle.reason_updates.unpublished.discard(workload.uid)
        self.index.release(workload)

    def _update_indexes(self, before: Workload | None, workload: Workload | None, now: int) -> None:
        """Update what follows from a workload that was *before*; ``None`` where it does not exist."""
        if self.policy.node_estimates:
            self.context.changes += self.estimate_tracker.workload_changed(before, workload, now)
        self.context.invalidate()
        self.index.update(before, workload)
        self.context.advance_reservation_tracker.workload_changed(before, workload)
        if before is not None and (workload is None or workload.has_run or workload.state is WorkloadState.FINISHED):
            self.cycle.starvation_timers.forget(before.uid)
        if workload is not None:
            self.cycle.startup.track(workload, self.policy.startup_timeout_ms)
            if workload.is_being_evicted:
                # The write of its eviction may be rejected.
                self.cycle.resize.stop_timer(workload.uid, now)
            elif workload.state is WorkloadState.PENDING:
                self.cycle.resize.forget(workload.uid)
        elif before is not None:
            self.cycle.resize.forget(before.uid)
            self.cycle.startup.forget(before.uid)
