"""Tries queue heads one after the other and admits those that fit (O1-O5).

Only classes for which something was freed are tried. The order of heads comes
from ``ordering`` and ``tournament``.
"""

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from controller.engine.context import Context, SharedResults
from controller.engine.fairness.ordering import HeadIterator
from controller.engine.fairness.pending_order import FifoHeads
from controller.engine.fairness.shares import QueueShares
from controller.engine.fairness.tournament import FittingTournament, Head, LeafIterator, SchedulableClass
from controller.engine.lifecycle.gangs import GangPlacer, GangTrial
from controller.engine.plan import Admit, Assume, Decision
from controller.engine.reasons import Refusal
from controller.engine.reservations.active import ActiveReservations
from controller.engine.reservations.nominations import Nominations, set_aside
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.pending import QueueingHint, SlotsByQueue, WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.request_index import Slots, slots_in
from controller.engine.state.resources import Resources, nonzero, subtract
from controller.engine.state.workloads import (
    Admission,
    Choice,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadUid,
)
from controller.engine.steps import Steps, finish

if TYPE_CHECKING:
    from controller.engine.fairness.borrowing import BorrowingPolicy


class AdmissionPass:
    """Decisions of one cycle, and the classes that it refused."""

    def __init__(
        self, context: Context, shares: QueueShares, now: int, assume: Assume, *, most: int | None = None
    ) -> None:
        self.context = context
        self.assume = assume
        self.shares = shares
        self.now = now
        self.decisions: list[Decision] = []
        self.refused: list[WorkloadClass] = []
        self.admitted: set[WorkloadUid] = {*context.admitted_so_far}
        """Workloads admitted by this cycle and by the cut ones that it continues; they are no victims in it (O3)."""
        self.preemption_candidates = context.new_candidates(shares)
        """The preemption candidates of every queue."""
        self.borrowing: BorrowingPolicy | None = None
        """The borrowing rules, while reclaim is on."""
        self.may_retry = False
        """Whether a workload was admitted after the borrowing rules refused another one, which they may allow now."""
        self._refused_borrowing = False
        self._has_relaxed_reservations = False
        """Whether an admission has made reservations bind fewer workloads, since they were tried again."""
        self._opened_slots: tuple[Slots, AbstractSet[int]] = 0, frozenset()
        """The slots with which a leaf was opened last, as bits and as a set."""
        self._most = most
        self._gang_trials = SharedResults[HyperJobGang, GangTrial]()
        self._heads = SharedResults[None, FifoHeads]()
        self.renew_borrowing_policy()

    def renew_borrowing_policy(self) -> None:
        """Apply the borrowing rules to the present fair shares."""
        self.borrowing = self.context.new_borrowing_policy(self.shares, self.preemption_candidates, self.now)

    @property
    def is_at_limit(self) -> bool:
        """Return whether the cycle has made as many decisions as it may; the next cycle continues."""
        return self._most is not None and len(self.decisions) >= self._most

    @property
    def quota(self) -> Quota:
        """Return the quota with settled usage."""
        return self.shares.quota

    def admit_nominated(self, nominations: Nominations) -> None:
        """Admit nominated workloads that fit now; retain free capacity for older ones that do not fit yet (P5)."""
        units = nominations.units()
        retained, younger = dict[ClusterName, Resources](), dict[ClusterName, Resources]()
        for parts in units:
            set_aside(younger, parts)
        for parts in units:
            for _, nomination in parts:
                younger[nomination.cluster] = nonzero(subtract(younger[nomination.cluster], nomination.requests))
            choices = nominations.choose_all(parts, retained, younger, self.quota, self.now)
            workloads = [part for part, _ in parts]
            if choices is None or not self.are_estimates_settled(list(zip(workloads, choices, strict=True))):
                set_aside(retained, parts)
                continue
            gang = workloads[0].gang if len(parts) > 1 else None
            self._admit_together(list(zip(workloads, choices, strict=True)), gang)

    def run(self) -> Steps[None]:
        """Admit or skip one head after the other (O1-O5)."""
        if self.context.policy.queue_order == "FairShareFirst":
            yield from self._run_fair_share_first()
            return
        while (yield from self._run_priority_first()):
            pass

    def _run_priority_first(self) -> Steps[bool]:
        """Run until no head can be admitted; return early with ``True`` where all must be tried again (O1)."""
        fitting = yield from self._select_fitting(None)
        cut, self.context.cut_tournament = self.context.cut_tournament, None
        for pending in self.context.pending.in_tree(self.context.queue_usage.tree()).by_priority():
            tournament = self._resumed_tournament(cut, pending, fitting) or self._tournament(pending)
            while fitting and not self.is_at_limit and (head := tournament.next(fitting)) is not None:
                count = self.try_admit(head)
                if not count:
                    self.refused.append(head.workload_class)
                    tournament.on_skipped(head)
                    yield 1
                    continue
                if self.must_retry(head) or (count > 1 and self._has_parts_in_other_fifo_queues(head)):
                    return True
                fitting = yield from self._select_fitting(fitting)
                if count == 1:
                    tournament.on_admitted(head)
                else:
                    # The other parts of its gang were removed from their classes, too.
                    tournament = self._tournament(pending)
            if self.is_at_limit:
                self.context.cut_tournament = tournament, self.context.changes
                break
        return False

    def _select_fitting(self, among: Slots | None) -> Steps[Slots]:
        """Return the pending requirements, of those *among*, that fit the root's limit and some cluster."""
        index, reserved = self.context.fitting_index, self.context.active_reservations()
        yield from index.update()
        yield 1
        slots = index.feasible(self.quota)
        if among is not None:
            slots &= among
        if reserved is not None:
            slots = reserved.may_use_capacity(slots)
        if reserved is None or self.quota.guaranteed or self.context.policy.is_by_tenant:
            return slots
        return self._not_blocked(reserved, slots)

    def _not_blocked(self, reserved: ActiveReservations, slots: Slots) -> Slots:
        """Return the requirements of *slots*, except those of which all classes may be skipped for a reservation."""
        index, skipped, not_blocked = self.context.fitting_index, dict[QueueName, Slots](), 0
        for slot in slots_in(slots):
            for workload_class in self.context.pending.by_requirements[index.key(slot)]:
                queue = workload_class.queue
                if workload_class.inadmissible is None and workload_class.competes_alone:
                    if queue not in skipped:
                        skipped[queue] = self._skipped_slots(reserved, queue)
                    if skipped[queue] >> slot & 1 and not reserved.may_backfill(workload_class):
                        continue
                not_blocked |= 1 << slot
                break
        return not_blocked

    def _skipped_slots(self, reserved: ActiveReservations, queue: QueueName) -> Slots:
        """Return the requirements that are blocked in *queue*, and rank it as any other head would (O1)."""
        leaf = self.quota.tree.nodes[queue]
        if leaf.queue.fifo:
            return 0
        charges = self.context.fitting_index.charges
        lacking = (self.shares.lacking_fair_share(above.name, charges) for above in leaf.path() if above.parent)
        return reserved.blocked_in(queue) & ~reduce(or_, lacking, 0)

    def _tournament(self, pending: SlotsByQueue) -> FittingTournament:
        charges = self.context.fitting_index.charges
        return FittingTournament(self.shares, pending, charges, open_leaf=self._leaf_iterator)

    def _resumed_tournament(
        self, cut: tuple[FittingTournament, int] | None, pending: SlotsByQueue, fitting: Slots
    ) -> FittingTournament | None:
        """Return the tournament of the cut plan that this one continues, if nothing has changed since."""
        if cut is None or cut[1] != self.context.changes or self.context.policy.ageing.is_on:
            return None
        tournament, charges = cut[0], self.context.fitting_index.charges
        if not tournament.can_continue(self.shares, pending, charges, fitting):
            return None
        tournament.resume(self._leaf_iterator)
        return tournament

    def _leaf_iterator(self, leaf: Node, fitting: Slots) -> LeafIterator:
        if self._opened_slots[0] != fitting:
            self._opened_slots = fitting, frozenset(slots_in(fitting))
        classes = finish(_leaf_classes(self.context, self.quota, leaf, self._opened_slots[1]))
        together = self.context.workloads.gangs.is_all_or_nothing
        return LeafIterator(leaf, classes, self.shares, self.context.policy, start_together=together)

    def _run_fair_share_first(self) -> Steps[None]:
        """Admit or skip one head after the other where the order depends on which heads would borrow (O3).

        After an admission that leaves most classes without a chance, the order is
        rebuilt from the others.
        """
        classes = yield from schedulable_classes(self.context, self.quota)
        while classes and not self.is_at_limit:
            heads = self.head_iterator(classes)
            remaining = _RemainingClasses(self.context, self.quota, classes)
            while (head := (yield from heads.next())) is not None:
                count = self.try_admit(head)
                yield 1
                if not count:
                    heads.on_skipped(head)
                    continue
                if count > 1 or self.must_retry(head) or (yield from remaining.are_few()) or self.is_at_limit:
                    break
                heads.on_admitted(head)
            self.refused.extend(heads.refused)
            classes = (yield from schedulable_classes(self.context, self.quota)) if head is not None else {}

    def head_iterator(self, classes: Mapping[QueueName, list[SchedulableClass]]) -> HeadIterator:
        """Return the iterator over the heads of *classes*."""
        return HeadIterator(self.shares, self.context.policy, classes, fits=self.fits, borrows=self.borrows)

    def fits(self, head: Head) -> bool:
        """Return whether the head, with its gang, could be admitted now."""
        if self.context.workloads.gangs.is_all_or_nothing(head.workload_class.gang):
            trial = self._try_gang(head.workload_class.gang)
            return trial.refusal is None and self.are_estimates_settled(trial.choices)
        return self.evaluate(head) is not None

    def borrows(self, head: Head) -> bool:
        """Return whether the head, with the parts of its gang that must start with it, would borrow."""
        if self.context.workloads.gangs.is_all_or_nothing(head.workload_class.gang):
            return self._try_gang(head.workload_class.gang).borrows
        return self.shares.borrows(head.leaf, head.workload_class.charge)

    def must_retry(self, head: Head) -> bool:
        """Return whether workloads that were blocked before are to be tried again after the admission of *head*.

        A workload with a reservation may have been admitted elsewhere, so that others may use its reservation. A
        reservation that its queue's usage lifts above the fair share no longer binds queues below theirs (O6).
        """
        has_relaxed, self._has_relaxed_reservations = self._has_relaxed_reservations, False
        return has_relaxed or head.workload_class.key.reservation_owner is not None or self._is_followed_by_part(head)

    def _is_followed_by_part(self, head: Head) -> bool:
        """Return whether the next of a fifo queue is a part that the other parts in other queues wait for (O5)."""
        workloads, queue = self.context.workloads, head.leaf.name
        if not head.leaf.queue.fifo or not workloads.gangs.are_known:
            return False
        following = self.context.order.blocking_head(queue)
        gang = following.gang if following is not None else None
        return bool(self._other_queues(gang, queue)) and workloads.gangs.is_all_or_nothing(gang)

    def _has_parts_in_other_fifo_queues(self, head: Head) -> bool:
        """Return whether the gang of *head* has parts in other queues, of any priority, that may have a new head."""
        queues = self._other_queues(head.workload_class.gang, head.leaf.name)
        return not queues.isdisjoint(self.context.queue_usage.fifo)

    def _other_queues(self, gang: HyperJobGang | None, queue: QueueName) -> set[QueueName]:
        """Return the queues other than *queue* in which a HyperJob has parts."""
        parts = self.context.workloads.parts(gang) if gang is not None else ()
        return {part.queue for part in parts if part.queue != queue}

    def try_admit(self, head: Head) -> int:
        """Admit the head, with the other parts of its gang, if it fits; return how many workloads were admitted."""
        if self.context.workloads.gangs.is_all_or_nothing(head.workload_class.gang):
            return self._try_admit_gang(head.workload_class.gang)
        choice = self.evaluate(head)
        if choice is None:
            return 0
        self._admit_together([(head.workload, choice)])
        return 1

    def _try_admit_gang(self, gang: HyperJobGang) -> int:
        trial = self._try_gang(gang)
        if trial.refusal is not None or not self.are_estimates_settled(trial.choices):
            return 0
        self._admit_together(trial.choices, gang)
        return len(trial.choices)

    def _admit_together(self, choices: Sequence[tuple[Workload, Choice]], gang: HyperJobGang | None = None) -> None:
        """Admit workloads of one decision; all are backfilled onto the reservations as they were before it (O9)."""
        reserved, plan_id = self.context.active_reservations(), f"{gang.key}@{self.now}" if gang is not None else ""
        for part, choice in choices:
            self._admit(part, choice, plan_id, reserved)

    def _try_gang(self, gang: HyperJobGang) -> GangTrial:
        """Try to place a gang; the classes of its parts share the result until a decision is made."""
        return self._gang_trials.get(self.context.changes, gang, lambda: self._place_gang(gang))

    def _place_gang(self, gang: HyperJobGang) -> GangTrial:
        current = self.context.queue_usage.current_quota()
        quotas = [quota for quota in (self.quota, current) if quota is not None]
        placer = GangPlacer(
            self._heads.get(self.context.changes, None, lambda: FifoHeads(self.context.order)),
            self.context.feasibility_cache,
            quotas,
            self.context.active_reservations(),
            self.borrowing,
        )
        trial = placer.place(gang)
        if self.context.policy.serves_fair_shares_first:
            self._find_borrowing_parts(gang, trial)
        self._refused_borrowing |= trial.refusal is not None and self.borrowing is not None
        return trial

    def _find_borrowing_parts(self, gang: HyperJobGang, trial: GangTrial) -> None:
        """Note whether *trial* borrows; leave out the borrowing parts where enough others start without them (O3)."""
        workloads, quota = self.context.workloads, self.quota.overlay()
        parts = [part for part, _ in trial.choices] if trial.refusal is None else workloads.pending_parts(gang)
        within = set[WorkloadUid]()
        for part in parts:
            leaf, charge = quota.tree.nodes.get(part.queue), self.context.pending.class_of(part.uid).charge
            if leaf is not None and not self.shares.borrows(leaf, charge, quota):
                quota.add_assumed(leaf, charge)
                within.add(part.uid)
        trial.borrows = len(within) < workloads.gangs.missing(gang)
        if not trial.borrows:
            trial.choices = [(part, choice) for part, choice in trial.choices if part.uid in within]

    def evaluate(self, head: Head) -> Choice | None:
        """Return the clusters for the head, or ``None``: checks limits, then clusters, reservations and borrowing."""
        exceeded = self.quota.refusal(head.leaf, head.workload_class.charge)
        if exceeded is not None:
            head.workload_class.retry_hint = _queueing_hint(exceeded, head.leaf, self.quota)
            return None
        feasibility_cache = self.context.feasibility_cache
        feasible = feasibility_cache.get(head.workload_class.requirements)
        if not self._fits_current_quota(head) or not feasibility_cache.fits(feasible):
            return None
        reserved = self.context.active_reservations()
        if reserved is not None and reserved.quota_refusal(head.workload, feasible) is not None:
            return None
        choice: Choice | Refusal = feasibility_cache.choose(feasible)
        if isinstance(choice, Choice) and reserved is not None:
            choice = reserved.resolve(head.workload, feasible, choice)
        if not isinstance(choice, Choice) or not self._may_borrow(head):
            return None
        return choice if self.are_estimates_settled([(head.workload, choice)]) else None

    def are_estimates_settled(self, chosen: Sequence[tuple[Workload, Choice]]) -> bool:
        """Return whether estimators have answered for all *chosen* workloads; query them where they have not."""
        if not self.context.policy.node_estimates:
            return True
        settled = [
            self.has_estimates(part, [charge.cluster for charge in choice.cluster_charges]) for part, choice in chosen
        ]
        return all(settled)

    def has_estimates(self, workload: Workload, clusters: Sequence[ClusterName]) -> bool:
        """Return whether the estimators of *clusters* have answered for *workload*; query those that have not."""
        candidates = self.context.feasibility_cache.get(workload.requirements).candidates
        return self.context.estimate_tracker.has_answers(workload, clusters, candidates.names, self.now)

    def _may_borrow(self, head: Head) -> bool:
        if self.borrowing is None or self.borrowing.refusal(head.leaf, head.workload_class) is None:
            return True
        self._refused_borrowing = True
        return False

    def has_relaxed_borrowing(self) -> bool:
        """Return whether a workload that was not allowed to borrow may be allowed now."""
        return self.may_retry and self.borrowing is not None and self.borrowing.has_relaxed()

    def _fits_current_quota(self, head: Head) -> bool:
        """Return whether the limits allow the head while workloads being evicted are still charged (P5)."""
        present = self.context.queue_usage.current_quota()
        return (
            present is None or present.refusal(present.tree.nodes[head.leaf.name], head.workload_class.charge) is None
        )

    def _admit(self, workload: Workload, choice: Choice, plan_id: str, allowed_by: ActiveReservations | None) -> None:
        """Admit *workload* to the chosen clusters, as *allowed_by* allowed it."""
        raised_by = self.context.ageing.shared_raise(workload)
        admission = Admission(
            choice.charge, choice.cluster_charges, admitted_at=self.now, raised_by=raised_by, assumed=True
        )
        reserved = self.context.active_reservations()
        onto = allowed_by.backfilled_onto(workload, choice) if allowed_by is not None else ()
        self.context.windows.on_admitted(workload, choice, self.quota, self.now, backfilled_onto=onto)
        self.assume(workload.admitted(admission), self.now)
        if reserved is not None and (left := self.context.active_reservations()) is not None:
            self._has_relaxed_reservations |= not left.exceeding_fair_share <= reserved.exceeding_fair_share
        self.decisions.append(Admit(workload, choice.assignments, admission, plan_id))
        self.admitted.add(workload.uid)
        self.may_retry |= self._refused_borrowing
        self._refused_borrowing = False
        if self.borrowing:
            self.borrowing.invalidate(workload.queue)
        for queue in self.preemption_candidates.queues_of(workload.gang):
            (self.borrowing or self.preemption_candidates).invalidate(queue)


