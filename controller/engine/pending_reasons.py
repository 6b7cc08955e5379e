"""Finds why workloads are pending, and tracks those whose reason changed since it was last published.

New workloads are published at once, unless they are thousands. Changed reasons
affect no decision and may be many, so a few are published at a time, and no
decision has to wait.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from typing import Final

from controller.engine.context import Context, SharedResults
from controller.engine.fairness.pending_order import FifoHeads
from controller.engine.fairness.shares import QueueShares
from controller.engine.lifecycle.gangs import GangPlacer
from controller.engine.plan import Wait
from controller.engine.reasons import Reason, Refusal, precedence
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.request_index import Slots, slots_in
from controller.engine.state.workloads import Choice, HyperJobGang, Workload, WorkloadState, WorkloadUid
from controller.engine.steps import Steps

#: How many new workloads are published at once; the reasons of 100,000 took two thirds of the time of the first plan.
_MAX_NEW: Final = 2_000
#: How many classes are recomputed, and how many workloads published, at a time.
_MAX_CLASSES: Final = 4
_MAX_WORKLOADS: Final = 20
#: The pause before the next ones, in milliseconds.
PAUSE_MS: Final = 20
#: How many such portions are published after a pause without an event, because no decision waits for them then.
IDLE_PORTIONS: Final = 12


class PendingReasons:
    """Why workloads are pending now."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._gang_refusals = SharedResults[HyperJobGang, Refusal | None]()
        self._heads = SharedResults[None, FifoHeads]()

    def begin_publication(self) -> None:
        """Discard what queries between the parts of the cycle have found, in states before its end."""
        self._gang_refusals, self._heads = SharedResults(), SharedResults()

    def of_workload(self, uid: WorkloadUid) -> Refusal | None:
        """Return why a workload is pending, ``None`` where it is not pending or not evaluated yet."""
        workload = self._context.workloads.by_uid.get(uid)
        if workload is None or workload.state is not WorkloadState.PENDING:
            return None
        own = self._context.workloads.on_hold.get(workload.queue, {}).get(uid)
        closed = self._context.queue_usage.tree().refusal(workload.queue)
        if own is not None:
            return own if closed is None else min(closed, own, key=precedence)
        shares = self._context.shares.current
        # Queues may have been added or removed since the last cycle.
        if closed is not None or (shares is not None and workload.queue not in shares.quota.tree.nodes):
            return closed
        workload_class = self._context.pending.class_of(uid)
        if workload_class.competes:
            head = self._context.order.blocking_head(workload.queue)
            if head is not None and head.uid != uid and not self.starts_with(head, workload.gang):
                return Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue=workload.queue, subject=head.path)
        return self.of_class(workload_class)

    def starts_with(self, head: Workload, gang: HyperJobGang | None) -> bool:
        """Return whether a part of *gang* is admitted only together with *head*, so that it does not wait behind it."""
        return head.gang == gang and self._context.workloads.gangs.is_all_or_nothing(gang)

    def of_class(self, workload_class: WorkloadClass) -> Refusal | None:
        """Return why the head of *workload_class* cannot be admitted now; ``None`` where it can."""
        context, shares = self._context, self._context.shares.current
        if workload_class.inadmissible is not None or shares is None:
            return workload_class.inadmissible
        if not workload_class.is_waiting:
            return Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=workload_class.key.nominated_cluster)
        if context.workloads.gangs.is_all_or_nothing(workload_class.gang):
            return self._gang_refusal(workload_class.gang, shares)
        exceeded = shares.quota.refusal(shares.quota.tree.nodes[workload_class.queue], workload_class.charge)
        if exceeded is None and (present := context.queue_usage.current_quota()) is not None:
            exceeded = present.refusal(present.tree.nodes[workload_class.queue], workload_class.charge)
        exceeded = exceeded or context.feasibility_cache.refusal(
            context.feasibility_cache.get(workload_class.requirements)
        )
        return exceeded or self._reservation_refusal(workload_class) or self._borrowing_refusal(shares, workload_class)

    def _gang_refusal(self, gang: HyperJobGang, shares: QueueShares) -> Refusal | None:
        """Return why a gang is not placed; found once for all classes of its parts."""
        at = self._context.changes, self._context.planned_at
        return self._gang_refusals.get(at, gang, lambda: self._find_gang_refusal(gang, shares))

    def _find_gang_refusal(self, gang: HyperJobGang, shares: QueueShares) -> Refusal | None:
        context, current = self._context, self._context.queue_usage.current_quota()
        quotas = [quota for quota in (shares.quota, current) if quota is not None]
        queues = {part.queue for part in context.workloads.pending_parts(gang)}
        if any(not queues <= quota.tree.nodes.keys() for quota in quotas):
            return None  # parts or queues were added or removed since the last cycle
        reservations, borrowing = context.active_reservations(), context.borrowing_policy()
        heads = self._heads.get((context.changes, context.planned_at), None, lambda: FifoHeads(context.order))
        placer = GangPlacer(heads, context.feasibility_cache, quotas, reservations, borrowing)
        return placer.place(gang).refusal

    def _reservation_refusal(self, workload_class: WorkloadClass) -> Refusal | None:
        """Return the reservation that sets aside the capacity that the head of *workload_class* would fit (O6)."""
        reserved = self._context.active_reservations()
        if reserved is None:
            return None
        feasible = self._context.feasibility_cache.get(workload_class.requirements)
        choice = self._context.feasibility_cache.choose(feasible)
        verdict = reserved.resolve(workload_class.head, feasible, choice) if isinstance(choice, Choice) else None
        return verdict if isinstance(verdict, Refusal) else None

    def _borrowing_refusal(self, shares: QueueShares, workload_class: WorkloadClass) -> Refusal | None:
        borrowing = self._context.borrowing_policy()
        return borrowing.refusal(shares.quota.tree.nodes[workload_class.queue], workload_class) if borrowing else None

    @property
    def depend_on_shares(self) -> bool:
        """Whether reasons depend on more than limits and clusters: on fair shares, or on evictions in progress."""
        return self._context.policy.reclaim.enabled or self._context.queue_usage.has_transitions

    def code_of_class(self, workload_class: WorkloadClass) -> Reason | None:
        """Return only the code of ``of_class``, which is cheaper where only limits and clusters decide."""
        context, shares = self._context, self._context.shares.current
        if (
            workload_class.inadmissible is not None
            or shares is None
            or self.depend_on_shares
            or workload_class.requirements.reserved_clusters
            or workload_class.requirements.amounts_reserved_by
            or context.workloads.gangs.is_all_or_nothing(workload_class.gang)
        ):
            why = self.of_class(workload_class)
            return why.reason if why else None
        leaf, index = shares.quota.tree.nodes[workload_class.queue], context.fitting_index
        if not index.contains(index.within_limits(shares.quota, leaf), workload_class.requirements):
            exceeded = shares.quota.refusal(leaf, workload_class.charge)
            if exceeded is not None:
                return exceeded.reason
        if not index.fits(workload_class.requirements):
            return Reason.INSUFFICIENT_CAPACITY
        reserved = context.active_reservations()
        return Reason.BLOCKED_BY_RESERVATION if reserved is not None and reserved.blocks(workload_class) else None

    def changed_near_reservations(self) -> list[WorkloadClass]:
        """Return the classes that would fit without reservations, except those that these block as before."""
        context, shares, reserved = self._context, self._context.shares.current, self._context.active_reservations()
        if shares is None or reserved is None:
            return []
        index, quota, blocked = context.fitting_index, shares.quota, dict[QueueName, Slots]()
        depend_on_shares, changed = self.depend_on_shares, list[WorkloadClass]()
        for slot in slots_in(index.passing_all_filters()):
            for workload_class in context.pending.by_requirements[index.key(slot)]:
                # The queue of an inadmissible class may be missing.
                if workload_class.last_reason is Reason.BLOCKED_BY_RESERVATION and workload_class.inadmissible is None:
                    queue = workload_class.queue
                    if queue not in blocked:
                        within = 0 if depend_on_shares else index.within_limits(quota, quota.tree.nodes[queue])
                        blocked[queue] = within and within & reserved.blocked_in(queue)
                    is_blocked = (
                        blocked[queue] >> slot & 1
                        and workload_class.competes_alone
                        and not reserved.may_backfill(workload_class)
                    )
                    if is_blocked or self.code_of_class(workload_class) is Reason.BLOCKED_BY_RESERVATION:
                        continue
                changed.append(workload_class)
        return changed


