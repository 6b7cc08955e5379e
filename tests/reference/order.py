"""Rules O, C3, P5 and the bounds of P4 in their plainest form, from docs/reference/semantics.md alone."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import pairwise

from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import ROOT
from tests.engine.worlds import NOW
from tests.reference.preemption import Preemption, Reclaim, Victim, evictable, to_spare, victims_in
from tests.reference.shares import Exact, Tree, fair_shares
from tests.reference.state import (
    Amounts,
    Decision,
    Job,
    Running,
    State,
    fits,
    keeps_off,
    less,
    plus,
    raised_by,
    total,
)

INFINITE = Fraction(10**9)
Exchange = tuple[list[Victim], str, list[Job]]
"""Victims, and the cluster of the jobs that they are evicted for."""


def plan(state: State) -> list[Decision]:
    """Return the decisions of one plan in order."""
    model = Model(state)
    model.admit_nominated()
    while model.step():
        pass
    model.admit_nominated()
    return model.decisions


class Model:
    """One plan in progress: *settled* is usage after all evictions, with nominations, *current* is usage now."""

    def __init__(self, state: State):
        self.world, self.policy = state, state.policy
        self.reclaim, self.preemption = (
            setting if setting.enabled else None for setting in (state.policy.reclaim, state.policy.preemption)
        )
        self.tree = Tree(state)
        self.by_name = {cluster.name: cluster for cluster in state.clusters}
        self.decisions: list[Decision] = []
        nominated = sorted((job for job in state.jobs if job.nominated), key=lambda job: job.rank)
        self.nominated: Running = {job.name: (job.nominated,) for job in nominated}
        staying = {job.name: job.clusters for job in state.jobs if job.clusters and not job.leaving}
        self.settled = {**staying, **self.nominated}
        self.current = {job.name: job.clusters for job in state.jobs if job.clusters}
        self.admitted: set[str] = set()
        pending = [job for job in state.jobs if job.name not in self.settled and not self.held_otherwise(job)]
        self.leaving = {job.name for job in pending if job.leaving}
        self.waiting = {job.name: job for job in pending if not job.leaving}
        self.ceilings = {queue: self.ceilings_in(queue) for queue in self.tree.queues}
        self.due = self.fair_shares()

    def held_otherwise(self, job: Job) -> bool:
        if job.queue not in self.tree.leaves() or not self.tree.open(job.queue):
            return True
        if sum(fits(job.gang, cluster.allocatable) for cluster in self.matching(job)) < max(job.copies, 1):
            return True
        return any(
            amount > self.tree.ceiling(name, resource, empty=True)
            for name in self.tree.path(job.queue)
            for resource, amount in job.charge.items()
            if amount
        )

    def candidates(self, job: Job) -> list[Cluster]:
        """Return the clusters that take new workloads; none where Karmada could use one that is kept free (O11)."""
        matching = self.matching(job)
        if job.may_be_copied and any(self.set_aside(job, cluster.name) is not None for cluster in matching):
            return []
        return [cluster for cluster in matching if cluster.ready]

    def matching(self, job: Job) -> list[Cluster]:
        return [cluster for cluster in self.world.clusters if not job.affinity or cluster.name in job.affinity]

    def share(self, name: str, job: Job, usage: Running, resources: Iterable[str] | None = None) -> Fraction:
        """Return the usage ratio of a queue whose next workload is *job*."""
        used = self.tree.used(name, usage)
        shares = [Fraction(0)]
        for resource in resources if resources is not None else self.tree.resources:
            due, held = self.due[name][resource], used.get(resource, 0)
            if due:
                shares.append(held / due)
            elif held or job.requests.get(resource, 0):
                shares.append(INFINITE)
        return max(shares)

    def in_turn(self, queue: str, *, exchange: bool = False) -> list[Job]:
        """O2, O5: return the workloads of a queue that may be tried, in order; of a fifo queue only the first.

        Leaving and nominated workloads block a fifo queue, nominated ones not for an *exchange*.
        """
        pending = {*self.waiting, *self.leaving, *({} if exchange else self.nominated)}
        order = sorted((self.tree.jobs[name] for name in pending if self.tree.jobs[name].queue == queue), key=self.rank)
        return [job for job in (order[:1] if self.tree.queues[queue].fifo else order) if job.name in self.waiting]

    def ceilings_in(self, queue: str) -> dict[int, int]:
        """O10: return the priority of workloads raised by the maximum, by their own priority."""
        most = self.policy.ageing.max_raise
        waiting = (job for job in self.world.jobs if job.leaving or not job.clusters)
        priorities = {job.priority for job in waiting if job.queue == queue}

        def ceiling(priority: int) -> int:
            above = [other for other in priorities if priority < other < priority + most]
            return max(map(ceiling, above), default=priority + most)

        return {priority: ceiling(priority) for priority in priorities}

    def raised(self, job: Job) -> int:
        """O10: return the priority of a pending job, raised by its waiting."""
        ageing = self.policy.ageing
        raise_now = raised_by(ageing, job.since, NOW)
        is_full = ageing.is_on and raise_now == ageing.max_raise
        raised = job.priority + raise_now
        return self.ceilings[job.queue].get(job.priority, raised) if is_full else raised

    def rank(self, job: Job) -> tuple:
        fairness = self.policy.tenant_fairness
        jobs = (self.tree.jobs[name] for name in self.settled)
        others = [other for other in jobs if (other.queue, other.namespace) != (job.queue, job.namespace)]
        own = less(self.settled, *others)
        tenant = self.share(job.queue, Job("", "", {}, {}), own) if fairness != "None" else Fraction(0)
        priority = self.raised(job)
        first = (tenant, -priority) if fairness == "NamespaceFirst" else (-priority, tenant)
        return (*first, job.since, job.namespace, job.name)

    def first(self, heads: dict[str, Job]) -> Job | None:
        """O1: return the first head."""
        if not heads:
            return None
        top = max(self.tree.queues[name].priority for name in heads)
        heads = {name: job for name, job in heads.items() if self.tree.queues[name].priority == top}

        def best(name: str) -> Job | None:
            if name in heads:
                return heads[name]
            offers = [
                (job, self.share(child, job, self.settled))
                for child in self.tree.children(name)
                if (job := best(child))
            ]
            ranked = [((share, -job.priority, job.since, job.queue), job) for job, share in offers]
            return min(ranked)[1] if ranked else None

        return best(ROOT)

    def step(self) -> bool:
        """Decide once; return whether there was a decision."""
        heads = self.heads(self.can_admit)
        if not self.reclaim:
            return self.admit(self.first(self.within_fair_shares(heads) or heads)) or self.exchange_once()
        if self.admit(self.first(self.within_fair_shares(heads))):
            return True
        has_exchanged = False
        while self.exchange_once():
            has_exchanged = True
        return has_exchanged or self.admit(self.first(heads))

    def within_fair_shares(self, heads: dict[str, Job]) -> dict[str, Job]:
        """Return the heads within their fair shares; empty where fair shares do not matter."""
        matters = self.reclaim or self.policy.queue_order == "FairShareFirst"
        return {name: job for name, job in heads.items() if matters and self.within(job, ROOT)}

    def heads(self, eligible: Callable[[Job], object], *, exchange: bool = False) -> dict[str, Job]:
        """Return the first eligible workload of each queue; none for an *exchange* behind one that can be admitted."""
        result = {}
        for queue in self.tree.leaves():
            order = self.in_turn(queue, exchange=exchange)
            job = next((job for job in order if eligible(job) or (exchange and self.can_admit(job))), None)
            if job and not (exchange and self.can_admit(job)):
                result[queue] = job
        return result

    def can_admit(self, job: Job) -> bool:
        return self.place(job) is not None and self.may_borrow(job)

    def admit(self, job: Job | None) -> bool:
        if job is None:
            return False
        clusters = self.place(job)
        assert clusters
        self.admit_to(job, clusters)
        return True

    def admit_to(self, job: Job, clusters: tuple[str, ...]) -> None:
        del self.waiting[job.name]
        self.settled[job.name] = self.current[job.name] = clusters
        self.admitted.add(job.name)
        self.decisions.append(Decision("Admit", job.name, ",".join(sorted(clusters))))

    def within(self, job: Job, common: str, usage: Running | None = None) -> bool:
        """Return whether the job's queue and its ancestors below *common* stay within their fair shares with it."""
        after = plus(self.settled if usage is None else usage, job)
        return all(self.is_within(name, job, after) for name in self.tree.below(job.queue, common))

    def is_within(self, name: str, job: Job, usage: Running) -> bool:
        used = self.tree.used(name, usage)
        return all(used[resource] <= self.due[name][resource] for resource, amount in job.charge.items() if amount)

    def headroom(self, cluster: str, usage: Running) -> Amounts:
        running = (self.tree.jobs[name].requests for name, at in usage.items() if cluster in at)
        used = total([self.by_name[cluster].used, *running])
        return {name: amount - used.get(name, 0) for name, amount in self.by_name[cluster].allocatable.items()}

    def place(self, job: Job) -> tuple[str, ...] | None:
        """Return the clusters where the job would be admitted; ``None`` where quota or capacity is missing."""
        if self.tree.lacking(job, self.settled) or self.tree.lacking(job, self.current):
            return None
        clusters = [cluster.name for cluster in self.candidates(job) if self.has_room(job, cluster.name)]
        clusters.sort(key=lambda name: self.preference(job, name))
        return tuple(clusters[: job.copies]) if len(clusters) >= job.copies > 0 else None

    def has_room(self, job: Job, cluster: str, settled: Running | None = None, *, releases: bool = True) -> bool:
        """Return whether the gang fits now and after all evictions; with *settled*, after these only."""
        kept = self.set_aside(job, cluster, releases=releases)
        asked = job.requests if cluster in self.nominated_clusters() or kept is not None else job.gang
        if settled is not None:
            return fits(asked, self.left(cluster, settled, kept))
        is_now = fits(
            job.gang if cluster in self.nominated_clusters() else asked, self.left(cluster, self.current, kept)
        )
        return is_now and fits(asked, self.left(cluster, self.settled, kept))

    def nominated_clusters(self) -> set[str]:
        return {name for at in self.nominated.values() for name in at}

    def left(self, cluster: str, usage: Running, kept: Amounts | None) -> Amounts:
        return {name: amount - (kept or {}).get(name, 0) for name, amount in self.headroom(cluster, usage).items()}

    def set_aside(self, job: Job, cluster: str, *, releases: bool = True) -> Amounts | None:
        """O11: return what must stay free in addition to the job, if anything must; or else the whole amounts."""
        binding = [
            reservation
            for reservation in self.policy.advance_reservations
            if cluster in reservation.clusters and keeps_off(reservation, job)
        ]
        placed = (self.tree.jobs[name] for name, at in self.settled.items() if cluster in at)
        running = [(other, other.ends_at()) for other in placed if other.name not in self.nominated]
        kept: dict[str, int] = {}
        for at in (max(reservation.since, NOW) for reservation in binding):
            in_force = [reservation for reservation in binding if reservation.since <= at < reservation.until]
            released = total(other.requests for other, end in running if releases and end is not None and end <= at)
            needed: list[Amounts] = []
            for queue in {reservation.queue for reservation in in_force}:
                staying = (other for other, end in running if releases and (end is None or end > at))
                own = total(other.requests for other in staying if other.queue == queue)
                amounts = total(reservation.amounts for reservation in in_force if reservation.queue == queue)
                needed.append({name: max(amount - own.get(name, 0), 0) for name, amount in amounts.items()})
            for name, amount in total(needed).items():
                kept[name] = max(kept.get(name, 0), amount - released.get(name, 0))
        return {name: amount for name, amount in kept.items() if amount > 0} if binding else None

    def preference(self, job: Job, cluster: str, usage: Running | None = None) -> tuple:
        """C3: rank a cluster in which the gang minimum fits."""
        left = self.headroom(cluster, self.settled if usage is None else usage)
        has, fleet = (
            self.by_name[cluster].allocatable,
            total(candidate.allocatable for candidate in self.candidates(job)),
        )
        asked = job.requests if fits(job.requests, left) else job.gang
        extended = any("/" in name and amount and not job.requests.get(name) for name, amount in has.items())
        parts = [(-Fraction(amount, has[name]), name) for name, amount in asked.items() if amount and has.get(name)]
        name = min(parts)[1] if parts else ""
        over = Fraction(left.get(name, 0) - asked.get(name, 0), fleet.get(name, 1))
        return (not fits(job.requests, left), extended, over, cluster)

    def may_borrow(self, job: Job, base: Running | None = None) -> bool:
        """Return whether the job may take its queues above their fair shares; *base*: usage without its victims."""
        if not self.reclaim:
            return True
        base = self.settled if base is None else base
        path = self.tree.path(job.queue)
        if (job.preserved or job.evictions >= self.reclaim.max_evictions) and not self.within(job, path[1], base):
            return False
        is_over = False
        for branch, common in pairwise(path):
            is_over = is_over or self.lifts(branch, job, base)
            if is_over and not self.leaves_quota(job, common, branch, base):
                return False
        return True

    def lifts(self, name: str, job: Job, base: Running) -> bool:
        """Return whether the job takes a queue above its fair share and above its usage before."""
        now, after = self.tree.used(name, self.settled), self.tree.used(name, plus(base, job))
        asked = [resource for resource, amount in job.charge.items() if amount]
        return any(after[resource] > max(self.due[name][resource], now.get(resource, 0)) for resource in asked)

    def leaves_quota(self, job: Job, common: str, branch: str, base: Running) -> bool:
        """Return whether *common* has quota for *job* and other branches' pending workloads within fair shares."""
        kept = [
            other
            for child in self.tree.children(common)
            if child != branch
            for other in self.pending_within_fair_share(child)
        ]
        after, full = plus(base, job), plus(base, job, *kept)
        for resource in (name for name, amount in job.charge.items() if amount):
            booked = self.tree.booked(common, resource, after)
            raises = booked > self.tree.booked(common, resource, base)
            raises = raises and booked > self.tree.booked(common, resource, self.settled)
            more = self.tree.booked(common, resource, full)
            if raises and more > booked and more > self.tree.ceiling(common, resource):
                return False
        return True

    def pending_within_fair_share(self, name: str) -> list[Job]:
        """Return the pending workloads below a queue that together stay within its fair share, in order."""
        if name in self.tree.leaves():
            order = self.in_turn(name, exchange=True)
            order = [job for job in (order[:1] if self.tree.queues[name].fifo else order) if self.would_take(job)]
        else:
            order = [job for child in self.tree.children(name) for job in self.pending_within_fair_share(child)]
        queues, kept = self.tree.queues, list[Job]()
        order.sort(key=lambda job: (-queues[job.queue].priority, -self.raised(job), job.since, job.namespace, job.name))
        for job in order:
            if self.is_within(name, job, plus(self.settled, *kept, job)):
                kept.append(job)
        return kept

    def would_take(self, job: Job) -> bool:
        """Return whether candidate clusters would fit the job after everything reclaimable is evicted."""
        rest = less(self.settled, *self.movable())
        takers = [each for each in self.candidates(job) if self.has_room(job, each.name, rest, releases=False)]
        return len(takers) >= max(job.copies, 1)

    def movable(self) -> list[Job]:
        """Return the running jobs that could be reclaimed from borrowing queues before a reservation begins."""
        victims = sorted(victims_in(self, self.settled), key=lambda victim: self.last_evicted(*victim))
        movable: list[Job] = []
        for victim in victims:
            spare = to_spare(self, self.settled, victim[0].hyperjob)
            alone = sum(part.hyperjob == victim[0].hyperjob for part in movable) if len(victim) == 1 and spare else -1
            if alone < spare and self.is_movable(victim):
                movable += [job for job in victim if job not in movable]
        return movable

    def is_movable(self, victim: Victim) -> bool:
        queue, charge = victim[0].queue, total(job.charge for job in victim)
        used = self.tree.used(queue, self.settled)
        has_borrowed = any(amount > self.due[queue][resource] for resource, amount in used.items())
        keeps_guarantee = all(
            used[resource] - amount >= self.tree.guarantee(queue, resource)
            for resource, amount in charge.items()
            if amount
        )
        after = self.policy.head_reservation.after_ms
        return has_borrowed and keeps_guarantee and all(self.is_reclaimable(job, ROOT, after) for job in victim)

    def fits_after_evictions(self, job: Job) -> bool:
        rooms = [cluster for cluster in self.candidates(job) if self.has_room(job, cluster.name, self.settled)]
        return bool(rooms) and not self.tree.lacking(job, self.settled)

    def last_evicted(self, *jobs: Job) -> tuple:
        """P3: return the last one of *jobs* in the order of victims of one branch."""
        queues, ageing = self.tree.queues, self.policy.ageing
        return max(
            (queues[job.queue].priority, job.priority + raised_by(ageing, job.since, NOW - job.ran), job.ran, job.name)
            for job in jobs
        )

    def is_reclaimable(self, job: Job, common: str, within: int = 0) -> bool:
        """P1, P4: whether reclaim by a queue outside *common* may evict a job within *within* seconds."""
        setting = self.reclaim
        reclaimable = all(self.tree.queues[name].reclaimable for name in self.tree.below(job.queue, common))
        ran = 0 if job.name in self.admitted else job.ran
        is_running = setting is not None and job.name not in self.nominated
        return is_running and reclaimable and evictable(job, setting, ran + within)

    def exchange_once(self) -> bool:
        """Carry out the first preemption in O1's order; return whether there is one."""
        heads = self.heads(self.exchange, exchange=True)
        job = self.first(self.within_fair_shares(heads) or heads)
        if job is None:
            return False
        victims, cluster, jobs = self.exchange(job) or ([], "", [])
        for victim in self.with_parts([victim for together in victims for victim in together]):
            del self.settled[victim.name]
            if not self.held_otherwise(victim):
                self.leaving.add(victim.name)
            self.decisions.append(Decision("Evict", victim.name, jobs[0].name))
        for nominated in jobs:
            del self.waiting[nominated.name]
            self.settled[nominated.name] = self.nominated[nominated.name] = (cluster,)
        self.decisions.append(Decision("Nominate", jobs[0].name, cluster))
        self.due = self.fair_shares()
        return True

    def with_parts(self, evicted: list[Job]) -> list[Job]:
        """G1: return *evicted* with the other parts of their HyperJobs where too few would be left."""
        left = [self.tree.jobs[name] for name in sorted(less(self.settled, *evicted)) if name not in self.nominated]
        for job in list(evicted):
            parts = [part for part in left if part.hyperjob == job.hyperjob] if job.hyperjob else []
            evicted += parts if len(parts) < job.minimum else []
            left = [part for part in left if part not in evicted]
        return evicted

    def fair_shares(self) -> Mapping[str, Exact]:
        pending = [self.tree.jobs[name] for name in (*self.waiting, *self.leaving)]
        return fair_shares(self.tree, pending, self.settled)

    def admit_nominated(self) -> None:
        """P5: admit nominated workloads that fit, in order; free capacity is retained for the others."""
        kept: list[str] = []
        in_order = list(self.nominated.items())
        for name, _ in in_order:
            if name in kept or name not in self.nominated:
                continue
            together = [other for other in self.nominated if self.are_together(name, other)]
            before = self.settled, self.current, self.nominated, self.decisions
            self.settled, self.current, self.nominated, self.decisions = (
                {**self.settled},
                {**self.current},
                {**self.nominated},
                [*self.decisions],
            )
            if all(self.admit_one_nominated(other, kept, in_order) for other in together):
                self.admitted.update(together)
            else:
                self.settled, self.current, self.nominated, self.decisions = before
                kept += together

    def are_together(self, name: str, other: str) -> bool:
        return name == other

    def admit_one_nominated(self, name: str, kept: Iterable[str], in_order: list[tuple[str, tuple[str, ...]]]) -> bool:
        """Admit one nominated workload; return whether it fits."""
        job, (nominated,) = self.tree.jobs[name], self.nominated[name]
        del self.settled[name], self.nominated[name]
        position = [other for other, _ in in_order].index(name)
        younger = {other: at for other, at in in_order[position + 1 :] if at == (nominated,)}
        usage = {**self.current, **{other: self.nominated[other] for other in kept}}
        names = [cluster.name for cluster in self.candidates(job)]
        names = [
            candidate
            for candidate in names
            if self.fits_before(job, candidate, usage, younger if candidate == nominated else {})
        ]
        if not names or self.tree.lacking(job, self.settled) or self.tree.lacking(job, self.current):
            return False
        at = min(names, key=lambda cluster: (cluster != nominated, self.preference(job, cluster)))
        self.settled[name] = self.current[name] = (at,)
        if not job.nominated:
            self.decisions = [made for made in self.decisions if made != Decision("Nominate", name, nominated)]
        self.decisions.append(Decision("Admit", name, at))
        return True

    def fits_before(self, job: Job, cluster: str, usage: Running, younger: Running) -> bool:
        """Return whether a nominated job fits, where *younger* nominations do not bind it."""
        settled, nominated = self.settled, self.nominated
        self.settled = {name: at for name, at in settled.items() if name not in younger}
        self.nominated = {name: at for name, at in nominated.items() if name not in younger}
        try:
            return self.has_room(job, cluster) and self.fits_beside(job, cluster, usage)
        finally:
            self.settled, self.nominated = settled, nominated

    def fits_beside(self, job: Job, cluster: str, usage: Running) -> bool:
        """Return whether a nominated job fits in addition to *usage*, which includes what is retained for others."""
        kept = self.set_aside(job, cluster)
        asked = job.requests if kept is not None and cluster not in self.nominated_clusters() else job.gang
        return fits(asked, self.left(cluster, usage, kept))

    def exchange(self, job: Job) -> Exchange | None:
        """Return the victims for *job* and its cluster, by reclaim or else preemption; empty if nothing is missing."""
        if job.copies > 1 or self.fits_after_evictions(job):
            return None
        for search in (self.reclaim and Reclaim(self, job), self.preemption and Preemption(self, job)):
            best = search.best() if search else None
            if best:
                return *best, [job]
        return None