_CLASSES_PER_PART: Final = 200
"""How many classes of a queue are looked through at a time."""


def schedulable_classes(context: Context, quota: Quota) -> Steps[Mapping[QueueName, list[SchedulableClass]]]:
    """Return, by queue, the classes that may fit: there is capacity, and usage was freed since their refusal."""
    queues, result = set[QueueName](), dict[QueueName, list[SchedulableClass]]()
    yield from context.fitting_index.update()
    feasible = frozenset(slots_in(context.fitting_index.feasible(quota)))
    for slot in feasible:
        queues.update(
            workload_class.queue
            for workload_class in context.pending.by_requirements[context.fitting_index.key(slot)]
            if quota.tree.leaf(workload_class.queue) is not None
        )
        yield 1
    for name in queues:
        result[name] = yield from _leaf_classes(context, quota, quota.tree.nodes[name], feasible)
    return {name: entries for name, entries in result.items() if entries}


def _leaf_classes(
    context: Context, quota: Quota, leaf: Node, feasible: AbstractSet[int]
) -> Steps[list[SchedulableClass]]:
    """Return the classes of a leaf that may be tried; of a fifo queue all that can block it, and only if its head may.

    Only requirements with *feasible* slots may be tried. A HyperJob may start without the part that is the head.
    """
    of, classes = context.feasibility_cache.get, list(context.pending.queues.get(leaf.name, ()))
    tried: list[WorkloadClass] = []
    for begin in range(0, len(classes), _CLASSES_PER_PART):
        part = classes[begin : begin + _CLASSES_PER_PART]
        tried += (
            workload_class
            for workload_class in part
            if workload_class.slot in feasible
            and workload_class.competes
            and (workload_class.retry_hint is None or _should_retry(quota, workload_class.retry_hint, workload_class))
        )
        yield len(part)
    if leaf.queue.fifo:
        first = context.order.blocking_head(leaf.name)
        if any(workload_class.head is first for workload_class in tried):
            tried = [workload_class for workload_class in classes if workload_class.inadmissible is None]
        else:
            gang = first.gang if first is not None and context.pending.class_of(first.uid).is_waiting else None
            may_start = context.workloads.gangs.is_all_or_nothing(gang)
            tried = [workload_class for workload_class in tried if workload_class.gang == gang] if may_start else []
    return [
        SchedulableClass(workload_class, of(workload_class.requirements).requested_resources)
        for workload_class in tried
    ]


