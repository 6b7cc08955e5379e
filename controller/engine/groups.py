"""Groups of workloads that are admitted together, and the trial whether enough of their parts fit (G1).

Who is a part is told by the workloads themselves; what is tried leaves no
trace in the books.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.engine.reasons import Reason, Refusal
from controller.engine.tree import Node
from controller.engine.workloads import Choice, Group, State, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.world import World


class Groups:
    """The known parts of every group, by state."""

    def __init__(self) -> None:
        self.changed: set[Group] = set()
        """Groups of which a part came, went or started since this was last emptied."""
        self._parts: dict[Group, dict[WorkloadUid, State]] = {}

    def put(self, workload: Workload) -> None:
        """Take a workload as it is now."""
        if workload.group is not None and self._parts.get(workload.group, {}).get(workload.uid) != workload.state:
            self._parts.setdefault(workload.group, {})[workload.uid] = workload.state
            self.changed.add(workload.group)

    def drop(self, workload: Workload) -> None:
        """Forget a workload as it was."""
        if workload.group is not None and workload.group in self._parts:
            self._parts[workload.group].pop(workload.uid, None)
            self.changed.add(workload.group)
            if not self._parts[workload.group]:
                del self._parts[workload.group]

    def parts(self, group: Group) -> list[WorkloadUid]:
        """Return the parts that there are, by uid."""
        return sorted(self._parts.get(group, ()))

    def missing(self, group: Group) -> int:
        """Return how many parts must still start before the others are admitted one by one; 0 for none."""
        started = sum(state is not State.PENDING for state in self._parts.get(group, {}).values())
        return max(group.minimum - started, 0)


@dataclass(slots=True)
class Trial:
    """Which parts of a group would be admitted where, or which one does not fit."""

    chosen: list[tuple[Workload, Node, Choice]] = field(default_factory=list)
    refusal: Refusal | None = None
    """Why too few fit."""


def incomplete(world: "World", group: Group) -> Refusal | None:
    """Return why a group cannot be tried yet: too few of its parts are there and free to run."""
    missing = world.groups.missing(group)
    here = sum(uid in world.backlog for uid in world.groups.parts(group))
    if here >= missing:
        return None
    return Refusal(Reason.GROUP_INCOMPLETE, subject=f"{missing - here} of at least {group.minimum} parts are missing")


def attempt(world: "World", group: Group) -> Trial:
    """Try to place the waiting parts of *group* beside one another, in their order; change nothing."""
    trial = Trial()
    standing = world.standing
    if standing is None:
        return trial
    for workload in _waiting(world, group):
        lane = world.backlog.lane(workload.uid)
        leaf = standing.quota.tree.nodes[lane.queue]
        over = lane.hopeless or standing.quota.refusal(leaf, lane.charge)
        verdict = over or world.books.prospects.choice(world.books.prospects.of(lane.shape))
        if isinstance(verdict, Choice):
            standing.quota.carry(leaf, verdict.charge)
            world.ledger.lend(verdict.bookings)
            trial.chosen.append((workload, leaf, verdict))
        elif trial.refusal is None:
            trial.refusal = _names(workload, verdict)
    for _, leaf, choice in trial.chosen:
        standing.quota.carry(leaf, {name: -amount for name, amount in choice.charge.items()})
        world.ledger.take_back(choice.bookings)
    if len(trial.chosen) >= world.groups.missing(group):
        trial.refusal = None
    return trial


def _waiting(world: "World", group: Group) -> Iterable[Workload]:
    uids = [uid for uid in world.groups.parts(group) if uid in world.backlog]
    return sorted((world.workloads[uid] for uid in uids), key=lambda part: (len(part.name), part.name, part.uid))


def _names(part: Workload, refusal: Refusal) -> Refusal:
    """Return the group's refusal, which names the part and what it lacks."""
    return Refusal(
        Reason.GROUP_PART_DOES_NOT_FIT,
        refusal.resource,
        refusal.asked,
        refusal.available,
        queue=refusal.queue,
        cluster=refusal.cluster,
        subject=f"{part.path} ({refusal.reason})",
    )
