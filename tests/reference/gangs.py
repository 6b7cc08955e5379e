"""Rules G1, O5 and C5 for HyperJobs in their plainest form, where nothing is evicted.

A HyperJob has its turn with the first of its parts that fits alone. With ``FairShareFirst`` the engine may give it the
turn of a part that exceeds the limit of its queue, which changes the order of decisions in one of some thousand states.
"""

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations

from controller.engine.state.hierarchy import ROOT
from tests.reference.order import Model
from tests.reference.state import Amounts, Decision, Job, Running, State, fits, total

Placed = list[tuple[Job, tuple[str, ...]]]
"""Parts with their clusters."""


def plan(state: State) -> list[Decision]:
    """Return the decisions of one plan in order."""
    model = GangModel(state)
    while model.step():
        pass
    return model.decisions


class GangModel(Model):
    """One plan in progress in which parts of HyperJobs are admitted together."""

    def __init__(self, state: State):
        self.parts: dict[str, list[Job]] = {}
        for job in sorted(state.jobs, key=lambda job: job.name):
            self.parts.setdefault(job.hyperjob, []).append(job)
        self.before_trial: Running | None = None
        super().__init__(state)

    def pending(self, hyperjob: str) -> list[Job]:
        return [part for part in self.parts[hyperjob] if part.name not in self.settled]

    def missing(self, hyperjob: str) -> int:
        """Return how many parts must still start together."""
        parts = self.parts[hyperjob]
        return parts[0].minimum - (len(parts) - len(self.pending(hyperjob)))

    def starts_together(self, job: Job) -> bool:
        return bool(job.hyperjob) and self.missing(job.hyperjob) > 1

    def held_otherwise(self, job: Job) -> bool:
        if super().held_otherwise(job):
            return True
        if not job.hyperjob:
            return False
        missing, pending = self.missing(job.hyperjob), self.pending(job.hyperjob)
        parts = [part for part in pending if not super(GangModel, self).held_otherwise(part)]
        if len(pending) < missing or (missing > 1 and len(parts) < missing):
            return True
        return missing > 1 and (self.exceed_limit(parts, missing) or self.exceed_clusters(parts, missing))

    def exceed_limit(self, parts: list[Job], missing: int) -> bool:
        """C5: return whether any *missing* of *parts* exceed one limit while no queue uses anything."""
        return any(
            all(self.exceeds_empty(name, resource, chosen) for chosen in combinations(parts, missing))
            for name in {name for part in parts for name in self.tree.path(part.queue)}
            for resource in self.tree.resources
        )

    def exceeds_empty(self, name: str, resource: str, chosen: Iterable[Job]) -> bool:
        below = [part for part in chosen if name in self.tree.path(part.queue) and part.charge.get(resource)]
        return len(below) > 1 and self.booked(name, resource, below) > self.tree.ceiling(name, resource, empty=True)

    def booked(self, name: str, resource: str, parts: list[Job]) -> int:
        """Q2: return the charges of *parts* and the guarantees of the queues below, while nothing else is used."""
        own = sum(part.charge.get(resource, 0) for part in parts if part.queue == name)
        guarantees = {child: self.tree.guarantee(child, resource, empty=True) for child in self.tree.children(name)}
        below = (max(guarantees[child], self.booked(child, resource, parts)) for child in guarantees)
        return own + sum(below)

    def exceed_clusters(self, parts: list[Job], missing: int) -> bool:
        """C5: return whether more parts of one size must start together than the empty clusters hold."""
        for part in parts:
            larger = [other for other in parts if fits(part.requests, other.requests) and fits(part.gang, other.gang)]
            needed = missing - (len(parts) - len(larger))
            has = {each.name: each.allocatable for other in larger for each in self.matching(other)}
            if needed > 1 and sum(self.holds(part, allocatable) for allocatable in has.values()) < needed:
                return True
        return False

    def holds(self, part: Job, allocatable: Amounts) -> int:
        """Return how many such parts an empty cluster holds; of the last one only the gang must fit."""
        counts = [
            (allocatable.get(name, 0) - amount) // max(part.requests.get(name, 0), amount) + 1
            for name, amount in part.gang.items()
            if amount
        ]
        return max(min(counts, default=len(self.world.jobs)), 0)

    def waits_behind_head(self, part: Job) -> bool:
        """O5: return whether *part* waits behind the head of its fifo queue."""
        head = self.fifo_head(part.queue)
        return head is not None and head.hyperjob != part.hyperjob and not self.is_held_up(head)

    def fifo_head(self, queue: str) -> Job | None:
        return next(iter(self.in_turn(queue)), None) if self.tree.queues[queue].fifo else None

    def is_held_up(self, head: Job) -> bool:
        """O5: return whether its HyperJob cannot start without parts that wait behind other heads."""
        if not self.starts_together(head):
            return False
        parts = [part for part in self.pending(head.hyperjob) if part.name in self.waiting]
        heads = (self.fifo_head(part.queue) for part in parts)
        free = [first for first in heads if first is None or first.hyperjob == head.hyperjob]
        return len(free) < self.missing(head.hyperjob)

    def in_turn(self, queue: str, *, exchange: bool = False) -> list[Job]:
        """O5: a HyperJob may start without the first workload of a fifo queue."""
        order = super().in_turn(queue, exchange=exchange)
        if self.tree.queues[queue].fifo and order and self.starts_together(order[0]):
            parts = [part for part in self.pending(order[0].hyperjob) if part.name in self.waiting]
            return sorted((part for part in parts if part.queue == queue), key=self.rank)
        return order

    def together(self, hyperjob: str) -> Placed:
        """G1: return the parts that would be admitted together, in the first order in which enough of them fit."""
        parts, fleet = self.pending(hyperjob), total(cluster.allocatable for cluster in self.world.clusters)

        def share(part: Job) -> Fraction:
            amounts = part.requests.items()
            return max(
                (Fraction(amount, fleet[name]) for name, amount in amounts if fleet.get(name)), default=Fraction(0)
            )

        by_choices = sorted(parts, key=lambda part: (len(self.candidates(part)) - part.copies, -share(part)))
        for order in (parts, by_choices, sorted(parts, key=share)):
            placed = self.placed(order)
            if len(placed) >= self.missing(hyperjob):
                return placed
        return []

    def placed(self, order: list[Job]) -> Placed:
        """Return those of *order* that fit one after the other, with their clusters."""
        placed: Placed = []
        free = [part for part in order if part.name in self.waiting and not self.waits_behind_head(part)]
        settled, current = self.settled, self.current
        self.before_trial = settled
        for part in free:
            if clusters := self.place(part):
                placed.append((part, clusters))
                self.settled = {**self.settled, part.name: clusters}
                self.current = {**self.current, part.name: clusters}
        self.settled, self.current, self.before_trial = settled, current, None
        return placed

    def set_aside(self, job: Job, cluster: str, *, releases: bool = True) -> Amounts | None:
        """O11: of parts that are placed together none releases or uses reserved amounts before the others."""
        settled = self.settled
        self.settled = settled if self.before_trial is None else self.before_trial
        try:
            return super().set_aside(job, cluster, releases=releases)
        finally:
            self.settled = settled

    def within_parts(self, hyperjob: str) -> Placed:
        """O3: return the parts placed together that stay within the fair shares one after the other."""
        usage, within = self.settled, Placed()
        for part, clusters in self.together(hyperjob):
            if self.within(part, ROOT, usage):
                within.append((part, clusters))
                usage = {**usage, part.name: clusters}
        return within

    def within_fair_shares(self, heads: dict[str, Job]) -> dict[str, Job]:
        is_first = self.policy.queue_order == "FairShareFirst"
        return {name: job for name, job in heads.items() if is_first and self.stays_within(job)}

    def stays_within(self, job: Job) -> bool:
        if self.starts_together(job):
            return len(self.within_parts(job.hyperjob)) >= self.missing(job.hyperjob)
        return self.within(job, ROOT)

    def can_admit(self, job: Job) -> bool:
        return super().can_admit(job) and (not self.starts_together(job) or bool(self.together(job.hyperjob)))

    def admit(self, job: Job | None) -> bool:
        if job is None or not self.starts_together(job):
            return super().admit(job)
        is_within = self.policy.queue_order == "FairShareFirst" and self.stays_within(job)
        for part, clusters in self.within_parts(job.hyperjob) if is_within else self.together(job.hyperjob):
            self.admit_to(part, clusters)
        return True
