"""Holds queues, clusters and workloads, applies events to them and plans admissions.

Each event carries the complete present state of one object. Decisions of a plan
are assumed at once, as if their writes had succeeded; after a failed write the
caller sends the workload's previous state again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from controller.engine import cycle
from controller.engine.fairness.ordering import QueueShares
from controller.engine.lifecycle.gangs import HyperJobGangs
from controller.engine.lifecycle.startup import StartupTracker, with_startup_backoff
from controller.engine.pending_reasons import PAUSE_MS, PendingReasonUpdater
from controller.engine.placement.estimate_tracker import EstimateTracker
from controller.engine.plan import Evict, Plan, StartupBackoff
from controller.engine.policy import Policy
from controller.engine.reasons import Reason, Refusal, precedence
from controller.engine.reservations.starvation import StarvationTimers
from controller.engine.state.cluster_usage import ClusterUsage, earliest
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import Queue, QueueName, Tree
from controller.engine.state.pending import PendingWorkloads, order_key
from controller.engine.state.queue_usage import QueueUsage
from controller.engine.state.quota import Quota
from controller.engine.state.resources import Resources
from controller.engine.state.usage_tracker import UsageTracker
from controller.engine.state.workloads import (
    Admission,
    Choice,
    Nomination,
    Reservation,
    Workload,
    WorkloadState,
    WorkloadUid,
    has_same_charges,
    is_noop_update,
    with_move,
    with_resize,
)
from controller.engine.steps import Steps, finish

if TYPE_CHECKING:
    from controller.engine.fairness.borrowing import BorrowingPolicy
    from controller.engine.reservations.active import ActiveReservations, ReservedResources


class Engine:
    """Queues, clusters and workloads, with indexes of them that the cycle reads.

    Only the event methods change the attributes.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.cluster_usage = ClusterUsage()
        self.workloads: dict[WorkloadUid, Workload] = {}
        self.pending = PendingWorkloads(is_by_tenant=self.policy.is_by_tenant)
        self.borrowing: BorrowingPolicy | None = None
        """The borrowing rules for the present state; ``None`` until they are needed."""
        self.active_reservations: ActiveReservations | None = None
        """The quota and capacity that reservations set aside; ``None`` until they are needed."""
        # The part of them that does not depend on usage; it stays while the reservations are the same.
        self.reserved_resources: ReservedResources | None = None
        self.on_hold: dict[QueueName, dict[WorkloadUid, Refusal]] = {}
        """Pending workloads that do not compete, with the reason, by queue."""
        self.queue_usage = QueueUsage(self.cluster_usage, self.pending)
        self.usage_tracker = UsageTracker(self.cluster_usage, self.queue_usage)
        self.estimate_tracker = EstimateTracker(self.cluster_usage)
        self.estimate_tracker.set_enabled((), on=self.policy.node_estimates)
        self.gangs = HyperJobGangs()
        self.admitted: dict[QueueName, dict[WorkloadUid, Workload]] = {}
        """Admitted workloads, by queue."""
        self.nominated: dict[WorkloadUid, Workload] = {}
        """Workloads that wait for their victims to stop (P5)."""
        self.with_reservation: dict[WorkloadUid, Workload] = {}
        """Workloads with a head reservation (O6)."""
        self.planned_at = 0
        """When the last cycle began, in milliseconds."""
        self.admitted_so_far: frozenset[WorkloadUid] = frozenset()
        """Workloads admitted by cut plans that the next plan continues; empty after a complete plan."""
        self.starvation_timers = StarvationTimers()
        self.startup = StartupTracker()
        """Admitted workloads that do not run yet (R1)."""
        self.resized: set[WorkloadUid] = set()
        """Admitted workloads that request more than their charge, or run again after they finished (D7)."""
        self.not_fitting_since: dict[WorkloadUid, int] = {}
        """When each resized workload that exceeds quota or capacity began to, in milliseconds."""
        self.spent_resize_grace: dict[WorkloadUid, tuple[int, int]] = {}
        """How long workloads exceeded quota or capacity before they shrank, and when they did (D7)."""
        self.moved: set[WorkloadUid] = set()
        """Admitted workloads whose clusters were changed by others after their record was written (R1)."""
        self.accepted: set[WorkloadUid] = set()
        """Moved or resized workloads that fit as they are; their records are updated."""
        self.last_reasons: dict[WorkloadUid, Reason] = {}
        """The reason published last for each pending workload."""
        self.unpublished: set[WorkloadUid] = set()
        """Workloads on hold whose reason is not published yet."""
        self.pending_reasons = PendingReasonUpdater(self)
        self.aborted: set[WorkloadUid] = set()
        """Admitted workloads that aborted in their clusters and are to be evicted (D8)."""
        self._has_changed = True
        """Whether an event since the last plan may change a decision."""
        self._wake_at: int | None = None
        self._expirations: list[tuple[int, WorkloadUid]] = []

    # -- events --------------------------------------------------------

    def policy_changed(self, policy: Policy) -> None:
        """Use *policy* from the next plan on."""
        if policy.startup_timeout_ms != self.policy.startup_timeout_ms:
            self.startup.reschedule_all(self.workloads.values(), policy.startup_timeout_ms)
        self.gangs.mark_all_changed()
        if policy.node_estimates != self.policy.node_estimates:
            self.estimate_tracker.set_enabled(self.workloads.values(), on=policy.node_estimates)
            self.queue_usage.clusters_changed()
        self.policy = policy
        if self.cluster_usage.update_descriptions(policy.with_node_shapes):
            self.queue_usage.clusters_changed()
        self._has_changed = True
        waiting = [workload for workload in self.workloads.values() if workload.state is WorkloadState.PENDING]
        for workload in waiting:
            self._remove_pending(workload)
        self.pending.is_by_tenant = policy.is_by_tenant
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
        self.usage_tracker.end_orphans()
        if before is None or replace(before, used=cluster.used, grades=cluster.grades) != cluster:
            self.queue_usage.clusters_changed()
            self._has_changed = True
        elif cluster_state.external_usage != external_usage or before.grades != cluster.grades:
            self._has_changed = True
        if before != cluster:
            self._has_changed |= self.estimate_tracker.invalidate(cluster.name, now)

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        """Store the answer of a cluster's estimator to a query of a plan; answers that come too late are ignored."""
        self._has_changed |= self.estimate_tracker.answer_received(estimate, now)

    def cluster_removed(self, name: ClusterName) -> None:
        """Remove a cluster; its charges stay until the workloads change."""
        self.cluster_usage.remove(name)
        self.usage_tracker.end_orphans()
        self.queue_usage.clusters_changed()
        self._has_changed = True

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Add or update a workload, observed at *now*."""
        before = self.workloads.get(workload.uid)
        workload = with_move(before, with_resize(before, workload), now)
        if before == workload:
            return
        if before is None or before.state is not WorkloadState.ADMITTED or not is_noop_update(before, workload):
            self._has_changed = True
        if before is not None and before.state is WorkloadState.PENDING:
            self._remove_pending(before)
        self._has_changed |= self.usage_tracker.update(before, workload, now)
        self.workloads[workload.uid] = workload
        self._update_estimates(before, workload, now)
        self._update_indexes(before, workload)
        if workload.state is WorkloadState.PENDING:
            self._add_pending(workload)
        else:
            self.last_reasons.pop(workload.uid, None)

    def workload_removed(self, uid: WorkloadUid, now: int) -> None:
        """Remove a workload and free its charges."""
        before = self.workloads.pop(uid, None)
        if before is None:
            return
        self._has_changed = True
        if before.state is WorkloadState.PENDING:
            self._remove_pending(before)
        self.usage_tracker.remove_or_orphan(before, None, now)
        self._update_estimates(before, None, now)
        self._update_indexes(before, None)
        self.last_reasons.pop(uid, None)

    # -- queries -------------------------------------------------------

    def prepare(self, steps: int) -> bool:
        """Evaluate feasibility for the next plan in about *steps* steps; return whether all of it is evaluated.

        Decides nothing: a plan is the same with and without such calls before it.
        """
        requirements = (classes[0].requirements for classes in self.pending.by_requirements.values())
        return not self._has_changed or self.queue_usage.feasibility_cache.prepare(requirements, steps)

    def plan(self, now: int, *, most: int | None = None) -> Plan:
        """Decide at *now*, assume the decisions, and return them as a plan.

        Without events since the last plan and without a due timer no cycle runs.
        After *most* admissions the plan is cut, and the next plan continues it.
        """
        return finish(self.plan_in_steps(now, most=most))

    def plan_in_steps(self, now: int, *, most: int | None = None) -> Steps[Plan]:
        """Make the same plan in parts of few steps each; no event may be applied before it is complete."""
        counted = self.queue_usage.feasibility_cache.total_steps
        work = self._plan(now, most)
        while True:
            try:
                part = next(work)
            except StopIteration as ended:
                plan: Plan = ended.value
                return plan
            before, counted = counted, self.queue_usage.feasibility_cache.total_steps
            yield part + counted - before

    def _plan(self, now: int, most: int | None) -> Steps[Plan]:
        is_due = self._wake_at is not None and self._wake_at <= now
        if not self._has_changed and not is_due:
            waits = (yield from self.pending_reasons.flush()) if self.pending_reasons.is_behind else ()
            return self._with_follow_up(Plan(waits=waits, wake_at=self._wake_at), now)
        self._expire_holds(now)
        plan = yield from cycle.steps(self, now, most=most)
        # An evicted workload may request other amounts, and a resized one may no longer fit: run another cycle.
        is_settled = not any(self.resized or isinstance(decision, Evict) for decision in plan.decisions)
        self._has_changed = plan.is_cut or not is_settled
        self._wake_at = plan.wake_at
        return self._with_follow_up(plan, now)

    def _with_follow_up(self, plan: Plan, now: int) -> Plan:
        """Return *plan*, with an early wake-up while pending reasons remain to be published."""
        if not self.pending_reasons.is_behind:
            return plan
        return replace(plan, wake_at=earliest((plan.wake_at, now + PAUSE_MS)))

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        """Return all known queues by name."""
        return self.queue_usage.queues

    @property
    def current_usage(self) -> Mapping[QueueName, Resources]:
        """Return the usage by the queue that the workloads name, whether it exists or not."""
        return self.queue_usage.current_usage()

    @property
    def current_quota(self) -> Quota | None:
        """Return the quota with current usage, ``None`` before the first plan."""
        settled = self.queue_usage.shares
        return self.queue_usage.current_quota() or (settled.quota if settled else None)

    @property
    def queue_shares(self) -> QueueShares | None:
        """Return fair shares and usage ratios of the queues, ``None`` before the first plan."""
        return self.queue_usage.shares

    def tree(self) -> Tree:
        """Return the present tree of queues."""
        return self.queue_usage.tree()

    def take_failures(self) -> list[Exception]:
        """Return, once each, the errors that left workloads pending with ``InternalError``."""
        return self.queue_usage.feasibility_cache.pop_failures()

    def has_accepted(self, uid: WorkloadUid) -> bool:
        """Return whether a moved or resized workload fits as it is, so that its record is to be updated."""
        return uid in self.accepted and uid not in self.not_fitting_since

    def refusal(self, uid: WorkloadUid) -> Refusal | None:
        """Return why a workload is pending, ``None`` where it is not pending or not evaluated yet."""
        workload = self.workloads.get(uid)
        if workload is None or workload.state is not WorkloadState.PENDING:
            return None
        own = self.on_hold.get(workload.queue, {}).get(uid)
        if own is not None:
            closed = self.tree().refusal(workload.queue)
            return own if closed is None else min(closed, own, key=precedence)
        workload_class = self.pending.class_of(uid)
        head = (
            None if workload_class.inadmissible or not workload_class.is_waiting else self.blocking_head(workload.queue)
        )
        if head is not None and head.uid != uid:
            return Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue=workload.queue, subject=head.path)
        return cycle.refusal(self, workload_class)

    def blocking_head(self, queue: QueueName) -> Workload | None:
        """Return the head that all others of a fifo queue wait behind; ``None`` for other queues."""
        known = self.queues.get(queue)
        if known is None or not known.fifo:
            return None
        heads = [
            workload_class.head
            for workload_class in self.pending.queues.get(queue, ())
            if workload_class.inadmissible is None
        ]
        return min(heads, key=self._sort_key(queue, heads)) if heads else None

    def first_of(self, queue: QueueName, heads: Collection[Workload]) -> Workload | None:
        """Return the first of *heads* in the order of their queue (O2)."""
        return min(heads, key=self._sort_key(queue, heads)) if heads else None

    def queue_head(self, queue: QueueName) -> Workload | None:
        """Return the first workload of a queue that is not nominated; ``None`` while its eviction is in progress."""
        classes = [
            workload_class
            for workload_class in self.pending.queues.get(queue, ())
            if workload_class.inadmissible is None and workload_class.nominated_cluster is None
        ]
        heads = [workload_class.head for workload_class in classes]
        first = min(heads, key=self._sort_key(queue, heads), default=None)
        return None if first is None or first.is_leaving else first

    def pending_workloads(self, queue: QueueName) -> list[Workload]:
        """Return all pending workloads of *queue*, those on hold included, in the order (O2) of the last cycle."""
        held = [self.workloads[uid] for uid in self.on_hold.get(queue, ())]
        everyone = [*self.pending.in_order(queue), *held]
        if held or self._is_by_tenant(queue):
            everyone.sort(key=self._sort_key(queue, everyone))
        return everyone

    def position(self, workload: Workload) -> int:
        """Return the position of a pending workload in its queue, counted from 1."""
        if self._is_by_tenant(workload.queue):
            return self.pending_workloads(workload.queue).index(workload) + 1
        own = order_key(workload)
        classes = sum(
            workload_class.count_before(own) for workload_class in self.pending.queues.get(workload.queue, ())
        )
        held = sum(order_key(self.workloads[uid]) < own for uid in self.on_hold.get(workload.queue, ()))
        return 1 + classes + held

    def _is_by_tenant(self, queue: QueueName) -> bool:
        known = self.queue_shares is not None and queue in self.queue_shares.fair_shares
        return known and self.policy.is_by_tenant

    def _sort_key(self, queue: QueueName, waiting: Iterable[Workload]) -> Callable[[Workload], tuple[object, ...]]:
        """Return the sort key of O2: priority and the namespace's usage ratio where it counts, then age and name."""
        if self.queue_shares is None or not self._is_by_tenant(queue):
            return order_key
        shares = {
            name: self.queue_shares.namespace_ratio(queue, name)
            for name in {workload.namespace for workload in waiting}
        }
        if self.policy.tenant_fairness == "NamespaceFirst":
            return lambda workload: (shares[workload.namespace], order_key(workload))
        return lambda workload: (-workload.priority, shares[workload.namespace], order_key(workload))

    def queues_with_pending(self) -> Iterator[QueueName]:
        """Yield the queues with pending workloads, by name."""
        yield from sorted({*self.pending.queues, *(name for name, held in self.on_hold.items() if held)})

    def next_expiry(self) -> int | None:
        """Return when the next hold expires, or ``None``; the time may be early but never late."""
        return self._expirations[0][0] if self._expirations else None

    # -- decisions -----------------------------------------------------

    def admit(self, workload: Workload, admission: Admission, now: int) -> None:
        """Assume an admission."""
        done = replace(
            workload, state=WorkloadState.ADMITTED, admission=admission, hold=None, nomination=None, reservation=None
        )
        self.workload_changed(done, now)

    def evict(self, workload: Workload, now: int) -> None:
        """Assume an eviction: the workload keeps its charges until it has stopped, then it is pending again."""
        past = workload.eviction_history.after_eviction(has_run=workload.has_run, taken_back=False)
        gone = replace(
            workload, state=WorkloadState.PENDING, has_run=False, nomination=None, reservation=None, **past._asdict()
        )
        self.workload_changed(gone, now)

    def evict_not_started(self, workload: Workload, back_off: StartupBackoff, now: int) -> None:
        """Assume the eviction of a workload that, or whose gang, does not start (R1)."""
        self.workload_changed(with_startup_backoff(workload, back_off), now)

    def nominate(self, workload: Workload, held: Nomination | None, now: int) -> None:
        """Set or clear the nomination of *workload*."""
        self.workload_changed(replace(workload, nomination=held, reservation=None), now)

    def reserve(self, workload: Workload, reserved: Reservation | None, now: int) -> None:
        """Set or clear the head reservation of *workload*."""
        self.workload_changed(replace(workload, reservation=reserved), now)

    def begin_trial(self, workload: Workload, choice: Choice) -> None:
        """Charge the clusters of an admission until ``end_trial`` undoes it completely."""
        self.cluster_usage.assume(choice.cluster_charges)
        if self.policy.node_estimates:
            self.estimate_tracker.deduct(workload, choice.cluster_charges)

    def end_trial(self, workload: Workload, choice: Choice) -> None:
        """Undo ``begin_trial``."""
        self.cluster_usage.unassume(choice.cluster_charges)
        if self.policy.node_estimates:
            self.estimate_tracker.deduct(workload, choice.cluster_charges, -1)

    def _update_estimates(self, before: Workload | None, workload: Workload | None, now: int) -> None:
        if self.policy.node_estimates:
            self._has_changed |= self.estimate_tracker.workload_changed(before, workload, now)

    def _tree_changed(self) -> None:
        self._has_changed = True
        for held in self.on_hold.values():
            self.unpublished.update(held)

    def _add_pending(self, workload: Workload) -> None:
        if workload.admission is not None and workload.admission.ends_at is not None:
            heappush(self._expirations, (workload.admission.ends_at, workload.uid))
        forbidden = self.policy.refusal(
            workload.namespace, workload.queue, workload.priority_class, *workload.task_classes
        )
        # Its charges already show that its eviction is in progress.
        own = None if workload.is_leaving and _is_preemption_in_progress(workload.hold) else workload.hold
        refusal = min(filter(None, (own, forbidden)), key=precedence, default=None)
        if refusal is None:
            can_lend = self.policy.may_borrow(workload.evictions, preserved=workload.preserved)
            self.pending.add(workload, immovable=not can_lend)
            return
        self.on_hold.setdefault(workload.queue, {})[workload.uid] = refusal
        self.unpublished.add(workload.uid)
        if refusal.until is not None:
            heappush(self._expirations, (refusal.until, workload.uid))

    def _expire_holds(self, now: int) -> None:
        """Return workloads whose hold has expired by *now* to the competition, and free charges that have expired."""
        while self._expirations and self._expirations[0][0] <= now:
            _, uid = heappop(self._expirations)
            workload = self.workloads.get(uid)
            if workload is not None and workload.has_left(now):
                workload = replace(workload, admission=None)
                self.workload_changed(workload, now)
            if workload is None or uid not in self.on_hold.get(workload.queue, {}):
                continue
            until = self.on_hold[workload.queue][uid].until
            if until is not None and until <= now:
                self._remove_pending(workload)
                self.workloads[uid] = replace(workload, hold=None)
                self.gangs.update(workload, self.workloads[uid])
                self._add_pending(self.workloads[uid])

    def _remove_pending(self, workload: Workload) -> None:
        if workload.uid in self.pending:
            self.pending.remove(workload)
            return
        self.unpublished.discard(workload.uid)
        held = self.on_hold[workload.queue]
        del held[workload.uid]
        if not held:
            del self.on_hold[workload.queue]

    def _update_indexes(self, before: Workload | None, workload: Workload | None) -> None:
        """Update the indexes of admitted, aborted, resized, moved, nominated and reserving workloads and of gangs."""
        self.borrowing = self.active_reservations = None
        self.gangs.update(before, workload)
        if before is not None:
            self.nominated.pop(before.uid, None)
            self.with_reservation.pop(before.uid, None)
            self.aborted.discard(before.uid)
            self.resized.discard(before.uid)
            self.moved.discard(before.uid)
            self.admitted.get(before.queue, {}).pop(before.uid, None)
        if workload is None:
            uid = before.uid if before else WorkloadUid("")
            self.not_fitting_since.pop(uid, None)
            self.spent_resize_grace.pop(uid, None)
            self.accepted.discard(uid)
            self.startup.forget(uid)
            return
        if before is None or workload.state is not WorkloadState.ADMITTED or not has_same_charges(before, workload):
            self.accepted.discard(workload.uid)
        self.startup.track(workload, self.policy.startup_timeout_ms)
        if workload.state is WorkloadState.ADMITTED:
            self.admitted.setdefault(workload.queue, {})[workload.uid] = workload
        if workload.is_nominated:
            self.nominated[workload.uid] = workload
        if workload.has_reservation:
            self.with_reservation[workload.uid] = workload
        marks = (
            (workload.has_aborted, self.aborted),
            (workload.has_moved, self.moved),
            (workload.has_resized, self.resized),
        )
        for is_marked, marked in marks:
            if is_marked:
                marked.add(workload.uid)
        if workload.state is WorkloadState.PENDING:
            self.not_fitting_since.pop(workload.uid, None)
            self.spent_resize_grace.pop(workload.uid, None)


def _is_preemption_in_progress(hold: Refusal | None) -> bool:
    return hold is not None and hold.reason is Reason.PREEMPTION_IN_PROGRESS
