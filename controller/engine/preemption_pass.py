"""Runs reclaim and preemption for the blocked workloads of one cycle (P1-P5).

Evicted workloads free capacity later, so a preemptor is nominated to a cluster in place of being admitted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from controller.engine.admission import AdmissionPass, schedulable_classes
from controller.engine.context import SharedResults
from controller.engine.fairness.ordering import HeadIterator
from controller.engine.fairness.shares import QueueShares
from controller.engine.fairness.tournament import Head, SchedulableClass
from controller.engine.placement.fit import free_after_evictions
from controller.engine.plan import Evict, RecordUpdate
from controller.engine.preemption import reclaim, search
from controller.engine.preemption.attempt import SetAside
from controller.engine.preemption.candidates import Victim
from controller.engine.preemption.reclaim import TOPOLOGY_COOLDOWN_MS, PriorityPreemptionPolicy, ReclaimPolicy
from controller.engine.preemption.search import PreemptionPlan, VictimSearch, find_plan
from controller.engine.reasons import EvictionReason
from controller.engine.state.cluster_state import earliest
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.resources import EMPTY, PODS, Resources, add, elementwise_max, total
from controller.engine.state.workloads import HyperJobGang, Nomination, Workload
from controller.engine.steps import Steps

#: Minimum cost of a victim search on one cluster, in evaluations of a cluster.
_STEPS_PER_CLUSTER: Final = 4

FoundPlan = tuple[PreemptionPlan, EvictionReason] | None
"""A plan with its reason; ``None`` where there is none."""

UpdateShares = Callable[[], Steps[QueueShares]]
"""Classifies the pending workloads that have changed, and computes fair shares again."""


class PreemptionPass:
    """Searches victims for blocked workloads in their admission order, and evicts them."""

    def __init__(self, admission: AdmissionPass, update_shares: UpdateShares) -> None:
        self.record_updates: list[RecordUpdate] = []
        """The nominations of the preemptors."""
        self.retry_at: int | None = None
        """When a preemption that fails now may succeed."""
        self._admission = admission
        self._update_shares = update_shares
        self._context = admission.context
        self._shares = admission.shares
        self._policy = admission.context.policy
        self._candidates = admission.preemption_candidates
        self._failed: set[WorkloadClass] = set()
        self._gang_plans = SharedResults[tuple[HyperJobGang, QueueName], FoundPlan]()

    def run(self) -> Steps[bool]:
        """Carry out all preemptions that succeed; say whether there was any."""
        self._failed.clear()
        has_preempted = False
        while (planned := (yield from self._next_plan())) is not None:
            self._apply(*planned)
            self._retry_branches_of(planned[0].victims)
            has_preempted = True
            # An evicted workload may be pending for another reason than capacity: it requests nothing then, and
            # does not block a fifo queue.
            changes = self._shares.changes
            yield from self._update_shares()
            if self._shares.changes != changes:
                self._admission.renew_borrowing_policy()
        return has_preempted

    def _next_plan(self) -> Steps[FoundPlan]:
        """Return the plan of the first blocked head that has one.

        A head that fits without preemption would have to borrow; it ends its queue's turn.
        """
        plans: dict[WorkloadClass, FoundPlan] = {}

        def waits_for_its_turn(head: Head) -> bool:
            """Return whether a head that would borrow fits, or has a preemption plan."""
            if self._admission.fits(head):
                return True
            plans[head.workload_class] = self._plan_for(head)
            return plans[head.workload_class] is not None

        heads = HeadIterator(
            self._shares,
            self._policy,
            self._schedulable_by_queue(),
            fits=waits_for_its_turn,
            borrows=self._admission.borrows,
        )
        while (head := (yield from heads.next())) is not None:
            yield 1
            if self._admission.fits(head):
                heads.skip_queue(head)
                continue
            plan = plans[head.workload_class] if head.workload_class in plans else self._plan_for(head)
            if plan is not None:
                return plan
            heads.on_skipped(head)
        return None

    def _retry_branches_of(self, victims: Iterable[Victim]) -> None:
        """Try the failed classes of a branch again that has less usage now: they may be within its fair share."""
        branches = {victim.node.branch for victim in victims}
        nodes = self._shares.quota.tree.nodes
        self._failed = {failed for failed in self._failed if nodes[failed.queue].branch not in branches}

    def _classes_tried_with(self, head: Head) -> list[WorkloadClass]:
        """Return the workload classes that share the result: all classes of a HyperJob that starts together."""
        if not self._context.workloads.gangs.is_all_or_nothing(head.workload_class.gang):
            return [head.workload_class]
        workload_classes = self._context.pending.queues[head.workload_class.queue]
        return [
            workload_class for workload_class in workload_classes if workload_class.gang == head.workload_class.gang
        ]

    def _schedulable_by_queue(self) -> Mapping[QueueName, list[SchedulableClass]]:
        """Return the pending workload classes of every queue that may preempt."""
        schedulable: dict[QueueName, list[SchedulableClass]] = {}
        for name in sorted(self._context.pending.queues):
            node = self._shares.quota.tree.leaf(name)
            workload_classes = self._schedulable(node) if node is not None else []
            if node is not None and any(
                self._may_preempt(node, workload_class.charge, workload_class.head.priority)
                for workload_class in workload_classes
            ):
                of = self._context.feasibility_cache.get
                schedulable[name] = [
                    SchedulableClass(workload_class, of(workload_class.requirements).requested_resources)
                    for workload_class in workload_classes
                ]
        return schedulable

    def _schedulable(self, leaf: Node) -> list[WorkloadClass]:
        """Return the workload classes of a queue to try; none in a fifo queue whose head has failed."""
        workload_classes = [
            workload_class
            for workload_class in self._context.pending.queues[leaf.name]
            if workload_class.competes and workload_class not in self._failed
        ]
        if not leaf.queue.fifo:
            return workload_classes
        first = self._context.order.queue_head(leaf.name)
        gang = first.gang if first is not None else None
        if self._context.workloads.gangs.is_all_or_nothing(gang):
            return [workload_class for workload_class in workload_classes if workload_class.gang == gang]
        return [workload_class for workload_class in workload_classes if workload_class.head is first]

    def _may_preempt(self, leaf: Node, charge: Resources, priority: int) -> bool:
        return (self._policy.reclaim.enabled and self._stays_within_fair_share(leaf, charge)) or (
            self._policy.preemption.enabled
            and any(victim.priority < priority for victim in self._candidates.in_queue(leaf.name))
        )

    def _stays_within_fair_share(self, leaf: Node, charge: Resources) -> bool:
        asks = any(amount > 0 and name != PODS for name, amount in charge.items())
        return asks and self._shares.first_above_fair_share(leaf, charge) is None

    def _plan_for(self, head: Head) -> FoundPlan:
        """Return a plan for a blocked head; the classes of a gang that starts together share it until a decision."""
        gang = head.workload_class.gang
        if not self._context.workloads.gangs.is_all_or_nothing(gang):
            return self._search_plan_for(head)
        key = gang, head.leaf.name
        return self._gang_plans.get(self._context.changes, key, lambda: self._search_plan_for(head))

    def _search_plan_for(self, head: Head) -> FoundPlan:
        """Search a plan for a blocked head.

        A class that may not preempt, or is within its fair share and finds no victims, has failed. Any other may
        succeed after the next preemption, which may take the capacity where it fits now, or let it borrow.
        """
        choices = [
            (parts, charge)
            for parts in search.parts_to_admit(self._context.workloads, head, self._context.feasibility_cache)
            if (charge := self._charge_on_one_cluster(parts)) is not None
            and self._may_preempt(head.leaf, charge, head.workload.priority)
        ]
        if any(self._fits_after_evictions(head, parts, charge) for parts, charge in choices):
            return None
        plan = next(filter(None, (self._find_plan(head, parts, charge) for parts, charge in choices)), None)
        if plan is not None and not self._are_estimates_settled(plan[0]):
            plan = None
        may_succeed_later = any(not self._stays_within_fair_share(head.leaf, charge) for _, charge in choices)
        if plan is None and not may_succeed_later:
            self._failed.update(self._classes_tried_with(head))
        return plan

    def _charge_on_one_cluster(self, parts: Sequence[Workload]) -> Resources | None:
        """Return the charge of *parts* together; ``None`` where one of them does not go whole to one cluster."""
        of, class_of = self._context.feasibility_cache.get, self._context.pending.class_of
        feasibilities = [of(class_of(part.uid).requirements) for part in parts]
        if not all(feasibility.needs_one_cluster for feasibility in feasibilities):
            return None
        return total(feasibility.charge for feasibility in feasibilities)

    def _set_aside_from(self, head: Head, charge: Resources) -> SetAside:
        """Return what is set aside by the reservations that bind *head* with *charge*."""
        by_cluster, by_queue = dict[ClusterName, Resources](), dict[QueueName, Resources]()
        reservations = self._context.active_reservations()
        for reservation in reservations.binding(head.workload, charge) if reservations is not None else ():
            for cluster, due in reservation.charges_by_cluster.items():
                by_cluster[cluster] = add(by_cluster.get(cluster, EMPTY), due)
            for queue, due in reservation.charges_by_queue.items():
                by_queue[queue] = elementwise_max(by_queue.get(queue, EMPTY), due)
        return SetAside(by_cluster, by_queue)

    def _find_plan(self, head: Head, parts: Sequence[Workload], charge: Resources) -> FoundPlan:
        """Return a plan by reclaim, or else by preemption (P2)."""
        set_aside = self._set_aside_from(head, charge)
        if self._may_reclaim(head, charge):
            candidates = reclaim.reclaim_candidates(self._policy.reclaim, self._shares, head, charge, self._candidates)
            victims = self._past_min_runtime(candidates, reclaiming=True)
            reclaim_policy = ReclaimPolicy(self._admission.borrowing)
            plan = self._search(head, parts, VictimSearch(victims, reclaim_policy, set_aside))
            if plan is not None:
                return plan, EvictionReason.RECLAIMED
        if self._policy.preemption.enabled:
            candidates = reclaim.preemption_candidates(self._policy.preemption, parts, self._candidates)
            victims = self._past_min_runtime(candidates, reclaiming=False)
            preemption_policy = PriorityPreemptionPolicy(self._admission.borrowing)
            plan = self._search(head, parts, VictimSearch(victims, preemption_policy, set_aside))
            if plan is not None:
                return plan, EvictionReason.PREEMPTED
        return None

    def _search(self, head: Head, parts: Sequence[Workload], victim_search: VictimSearch) -> PreemptionPlan | None:
        if not victim_search.candidates:
            return None
        if len(parts) > 1:
            return search.find_gang_plan(self._shares, head, self._gang_parts(parts), victim_search)
        names = self._context.feasibility_cache.get(head.workload_class.requirements).candidates.names
        cluster_states = [self._context.cluster_usage.cluster_state(name) for name in names]
        self._context.feasibility_cache.steps += len(cluster_states) * _STEPS_PER_CLUSTER
        self._context.feasibility_cache.steps += len(victim_search.candidates)
        return find_plan(self._shares, head, cluster_states, victim_search)

    def _are_estimates_settled(self, plan: PreemptionPlan) -> bool:
        """Return whether the estimators of clusters that *plan* evicts nothing from have answered; query them if not.

        The nodes of such a cluster stay as they are, so its estimator may refuse the preemptor (C3).
        """
        if not self._policy.node_estimates:
            return True
        settled = [
            self._admission.has_estimates(self._context.workloads[uid], [cluster])
            for uid, cluster in plan.clusters.items()
            if not plan.attempt.changes_nodes_of(self._context.cluster_usage.cluster_state(cluster))
        ]
        return all(settled)

    def _gang_parts(self, parts: Sequence[Workload]) -> search.GangParts:
        return search.GangParts(parts, self._context.pending, self._context.feasibility_cache)

    def _fits_after_evictions(self, head: Head, parts: Sequence[Workload], charge: Resources) -> bool:
        """Return whether the head fits beside what is set aside once the evictions in progress have finished."""
        quota, set_aside = self._shares.quota, self._set_aside_from(head, charge)
        if quota.refusal(head.leaf, charge) is not None or not set_aside.leaves_quota(head.leaf, charge, quota):
            return False
        if len(parts) > 1:
            return self._gang_parts(parts).assign_clusters(set_aside) is not None
        names = self._context.feasibility_cache.get(head.workload_class.requirements).candidates.names
        states = (self._context.cluster_usage.cluster_state(name) for name in names)
        requirements = head.workload_class.requirements
        capacities = (
            free_after_evictions(state, with_estimates=True).without(set_aside.by_cluster[state.name])
            if state.name in set_aside.by_cluster
            else free_after_evictions(state, with_estimates=True)
            for state in states
        )
        return any(capacity.fits(requirements) for capacity in capacities)

    def _may_reclaim(self, head: Head, charge: Resources) -> bool:
        """Return whether *charge* is within the head's fair share and no cluster has changed its readiness recently."""
        if not self._policy.reclaim.enabled or not self._stays_within_fair_share(head.leaf, charge):
            return False
        turned_at = self._context.cluster_usage.usability_changed_at
        if turned_at is None or turned_at + TOPOLOGY_COOLDOWN_MS <= self._admission.now:
            return True
        self.retry_at = earliest((self.retry_at, turned_at + TOPOLOGY_COOLDOWN_MS))
        return False

    def _past_min_runtime(self, victims: list[Victim], *, reclaiming: bool) -> list[Victim]:
        """Return the victims past their minimum runtime (P4) that were not admitted in this cycle (O3)."""
        policy = self._policy.reclaim if reclaiming else self._policy.preemption
        eligible = []
        for victim in victims:
            eligible_at = max(victim.admitted_at + policy.min_runtime_ms, victim.stays_until)
            is_new = any(workload.uid in self._admission.admitted for workload in victim.workloads)
            if eligible_at > self._admission.now or is_new:
                self.retry_at = earliest((self.retry_at, max(eligible_at, self._admission.now + 1)))
            else:
                eligible.append(victim)
        return eligible

    def _with_dependents(self, victims: Iterable[Victim]) -> Iterator[Workload]:
        """Yield the workloads of *victims*, then the parts in other queues of HyperJobs with too few parts left (G1).

        Each must be evicted before the next one is requested.
        """
        workloads = self._context.workloads
        evicted = [workload for victim in victims for workload in victim.workloads]
        yield from evicted
        for workload in evicted:
            yield from workloads.gangs.dependents(workload, workloads.by_uid)

    def _apply(self, plan: PreemptionPlan, reason: EvictionReason) -> None:
        head, now = plan.attempt.head, self._admission.now
        policy = self._policy.reclaim if reason is EvictionReason.RECLAIMED else self._policy.preemption
        first_uid, first_cluster = next(iter(plan.clusters.items()))
        victims: list[Workload] = []
        for workload in self._with_dependents(plan.victims):
            self._admission.assume(workload.evicted(reason), now)
            evicted = Evict(workload, reason, first_uid, first_cluster, policy.grace_ms)
            self._admission.decisions.append(evicted)
            victims.append(workload)
        for uid, cluster in plan.clusters.items():
            part = self._context.workloads[uid]
            charge = self._context.feasibility_cache.get(self._context.pending.class_of(uid).requirements).charge
            nomination = Nomination(cluster, now, len(self.record_updates), charge)
            self.record_updates.append(RecordUpdate(part, nomination))
            self._admission.assume(part.nominated_as(nomination), now)
        # The victims of a HyperJob in one queue depend on its parts in others.
        gangs = {workload.gang for workload in victims if workload.gang is not None}
        parts = [part for gang in gangs for part in self._context.workloads.parts(gang)]
        for queue in sorted({workload.queue for workload in (head.workload, *victims, *parts)}):
            self._invalidate(queue)

    def _invalidate(self, queue: QueueName) -> None:
        self._candidates.invalidate(queue)
        if self._admission.borrowing:
            self._admission.borrowing.invalidate(queue)


