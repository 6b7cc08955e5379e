"""The exchanges of one cycle: who is blocked and may have others evicted, and what comes of it (P1-P5).

Evictions free nothing now, so nobody is admitted here: quota and a cluster are
held for those who will be.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from controller.engine import gang_preemption, gangs, preemption, reclaim
from controller.engine.admission import AdmissionPass, schedulable_classes
from controller.engine.cluster_usage import earliest
from controller.engine.fit import free_after_evictions
from controller.engine.ordering import Head, HeadIterator, SchedulableClass
from controller.engine.pending import WorkloadClass
from controller.engine.plan import Evict, RecordUpdate
from controller.engine.preemption import PriorityPreemptionPolicy
from controller.engine.preemption_search import PreemptionPlan, PreemptionPolicy, find_plan
from controller.engine.queues import QueueName
from controller.engine.reasons import EvictionReason
from controller.engine.reclaim import TOPOLOGY_COOLDOWN_MS, ReclaimPolicy
from controller.engine.resources import PODS, Resources, total
from controller.engine.steps import Steps
from controller.engine.tree import Node
from controller.engine.victims import PreemptionCandidates, Victim
from controller.engine.workloads import Nomination, Workload

#: What looking for victims on one cluster costs at least, in evaluations of a cluster.
_STEPS_PER_CLUSTER: Final = 4


class PreemptionPass:
    """Makes exchanges for the blocked, in the order of their turns."""

    def __init__(self, service: AdmissionPass) -> None:
        self.notes: list[RecordUpdate] = []
        self.retry_at: int | None = None
        """When an exchange may work that does not yet."""
        self._admission = service
        self._world = service.state
        self._standing = service.standing
        self._policy = service.state.policy
        self._candidates = (
            service.lending.roster if service.lending else PreemptionCandidates(self._world, self._standing.quota.tree)
        )
        self._failed: set[WorkloadClass] = set()

    def run(self) -> Steps[bool]:
        """Make all exchanges that work; say whether there was any."""
        self._failed.clear()
        made = False
        while (deal := (yield from self._next_plan())) is not None:
            self._apply(*deal)
            made = True
        return made

    def _next_plan(self) -> Steps[tuple[PreemptionPlan, EvictionReason] | None]:
        """Return the exchange for the first blocked head for which one works.

        A head that has room would borrow, and ends its queue's turn.
        """
        deals: dict[WorkloadClass, tuple[PreemptionPlan, EvictionReason] | None] = {}

        def waits_for_its_turn(head: Head) -> bool:
            """Say whether a head that would borrow has room, or an exchange that works."""
            if self._admission.fits(head):
                return True
            deals[head.lane] = self._plan_for(head)
            if deals[head.lane] is None:
                self._failed.update(self._classes_tried_with(head))
            return deals[head.lane] is not None

        turns = HeadIterator(self._standing, self._policy, self._schedulable_by_queue(), fits=waits_for_its_turn)
        while (head := (yield from turns.next())) is not None:
            yield 1
            if self._admission.fits(head):
                turns.ended(head)
                continue
            deal = deals[head.lane] if head.lane in deals else self._plan_for(head)
            if deal is not None:
                return deal
            self._failed.update(self._classes_tried_with(head))
            turns.passed_over(head)
        return None

    def _classes_tried_with(self, head: Head) -> list[WorkloadClass]:
        """Return the lanes for which the same was tried: of a group that starts together all."""
        if not gangs.is_all_or_nothing(self._world, head.lane):
            return [head.lane]
        lanes = self._world.backlog.queues[head.lane.queue]
        return [lane for lane in lanes if lane.group == head.lane.group]

    def _schedulable_by_queue(self) -> Mapping[QueueName, list[SchedulableClass]]:
        """Return the waiting lanes of every queue in which somebody may have others evicted."""
        lines: dict[QueueName, list[SchedulableClass]] = {}
        for name in sorted(self._world.backlog.queues):
            node = self._standing.quota.tree.leaf(name)
            lanes = self._schedulable(node) if node is not None else []
            if node is not None and any(self._may_preempt(node, lane) for lane in lanes):
                of = self._world.books.feasibility_cache.get
                lines[name] = [SchedulableClass(lane, of(lane.shape).requested_resources) for lane in lanes]
        return lines

    def _schedulable(self, leaf: Node) -> list[WorkloadClass]:
        """Return the lanes of a queue that are to be tried; of a fifo queue none once its first has failed."""
        lanes = [
            lane
            for lane in self._world.backlog.queues[leaf.name]
            if lane.is_waiting and lane.hopeless is None and lane not in self._failed
        ]
        if not leaf.queue.fifo:
            return lanes
        first = self._world.heading(leaf.name)
        return [lane for lane in lanes if lane.head is first]

    def _may_preempt(self, leaf: Node, lane: WorkloadClass) -> bool:
        return (self._policy.reclaim.enabled and self._is_entitled(leaf, lane.charge)) or (
            self._policy.preemption.enabled
            and any(victim.priority < lane.head.priority for victim in self._candidates.in_queue(leaf.name))
        )

    def _is_entitled(self, leaf: Node, charge: Resources) -> bool:
        asks = any(amount > 0 and name != PODS for name, amount in charge.items())
        return asks and self._standing.over(leaf, charge) is None

    def _plan_for(self, head: Head) -> tuple[PreemptionPlan, EvictionReason] | None:
        """Return an exchange for a head without room: by reclaim, else by preemption (P2)."""
        together = gang_preemption.parts_to_admit(self._world, head)
        of = self._world.books.feasibility_cache.get
        prospects = [of(self._world.backlog.lane(part.uid).shape) for part in together]
        if not prospects or not all(prospect.needs_one_cluster for prospect in prospects):
            return None
        charge = total(prospect.charge for prospect in prospects)
        if self._fits_after_evictions(head, together, charge):
            return None
        if self._may_reclaim(head, charge):
            found = reclaim.reclaim_candidates(self._world, self._standing, head, charge, self._candidates)
            deal = self._search(
                head, together, self._past_min_runtime(found, reclaiming=True), ReclaimPolicy(self._admission.lending)
            )
            if deal is not None:
                return deal, EvictionReason.RECLAIMED
        if self._policy.preemption.enabled:
            found = preemption.preemption_candidates(self._world, together, self._candidates)
            deal = self._search(
                head,
                together,
                self._past_min_runtime(found, reclaiming=False),
                PriorityPreemptionPolicy(self._admission.lending),
            )
            if deal is not None:
                return deal, EvictionReason.PREEMPTED
        return None

    def _search(
        self, head: Head, together: Sequence[Workload], victims: Sequence[Victim], rule: PreemptionPolicy
    ) -> PreemptionPlan | None:
        if len(together) > 1:
            return gang_preemption.find_plan(self._world, head, together, candidates=victims, rule=rule)
        names = self._world.books.feasibility_cache.get(head.lane.shape).candidates.names
        sites = [self._world.ledger.site(name) for name in names]
        self._world.books.feasibility_cache.steps += len(sites) * (_STEPS_PER_CLUSTER + len(victims))
        return find_plan(self._standing, head, sites, candidates=victims, rule=rule)

    def _fits_after_evictions(self, head: Head, together: Sequence[Workload], charge: Resources) -> bool:
        """Say whether the evictions under way will do."""
        if self._standing.quota.refusal(head.leaf, charge) is not None:
            return False
        if len(together) > 1:
            return gang_preemption.assign_clusters(self._world, together, ()) is not None
        names = self._world.books.feasibility_cache.get(head.lane.shape).candidates.names
        return any(free_after_evictions(self._world.ledger.site(name)).fits(head.lane.shape) for name in names)

    def _may_reclaim(self, head: Head, charge: Resources) -> bool:
        """Say whether *head* is entitled to *charge*, and the clusters have been as they are for a while."""
        if not self._policy.reclaim.enabled or not self._is_entitled(head.leaf, charge):
            return False
        turned_at = self._world.ledger.turned_at
        if turned_at is None or turned_at + TOPOLOGY_COOLDOWN_MS <= self._admission.now:
            return True
        self.retry_at = earliest((self.retry_at, turned_at + TOPOLOGY_COOLDOWN_MS))
        return False

    def _past_min_runtime(self, victims: list[Victim], *, reclaiming: bool) -> list[Victim]:
        """Return those who have run for long enough (P4), and were not admitted just now (O3)."""
        rules = self._policy.reclaim if reclaiming else self._policy.preemption
        ripe = []
        for victim in victims:
            at = max(victim.admitted_at + rules.min_runtime_ms, victim.stays_until)
            is_new = any(workload.uid in self._admission.admitted for workload in victim.workloads)
            if at > self._admission.now or is_new:
                self.retry_at = earliest((self.retry_at, max(at, self._admission.now + 1)))
            else:
                ripe.append(victim)
        return ripe

    def _apply(self, deal: PreemptionPlan, reason: EvictionReason) -> None:
        head, now = deal.attempt.head, self._admission.now
        rules = self._policy.reclaim if reason is EvictionReason.RECLAIMED else self._policy.preemption
        first, place = next(iter(deal.clusters.items()))
        for workload in (each for victim in deal.victims for each in victim.workloads):
            self._world.evict(workload, now)
            self._invalidate(workload.queue)
            evicted = Evict(workload, reason, first, place, rules.grace_ms)
            self._admission.decisions.append(evicted)
        for uid, cluster in deal.clusters.items():
            part = self._world.workloads[uid]
            charge = self._world.books.feasibility_cache.get(self._world.backlog.lane(uid).shape).charge
            held = Nomination(cluster, now, len(self.notes), charge)
            self.notes.append(RecordUpdate(part, held))
            self._world.hold(part, held, now)
        self._invalidate(head.workload.queue)

    def _invalidate(self, queue: QueueName) -> None:
        self._candidates.invalidate(queue)
        if self._admission.lending:
            self._admission.lending.forget(queue)


def admit_with_preemption(service: AdmissionPass) -> Steps[PreemptionPass]:
    """Serve everybody, with exchanges for those without room; return what was agreed.

    While reclaim is on: the entitled, then exchanges, then one borrower after
    the other, each of which lets it all begin again (O3). Otherwise exchanges
    come after all admissions (P2).
    """
    exchanges = PreemptionPass(service)
    if service.state.policy.reclaim.enabled:
        while not service.is_full and (yield from _admission_round(service, exchanges)):
            pass
    else:
        yield from service.serve()
        while service.state.policy.preemption.enabled and not service.is_full and (yield from exchanges.run()):
            yield from service.serve()
    return exchanges


def _admission_round(service: AdmissionPass, exchanges: PreemptionPass) -> Steps[bool]:
    """Serve until nobody else gets in; say whether another round begins."""
    turns = service.turns((yield from schedulable_classes(service.state, service.quota)))
    is_due = True
    service.may_retry = False
    while (head := (yield from turns.next())) is not None:
        borrows = turns.borrows(head)
        if borrows and is_due:
            if (yield from exchanges.run()):
                return True
            is_due = False
        count = service.try_(head)
        yield 1
        if not count:
            turns.passed_over(head)
            continue
        if count > 1 or service.is_full or service.has_eased():
            return True
        turns.admitted(head)
        is_due = is_due or borrows
    service.refused.extend(turns.refused)
    return (is_due and (yield from exchanges.run())) or service.may_retry
