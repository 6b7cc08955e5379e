"""Rules P1 to P4 in their plainest form: the search for the victims of one workload."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

from controller.engine.policy import EvictionPolicy
from tests.engine.worlds import NOW
from tests.reference.state import Job, Running, less, plus, raised_by

if TYPE_CHECKING:
    from tests.reference.order import Model

Lacks = set[tuple[str, str]]
"""What is missing: the cluster or queue, and the resource."""


def evictable(victim: Job, setting: EvictionPolicy, ran: int) -> bool:
    """P4: whether a job that has run for *ran* milliseconds may be evicted."""
    return ran >= setting.min_runtime_ms and victim.evictions < setting.max_evictions and not victim.preserved


class Search:
    """P3: the victim search of reclaim or preemption."""

    def __init__(self, model: "Model", job: Job):
        self.model, self.job, self.tree, self.before = model, job, model.tree, model.settled

    def best(self) -> tuple[list[Job], str] | None:
        """Return the victims and the cluster: the best worst victim, then fewer victims, then C3's order."""
        plans = []
        for cluster in (candidate.name for candidate in self.model.candidates(self.job)):
            self.resources = {resource for _, resource in self.lacks(cluster, self.before)}
            if ranks := self.victims(cluster):
                victims = [self.tree.jobs[name] for name in ranks]
                order = self.model.preference(self.job, cluster, less(self.before, *victims))
                plans.append((max(ranks.values()), len(victims), order, victims, cluster))
        return min(plans, key=lambda plan: plan[:3])[3:] if plans else None

    def lacks(self, cluster: str, usage: Running) -> Lacks:
        room = self.model.headroom(cluster, usage)
        kept = self.model.set_aside(self.job, cluster, releases=False)
        asked = self.job.requests if cluster in self.model.nominated_clusters() or kept is not None else self.job.gang
        asked = {name: amount + (kept or {}).get(name, 0) if amount else 0 for name, amount in asked.items()}
        short = {("cluster", name) for name, amount in asked.items() if amount and amount > room.get(name, 0)}
        return self.tree.lacking(self.job, usage) | short

    def helps(self, victim: Job, cluster: str, lacks: Lacks) -> bool:
        """Return whether evicting *victim* frees a missing resource: on the cluster first, then in the queues."""
        lacks = {lack for lack in lacks if lack[0] == "cluster"} or lacks
        places = {*self.tree.path(victim.queue), *(["cluster"] if cluster in victim.clusters else [])}
        return any(place in places and victim.requests.get(resource, 0) for place, resource in lacks)

    def able(self, usage: Running) -> list[Job]:
        unusable = {cluster.name for cluster in self.model.world.clusters if not cluster.ready}
        able = (self.tree.jobs[name] for name, at in usage.items() if unusable.isdisjoint(at))
        return [victim for victim in able if self.may_evict(victim, usage)]

    def victims(self, cluster: str) -> dict[str, tuple]:
        """Return the victims on one cluster in order, with their ranks; empty where they do not suffice."""
        if ranks := self.chosen(cluster, self.able):
            return self.single(list(ranks), cluster) or self.spared(ranks, cluster)
        alone = self.able(self.before)
        ranks = self.chosen(cluster, lambda usage: [victim for victim in alone if victim.name in usage])
        return ranks and (self.single(list(ranks), cluster) or self.judged(ranks, cluster))

    def chosen(self, cluster: str, able: Callable[[Running], list[Job]]) -> dict[str, tuple]:
        """Return those of *able* that are evicted one after the other until the job fits, with their ranks."""
        usage, ranks, chosen = self.before, {}, []
        while missing := self.lacks(cluster, usage):
            victims = [victim for victim in able(usage) if self.helps(victim, cluster, missing)]
            if not victims:
                return {}
            ranks |= {victim.name: self.rank(victim, usage) for victim in victims}
            chosen.append(min(victims, key=lambda victim: ranks[victim.name]))
            usage = less(self.before, *chosen)
        return {victim.name: ranks[victim.name] for victim in chosen}

    def single(self, chosen: list[str], cluster: str) -> dict[str, tuple]:
        """Return the smallest victim of the last one's tier that suffices alone."""
        tier = self.rank(self.tree.jobs[chosen[-1]], self.before)[:3]
        alike = [victim for victim in self.able(self.before) if self.rank(victim, self.before)[:3] == tier]
        alone = [victim for victim in alike if self.works([victim], cluster)]
        smallest = min(alone, key=lambda victim: (self.size(victim), self.rank(victim, self.before)), default=None)
        return {smallest.name: self.rank(smallest, self.before)} if smallest else {}

    def spared(self, ranks: dict[str, tuple], cluster: str) -> dict[str, tuple]:
        """Return the victims without those that the preemption works without, last chosen first."""
        chosen = [self.tree.jobs[name] for name in ranks]
        for victim in reversed(list(chosen)):
            rest = [other for other in chosen if other is not victim]
            chosen = rest if self.works(rest, cluster) else chosen
        order = sorted((victim.name for victim in chosen), key=lambda name: ranks[name])
        return {name: ranks[name] for name in order} if self.works(chosen, cluster) else {}

    def judged(self, ranks: dict[str, tuple], cluster: str) -> dict[str, tuple]:
        """Return the victims without those that the job fits without, if these may be evicted in their order."""
        chosen = [self.tree.jobs[name] for name in ranks]
        for victim in reversed(list(chosen)):
            rest = [other for other in chosen if other is not victim]
            chosen = chosen if self.lacks(cluster, less(self.before, *rest)) else rest
        if not self.works(chosen, cluster):
            return {}
        ranked = {}
        for number, victim in enumerate(chosen):
            ranked[victim.name] = self.rank(victim, less(self.before, *chosen[:number]))
        return dict(sorted(ranked.items(), key=lambda pair: pair[1]))

    def size(self, victim: Job) -> list[Fraction]:
        """Return the victim's requests relative to the job's, for each missing resource, largest first."""
        parts = (Fraction(victim.charge.get(name, 0), self.job.requests[name]) for name in self.resources)
        return sorted(parts, reverse=True)

    def works(self, victims: list[Job], cluster: str) -> bool:
        """P5: whether the whole preemption succeeds after all evictions."""
        left = less(self.before, *victims)
        works = bool(victims) and not self.lacks(cluster, left) and self.model.may_borrow(self.job, left)
        return works and self.is_fair(victims)

    def rank(self, victim: Job, usage: Running) -> tuple:
        """P3: the order of victims; the first three elements are the tier."""
        priority = self.tree.queues[victim.queue].priority
        return not self.branch_stays(victim, usage), priority, self.raised(victim), victim.ran, victim.name

    def raised(self, victim: Job) -> int:
        """O10: return the priority of a running job, as raised when it was admitted."""
        return victim.priority + raised_by(self.model.policy.ageing, victim.since, NOW - victim.ran)

    def may_evict(self, victim: Job, usage: Running) -> bool:
        raise NotImplementedError

    def branch_stays(self, victim: Job, usage: Running) -> bool:
        return True

    def is_fair(self, victims: list[Job]) -> bool:
        return True