def admit_with_preemption(admission: AdmissionPass, update_shares: UpdateShares) -> Steps[PreemptionPass]:
    """Admit all workloads that fit, with preemption for blocked ones; return the preemption pass.

    With reclaim: workloads within their fair share first, then preemption, then one borrower at a time, each
    followed by a new round (O3). Otherwise preemption follows all admissions (P2).
    """
    preemption_pass = PreemptionPass(admission, update_shares)
    if admission.context.policy.reclaim.enabled:
        while not admission.is_at_limit and (yield from _admission_round(admission, preemption_pass)):
            pass
    else:
        yield from admission.run()
        while (
            admission.context.policy.preemption.enabled
            and not admission.is_at_limit
            and (yield from preemption_pass.run())
        ):
            yield from admission.run()
    return preemption_pass


def _admission_round(admission: AdmissionPass, preemption_pass: PreemptionPass) -> Steps[bool]:
    """Admit until no workload fits; say whether another round is needed."""
    heads = admission.head_iterator((yield from schedulable_classes(admission.context, admission.quota)))
    may_preempt = True
    admission.may_retry = False
    while (head := (yield from heads.next())) is not None:
        borrows = heads.borrows(head)
        if borrows and may_preempt:
            if (yield from preemption_pass.run()):
                return True
            may_preempt = False
        count = admission.try_admit(head)
        yield 1
        if not count:
            heads.on_skipped(head)
            continue
        must_retry = admission.must_retry(head) or admission.has_relaxed_borrowing()
        if count > 1 or admission.is_at_limit or must_retry:
            return True
        heads.on_admitted(head)
        may_preempt = may_preempt or borrows
    admission.refused.extend(heads.refused)
    return (may_preempt and (yield from preemption_pass.run())) or admission.may_retry
