"""Rules P1 to P4 in their plainest form: the search for the victims of one workload."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from controller.engine.policy import EvictionPolicy
from tests.reference.state import Job, Running, less, plus, total

if TYPE_CHECKING:
    from tests.reference.order import Model

Victim = tuple[Job, ...]
"""A job, or parts of a HyperJob in one queue that are evicted together."""
Lacks = set[tuple[str, str]]
"""What is missing: the cluster or queue, and the resource."""


def evictable(job: Job, setting: EvictionPolicy, ran: int) -> bool:
    """P4: whether a job that has run for *ran* milliseconds may be evicted."""
    return ran >= setting.min_runtime_ms and job.evictions < setting.max_evictions and not job.preserved


def victims_in(model: "Model", usage: Running) -> list[Victim]:
    """P3: return the jobs, and the parts of HyperJobs that may be evicted one by one or together."""
    running = [model.tree.jobs[name] for name in usage if name not in model.nominated]
    unusable = {cluster.name for cluster in model.world.clusters if not cluster.ready}
    stay = {job.name for job in running if job.preserved or unusable.intersection(job.clusters)}
    victims = [(job,) for job in running if not job.hyperjob and job.name not in stay]
    for key, queue in sorted({(job.hyperjob, job.queue) for job in running if job.hyperjob}):
        parts = [job for job in running if job.hyperjob == key]
        own = [part for part in parts if part.queue == queue]
        protected = [part for part in parts if part.name in stay]
        spare = to_spare(model, usage, key)
        if not protected or len(own) == len(parts):
            victims += [(part,) for part in own if part.name not in stay] if spare > 0 else []
        if not protected and len(own) > spare:
            victims.append(tuple(own))
    return victims


def to_spare(model: "Model", usage: Running, hyperjob: str) -> int:
    """Return how many parts of a HyperJob may be evicted while enough are left; 0 for other jobs."""
    running = [model.tree.jobs[name] for name in usage if name not in model.nominated and hyperjob]
    parts = [job for job in running if job.hyperjob == hyperjob]
    return max(len(parts) - parts[0].minimum, 0) if parts else 0


class Search:
    """P3: the victim search of reclaim or preemption."""

    def __init__(self, model: "Model", job: Job):
        self.model, self.job, self.tree, self.before = model, job, model.tree, model.settled

    def best(self) -> tuple[list[Victim], str] | None:
        """Return the victims and the cluster: the best worst victim, then fewer victims, then C3's order."""
        plans = []
        for cluster in (candidate.name for candidate in self.model.candidates(self.job)):
            self.resources = {resource for _, resource in self.lacks(cluster, self.before)}
            if ranks := self.victims(cluster):
                order = self.model.preference(self.job, cluster, self.left(ranks))
                plans.append((max(ranks.values()), len(ranks), order, list(ranks), cluster))
        return min(plans, key=lambda plan: plan[:3])[3:] if plans else None

    def left(self, victims: Iterable[Victim], usage: Running | None = None) -> Running:
        """Return the usage without *victims*."""
        return less(self.before if usage is None else usage, *(job for victim in victims for job in victim))

    def lacks(self, cluster: str, usage: Running) -> Lacks:
        room = self.model.headroom(cluster, usage)
        kept = self.model.set_aside(self.job, cluster, releases=False)
        asked = self.job.requests if cluster in self.model.nominated_clusters() or kept is not None else self.job.gang
        asked = {name: amount + (kept or {}).get(name, 0) if amount else 0 for name, amount in asked.items()}
        short = {("cluster", name) for name, amount in asked.items() if amount and amount > room.get(name, 0)}
        return self.tree.lacking(self.job, usage) | short

    def helps(self, victim: Victim, cluster: str, lacks: Lacks) -> bool:
        """Return whether evicting *victim* frees a missing resource: on the cluster first, then in the queues."""
        lacks = {lack for lack in lacks if lack[0] == "cluster"} or lacks
        for job in victim:
            places = {*self.tree.path(job.queue), *(["cluster"] if cluster in job.clusters else [])}
            if any(place in places and job.requests.get(resource, 0) for place, resource in lacks):
                return True
        return False

    def victims(self, cluster: str) -> dict[Victim, tuple]:
        """Return the victims on one cluster in order, with their ranks; empty where they do not suffice."""
        if ranks := self.chosen(cluster, self.may_evict):
            return self.single(list(ranks), cluster) or self.spared(ranks, cluster)
        ranks = self.chosen(cluster, lambda victim, _: self.may_evict(victim, self.before))
        return ranks and (self.single(list(ranks), cluster) or self.judged(ranks, cluster))

    def chosen(self, cluster: str, able: Callable[[Victim, Running], bool]) -> dict[Victim, tuple]:
        """Return those of *able* that are evicted one after the other until the job fits, with their ranks."""
        usage, ranks, chosen = self.before, {}, []
        while missing := self.lacks(cluster, usage):
            victims = [
                victim
                for victim in victims_in(self.model, usage)
                if not self.is_own(victim) and able(victim, usage) and self.helps(victim, cluster, missing)
            ]
            if not victims:
                return {}
            ranks |= {victim: self.rank(victim, usage) for victim in victims}
            chosen.append(min(victims, key=lambda victim: ranks[victim]))
            usage = self.left(chosen)
        return {victim: ranks[victim] for victim in chosen}

    def is_own(self, victim: Victim) -> bool:
        return bool(self.job.hyperjob) and victim[0].hyperjob == self.job.hyperjob

    def single(self, chosen: list[Victim], cluster: str) -> dict[Victim, tuple]:
        """Return the smallest victim of the last one's tier that suffices alone."""
        tier = self.rank(chosen[-1], self.before)[:3]
        victims = [victim for victim in victims_in(self.model, self.before) if not self.is_own(victim)]
        able = [victim for victim in victims if self.may_evict(victim, self.before)]
        alike = [victim for victim in able if self.rank(victim, self.before)[:3] == tier]
        alone = [victim for victim in alike if self.works([victim], cluster)]
        smallest = min(alone, key=lambda victim: (self.size(victim), self.rank(victim, self.before)), default=None)
        return {smallest: self.rank(smallest, self.before)} if smallest else {}

    def spared(self, ranks: dict[Victim, tuple], cluster: str) -> dict[Victim, tuple]:
        """Return the victims without those that the preemption works without, last chosen first."""
        chosen = list(ranks)
        for victim in reversed(list(ranks)):
            rest = [other for other in chosen if other is not victim]
            chosen = rest if self.may_stay(victim, rest) and self.works(rest, cluster) else chosen
        order = sorted(chosen, key=lambda victim: ranks[victim])
        return {victim: ranks[victim] for victim in order} if self.works(chosen, cluster) else {}

    def may_stay(self, victim: Victim, others: Iterable[Victim]) -> bool:
        """Return whether *victim* is no part of a HyperJob of which *others* are all other parts in the queue."""
        of_queue = [(job.hyperjob, job.queue) for other in others if len(other) > 1 for job in other]
        return not victim[0].hyperjob or (victim[0].hyperjob, victim[0].queue) not in of_queue

    def judged(self, ranks: dict[Victim, tuple], cluster: str) -> dict[Victim, tuple]:
        """Return the victims without those that the job fits without, if these may be evicted in their order."""
        chosen = list(ranks)
        for victim in reversed(list(ranks)):
            rest = [other for other in chosen if other is not victim]
            is_needed = not self.may_stay(victim, rest) or self.lacks(cluster, self.left(rest))
            chosen = chosen if is_needed else rest
        if not self.works(chosen, cluster):
            return {}
        ranked = {}
        for number, victim in enumerate(chosen):
            ranked[victim] = self.rank(victim, self.left(chosen[:number]))
        return dict(sorted(ranked.items(), key=lambda pair: pair[1]))

    def size(self, victim: Victim) -> list[Fraction]:
        """Return the victim's requests relative to the job's, for each missing resource, largest first."""
        charge = total(job.charge for job in victim)
        parts = (Fraction(charge.get(name, 0), self.job.requests[name]) for name in self.resources)
        return sorted(parts, reverse=True)

    def works(self, victims: list[Victim], cluster: str) -> bool:
        """P5: whether the whole preemption succeeds after all evictions."""
        left = self.left(victims)
        works = bool(victims) and not self.lacks(cluster, left) and self.model.may_borrow(self.job, left)
        return works and self.is_fair(victims)

    def rank(self, victim: Victim, usage: Running) -> tuple:
        """P3: the order of victims; the first three elements are the tier."""
        return not self.branch_stays(victim, usage), *self.model.last_evicted(*victim)

    def may_evict(self, victim: Victim, usage: Running) -> bool:
        raise NotImplementedError

    def branch_stays(self, victim: Victim, usage: Running) -> bool:
        return True

    def is_fair(self, victims: list[Victim]) -> bool:
        return True


