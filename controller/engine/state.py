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
        self.ledger = ClusterUsage()
        self.workloads: dict[WorkloadUid, Workload] = {}
        self.backlog = PendingWorkloads()
        self.backlog.is_by_tenant = self.policy.is_by_tenant
        self.lending: BorrowingPolicy | None = None
        """Who may borrow as things stand; ``None`` until somebody asks."""
        self.active_reservations: ActiveReservations | None = None
        """What reservations keep from others; ``None`` until somebody asks."""
        self.held: dict[QueueName, dict[WorkloadUid, Refusal]] = {}
        """Who waits for reasons of his own, by queue."""
        self.books = QueueUsage(self.ledger, self.backlog)
        self.accounts = UsageTracker(self.ledger, self.books)
        self.estimate_tracker = EstimateTracker(self.ledger)
        self.estimate_tracker.set_enabled((), on=self.policy.node_estimates)
        self.gangs = HyperJobGangs()
        self.admitted: dict[QueueName, dict[WorkloadUid, Workload]] = {}
        """Who is admitted, by queue."""
        self.holders: dict[WorkloadUid, Workload] = {}
        """Those for whom others leave (P5)."""
        self.reserved: dict[WorkloadUid, Workload] = {}
        """Those for whom room is kept (O6)."""
        self.planned_at = 0
        """When the last cycle began, in milliseconds."""
        self.admitted_so_far: frozenset[WorkloadUid] = frozenset()
        """Workloads admitted by plans that were cut, which the next plan continues; empty after a whole one."""
        self.starvation_timers = StarvationTimers()
        self.startup = StartupTracker()
        """Who is admitted and does not run yet (R1)."""
        self.grown: set[WorkloadUid] = set()
        """Who is admitted and asks for more than he was let in with, or runs on after he had finished (D7)."""
        self.outgrown: dict[WorkloadUid, int] = {}
        """Since when that of them does not fit, in milliseconds."""
        self.overrun: dict[WorkloadUid, tuple[int, int]] = {}
        """For how long workloads held more than fitted until they shrank, and when they did (D7)."""
        self.moved: set[WorkloadUid] = set()
        """The admitted workloads whose clusters others have changed since their records were written (R1)."""
        self.accepted: set[WorkloadUid] = set()
        """Those that have moved or grown, and fit as they are now: their records are to say so."""
        self.told: dict[WorkloadUid, Reason] = {}
        """The reason that each waiting workload was last given."""
        self.untold: set[WorkloadUid] = set()
        """Who is held and has not been told."""
        self.telling = PendingReasonUpdater(self)
        self.aborted: set[WorkloadUid] = set()
        """Who is admitted, was aborted in his clusters, and is to be evicted (D8)."""
        self._is_news = True
        """Whether anything was told since the last plan that a decision could depend on."""
        self._wake_at: int | None = None
        self._releases: list[tuple[int, WorkloadUid]] = []

    # -- what is told ---------------------------------------------------

    def policy_changed(self, policy: Policy) -> None:
        """Use *policy* from the next plan on."""
        if policy.startup_timeout_ms != self.policy.startup_timeout_ms:
            self.startup.reschedule_all(self.workloads.values(), policy.startup_timeout_ms)
        self.gangs.mark_all_changed()
        if policy.node_estimates != self.policy.node_estimates:
            self.estimate_tracker.set_enabled(self.workloads.values(), on=policy.node_estimates)
            self.books.forget_clusters()
        self.policy = policy
        if self.ledger.describe(policy.described):
            self.books.forget_clusters()
        self._is_news = True
        waiting = [each for each in self.workloads.values() if each.state is WorkloadState.PENDING]
        for workload in waiting:
            self._leave(workload)
        self.backlog.is_by_tenant = policy.is_by_tenant
        for workload in waiting:
            self._wait(workload)

    def queue_changed(self, queue: Queue) -> None:
        """Take *queue* as it is now, new or changed."""
        if self.queues.get(queue.name) != queue:
            self.books.put(queue)
            self._tree_changed()

    def queue_removed(self, name: QueueName) -> None:
        """Forget a queue; what it has admitted stays charged at the root."""
        if name in self.queues:
            self.books.drop(name)
            self._tree_changed()

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        """Take *cluster* as it is at *now*, new or changed."""
        cluster = self.policy.described(cluster)
        site = self.ledger.site(cluster.name)
        before, foreign = site.cluster, site.foreign
        self.ledger.see(cluster, now, self.policy.settle_ms)
        self.accounts.release_orphans()
        if before is None or replace(before, used=cluster.used, grades=cluster.grades) != cluster:
            self.books.forget_clusters()
            self._is_news = True
        elif site.foreign != foreign or before.grades != cluster.grades:
            self._is_news = True
        if before != cluster:
            self._is_news |= self.estimate_tracker.invalidate(cluster.name, now)

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        """Take the answer of a cluster's estimator to a query of a plan; one that comes too late means nothing."""
        self._is_news |= self.estimate_tracker.answer_received(estimate, now)

    def cluster_removed(self, name: ClusterName) -> None:
        """Forget a cluster; what is booked there stays charged until its workloads say otherwise."""
        self.ledger.lose(name)
        self.accounts.release_orphans()
        self.books.forget_clusters()
        self._is_news = True

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Take *workload* as it is at *now*, new or changed."""
        before = self.workloads.get(workload.uid)
        workload = with_move(before, with_resize(before, workload), now)
        if before == workload:
            return
        if before is None or before.state is not WorkloadState.ADMITTED or not is_noop_update(before, workload):
            self._is_news = True
        if before is not None and before.state is WorkloadState.PENDING:
            self._leave(before)
        self._is_news |= self.accounts.change(before, workload, now)
        self.workloads[workload.uid] = workload
        self._estimate(before, workload, now)
        self._index(before, workload)
        if workload.state is WorkloadState.PENDING:
            self._wait(workload)
        else:
            self.told.pop(workload.uid, None)

    def workload_removed(self, uid: WorkloadUid, now: int) -> None:
        """Forget a workload and free what it held."""
        before = self.workloads.pop(uid, None)
        if before is None:
            return
        self._is_news = True
        if before.state is WorkloadState.PENDING:
            self._leave(before)
        self.accounts.end(before, None, now)
        self._estimate(before, None, now)
        self._index(before, None)
        self.told.pop(uid, None)

    # -- what is asked --------------------------------------------------

    def prepare(self, steps: int) -> bool:
        """Judge waiting workloads on the clusters ahead of the next plan, about *steps* times; say whether all are.

        It decides nothing: a plan after any number of such calls equals the plan without them.
        """
        shapes = (lanes[0].shape for lanes in self.backlog.shapes.values())
        return not self._is_news or self.books.feasibility_cache.prepare(shapes, steps)

    def plan(self, now: int, *, most: int | None = None) -> Plan:
        """Decide at *now*, book what is admitted, and return what changed.

        Nothing is looked at while there is no news and nothing has come due.
        After *most* admissions it is cut, and the next plan goes on.
        """
        return finish(self.plan_in_steps(now, most=most))

    def plan_in_steps(self, now: int, *, most: int | None = None) -> Steps[Plan]:
        """Make the same plan in parts, each of few steps; no event may be told before it is made."""
        counted = self.books.feasibility_cache.total_steps
        work = self._plan(now, most)
        while True:
            try:
                part = next(work)
            except StopIteration as ended:
                plan: Plan = ended.value
                return plan
            before, counted = counted, self.books.feasibility_cache.total_steps
            yield part + counted - before

    def _plan(self, now: int, most: int | None) -> Steps[Plan]:
        is_due = self._wake_at is not None and self._wake_at <= now
        if not self._is_news and not is_due:
            waits = (yield from self.telling.news()) if self.telling.is_behind else ()
            return self._going_on(Plan(waits=waits, wake_at=self._wake_at), now)
        self._release(now)
        plan = yield from cycle.steps(self, now, most=most)
        # Who is evicted may want something else than he had, and who has grown may fit no longer: look again.
        is_settled = not any(self.grown or isinstance(decision, Evict) for decision in plan.decisions)
        self._is_news = plan.is_cut or not is_settled
        self._wake_at = plan.wake_at
        return self._going_on(plan, now)

    def _going_on(self, plan: Plan, now: int) -> Plan:
        """Return *plan*, looked at again soon while somebody is still to be told."""
        if not self.telling.is_behind:
            return plan
        return replace(plan, wake_at=earliest((plan.wake_at, now + PAUSE_MS)))

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        """Return all queues that were told, by name."""
        return self.books.queues

    @property
    def charged(self) -> Mapping[QueueName, Resources]:
        """Return the charges by the queue that the workloads name, whether it exists or not."""
        return self.books.charged()

    @property
    def present(self) -> Quota | None:
        """Return what is charged on the tree just now, ``None`` before the first plan."""
        settled = self.books.standing
        return self.books.present() or (settled.quota if settled else None)

    @property
    def standing(self) -> QueueShares | None:
        """Return how the queues stand, ``None`` before the first plan."""
        return self.books.standing

    def tree(self) -> Tree:
        """Return the tree of the queues as they are now."""
        return self.books.tree()

    def failures(self) -> list[Exception]:
        """Return the errors since it was last asked for which workloads wait as `InternalError`."""
        return self.books.feasibility_cache.pop_failures()

    def has_accepted(self, uid: WorkloadUid) -> bool:
        """Say whether a workload that was moved or has grown fits as it is now, so that its record is to say so."""
        return uid in self.accepted and uid not in self.outgrown

    def refusal(self, uid: WorkloadUid) -> Refusal | None:
        """Return why a workload waits, ``None`` where it does not wait or was not judged yet."""
        workload = self.workloads.get(uid)
        if workload is None or workload.state is not WorkloadState.PENDING:
            return None
        own = self.held.get(workload.queue, {}).get(uid)
        if own is not None:
            closed = self.tree().refusal(workload.queue)
            return own if closed is None else min(closed, own, key=precedence)
        lane = self.backlog.lane(uid)
        head = None if lane.hopeless or not lane.is_waiting else self.blocking(workload.queue)
        if head is not None and head.uid != uid:
            return Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue=workload.queue, subject=head.path)
        return cycle.refusal(self, lane)

    def blocking(self, queue: QueueName) -> Workload | None:
        """Return the one whom all others in a fifo queue wait behind; ``None`` in other queues."""
        known = self.queues.get(queue)
        if known is None or not known.fifo:
            return None
        heads = [lane.head for lane in self.backlog.queues.get(queue, ()) if lane.hopeless is None]
        return min(heads, key=self._order(queue, heads)) if heads else None

    def first(self, queue: QueueName, heads: Collection[Workload]) -> Workload | None:
        """Return the first of *heads* in the order of their queue (O2)."""
        return min(heads, key=self._order(queue, heads)) if heads else None

    def heading(self, queue: QueueName) -> Workload | None:
        """Return the first of a queue for whom nothing is held; ``None`` where that one is still leaving."""
        lanes = [lane for lane in self.backlog.queues.get(queue, ()) if lane.hopeless is None and lane.held is None]
        heads = [lane.head for lane in lanes]
        first = min(heads, key=self._order(queue, heads), default=None)
        return None if first is None or first.is_leaving else first

    def waiting(self, queue: QueueName) -> list[Workload]:
        """Return everyone who waits in *queue*, held ones included, in order (O2) as of the last cycle."""
        held = [self.workloads[uid] for uid in self.held.get(queue, ())]
        everyone = [*self.backlog.in_order(queue), *held]
        if held or self._is_by_tenant(queue):
            everyone.sort(key=self._order(queue, everyone))
        return everyone

    def position(self, workload: Workload) -> int:
        """Return the place of a waiting workload in its queue, counted from 1."""
        if self._is_by_tenant(workload.queue):
            return self.waiting(workload.queue).index(workload) + 1
        own = order_key(workload)
        lanes = sum(lane.before(own) for lane in self.backlog.queues.get(workload.queue, ()))
        held = sum(order_key(self.workloads[uid]) < own for uid in self.held.get(workload.queue, ()))
        return 1 + lanes + held

    def _is_by_tenant(self, queue: QueueName) -> bool:
        known = self.standing is not None and queue in self.standing.entitlements
        return known and self.policy.is_by_tenant

    def _order(self, queue: QueueName, waiting: Iterable[Workload]) -> Callable[[Workload], tuple[object, ...]]:
        """Return the key of O2's order: priority and the namespace's share where that counts, then place."""
        if self.standing is None or not self._is_by_tenant(queue):
            return order_key
        shares = {name: self.standing.tenant_share(queue, name) for name in {each.namespace for each in waiting}}
        if self.policy.tenant_fairness == "NamespaceFirst":
            return lambda each: (shares[each.namespace], order_key(each))
        return lambda each: (-each.priority, shares[each.namespace], order_key(each))

    def waiting_queues(self) -> Iterator[QueueName]:
        """Yield the queues in which somebody waits, by name."""
        yield from sorted({*self.backlog.queues, *(name for name, held in self.held.items() if held)})

    def release_at(self) -> int | None:
        """Return when the next hold ends, or ``None``; it may be early, never late."""
        return self._releases[0][0] if self._releases else None

    # -- what is done ---------------------------------------------------

    def admit(self, workload: Workload, admission: Admission, now: int) -> None:
        """Book an admission that was just decided."""
        done = replace(workload, state=WorkloadState.ADMITTED, admission=admission, hold=None, held=None, reserved=None)
        self.workload_changed(done, now)

    def evict(self, workload: Workload, now: int) -> None:
        """Take an eviction that was just decided for begun: it leaves, and waits again once it is gone."""
        past = workload.past.once_gone(has_run=workload.has_run, taken_back=False)
        gone = replace(workload, state=WorkloadState.PENDING, has_run=False, held=None, reserved=None, **past._asdict())
        self.workload_changed(gone, now)

    def take_back(self, workload: Workload, back_off: StartupBackoff, now: int) -> None:
        """Take an eviction for begun that was just decided because it, or its group, does not start (R1)."""
        self.workload_changed(with_startup_backoff(workload, back_off), now)

    def hold(self, workload: Workload, held: Nomination | None, now: int) -> None:
        """Hold quota and a cluster for *workload* from now on, or nothing any more."""
        self.workload_changed(replace(workload, held=held, reserved=None), now)

    def reserve(self, workload: Workload, reserved: Reservation | None, now: int) -> None:
        """Keep quota and room for *workload* from now on, or nothing any more."""
        self.workload_changed(replace(workload, reserved=reserved), now)

    def begin_trial(self, workload: Workload, choice: Choice) -> None:
        """Book an admission for a trial; ``end_trial`` leaves no trace of it."""
        self.ledger.lend(choice.bookings)
        if self.policy.node_estimates:
            self.estimate_tracker.deduct(workload, choice.bookings)

    def end_trial(self, workload: Workload, choice: Choice) -> None:
        """End a trial."""
        self.ledger.take_back(choice.bookings)
        if self.policy.node_estimates:
            self.estimate_tracker.deduct(workload, choice.bookings, -1)

    def _estimate(self, before: Workload | None, workload: Workload | None, now: int) -> None:
        if self.policy.node_estimates:
            self._is_news |= self.estimate_tracker.workload_changed(before, workload, now)

    def _tree_changed(self) -> None:
        self._is_news = True
        for held in self.held.values():
            self.untold.update(held)

    def _wait(self, workload: Workload) -> None:
        if workload.admission is not None and workload.admission.ends_at is not None:
            heappush(self._releases, (workload.admission.ends_at, workload.uid))
        forbidden = self.policy.refusal(
            workload.namespace, workload.queue, workload.priority_class, *workload.task_classes
        )
        # That it is leaving is seen from what it still holds.
        own = None if workload.is_leaving and _is_leaving(workload.hold) else workload.hold
        refusal = min(filter(None, (own, forbidden)), key=precedence, default=None)
        if refusal is None:
            can_lend = self.policy.lends(workload.evictions, preserved=workload.preserved)
            self.backlog.add(workload, immovable=not can_lend)
            return
        self.held.setdefault(workload.queue, {})[workload.uid] = refusal
        self.untold.add(workload.uid)
        if refusal.until is not None:
            heappush(self._releases, (refusal.until, workload.uid))

    def _release(self, now: int) -> None:
        """Let those compete again whose hold has ended by *now*, and free charges that end by themselves."""
        while self._releases and self._releases[0][0] <= now:
            _, uid = heappop(self._releases)
            workload = self.workloads.get(uid)
            if workload is not None and workload.has_left(now):
                workload = replace(workload, admission=None)
                self.workload_changed(workload, now)
            if workload is None or uid not in self.held.get(workload.queue, {}):
                continue
            until = self.held[workload.queue][uid].until
            if until is not None and until <= now:
                self._leave(workload)
                self.workloads[uid] = replace(workload, hold=None)
                self.gangs.update(workload, self.workloads[uid])
                self._wait(self.workloads[uid])

    def _leave(self, workload: Workload) -> None:
        if workload.uid in self.backlog:
            self.backlog.remove(workload)
            return
        self.untold.discard(workload.uid)
        held = self.held[workload.queue]
        del held[workload.uid]
        if not held:
            del self.held[workload.queue]

    def _index(self, before: Workload | None, workload: Workload | None) -> None:
        """Know by name who is admitted, who of them has aborted since, who is held for, and what groups there are."""
        self.lending = self.active_reservations = None
        self.gangs.update(before, workload)
        if before is not None:
            self.holders.pop(before.uid, None)
            self.reserved.pop(before.uid, None)
            self.aborted.discard(before.uid)
            self.grown.discard(before.uid)
            self.moved.discard(before.uid)
            self.admitted.get(before.queue, {}).pop(before.uid, None)
        if workload is None:
            uid = before.uid if before else WorkloadUid("")
            self.outgrown.pop(uid, None)
            self.overrun.pop(uid, None)
            self.accepted.discard(uid)
            self.startup.forget(uid)
            return
        if before is None or workload.state is not WorkloadState.ADMITTED or not has_same_charges(before, workload):
            self.accepted.discard(workload.uid)
        self.startup.track(workload, self.policy.startup_timeout_ms)
        if workload.state is WorkloadState.ADMITTED:
            self.admitted.setdefault(workload.queue, {})[workload.uid] = workload
        if workload.is_held_for:
            self.holders[workload.uid] = workload
        if workload.is_reserved_for:
            self.reserved[workload.uid] = workload
        marks = (
            (workload.has_aborted, self.aborted),
            (workload.has_moved, self.moved),
            (workload.has_grown, self.grown),
        )
        for is_marked, marked in marks:
            if is_marked:
                marked.add(workload.uid)
        if workload.state is WorkloadState.PENDING:
            self.outgrown.pop(workload.uid, None)
            self.overrun.pop(workload.uid, None)


def _is_leaving(hold: Refusal | None) -> bool:
    return hold is not None and hold.reason is Reason.PREEMPTION_IN_PROGRESS
