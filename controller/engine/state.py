"""The World: all the engine knows, changed by small explicit events only.

Whoever feeds it tells the whole present truth about one thing at a time and
then asks for a Plan. What a Plan admits is booked in the World at once, as if
the write had already happened; a write that fails is told as the workload's
old truth again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from controller.engine import cycle
from controller.engine.changes import is_noop_update, with_move, with_resize
from controller.engine.cluster_usage import ClusterUsage, earliest
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.estimate_tracker import EstimateTracker
from controller.engine.estimates import Estimate
from controller.engine.gangs import HyperJobGangs
from controller.engine.ordering import QueueShares
from controller.engine.pending import PendingWorkloads, order_key
from controller.engine.pending_reasons import PAUSE_MS, PendingReasonUpdater
from controller.engine.plan import Evict, Plan, StartupBackoff
from controller.engine.policy import Policy
from controller.engine.queue_usage import QueueUsage
from controller.engine.queues import Queue, QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import Reason, Refusal, precedence
from controller.engine.reservations import StarvationTimers
from controller.engine.resources import Resources
from controller.engine.startup import StartupTracker, with_startup_backoff
from controller.engine.steps import Steps, finish
from controller.engine.tree import Tree
from controller.engine.usage_tracker import UsageTracker, has_same_charges
from controller.engine.workloads import Admission, Choice, Nomination, Reservation, Workload, WorkloadState, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.active_reservations import ActiveReservations
    from controller.engine.borrowing import BorrowingPolicy


class State:
    """Queues, clusters and workloads, and the decisions that follow from them.

    The attributes are for the cycle and for those who report; only the event
    methods change them.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.cluster_usage = ClusterUsage()
        self.workloads: dict[WorkloadUid, Workload] = {}
        self.pending = PendingWorkloads()
        self.pending.is_by_tenant = self.policy.is_by_tenant
        self.borrowing: BorrowingPolicy | None = None
        """Who may borrow as things stand; ``None`` until somebody asks."""
        self.active_reservations: ActiveReservations | None = None
        """What reservations keep from others; ``None`` until somebody asks."""
        self.on_hold: dict[QueueName, dict[WorkloadUid, Refusal]] = {}
        """Who waits for reasons of his own, by queue."""
        self.queue_usage = QueueUsage(self.cluster_usage, self.pending)
        self.usage_tracker = UsageTracker(self.cluster_usage, self.queue_usage)
        self.estimate_tracker = EstimateTracker(self.cluster_usage)
        self.estimate_tracker.set_enabled((), on=self.policy.node_estimates)
        self.gangs = HyperJobGangs()
        self.admitted: dict[QueueName, dict[WorkloadUid, Workload]] = {}
        """Who is admitted, by queue."""
        self.nominated: dict[WorkloadUid, Workload] = {}
        """Those for whom others leave (P5)."""
        self.with_reservation: dict[WorkloadUid, Workload] = {}
        """Those for whom room is kept (O6)."""
        self.planned_at = 0
        """When the last cycle began, in milliseconds."""
        self.admitted_so_far: frozenset[WorkloadUid] = frozenset()
        """Workloads admitted by plans that were cut, which the next plan continues; empty after a whole one."""
        self.starvation_timers = StarvationTimers()
        self.startup = StartupTracker()
        """Who is admitted and does not run yet (R1)."""
        self.resized: set[WorkloadUid] = set()
        """Who is admitted and asks for more than he was let in with, or runs on after he had finished (D7)."""
        self.not_fitting_since: dict[WorkloadUid, int] = {}
        """Since when that of them does not fit, in milliseconds."""
        self.spent_resize_grace: dict[WorkloadUid, tuple[int, int]] = {}
        """For how long workloads held more than fitted until they shrank, and when they did (D7)."""
        self.moved: set[WorkloadUid] = set()
        """The admitted workloads whose clusters others have changed since their records were written (R1)."""
        self.accepted: set[WorkloadUid] = set()
        """Those that have moved or grown, and fit as they are now: their records are to say so."""
        self.last_reasons: dict[WorkloadUid, Reason] = {}
        """The reason that each waiting workload was last given."""
        self.unpublished: set[WorkloadUid] = set()
        """Who is held and has not been told."""
        self.pending_reasons = PendingReasonUpdater(self)
        self.aborted: set[WorkloadUid] = set()
        """Who is admitted, was aborted in his clusters, and is to be evicted (D8)."""
        self._has_changed = True
        """Whether anything was told since the last plan that a decision could depend on."""
        self._wake_at: int | None = None
        self._expirations: list[tuple[int, WorkloadUid]] = []

    # -- what is told ---------------------------------------------------

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
        waiting = [each for each in self.workloads.values() if each.state is WorkloadState.PENDING]
        for workload in waiting:
            self._remove_pending(workload)
        self.pending.is_by_tenant = policy.is_by_tenant
        for workload in waiting:
            self._add_pending(workload)

    def queue_changed(self, queue: Queue) -> None:
        """Take *queue* as it is now, new or changed."""
        if self.queues.get(queue.name) != queue:
            self.queue_usage.upsert(queue)
            self._tree_changed()

    def queue_removed(self, name: QueueName) -> None:
        """Forget a queue; what it has admitted stays charged at the root."""
        if name in self.queues:
            self.queue_usage.delete(name)
            self._tree_changed()

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        """Take *cluster* as it is at *now*, new or changed."""
        cluster = self.policy.with_node_shapes(cluster)
        site = self.cluster_usage.cluster_state(cluster.name)
        before, foreign = site.cluster, site.external_usage
        self.cluster_usage.update(cluster, now, self.policy.settle_ms)
        self.usage_tracker.end_orphans()
        if before is None or replace(before, used=cluster.used, grades=cluster.grades) != cluster:
            self.queue_usage.clusters_changed()
            self._has_changed = True
        elif site.external_usage != foreign or before.grades != cluster.grades:
            self._has_changed = True
        if before != cluster:
            self._has_changed |= self.estimate_tracker.invalidate(cluster.name, now)

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        """Take the answer of a cluster's estimator to a query of a plan; one that comes too late means nothing."""
        self._has_changed |= self.estimate_tracker.answer_received(estimate, now)

    def cluster_removed(self, name: ClusterName) -> None:
        """Forget a cluster; what is booked there stays charged until its workloads say otherwise."""
        self.cluster_usage.remove(name)
        self.usage_tracker.end_orphans()
        self.queue_usage.clusters_changed()
        self._has_changed = True

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Take *workload* as it is at *now*, new or changed."""
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
        """Forget a workload and free what it held."""
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

    # -- what is asked --------------------------------------------------

    def prepare(self, steps: int) -> bool:
        """Judge waiting workloads on the clusters ahead of the next plan, about *steps* times; say whether all are.

        It decides nothing: a plan after any number of such calls equals the plan without them.
        """
        shapes = (lanes[0].requirements for lanes in self.pending.by_requirements.values())
        return not self._has_changed or self.queue_usage.feasibility_cache.prepare(shapes, steps)

    def plan(self, now: int, *, most: int | None = None) -> Plan:
        """Decide at *now*, book what is admitted, and return what changed.

        Nothing is looked at while there is no news and nothing has come due.
        After *most* admissions it is cut, and the next plan goes on.
        """
        return finish(self.plan_in_steps(now, most=most))

    def plan_in_steps(self, now: int, *, most: int | None = None) -> Steps[Plan]:
        """Make the same plan in parts, each of few steps; no event may be told before it is made."""
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
        # Who is evicted may want something else than he had, and who has grown may fit no longer: look again.
        is_settled = not any(self.resized or isinstance(decision, Evict) for decision in plan.decisions)
        self._has_changed = plan.is_cut or not is_settled
        self._wake_at = plan.wake_at
        return self._with_follow_up(plan, now)

    def _with_follow_up(self, plan: Plan, now: int) -> Plan:
        """Return *plan*, looked at again soon while somebody is still to be told."""
        if not self.pending_reasons.is_behind:
            return plan
        return replace(plan, wake_at=earliest((plan.wake_at, now + PAUSE_MS)))

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        """Return all queues that were told, by name."""
        return self.queue_usage.queues

    @property
    def current_usage(self) -> Mapping[QueueName, Resources]:
        """Return the charges by the queue that the workloads name, whether it exists or not."""
        return self.queue_usage.current_usage()

    @property
    def current_quota(self) -> Quota | None:
        """Return what is charged on the tree just now, ``None`` before the first plan."""
        settled = self.queue_usage.shares
        return self.queue_usage.current_quota() or (settled.quota if settled else None)

    @property
    def queue_shares(self) -> QueueShares | None:
        """Return how the queues stand, ``None`` before the first plan."""
        return self.queue_usage.shares

    def tree(self) -> Tree:
        """Return the tree of the queues as they are now."""
        return self.queue_usage.tree()

    def take_failures(self) -> list[Exception]:
        """Return the errors since it was last asked for which workloads wait as `InternalError`."""
        return self.queue_usage.feasibility_cache.pop_failures()

    def has_accepted(self, uid: WorkloadUid) -> bool:
        """Say whether a workload that was moved or has grown fits as it is now, so that its record is to say so."""
        return uid in self.accepted and uid not in self.not_fitting_since

    def refusal(self, uid: WorkloadUid) -> Refusal | None:
        """Return why a workload waits, ``None`` where it does not wait or was not judged yet."""
        workload = self.workloads.get(uid)
        if workload is None or workload.state is not WorkloadState.PENDING:
            return None
        own = self.on_hold.get(workload.queue, {}).get(uid)
        if own is not None:
            closed = self.tree().refusal(workload.queue)
            return own if closed is None else min(closed, own, key=precedence)
        lane = self.pending.class_of(uid)
        head = None if lane.inadmissible or not lane.is_waiting else self.blocking_head(workload.queue)
        if head is not None and head.uid != uid:
            return Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue=workload.queue, subject=head.path)
        return cycle.refusal(self, lane)

    def blocking_head(self, queue: QueueName) -> Workload | None:
        """Return the one whom all others in a fifo queue wait behind; ``None`` in other queues."""
        known = self.queues.get(queue)
        if known is None or not known.fifo:
            return None
        heads = [lane.head for lane in self.pending.queues.get(queue, ()) if lane.inadmissible is None]
        return min(heads, key=self._sort_key(queue, heads)) if heads else None

    def first_of(self, queue: QueueName, heads: Collection[Workload]) -> Workload | None:
        """Return the first of *heads* in the order of their queue (O2)."""
        return min(heads, key=self._sort_key(queue, heads)) if heads else None

    def queue_head(self, queue: QueueName) -> Workload | None:
        """Return the first of a queue for whom nothing is held; ``None`` where that one is still leaving."""
        lanes = [
            lane
            for lane in self.pending.queues.get(queue, ())
            if lane.inadmissible is None and lane.nominated_cluster is None
        ]
        heads = [lane.head for lane in lanes]
        first = min(heads, key=self._sort_key(queue, heads), default=None)
        return None if first is None or first.is_leaving else first

    def pending_workloads(self, queue: QueueName) -> list[Workload]:
        """Return everyone who waits in *queue*, held ones included, in order (O2) as of the last cycle."""
        held = [self.workloads[uid] for uid in self.on_hold.get(queue, ())]
        everyone = [*self.pending.in_order(queue), *held]
        if held or self._is_by_tenant(queue):
            everyone.sort(key=self._sort_key(queue, everyone))
        return everyone

    def position(self, workload: Workload) -> int:
        """Return the place of a waiting workload in its queue, counted from 1."""
        if self._is_by_tenant(workload.queue):
            return self.pending_workloads(workload.queue).index(workload) + 1
        own = order_key(workload)
        lanes = sum(lane.count_before(own) for lane in self.pending.queues.get(workload.queue, ()))
        held = sum(order_key(self.workloads[uid]) < own for uid in self.on_hold.get(workload.queue, ()))
        return 1 + lanes + held

    def _is_by_tenant(self, queue: QueueName) -> bool:
        known = self.queue_shares is not None and queue in self.queue_shares.fair_shares
        return known and self.policy.is_by_tenant

    def _sort_key(self, queue: QueueName, waiting: Iterable[Workload]) -> Callable[[Workload], tuple[object, ...]]:
        """Return the key of O2's order: priority and the namespace's share where that counts, then place."""
        if self.queue_shares is None or not self._is_by_tenant(queue):
            return order_key
        shares = {name: self.queue_shares.namespace_ratio(queue, name) for name in {each.namespace for each in waiting}}
        if self.policy.tenant_fairness == "NamespaceFirst":
            return lambda each: (shares[each.namespace], order_key(each))
        return lambda each: (-each.priority, shares[each.namespace], order_key(each))

    def queues_with_pending(self) -> Iterator[QueueName]:
        """Yield the queues in which somebody waits, by name."""
        yield from sorted({*self.pending.queues, *(name for name, held in self.on_hold.items() if held)})

    def next_expiry(self) -> int | None:
        """Return when the next hold ends, or ``None``; it may be early, never late."""
        return self._expirations[0][0] if self._expirations else None

    # -- what is done ---------------------------------------------------

    def admit(self, workload: Workload, admission: Admission, now: int) -> None:
        """Book an admission that was just decided."""
        done = replace(
            workload, state=WorkloadState.ADMITTED, admission=admission, hold=None, nomination=None, reservation=None
        )
        self.workload_changed(done, now)

    def evict(self, workload: Workload, now: int) -> None:
        """Take an eviction that was just decided for begun: it leaves, and waits again once it is gone."""
        past = workload.eviction_history.after_eviction(has_run=workload.has_run, taken_back=False)
        gone = replace(
            workload, state=WorkloadState.PENDING, has_run=False, nomination=None, reservation=None, **past._asdict()
        )
        self.workload_changed(gone, now)

    def evict_not_started(self, workload: Workload, back_off: StartupBackoff, now: int) -> None:
        """Take an eviction for begun that was just decided because it, or its group, does not start (R1)."""
        self.workload_changed(with_startup_backoff(workload, back_off), now)

    def nominate(self, workload: Workload, held: Nomination | None, now: int) -> None:
        """Hold quota and a cluster for *workload* from now on, or nothing any more."""
        self.workload_changed(replace(workload, nomination=held, reservation=None), now)

    def reserve(self, workload: Workload, reserved: Reservation | None, now: int) -> None:
        """Keep quota and room for *workload* from now on, or nothing any more."""
        self.workload_changed(replace(workload, reservation=reserved), now)

    def begin_trial(self, workload: Workload, choice: Choice) -> None:
        """Book an admission for a trial; ``end_trial`` leaves no trace of it."""
        self.cluster_usage.assume(choice.cluster_charges)
        if self.policy.node_estimates:
            self.estimate_tracker.deduct(workload, choice.cluster_charges)

    def end_trial(self, workload: Workload, choice: Choice) -> None:
        """End a trial."""
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
        # That it is leaving is seen from what it still holds.
        own = None if workload.is_leaving and _is_leaving(workload.hold) else workload.hold
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
        """Let those compete again whose hold has ended by *now*, and free charges that end by themselves."""
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
        """Know by name who is admitted, who of them has aborted since, who is held for, and what groups there are."""
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


def _is_leaving(hold: Refusal | None) -> bool:
    return hold is not None and hold.reason is Reason.PREEMPTION_IN_PROGRESS
