"""HyperJob parts that are admitted together, and trial placements of their gangs (G1).

Workloads name their gang themselves. A trial leaves no trace in the usage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.engine.placement.fit import choose_clusters, free_capacity
from controller.engine.reasons import Reason, Refusal
from controller.engine.reservations.active import active_reservations
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.workloads import Choice, HyperJobGang, Workload, WorkloadState, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.engine import Engine
    from controller.engine.fairness.borrowing import BorrowingPolicy
    from controller.engine.placement.feasibility_cache import ClassFeasibility


class HyperJobGangs:
    """The known parts of every gang, by state."""

    def __init__(self) -> None:
        self.changed: set[HyperJobGang] = set()
        """Gangs of which a part was added, removed or started since their workload classes were last evaluated."""
        self.unchecked: set[HyperJobGang] = set()
        """The same since the gangs were last checked for missing parts (R1)."""
        self._parts: dict[HyperJobGang, dict[WorkloadUid, WorkloadState]] = {}

    def update(self, before: Workload | None, workload: Workload | None) -> None:
        """Update a workload that was *before*; ``None`` where it does not exist."""
        if before is not None and (workload is None or before.gang != workload.gang):
            self._remove(before)
        if workload is None or workload.gang is None:
            return
        self._add(workload)
        if before is not None and before.hold != workload.hold:
            self._mark_changed(workload.gang)

    def _add(self, workload: Workload) -> None:
        if workload.gang is not None and self._parts.get(workload.gang, {}).get(workload.uid) != workload.state:
            self._parts.setdefault(workload.gang, {})[workload.uid] = workload.state
            self._mark_changed(workload.gang)

    def _remove(self, workload: Workload) -> None:
        if workload.gang is not None and workload.gang in self._parts:
            self._parts[workload.gang].pop(workload.uid, None)
            self._mark_changed(workload.gang)
            if not self._parts[workload.gang]:
                del self._parts[workload.gang]

    def _mark_changed(self, gang: HyperJobGang) -> None:
        self.changed.add(gang)
        self.unchecked.add(gang)

    def mark_all_changed(self) -> None:
        """Mark every gang as changed."""
        self.changed.update(self._parts)
        self.unchecked.update(self._parts)

    def parts(self, gang: HyperJobGang) -> list[WorkloadUid]:
        """Return the known parts, sorted by uid."""
        return sorted(self._parts.get(gang, ()))

    def dependents(self, part: Workload, workloads: Mapping[WorkloadUid, Workload]) -> list[Workload]:
        """Return the admitted parts to evict with *part*, because fewer than the gang minimum would be left."""
        if part.gang is None:
            return []
        others = [workloads[uid] for uid in self.parts(part.gang) if uid != part.uid]
        if sum(other.state is not WorkloadState.PENDING for other in others) >= part.gang.minimum:
            return []
        return [other for other in others if other.state is WorkloadState.ADMITTED]

    def missing(self, gang: HyperJobGang) -> int:
        """Return how many parts must start before the others are admitted one by one; 0 for none."""
        started = sum(state is not WorkloadState.PENDING for state in self._parts.get(gang, {}).values())
        return max(gang.minimum - started, 0)


@dataclass(slots=True)
class GangTrial:
    """Parts of a gang that would be admitted, with their clusters, or the refusal of the first that does not fit."""

    choices: list[tuple[Workload, Choice]] = field(default_factory=list)
    refusal: Refusal | None = None
    """Why fewer parts than needed fit."""


def incomplete_refusal(state: "Engine", gang: HyperJobGang) -> Refusal | None:
    """Return the refusal of a gang with too few pending parts to be tried; ``None`` where there are enough."""
    missing = state.gangs.missing(gang)
    pending = sum(uid in state.pending for uid in state.gangs.parts(gang))
    if pending >= missing:
        return None
    return Refusal(
        Reason.HYPERJOB_INCOMPLETE, subject=f"{missing - pending} of at least {gang.minimum} parts are missing"
    )


def is_all_or_nothing(state: "Engine", workload_class: WorkloadClass) -> bool:
    """Say whether the parts of *workload_class* are admitted only together with others."""
    return workload_class.gang is not None and state.gangs.missing(workload_class.gang) > 1


def try_gang(state: "Engine", gang: HyperJobGang, borrowing: "BorrowingPolicy | None" = None) -> GangTrial:
    """Try to place the pending parts of *gang* together, in order; change nothing.

    With *borrowing*, the parts must also be allowed to borrow what exceeds their queues' fair shares. If that
    fails and parts have reservations, they are tried again on their reserved clusters.
    """
    parts = pending_parts(state, gang)
    trial = _try_parts(state, gang, parts, borrowing)
    reserved = [part for part in parts if part.has_reservation]
    if trial.refusal is None or not reserved:
        return trial
    others = [part for part in parts if not part.has_reservation]
    other = _try_parts(state, gang, [*reserved, *others], borrowing, on_reservations=True)
    return trial if other.refusal is not None else other


def _try_parts(
    state: "Engine",
    gang: HyperJobGang,
    parts: Sequence[Workload],
    borrowing: "BorrowingPolicy | None",
    *,
    on_reservations: bool = False,
) -> GangTrial:
    trial = GangTrial()
    queue_shares, present = state.queue_shares, state.queue_usage.current_quota()
    if queue_shares is None:
        return trial
    quotas = [quota.overlay() for quota in (queue_shares.quota, present) if quota is not None]
    _place_parts(state, parts, trial, quotas, on_reservations=on_reservations)
    if borrowing is not None:
        _drop_parts_that_may_not_borrow(state, trial, borrowing, queue_shares.quota.overlay())
    if len(trial.choices) >= state.gangs.missing(gang):
        trial.refusal = None
    return trial


def _place_parts(
    state: "Engine", parts: Sequence[Workload], trial: GangTrial, quotas: Sequence[Quota], *, on_reservations: bool
) -> None:
    """Choose the clusters of each part, next to the parts placed before."""
    for workload in parts:
        choice = _place_part(state, workload, quotas, on_reservations=on_reservations)
        if isinstance(choice, Choice):
            for quota in quotas:
                quota.add_assumed(quota.tree.nodes[workload.queue], choice.charge)
            state.begin_trial(workload, choice)
            trial.choices.append((workload, choice))
        elif trial.refusal is None:
            trial.refusal = _part_refusal(workload, choice)
    for workload, choice in trial.choices:
        state.end_trial(workload, choice)


def _place_part(
    state: "Engine", workload: Workload, quotas: Sequence[Quota], *, on_reservations: bool
) -> Choice | Refusal:
    workload_class = state.pending.class_of(workload.uid)
    if workload_class.inadmissible is not None:
        return workload_class.inadmissible
    if not workload_class.is_waiting:
        return Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=workload_class.nominated_cluster)
    refusals = (quota.refusal(quota.tree.nodes[workload_class.queue], workload_class.charge) for quota in quotas)
    refusal = next(filter(None, refusals), None)
    feasibility = state.queue_usage.feasibility_cache.get(workload_class.requirements)
    choice = (
        refusal
        or (_place_on_reservation(state, workload, feasibility) if on_reservations else None)
        or state.queue_usage.feasibility_cache.choose(feasibility)
    )
    if isinstance(choice, Choice) and (reserved := active_reservations(state)) is not None:
        return reserved.resolve(workload, feasibility, choice, quotas[0])
    return choice


def _place_on_reservation(state: "Engine", part: Workload, feasibility: "ClassFeasibility") -> Choice | None:
    """Return the placement of *part* on its reservation; ``None`` while the reserved capacity is not free."""
    reserved_clusters = (
        {booking.cluster for booking in part.reservation.cluster_charges} if part.reservation is not None else set()
    )
    capacities = [
        free_capacity(state.cluster_usage.cluster_state(name))
        for name in feasibility.candidates.names
        if name in reserved_clusters
    ]
    choice = choose_clusters(part.requirements, capacities, feasibility.candidates.copies) if capacities else None
    return choice if isinstance(choice, Choice) else None


def _drop_parts_that_may_not_borrow(
    state: "Engine", trial: GangTrial, borrowing: "BorrowingPolicy", quota: Quota
) -> None:
    """Remove the parts from *trial* that may not borrow after those before them."""
    choices, trial.choices = trial.choices, []
    for workload, choice in choices:
        workload_class, leaf = state.pending.class_of(workload.uid), quota.tree.nodes[workload.queue]
        refusal = borrowing.refusal(leaf, workload_class, quota)
        if refusal is None:
            quota.add_assumed(leaf, choice.charge)
            trial.choices.append((workload, choice))
        elif trial.refusal is None:
            trial.refusal = _part_refusal(workload, refusal)


def pending_parts(state: "Engine", gang: HyperJobGang) -> list[Workload]:
    """Return the parts that are pending and inadmissible for capacity only, in order."""
    uids = [uid for uid in state.gangs.parts(gang) if uid in state.pending]
    return sorted((state.workloads[uid] for uid in uids), key=lambda part: (len(part.name), part.name, part.uid))


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