class Reclaim(Search):
    """P1: victims in other queues."""

    def common(self, victim: Job) -> str:
        return next(name for name in self.tree.path(self.job.queue) if name in self.tree.path(victim.queue))

    def may_evict(self, victim: Job, usage: Running) -> bool:
        is_new = victim.name in self.model.admitted
        left, common = less(usage, victim), self.common(victim)
        if victim.queue == self.job.queue or is_new or not self.model.is_reclaimable(victim, common):
            return False
        lost = [resource for resource in self.resources if victim.requests.get(resource, 0)]
        for name in self.tree.below(victim.queue, common):
            used, rest = self.tree.used(name, usage), self.tree.used(name, left)
            if not any(used[resource] > self.model.due[name][resource] for resource in lost):
                return False
            held = [resource for resource, amount in victim.requests.items() if amount]
            if any(rest.get(resource, 0) < self.tree.guarantee(name, resource) for resource in held):
                return False
        return self.smaller_share(victim, plus(left, self.job)) > self.smaller_share(victim, self.before)

    def smaller_share(self, victim: Job, usage: Running) -> Fraction:
        """Return the smaller usage ratio of the two branches, over what the job lacks."""
        common = self.common(victim)
        mine, other = (self.tree.below(queue, common)[-1] for queue in (self.job.queue, victim.queue))
        shares = (
            self.model.share(name, job, usage, self.resources) for name, job in ((mine, self.job), (other, victim))
        )
        return min(shares)

    def is_fair(self, victims: Iterable[Job]) -> bool:
        left, usage = less(self.before, *victims), self.before
        for victim in victims:
            if not self.may_evict(victim, usage) or not self.model.within(self.job, self.common(victim), left):
                return False
            usage = less(usage, victim)
        return True

    def branch_stays(self, victim: Job, usage: Running) -> bool:
        branch = self.tree.below(victim.queue, self.common(victim))[-1]
        left, due = self.tree.used(branch, less(usage, victim)), self.model.due[branch]
        return all(left.get(name, 0) >= due[name] for name in self.resources if victim.requests.get(name, 0))


class Preemption(Search):
    """P2: victims of lower job priority in the job's own queue."""

    def may_evict(self, victim: Job, usage: Running) -> bool:
        setting = self.model.preemption
        is_taken = victim.name in self.model.admitted or victim.name in self.model.nominated
        lower = victim.queue == self.job.queue and self.raised(victim) < self.job.priority and not self.job.never
        return lower and not is_taken and setting is not None and evictable(victim, setting, victim.ran)
