"""Groups of workloads that are admitted together, and the trial whether enough of their parts fit (G1).

Who is a part is told by the workloads themselves; what is tried leaves no
trace in the books.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.engine.active_reservations import active_reservations
from controller.engine.fit import choose_clusters, free_capacity
from controller.engine.pending import WorkloadClass
from controller.engine.quota import Quota
from controller.engine.reasons import Reason, Refusal
from controller.engine.workloads import Choice, HyperJobGang, Workload, WorkloadState, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.borrowing import BorrowingPolicy
    from controller.engine.feasibility_cache import ClassFeasibility
    from controller.engine.state import State


class HyperJobGangs:
    """The known parts of every group, by state."""

    def __init__(self) -> None:
        self.changed: set[HyperJobGang] = set()
        """Groups of which a part came, went or started since the lanes of their parts were last judged."""
        self.unchecked: set[HyperJobGang] = set()
        """The same since it was last counted whether they have the parts that they need (R1)."""
        self._parts: dict[HyperJobGang, dict[WorkloadUid, WorkloadState]] = {}

    def update(self, before: Workload | None, workload: Workload | None) -> None:
        """Take a workload as it is now in place of what it was *before*; ``None`` where it is not."""
        if before is not None and (workload is None or before.group != workload.group):
            self._remove(before)
        if workload is None or workload.group is None:
            return
        self._add(workload)
        if before is not None and before.hold != workload.hold:
            self._mark_changed(workload.group)

    def _add(self, workload: Workload) -> None:
        if workload.group is not None and self._parts.get(workload.group, {}).get(workload.uid) != workload.state:
            self._parts.setdefault(workload.group, {})[workload.uid] = workload.state
            self._mark_changed(workload.group)

    def _remove(self, workload: Workload) -> None:
        if workload.group is not None and workload.group in self._parts:
            self._parts[workload.group].pop(workload.uid, None)
            self._mark_changed(workload.group)
            if not self._parts[workload.group]:
                del self._parts[workload.group]

    def _mark_changed(self, group: HyperJobGang) -> None:
        self.changed.add(group)
        self.unchecked.add(group)

    def mark_all_changed(self) -> None:
        """Take every group for one that has changed."""
        self.changed.update(self._parts)
        self.unchecked.update(self._parts)

    def parts(self, group: HyperJobGang) -> list[WorkloadUid]:
        """Return the parts that there are, by uid."""
        return sorted(self._parts.get(group, ()))

    def dependents(self, part: Workload, workloads: Mapping[WorkloadUid, Workload]) -> list[Workload]:
        """Return the other admitted parts that must go when *part* does, because too few would be left."""
        if part.group is None:
            return []
        others = [workloads[uid] for uid in self.parts(part.group) if uid != part.uid]
        if sum(other.state is not WorkloadState.PENDING for other in others) >= part.group.minimum:
            return []
        return [other for other in others if other.state is WorkloadState.ADMITTED]

    def missing(self, group: HyperJobGang) -> int:
        """Return how many parts must still start before the others are admitted one by one; 0 for none."""
        started = sum(state is not WorkloadState.PENDING for state in self._parts.get(group, {}).values())
        return max(group.minimum - started, 0)


@dataclass(slots=True)
class GangTrial:
    """Which parts of a group would be admitted where, or which one does not fit."""

    choices: list[tuple[Workload, Choice]] = field(default_factory=list)
    refusal: Refusal | None = None
    """Why too few fit."""


def incomplete_refusal(state: "State", group: HyperJobGang) -> Refusal | None:
    """Return why a group cannot be tried yet: too few of its parts are there and free to run."""
    missing = state.gangs.missing(group)
    here = sum(uid in state.backlog for uid in state.gangs.parts(group))
    if here >= missing:
        return None
    return Refusal(
        Reason.HYPERJOB_INCOMPLETE, subject=f"{missing - here} of at least {group.minimum} parts are missing"
    )


def is_all_or_nothing(state: "State", lane: WorkloadClass) -> bool:
    """Say whether *lane* holds parts that are admitted together with others, or not at all."""
    return lane.group is not None and state.gangs.missing(lane.group) > 1


def try_gang(state: "State", group: HyperJobGang, lending: "BorrowingPolicy | None" = None) -> GangTrial:
    """Try to place the waiting parts of *group* beside one another, in their order; change nothing.

    With *lending* they must also be allowed to borrow what they take beyond
    their queues' entitlements. Where that fails and room is kept for parts of
    it, they are tried once more with those going there.
    """
    parts = pending_parts(state, group)
    trial = _try_parts(state, group, parts, lending)
    kept = [part for part in parts if part.is_reserved_for]
    if trial.refusal is None or not kept:
        return trial
    others = [part for part in parts if not part.is_reserved_for]
    other = _try_parts(state, group, [*kept, *others], lending, to_kept=True)
    return trial if other.refusal is not None else other


def _try_parts(
    state: "State",
    group: HyperJobGang,
    parts: Sequence[Workload],
    lending: "BorrowingPolicy | None",
    *,
    to_kept: bool = False,
) -> GangTrial:
    trial = GangTrial()
    standing, present = state.standing, state.books.present()
    if standing is None:
        return trial
    quotas = [quota.trial() for quota in (standing.quota, present) if quota is not None]
    _place_parts(state, parts, trial, quotas, to_kept=to_kept)
    if lending is not None:
        _drop_parts_that_may_not_borrow(state, trial, lending, standing.quota.trial())
    if len(trial.choices) >= state.gangs.missing(group):
        trial.refusal = None
    return trial


def _place_parts(
    state: "State", parts: Sequence[Workload], trial: GangTrial, quotas: Sequence[Quota], *, to_kept: bool
) -> None:
    """Choose where each part goes, beside those chosen before it."""
    for workload in parts:
        verdict = _place_part(state, workload, quotas, to_kept=to_kept)
        if isinstance(verdict, Choice):
            for quota in quotas:
                quota.carry(quota.tree.nodes[workload.queue], verdict.charge)
            state.begin_trial(workload, verdict)
            trial.choices.append((workload, verdict))
        elif trial.refusal is None:
            trial.refusal = _part_refusal(workload, verdict)
    for workload, choice in trial.choices:
        state.end_trial(workload, choice)


def _place_part(state: "State", workload: Workload, quotas: Sequence[Quota], *, to_kept: bool) -> Choice | Refusal:
    lane = state.backlog.lane(workload.uid)
    if lane.hopeless is not None:
        return lane.hopeless
    if not lane.is_waiting:
        return Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=lane.held)
    overs = (quota.refusal(quota.tree.nodes[lane.queue], lane.charge) for quota in quotas)
    over = next(filter(None, overs), None)
    prospect = state.books.feasibility_cache.get(lane.shape)
    choice = (
        over
        or (_place_on_reservation(state, workload, prospect) if to_kept else None)
        or state.books.feasibility_cache.choose(prospect)
    )
    if isinstance(choice, Choice) and (kept := active_reservations(state)) is not None:
        return kept.resolve(workload, prospect, choice, quotas[0])
    return choice


def _place_on_reservation(state: "State", part: Workload, prospect: "ClassFeasibility") -> Choice | None:
    """Return the room that is kept for *part*, ``None`` where it is not free yet."""
    names = {booking.cluster for booking in part.reserved.rooms} if part.reserved is not None else set()
    rooms = [free_capacity(state.ledger.site(name)) for name in prospect.candidates.names if name in names]
    choice = choose_clusters(part.shape, rooms, prospect.candidates.copies) if rooms else None
    return choice if isinstance(choice, Choice) else None


def _drop_parts_that_may_not_borrow(state: "State", trial: GangTrial, lending: "BorrowingPolicy", quota: Quota) -> None:
    """Leave out of *trial* the parts that may not borrow beside those before them."""
    chosen, trial.choices = trial.choices, []
    for workload, choice in chosen:
        lane, leaf = state.backlog.lane(workload.uid), quota.tree.nodes[workload.queue]
        over = lending.refusal(leaf, lane, quota)
        if over is None:
            quota.carry(leaf, choice.charge)
            trial.choices.append((workload, choice))
        elif trial.refusal is None:
            trial.refusal = _part_refusal(workload, over)


def pending_parts(state: "State", group: HyperJobGang) -> list[Workload]:
    """Return the parts that wait and that nothing but room may hold back, in their order."""
    uids = [uid for uid in state.gangs.parts(group) if uid in state.backlog]
    return sorted((state.workloads[uid] for uid in uids), key=lambda part: (len(part.name), part.name, part.uid))


def _part_refusal(part: Workload, refusal: Refusal) -> Refusal:
    """Return the group's refusal, which names the part and what it lacks."""
    return Refusal(
        Reason.HYPERJOB_DOES_NOT_FIT,
        refusal.resource,
        refusal.asked,
        refusal.available,
        queue=refusal.queue,
        cluster=refusal.cluster,
        subject=f"{part.path} ({refusal.reason})",
    )