class PendingReasonUpdater:
    """Recomputes reasons of pending workloads and returns those that changed."""

    def __init__(self, context: Context, reasons: PendingReasons) -> None:
        self.is_enabled = True
        """``False`` for a forecast, which needs no reasons: none is computed."""
        self.unpublished: set[WorkloadUid] = set()
        """Workloads on hold whose reason is not published yet."""
        self._context = context
        self._reasons = reasons
        self._own: dict[WorkloadUid, Reason | None] = {}
        """The reason published last for workloads without a class, or whose class has another; ``None`` for none."""
        self._stale: dict[int, dict[WorkloadClass, None]] = {}
        """Classes to recompute, by the requirements' id: results for requirements are shared by their classes."""
        self._heads: dict[QueueName, WorkloadUid] = {}
        """The head of each fifo queue when it was last computed; its reason differs from the others'."""
        self._blocking_heads: dict[QueueName, Workload | None] = {}
        """The same as workloads, of the queues that the present ``flush`` has visited; no state changes during it."""
        self._changed: dict[QueueName, dict[WorkloadUid, Refusal]] = {}

    @property
    def is_behind(self) -> bool:
        """Return whether some classes still have to be recomputed."""
        return bool(self._stale)

    def last_reasons(self) -> dict[WorkloadUid, Reason]:
        """Return the reason published last for each pending workload."""
        pending, reasons = self._context.pending, dict[WorkloadUid, Reason | None]()
        for workload_class in pending.classes():
            reasons |= dict.fromkeys((workload.uid for workload in workload_class), workload_class.last_reason)
        reasons |= dict.fromkeys(chain.from_iterable(pending.unpublished.values())) | self._own
        return {uid: reason for uid, reason in reasons.items() if reason is not None}

    def remember(self, uid: WorkloadUid) -> None:
        """Remember the reason of a workload that leaves its class, and may be pending in another one."""
        self._own[uid] = self._last_reason(uid)

    def forget(self, workload: Workload) -> None:
        """Forget the reason of *workload*, as it was before it was no longer pending."""
        self._own.pop(workload.uid, None)
        if self._heads.get(workload.queue) == workload.uid:
            del self._heads[workload.queue]

    def _last_reason(self, uid: WorkloadUid) -> Reason | None:
        pending = self._context.pending
        if uid in self._own or uid not in pending:
            return self._own.get(uid)
        workload_class = pending.class_of(uid)
        return None if uid in pending.unpublished.get(workload_class, ()) else workload_class.last_reason

    def mark_stale(self, classes: Iterable[WorkloadClass]) -> None:
        """Recompute the reasons of *classes* later."""
        for workload_class in classes:
            self._stale.setdefault(id(workload_class.requirements), {})[workload_class] = None

    def mark_requirements_stale(self, key: int) -> None:
        """Recompute the reasons of all classes with the requirements *key*, which may be thousands, later."""
        self._stale.setdefault(key, {}).update(self._context.pending.by_requirements[key])

    def flush(self, *, portions: int = 1) -> Steps[tuple[Wait, ...]]:
        """Return the changed reasons to publish now, by queue and position: new ones, and *portions* of the others."""
        self._changed = {}
        self._blocking_heads.clear()
        if not self.is_enabled:
            self._context.pending.unpublished.clear()
            self.unpublished.clear()
            self._stale.clear()
            return ()
        left, unpublished = _MAX_NEW, self._context.pending.unpublished
        for workload_class, uids in [*unpublished.items()]:
            del unpublished[workload_class]
            if left <= 0 and workload_class.last_reason is None:
                self.mark_stale([workload_class])
                continue
            self._publish_new(workload_class, uids)
            left -= len(uids)
            yield 1 + len(uids)
        for uid in self.unpublished:
            self._publish_one(uid)
            yield 1
        self.unpublished.clear()
        for _ in range(portions):
            self._recompute_stale()
        changed, self._changed = self._changed, {}
        return tuple(wait for name in sorted(changed) for wait in self._with_positions(name, changed[name]))

    def _publish_new(self, workload_class: WorkloadClass, uids: Collection[WorkloadUid]) -> None:
        """Publish the reason of new workloads of a class; mark the class stale if the others' reason differs."""
        for uid in uids:
            self._own.setdefault(uid, None)
        if self._is_behind_head(workload_class):
            self._recompute_head(workload_class.queue)
        refusal, first = self._class_refusal(workload_class), self._head(workload_class)
        self._publish(workload_class.queue, [uid for uid in uids if uid != first], refusal)
        if len(uids) == len(workload_class.workloads):
            workload_class.last_reason = refusal.reason if refusal else None
        elif refusal is None or refusal.reason is not workload_class.last_reason:
            self.mark_stale([workload_class])
        for uid in uids:
            if self._own[uid] is workload_class.last_reason:
                del self._own[uid]

    def _recompute_stale(self) -> None:
        """Recompute some of the stale classes."""
        left = _MAX_WORKLOADS
        for workload_class in list(islice(chain.from_iterable(self._stale.values()), _MAX_CLASSES)):
            left -= self._recompute(workload_class, left) if workload_class.workloads else 0
            if left <= 0:
                return
            classes = self._stale[id(workload_class.requirements)]
            del classes[workload_class]
            if not classes:
                del self._stale[id(workload_class.requirements)]

    def _recompute(self, workload_class: WorkloadClass, most: int) -> int:
        """Publish up to *most* changed reasons of a class; return how many were published."""
        if self._is_behind_head(workload_class):
            self._recompute_head(workload_class.queue)
        elif self._reasons.code_of_class(workload_class) is workload_class.last_reason:
            return 0
        refusal = self._class_refusal(workload_class)
        if refusal is None or refusal.reason is workload_class.last_reason:
            return 0
        first = self._head(workload_class)
        others = (workload.uid for workload in workload_class if workload.uid != first)
        published = self._publish(workload_class.queue, others, refusal, last=workload_class.last_reason, most=most)
        if published < most:
            self._set_class_reason(workload_class, refusal.reason)
        return published

    def _set_class_reason(self, workload_class: WorkloadClass, reason: Reason) -> None:
        """Note that *reason* is published for a class; a head of a fifo queue keeps its own."""
        before, workload_class.last_reason = workload_class.last_reason, reason
        for workload in workload_class:
            if self._own.setdefault(workload.uid, before) is reason:
                del self._own[workload.uid]

    def _recompute_head(self, queue: QueueName) -> None:
        """Publish the reasons of a fifo queue's head and of its previous head."""
        if queue in self._blocking_heads:
            return
        head, before = self._context.order.blocking_head(queue), self._heads.pop(queue, None)
        self._blocking_heads[queue] = head
        if before is not None and before in self._context.pending and (head is None or head.uid != before):
            self._publish_one(before)
        if head is not None:
            self._heads[queue] = head.uid
            self._publish_one(head.uid)

    def _publish_one(self, uid: WorkloadUid) -> None:
        """Publish the reason of a pending workload if it has changed."""
        queue, refusal = self._context.workloads[uid].queue, self._reasons.of_workload(uid)
        self._publish(queue, [uid], refusal, last=self._last_reason(uid))

    def _head(self, workload_class: WorkloadClass) -> WorkloadUid | None:
        return self._heads.get(workload_class.queue) if self._is_behind_head(workload_class) else None

    def _is_behind_head(self, workload_class: WorkloadClass) -> bool:
        """Return whether the workloads of a class wait behind the head of their fifo queue."""
        known = self._context.queue_usage.queues.get(workload_class.queue)
        return known is not None and known.fifo and workload_class.competes

    def _class_refusal(self, workload_class: WorkloadClass) -> Refusal | None:
        """Return why the workloads of a class are pending, except the head of a fifo queue."""
        head = self._blocking_heads[workload_class.queue] if self._is_behind_head(workload_class) else None
        if head is None or self._reasons.starts_with(head, workload_class.gang):
            return self._reasons.of_class(workload_class)
        return Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue=workload_class.queue, subject=head.path)

    def _publish(
        self,
        queue: QueueName,
        uids: Iterable[WorkloadUid],
        refusal: Refusal | None,
        *,
        last: Reason | None = None,
        most: int | None = None,
    ) -> int:
        """Publish *refusal* for those of *uids* whose reason it changes, *most* at once; return their number.

        *last* was published for those without a reason of their own.
        """
        if refusal is None:
            return 0
        own, reason = self._own, refusal.reason
        changed = list(islice((uid for uid in uids if own.get(uid, last) is not reason), most))
        if changed:
            own.update(dict.fromkeys(changed, reason))
            self._changed.setdefault(queue, {}).update(dict.fromkeys(changed, refusal))
        return len(changed)

    def _with_positions(self, queue: QueueName, changed: Mapping[WorkloadUid, Refusal]) -> list[Wait]:
        positions = self._context.order.positions(queue, changed)
        return [Wait(workload, changed[workload.uid], position) for position, workload in positions]