def _should_retry(quota: Quota, hint: QueueingHint, workload_class: WorkloadClass) -> bool:
    """Return whether usage was freed that makes a retry of the refused class worthwhile."""
    if hint.generation != quota.generation or quota.free_counts[hint.queue] != hint.free_count:
        return True
    if not hint.or_unreserved_at_root or quota.has_unreserved(quota.tree.root, workload_class.charge):
        return hint.or_unreserved_at_root
    # Guarantees of its own branch are reserved already, so it needs less than its whole charge.
    return (
        hint.queue in quota.guaranteed
        and quota.refusal(quota.tree.nodes[workload_class.queue], workload_class.charge) is None
    )


class _RemainingClasses:
    """Tracks how many of the classes could still fit."""

    def __init__(self, context: Context, quota: Quota, classes: Mapping[QueueName, list[SchedulableClass]]) -> None:
        self._index = context.fitting_index
        self._feasibility_cache = context.feasibility_cache
        self._quota = quota
        self._counts: Tally[int] = Tally(
            id(entry.workload_class.requirements) for entries in classes.values() for entry in entries
        )
        self._requirements = {
            id(entry.workload_class.requirements): entry.workload_class.requirements
            for entries in classes.values()
            for entry in entries
        }
        self._most = sum(self._counts.values())

    def are_few(self) -> Steps[bool]:
        """Return whether dropping the classes without a chance would save more than half of the tries."""
        yield from self._index.update()
        yield 1
        feasible = {*self._index.keys_of(self._index.feasible(self._quota))}
        for key, requirements in list(self._requirements.items()):
            if key not in feasible and (key in self._index or not self._would_fit(requirements)):
                del self._requirements[key], self._counts[key]
        return 2 * sum(self._counts.values()) < self._most

    def _would_fit(self, requirements: SchedulingRequirements) -> bool:
        """Return whether requirements of which no workload is left pending would fit."""
        feasible = self._feasibility_cache.get(requirements)
        return self._quota.has_free(self._quota.tree.root, feasible.charge) and self._feasibility_cache.fits(feasible)


def _queueing_hint(exceeded: Refusal, leaf: Node, quota: Quota) -> QueueingHint | None:
    """Return what must change before a class that exceeds a limit is tried again.

    The root's limit is checked for all requirements in every cycle; unreserved
    quota at the root also depends on the guarantees in the branch.
    """
    if exceeded.queue is None or exceeded.is_total_capacity:
        return None
    is_reserved = exceeded.queue == ROOT
    branch = leaf.branch.name if is_reserved else QueueName(exceeded.queue)
    return QueueingHint(branch, quota.free_counts[branch], quota.generation, or_unreserved_at_root=is_reserved)
