"""HyperJob parts that are admitted together, and trial placements of their gangs (G1).

Workloads name their gang themselves. A trial leaves no trace in the usage.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from controller.engine.fairness.borrowing import BorrowingPolicy
from controller.engine.fairness.pending_order import FifoHeads
from controller.engine.placement.feasibility_cache import Feasibility, FeasibilityCache
from controller.engine.placement.fit import choose_clusters, free_capacity
from controller.engine.placement.part_order import PartOrder, PartSorter
from controller.engine.reasons import Reason, Refusal
from controller.engine.reservations.active import ActiveReservations
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.resources import Resources, fits
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import Choice, HyperJobGang, SchedulingRequirements, Workload

#: A HyperJob with parts of many sizes is compared with the empty clusters for so many of them.
_MAX_SIZES: Final = 8
#: Number of parts that a cluster holds if they request nothing.
_UNLIMITED: Final = 10**9

#: How often the parts of a HyperJob are placed again in one order, without those that may not borrow.
_MAX_RETRIES: Final = 3


@dataclass(slots=True)
class GangTrial:
    """Parts of a gang that would be admitted, with their clusters, or the refusal of the first that does not fit."""

    choices: list[tuple[Workload, Choice]] = field(default_factory=list)
    refusal: Refusal | None = None
    """Why fewer parts than needed fit."""
    may_not_borrow: set[WorkloadClass] = field(default_factory=set)
    """The classes of parts that were placed and may not borrow after those before them."""
    borrows: bool = False
    """Whether the parts that must start together would borrow, where such heads go last (O3)."""


def incomplete_refusal(workloads: WorkloadIndex, gang: HyperJobGang) -> Refusal | None:
    """Return the refusal of a gang with too few pending parts to be tried; ``None`` where there are enough."""
    missing = workloads.gangs.missing(gang)
    pending = sum(uid in workloads.pending for uid in workloads.gangs.parts(gang))
    if pending >= missing:
        return None
    return Refusal(
        Reason.HYPERJOB_INCOMPLETE, subject=f"{missing - pending} of at least {gang.minimum} parts are missing"
    )


def never_fits_refusal(
    workloads: WorkloadIndex, gang: HyperJobGang, potential: Quota, feasibility_cache: FeasibilityCache
) -> Refusal | None:
    """Return why no capacity would ever admit enough parts of a complete *gang* together; ``None`` where it may (C5).

    Either too few parts would be admitted alone, or the smallest ones exceed *potential*, the quota without usage, or
    more parts of one size must start than the empty clusters hold. Parts of several sizes may still not fit then.
    """
    missing = workloads.gangs.missing(gang)
    if missing <= 1:
        return None
    pending = [(part, workloads.pending.class_of(part.uid)) for part in workloads.pending_parts(gang)]
    inadmissible = [(part, each.inadmissible) for part, each in pending if each.inadmissible is not None]
    parts = [(part, each) for part, each in pending if each.inadmissible is None]
    if len(parts) < missing:
        return _part_refusal(*inadmissible[0])
    charges = dict[Node, list[Resources]]()
    for part, each in parts:
        charges.setdefault(potential.tree.nodes[part.queue], []).append(each.charge)
    resources = sorted({name for _, each in parts for name, amount in each.charge.items() if amount > 0})
    if not any(_exceed_quota(potential, charges, name, others=len(parts) - missing) for name in resources):
        return _too_many_refusal(parts, missing, feasibility_cache)
    trial = potential.overlay()
    for part, each in parts:
        node = trial.tree.nodes[part.queue]
        if (refusal := trial.refusal(node, each.charge)) is not None:
            return _part_refusal(part, refusal)
        trial.add_assumed(node, each.charge)
    return None


def _exceed_quota(potential: Quota, charges: Mapping[Node, Sequence[Resources]], resource: str, *, others: int) -> bool:
    """Return whether *charges* by leaf exceed *potential* together, whichever *others* of them are left out.

    The reserved quota of a queue grows by the amounts of its smallest parts, in order, less what its idle guarantee
    covers. So the smallest increases of its children are the least by which the sum below an ancestor grows.
    """
    increases = {node: [charge.get(resource, 0) for charge in each] for node, each in charges.items()}
    nodes = {above for node in charges for above in node.path()}
    for node in sorted(nodes, key=lambda node: -node.depth):
        amounts = sorted(increases[node])
        count = len(amounts) - others
        is_limited = count > 1 and node.limits_resource(resource)
        if is_limited and sum(amounts[:count]) > potential.unreserved(node, resource):
            return True
        if node.parent is not None:
            uncovered = _uncovered(amounts, potential.idle_guarantee(node, resource))
            increases.setdefault(node.parent, []).extend(uncovered)
    return False


def _uncovered(amounts: Sequence[int], idle: int) -> Iterator[int]:
    """Yield the part of each of *amounts* that *idle*, used up in order, does not cover."""
    for amount in amounts:
        covered = min(amount, idle)
        idle -= covered
        yield amount - covered


def _too_many_refusal(
    parts: Sequence[tuple[Workload, WorkloadClass]], missing: int, feasibility_cache: FeasibilityCache
) -> Refusal | None:
    """Return the refusal of a part if fewer than *missing* of *parts* fit the empty clusters; ``None`` if unknown.

    A part takes at least as much of a cluster as another one that requests no more.
    """
    cluster_usage = feasibility_cache.cluster_usage
    sizes = {id(workload_class.requirements): (part, workload_class.requirements) for part, workload_class in parts}
    counts = Counter(id(workload_class.requirements) for _, workload_class in parts)
    # Equal parts may differ in their clusters.
    distinct = {
        (frozenset(size.gang_requests.items()), frozenset(size.requests.items())): (part, size)
        for part, size in sizes.values()
    }
    for smallest, size in islice(distinct.values(), _MAX_SIZES):
        larger = [other for _, other in sizes.values() if _requests_no_more(size, other)]
        needed, room = missing - len(parts) + sum(counts[id(other)] for other in larger), 0
        if needed <= 1:
            continue
        seen = set[ClusterName]()
        for name in chain.from_iterable(feasibility_cache.get(other).candidates.potential for other in larger):
            if name in seen:
                continue
            seen.add(name)
            cluster_state = cluster_usage.cluster_state(name)
            room += needed if cluster_state.is_unknown else _room(size, cluster_state.allocatable)
            if room >= needed:
                break
        else:
            why = f"{needed} parts of at least its size must start together, the empty clusters hold {room}"
            subject = f"{smallest.path} ({why})"
            return Refusal(Reason.HYPERJOB_DOES_NOT_FIT, subject=subject)
    return None


def _requests_no_more(one: SchedulingRequirements, other: SchedulingRequirements) -> bool:
    """Return whether *one* requests no more than *other*, for its gang and for all its pods."""
    return fits(one.gang_requests, other.gang_requests) and fits(one.requests, other.requests)


def _room(requirements: SchedulingRequirements, allocatable: Resources) -> int:
    """Return how many workloads an empty cluster holds at most; for the last one it suffices that its gang fits."""
    counts = [
        (allocatable.get(name, 0) - amount) // max(requirements.requests.get(name, 0), amount) + 1
        for name, amount in requirements.gang_requests.items()
        if amount > 0
    ]
    return max(min(counts, default=_UNLIMITED), 0)


class GangPlacer:
    """Tries gangs in view of usage, reservations and borrowing rules; changes nothing."""

    def __init__(
        self,
        heads: FifoHeads,
        feasibility_cache: FeasibilityCache,
        quotas: Sequence[Quota],
        reservations: ActiveReservations | None,
        borrowing: BorrowingPolicy | None,
    ) -> None:
        self._heads = heads
        self._workloads = heads.workloads
        self._feasibility_cache = feasibility_cache
        self._quotas = quotas
        """Settled and, where it differs, current usage."""
        self._reservations = reservations
        self._borrowing = borrowing

    def place(self, gang: HyperJobGang) -> GangTrial:
        """Try to place the pending parts of *gang* together, in order.

        Where there are borrowing rules, the parts must also be allowed to borrow what exceeds their queues' fair
        shares. If that fails, parts with reservations are tried again on their reserved clusters, and then all parts in
        other orders.
        """
        parts = self._workloads.pending_parts(gang)
        trial = self._try_parts(gang, parts)
        if trial.refusal is None:
            return trial
        reserved = [part for part in parts if part.has_reservation]
        others = [part for part in parts if not part.has_reservation]
        if reserved:
            other = self._try_parts(gang, [*reserved, *others], on_reservations=True)
            if other.refusal is None:
                return other
        sorter = PartSorter(parts, self._workloads.pending, self._feasibility_cache)
        for order in () if sorter.has_equal_parts else (PartOrder.MOST_CONSTRAINED_FIRST, PartOrder.SMALLEST_FIRST):
            other = self._try_parts(gang, sorter.in_order(order))
            if other.refusal is None:
                return other
        return trial

    def _try_parts(self, gang: HyperJobGang, parts: Sequence[Workload], *, on_reservations: bool = False) -> GangTrial:
        """Try *parts* in order; where some may not borrow, place the others again without these."""
        missing, class_of = self._workloads.gangs.missing(gang), self._workloads.pending.class_of
        trial = best = self._try_once(parts, missing=missing, on_reservations=on_reservations)
        for _ in range(_MAX_RETRIES):
            placed = {part.uid for part, _ in trial.choices}
            parts = [part for part in parts if part.uid in placed or class_of(part.uid) not in trial.may_not_borrow]
            if not trial.may_not_borrow or len(parts) < missing:
                break
            trial = self._try_once(parts, missing=missing, on_reservations=on_reservations)
            best = trial if trial.refusal is None else best
        return best

    def _try_once(self, parts: Sequence[Workload], *, missing: int, on_reservations: bool) -> GangTrial:
        trial, quotas = GangTrial(), [quota.overlay() for quota in self._quotas]
        self._place_parts(parts, trial, quotas, missing=missing, on_reservations=on_reservations)
        if self._borrowing is not None:
            self._drop_parts_that_may_not_borrow(trial, self._borrowing, self._quotas[0].overlay(), missing=missing)
        if len(trial.choices) >= missing:
            trial.refusal = None
        return trial

    def _place_parts(
        self,
        parts: Sequence[Workload],
        trial: GangTrial,
        quotas: Sequence[Quota],
        *,
        missing: int,
        on_reservations: bool,
    ) -> None:
        """Choose the clusters of each part, next to the parts placed before, until too few can be placed."""
        cluster_usage = self._feasibility_cache.cluster_usage
        try:
            for number, workload in enumerate(parts):
                if trial.refusal is not None and len(trial.choices) + len(parts) - number < missing:
                    break
                choice = self._place_part(workload, quotas, on_reservations=on_reservations)
                if isinstance(choice, Choice):
                    for quota in quotas:
                        quota.add_assumed(quota.tree.nodes[workload.queue], choice.charge)
                    cluster_usage.begin_trial(workload, choice)
                    trial.choices.append((workload, choice))
                elif trial.refusal is None:
                    trial.refusal = _part_refusal(workload, choice)
        finally:
            for workload, choice in trial.choices:
                cluster_usage.end_trial(workload, choice)

    def _place_part(self, workload: Workload, quotas: Sequence[Quota], *, on_reservations: bool) -> Choice | Refusal:
        workload_class = self._workloads.pending.class_of(workload.uid)
        if workload_class.inadmissible is not None:
            return workload_class.inadmissible
        if not workload_class.is_waiting:
            return Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=workload_class.key.nominated_cluster)
        head = self._heads.before(workload)
        if head is not None:
            return Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue=workload.queue, subject=head.path)
        refusals = (quota.refusal(quota.tree.nodes[workload_class.queue], workload_class.charge) for quota in quotas)
        refusal = next(filter(None, refusals), None)
        feasibility = self._feasibility_cache.get(workload_class.requirements)
        choice = (
            refusal
            or (self._place_on_reservation(workload, feasibility) if on_reservations else None)
            or self._feasibility_cache.choose(feasibility)
        )
        if isinstance(choice, Choice) and self._reservations is not None:
            return self._reservations.resolve(workload, feasibility, choice, quotas[0])
        return choice

    def _place_on_reservation(self, part: Workload, feasibility: Feasibility) -> Choice | None:
        """Return the placement of *part* on its reservation; ``None`` while the reserved capacity is not free."""
        reserved = part.reservation.cluster_charges if part.reservation is not None else ()
        reserved_clusters = {cluster_charge.cluster for cluster_charge in reserved}
        capacities = [
            free_capacity(self._feasibility_cache.cluster_usage.cluster_state(name))
            for name in feasibility.candidates.names
            if name in reserved_clusters
        ]
        choice = choose_clusters(part.requirements, capacities, feasibility.candidates.copies) if capacities else None
        return choice if isinstance(choice, Choice) else None

    def _drop_parts_that_may_not_borrow(
        self, trial: GangTrial, borrowing: BorrowingPolicy, quota: Quota, *, missing: int
    ) -> None:
        """Remove the parts from *trial* that may not borrow after those before them, until too few are left.

        No quota is left for the parts before, which are charged already; only parts of other queues matter there.
        """
        choices, trial.choices = trial.choices, []
        has_more_queues = len({workload.queue for workload, _ in choices}) > 1
        rules: BorrowingPolicy | None = None
        for number, (workload, choice) in enumerate(choices):
            if trial.refusal is not None and len(trial.choices) + len(choices) - number < missing:
                break
            workload_class = self._workloads.pending.class_of(workload.uid)
            leaf = quota.tree.nodes[workload.queue]
            refusal = borrowing.refusal(leaf, workload_class, quota)
            if refusal is not None and has_more_queues and trial.choices:
                rules = rules or borrowing.during_trial(quota, (part for part, _ in trial.choices))
                refusal = rules.refusal(leaf, workload_class, quota)
            if refusal is None:
                rules = None
                quota.add_assumed(leaf, choice.charge)
                trial.choices.append((workload, choice))
                continue
            trial.may_not_borrow.add(workload_class)
            trial.refusal = trial.refusal or _part_refusal(workload, refusal)


def _part_refusal(part: Workload, refusal: Refusal) -> Refusal:
    """Return the gang's refusal, which names the part and its reason."""
    return Refusal(
        Reason.HYPERJOB_DOES_NOT_FIT,
        refusal.resource,
        refusal.asked,
        refusal.available,
        queue=refusal.queue,
        cluster=refusal.cluster,
        subject=f"{part.path} ({refusal.reason})",
    )
