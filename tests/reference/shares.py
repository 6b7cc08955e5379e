"""Rules Q2 to Q4 in their plainest form: guarantees, limits, reserved quota and fair share of every queue."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from itertools import pairwise

from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import ROOT, QueueState
from tests.reference.state import Job, Running, State, plus, total

Exact = Mapping[str, Fraction]


class Tree:
    """The queue hierarchy of a state and the usage of its running jobs."""

    def __init__(self, state: State):
        self.world = state
        self.queues = {queue.name: queue for queue in state.queues}
        self.jobs = {job.name: job for job in state.jobs}
        self.began = {job.name: job.clusters for job in state.jobs if job.clusters}
        self.resources = sorted(total([*(c.allocatable for c in state.clusters), *(j.charge for j in state.jobs)]))

    def children(self, name: str) -> list[str]:
        return sorted(queue.name for queue in self.world.queues if queue.parent == name)

    def path(self, name: str) -> list[str]:
        """Return the queue and its ancestors, the root last."""
        return [name] if name == ROOT else [name, *self.path(self.queues[name].parent)]

    def below(self, name: str, ancestor: str) -> list[str]:
        """Return the queue and its ancestors below *ancestor*, the branch last."""
        path = self.path(name)
        return path[: path.index(ancestor)]

    def leaves(self) -> list[str]:
        return [name for name in sorted(self.queues) if not self.children(name)]

    def open(self, name: str) -> bool:
        return not any(
            self.queues[ancestor].state is QueueState.CLOSED for ancestor in self.path(name) if ancestor != ROOT
        )

    def used(self, name: str, running: Running) -> dict[str, int]:
        """Return the charges of a queue and its descendants."""
        return total(self.jobs[job].charge for job in running if name in self.path(self.jobs[job].queue))

    def direct(self, name: str, running: Running) -> dict[str, int]:
        return total(self.jobs[job].charge for job in running if self.jobs[job].queue == name)

    @cache  # noqa: B019 - a tree lives as long as its plan
    def claim(self, name: str, resource: str, *, empty: bool = False) -> int:
        """Q3: larger of own and children's guarantees, up to the capability; of a closed queue up to its usage."""
        queue = self.queues[name]
        below = sum(self.claim(child, resource, empty=empty) for child in self.children(name))
        amount = max(queue.guarantee.get(resource, 0), below)
        amount = min(amount, queue.capability.get(resource, amount))
        return amount if self.open(name) else min(amount, 0 if empty else self.used(name, self.began).get(resource, 0))

    @cache  # noqa: B019
    def guarantee(self, name: str, resource: str, *, empty: bool = False) -> int:
        """Q3: the effective guarantee, scaled down with its siblings' to what the parent has."""
        if name == ROOT:
            return self.ceiling(ROOT, resource, empty=empty)
        parent = self.queues[name].parent
        claims = sum(self.claim(child, resource, empty=empty) for child in self.children(parent))
        available = self.guarantee(parent, resource, empty=empty)
        own = self.claim(name, resource, empty=empty)
        return own * available // claims if claims > available else own

    @cache  # noqa: B019
    def ceiling(self, name: str, resource: str, *, empty: bool = False) -> int:
        """Q1, Q2: the limit of a queue; with *empty*, for a state without usage."""
        if name == ROOT:
            return sum(self.root_share(cluster, resource, empty=empty) for cluster in self.world.clusters)
        queue = self.queues[name]
        siblings = [child for child in self.children(queue.parent) if child != name]
        amount = self.ceiling(queue.parent, resource, empty=empty)
        amount -= sum(self.guarantee(child, resource, empty=empty) for child in siblings)
        return min(amount, queue.capability.get(resource, amount))

    def root_share(self, cluster: Cluster, resource: str, *, empty: bool) -> int:
        """Q1: what a cluster adds to the limit of the root; while it is unusable, what is charged there."""
        has = cluster.allocatable.get(resource, 0)
        if empty or cluster.ready:
            return has if empty else max(has - cluster.used.get(resource, 0), 0)
        return sum(self.jobs[name].requests.get(resource, 0) for name, at in self.began.items() if cluster.name in at)

    def reserved(self, name: str, resource: str, running: Running) -> int:
        """Q2: the reserved quota of a queue."""
        return max(self.guarantee(name, resource), self.booked(name, resource, running))

    def booked(self, name: str, resource: str, running: Running) -> int:
        """Q2: direct charges and the children's reserved quota."""
        below = sum(self.reserved(child, resource, running) for child in self.children(name))
        return self.direct(name, running).get(resource, 0) + below

    def lacking(self, job: Job, running: Running) -> set[tuple[str, str]]:
        """Return the queues and resources for which quota for *job* is missing (Q2)."""
        after = plus(running, job)
        lacking = set()
        for name in self.path(job.queue):
            for resource, amount in job.charge.items():
                ceiling = self.ceiling(name, resource)
                booked = self.booked(name, resource, after)
                if booked == self.booked(name, resource, running):
                    booked = self.used(name, after)[resource]
                if amount and booked > ceiling:
                    lacking.add((name, resource))
        return lacking