class Reclaim(Search):
    """P1: victims in other queues."""

    def common(self, victim: Victim) -> str:
        return next(name for name in self.tree.path(self.job.queue) if name in self.tree.path(victim[0].queue))

    def may_evict(self, victim: Victim, usage: Running) -> bool:
        queue = victim[0].queue
        is_new = any(job.name in self.model.admitted for job in victim)
        left, common = self.left([victim], usage), self.common(victim)
        if queue == self.job.queue or is_new or not all(self.model.is_reclaimable(job, common) for job in victim):
            return False
        requests = total(job.requests for job in victim)
        lost = [resource for resource in self.resources if requests.get(resource, 0)]
        for name in self.tree.below(queue, common):
            used, rest = self.tree.used(name, usage), self.tree.used(name, left)
            if not any(used[resource] > self.model.due[name][resource] for resource in lost):
                return False
            held = [resource for resource, amount in requests.items() if amount]
            if any(rest.get(resource, 0) < self.tree.guarantee(name, resource) for resource in held):
                return False
        improves = self.smaller_share(victim, plus(left, self.job)) > self.smaller_share(victim, self.before)
        return improves and self.model.within(self.job, common, left)

    def smaller_share(self, victim: Victim, usage: Running) -> Fraction:
        """Return the smaller usage ratio of the two branches, over what the job lacks."""
        common = self.common(victim)
        mine, other = (self.tree.below(queue, common)[-1] for queue in (self.job.queue, victim[0].queue))
        next_there = replace(victim[0], requests=total(job.requests for job in victim))
        shares = (
            self.model.share(name, job, usage, self.resources) for name, job in ((mine, self.job), (other, next_there))
        )
        return min(shares)

    def is_fair(self, victims: Iterable[Victim]) -> bool:
        left, usage = self.left(victims), self.before
        for victim in victims:
            if not self.may_evict(victim, usage) or not self.model.within(self.job, self.common(victim), left):
                return False
            usage = self.left([victim], usage)
        return True

    def branch_stays(self, victim: Victim, usage: Running) -> bool:
        branch = self.tree.below(victim[0].queue, self.common(victim))[-1]
        left, due = self.tree.used(branch, self.left([victim], usage)), self.model.due[branch]
        requests = total(job.requests for job in victim)
        return all(left.get(name, 0) >= due[name] for name in self.resources if requests.get(name, 0))


class Preemption(Search):
    """P2: victims of lower job priority in the job's own queue."""

    def may_evict(self, victim: Victim, usage: Running) -> bool:
        return all(self.may_evict_job(job) for job in victim)

    def may_evict_job(self, victim: Job) -> bool:
        setting = self.model.preemption
        is_taken = victim.name in self.model.admitted or victim.name in self.model.nominated
        lower = (
            victim.queue == self.job.queue
            and self.model.last_evicted(victim)[1] < self.job.priority
            and not self.job.never
        )
        return lower and not is_taken and setting is not None and evictable(victim, setting, victim.ran)
