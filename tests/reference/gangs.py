"""Rules G1, O5 and C5 for HyperJobs in their plainest form; where parts have others evicted, for a single cluster.

A HyperJob has its turn with the first of its parts that fits alone. With ``FairShareFirst`` or reclaim the engine may
give it the turn of a part that exceeds the limit of its queue, which changes the order of decisions in one of some
thousand states.
"""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from controller.engine.state.hierarchy import ROOT
from tests.reference.order import Exchange, Model
from tests.reference.state import Amounts, Decision, Job, Running, State, fits, total

Placed = list[tuple[Job, tuple[str, ...]]]
"""Parts with their clusters."""


def plan(state: State) -> list[Decision]:
    """Return the decisions of one plan in order."""
    model = GangModel(state)
    model.admit_nominated()
    while model.step():
        pass
    model.admit_nominated()
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
        """Return how many parts must still start together; nominated ones have not started."""
        started = [part for part in self.parts[hyperjob] if part.name in self.settled.keys() - self.nominated.keys()]
        return self.parts[hyperjob][0].minimum - len(started)

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
        """Return the first workload of a fifo queue, also while victims stop for it."""
        pending = {*self.waiting, *self.leaving, *self.nominated} if self.tree.queues[queue].fifo else ()
        return min((job for job in map(self.tree.jobs.get, pending) if job.queue == queue), key=self.rank, default=None)

    def is_held_up(self, head: Job) -> bool:
        """O5: return whether its HyperJob cannot start without parts that wait behind other heads."""
        if not self.starts_together(head) or head.name not in self.waiting:
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
        parts = self.pending(hyperjob)
        by_choices = sorted(
            parts, key=lambda part: (len(self.candidates(part)) - part.copies, -self.share_of_all(part))
        )
        for order in (parts, by_choices, sorted(parts, key=self.share_of_all)):
            placed = self.placed(order)
            if len(placed) >= self.missing(hyperjob):
                return placed
        return []

    def share_of_all(self, part: Job) -> Fraction:
        """Return the largest part of all clusters that *part* requests."""
        fleet = total(cluster.allocatable for cluster in self.world.clusters)
        amounts = part.requests.items()
        return max((Fraction(amount, fleet[name]) for name, amount in amounts if fleet.get(name)), default=Fraction(0))

    def placed(self, order: list[Job]) -> Placed:
        """Return those of *order* that fit one after the other, with their clusters."""
        placed: Placed = []
        free = [part for part in order if part.name in self.waiting and not self.waits_behind_head(part)]
        settled, current = self.settled, self.current
        self.before_trial = settled
        for part in free:
            clusters = self.place(part)
            if clusters and self.may_borrow(part):
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

    def would_take(self, job: Job) -> bool:
        """O3: none of a HyperJob where the parts that must start together in a queue exceed its fair share."""
        if not self.starts_together(job):
            return super().would_take(job)
        parts = [part for part in self.pending(job.hyperjob) if part.name in self.waiting]
        own = [part for part in parts if part.queue == job.queue]
        needed = self.missing(job.hyperjob) - (len(parts) - len(own))
        least = [sorted(part.charge.get(name, 0) for part in own)[: max(needed, 0)] for name in self.tree.resources]
        used, due = self.tree.used(job.queue, self.settled), self.due[job.queue]
        exceeds = any(
            sum(amounts) and used.get(name, 0) + sum(amounts) > due[name]
            for amounts, name in zip(least, self.tree.resources, strict=True)
        )
        return not exceeds and super().would_take(job)

    def count_within(self, hyperjob: str) -> int:
        """O3: return how many parts stay within the fair shares one after the other, whether they fit or not."""
        usage, count = self.settled, 0
        for part in self.pending(hyperjob):
            if part.name in self.waiting and self.within(part, ROOT, usage):
                usage, count = {**usage, part.name: ()}, count + 1
        return count

    def are_together(self, name: str, other: str) -> bool:
        one, two = self.tree.jobs[name], self.tree.jobs[other]
        return super().are_together(name, other) or bool(one.hyperjob and one.hyperjob == two.hyperjob)

    def within_fair_shares(self, heads: dict[str, Job]) -> dict[str, Job]:
        is_first = self.reclaim or self.policy.queue_order == "FairShareFirst"
        return {name: job for name, job in heads.items() if is_first and self.stays_within(job)}

    def stays_within(self, job: Job) -> bool:
        if self.starts_together(job) and not self.together(job.hyperjob):
            return self.count_within(job.hyperjob) >= self.missing(job.hyperjob)
        if self.starts_together(job):
            return len(self.within_parts(job.hyperjob)) >= self.missing(job.hyperjob)
        return self.within(job, ROOT)

    def can_admit(self, job: Job) -> bool:
        return super().can_admit(job) and (not self.starts_together(job) or bool(self.together(job.hyperjob)))

    def exchange(self, job: Job) -> Exchange | None:
        """P3: return the victims for as few parts as can start together, in one queue: the first, or the smallest."""
        if not self.starts_together(job):
            return super().exchange(job)
        choices = [parts for parts in self.least(job) if all(part.copies == 1 for part in parts)]
        if any(self.fits_after_evictions(self.combined(parts)) for parts in choices):
            return None
        for parts in choices:
            for order in (parts, sorted(parts, key=self.share_of_all, reverse=True)):
                if found := super().exchange(self.combined(order)):
                    return found[0], found[1], order
        return None

    def least(self, job: Job) -> list[list[Job]]:
        """Return the parts that may have others evicted: the first ones by name, and the smallest."""
        parts, missing = self.pending(job.hyperjob), self.missing(job.hyperjob)
        able = [part for part in parts if part.name in self.waiting and part.queue == job.queue]
        if any(part.name in self.nominated for part in self.parts[job.hyperjob]) or len(able) < missing:
            return []
        smallest = sorted(able, key=self.share_of_all)[:missing]
        return [able[:missing], [part for part in able if part in smallest]]

    def combined(self, parts: list[Job]) -> Job:
        """Return a job that needs what *parts* need, which start one after the other on one cluster."""
        before, gang = dict[str, int](), dict[str, int]()
        for part in parts:
            needed = {name: amount + before.get(name, 0) for name, amount in part.gang.items() if amount}
            gang |= {name: max(amount, gang.get(name, 0)) for name, amount in needed.items()}
            before = total([before, part.requests])
        job = replace(
            parts[0],
            name=" ".join(part.name for part in parts),
            requests=before,
            gang=gang,
            charge=before,
            priority=min(part.priority for part in parts),
            affinity=next((part.affinity for part in parts if part.affinity), ()),
            never=any(part.never for part in parts),
            preserved=any(part.preserved for part in parts),
            evictions=max(part.evictions for part in parts),
        )
        self.tree.jobs[job.name] = job
        return job

    def admit(self, job: Job | None) -> bool:
        if job is None or not self.starts_together(job):
            return super().admit(job)
        is_within = (self.reclaim or self.policy.queue_order == "FairShareFirst") and self.stays_within(job)
        for part, clusters in self.within_parts(job.hyperjob) if is_within else self.together(job.hyperjob):
            self.admit_to(part, clusters)
        return True