def fair_shares(tree: Tree, waiting: Iterable[Job], running: Running) -> dict[str, Exact]:
    """Q4: return the fair share of every queue, with the demand of *waiting*."""
    divisions = [_Division(tree, resource, list(waiting), running) for resource in tree.resources]
    for division in divisions:
        division.share_out(ROOT, Fraction(tree.ceiling(ROOT, division.resource)))
    return {name: {division.resource: division.due[name] for division in divisions} for name in [ROOT, *tree.queues]}


class _Division:
    """Q4 for one resource."""

    def __init__(self, tree: Tree, resource: str, waiting: list[Job], running: Running):
        self.tree, self.resource, self.waiting, self.running = tree, resource, waiting, running
        self.due: dict[str, Fraction] = {}

    def cap(self, name: str) -> int:
        return max(0, min(self.demand(name), self.tree.ceiling(name, self.resource)))

    def demand(self, name: str) -> int:
        own = sum(job.charge.get(self.resource, 0) for job in self.waiting if job.queue == name)
        return own + self.direct(name) + sum(self.cap(child) for child in self.tree.children(name))

    def direct(self, name: str) -> int:
        return self.tree.direct(name, self.running).get(self.resource, 0)

    def share_out(self, name: str, fair_share: Fraction) -> None:
        """Set the fair share of a queue, and divide it among its children in two steps."""
        self.due[name] = fair_share
        children, amount = self.tree.children(name), max(Fraction(0), fair_share - self.direct(name))
        floors = {child: Fraction(self.tree.guarantee(child, self.resource)) for child in children}
        caps = {child: Fraction(self.cap(child)) for child in children}
        deserved = {child: self.tree.queues[child].deserved.get(self.resource, 0) for child in children}
        weights = {child: self.tree.queues[child].weight for child in children}
        for child, share in divide(amount, floors, caps, deserved, weights).items():
            self.share_out(child, share)


def divide(
    amount: Fraction, floors: Exact, caps: Exact, deserved: Mapping[str, int], weights: Mapping[str, int]
) -> dict[str, Fraction]:
    """Q4: return the part of *amount* of each child; *floors* are the guarantees."""
    if (claimed := sum(floors.values())) > amount:
        floors = {child: floor * amount / claimed for child, floor in floors.items()}
    level = highest(amount, floors, caps, dict.fromkeys(caps, Fraction(0)), deserved, most=Fraction(1))
    base = {child: min(caps[child], level * deserved[child]) for child in caps}
    level = highest(amount, floors, caps, base, weights, most=None)
    return {child: max(floors[child], min(caps[child], base[child] + level * weights[child])) for child in caps}


def highest(
    amount: Fraction, floors: Exact, caps: Exact, base: Exact, slopes: Mapping[str, int], *, most: Fraction | None
) -> Fraction:
    """Return the largest level up to *most* that *amount* allows, each child at its floor, cap or base + level."""

    def need(level: Fraction) -> Fraction:
        return sum((max(floors[c], min(caps[c], base[c] + level * slopes[c])) for c in caps), Fraction(0))

    bends = [
        (bound[child] - base[child]) / slopes[child] for child in caps if slopes[child] for bound in (floors, caps)
    ]
    most = max([Fraction(0), *bends]) if most is None else most
    levels = sorted({Fraction(0), most, *(bend for bend in bends if 0 < bend < most)})
    best = Fraction(0)
    for low, high in pairwise(levels):
        if need(high) > amount:
            rise = need(high) - need(low)
            return low + (amount - need(low)) * (high - low) / rise if need(low) <= amount else best
        best = high
    return best
